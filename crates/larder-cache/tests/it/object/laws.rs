//! The laws of one cache's object, as far as a single object can break them. Each function has its law above it.
//!
//! Laws of a step are checked by the environment. Laws of a whole future ([`no_waiting_on_a_client`], [`no_leak`]) are
//! checked by the exploration once all states are known.

use crate::object::{
    environment::{Phase, State, World, bits, chunk_span, cursor},
    scenario::{LEN, SIZES, Scenario, Start, byte_of},
};
use bytes::Bytes;
use larder_cache::object::{CursorEnd, OriginAsk, PromiseRule, RunId};
use std::ops::Range;

/// Longest wait of a client that takes its bytes, while the others stand and nothing has failed: the time after which a
/// client counts as standing, and a tick.
const LONGEST_WAIT_MS: u64 = 2_000;
/// The same, if only the slowest client can set the pace: P3's ten seconds come on top.
const LONGEST_WAIT_INDIVISIBLE_MS: u64 = 12_000;
/// Least time that the store has while a client waits for memory.
const PATIENCE_MS: u64 = 500;
const WHOLE_RESPONSES_MAX: u64 = 2;
const MISSES_MAX: u8 = 5;

/// A law that was broken, and how.
#[derive(Clone, Debug)]
pub(crate) struct Breach {
    pub(crate) law: &'static str,
    pub(crate) how: String,
}

impl Breach {
    pub(crate) fn new(law: &'static str, how: String) -> Self {
        Self { law, how }
    }
}

fn require(is_kept: bool, law: &'static str, how: impl FnOnce() -> String) -> Result<(), Breach> {
    if is_kept { Ok(()) } else { Err(Breach::new(law, how())) }
}

/// Law 1. A client's bytes are a prefix (if ended well, all) of one origin version's selection.
pub(crate) fn no_mixture(bytes: &Bytes, version: u8, selection: &[u64]) -> Result<(), Breach> {
    let is_prefix = bytes.len() <= selection.len()
        && bytes.iter().zip(selection).all(|(byte, position)| *byte == byte_of(version, *position));
    require(is_prefix, "1 no mixture", || {
        format!("a client gets {bytes:?}, and {selection:?} of version {version} is next in its selection")
    })
}

/// Law 1, of the store. A stored chunk is whole, and its bytes are the object's.
pub(crate) fn stored_chunk_is_of_one_version(span: Range<u64>, pieces: &[Bytes]) -> Result<(), Breach> {
    let bytes: Vec<u8> = pieces.iter().flatten().copied().collect();
    let expected: Vec<u8> = span.clone().map(|position| byte_of(0, position)).collect();
    require(bytes == expected, "1 no mixture", || format!("{bytes:?} is stored as the chunk {span:?}"))
}

/// Law 1, of the origin. A run whose validator differs leaves the object.
pub(crate) fn other_version_leaves(world: &World, run: RunId, version: u8, scenario: &Scenario) -> Result<(), Breach> {
    let is_out = world.find(run).is_none();
    require(version == 0 || is_out || !scenario.origin.has_validator, "1 no mixture", || {
        format!("{run:?} has another validator, and stays")
    })
}

/// Law 1, of lies. A response that states another start or length than it may, or brings more bytes, is stopped.
pub(crate) fn lie_ends_its_run(world: &World, run: RunId) -> Result<(), Breach> {
    require(world.find(run).is_none(), "1 no mixture", || format!("{run:?} lied, and goes on"))
}

/// Law 3, of the store. A stored whole needs a version that was sent to its end. A part may be announced once a chunk
/// is stored and the body can be continued. Nothing is committed of an outdated object.
pub(crate) fn complete_or_error(world: &World, is_whole: bool, scenario: &Scenario) -> Result<(), Breach> {
    const LAW: &str = "3 complete or error";
    require(!world.is_outdated, LAW, || "a head is committed after Outdated".to_owned())?;
    require(is_stored(scenario), LAW, || "the head of an unstored object is committed".to_owned())?;
    if !is_whole {
        let is_divisible = scenario.origin.has_validator && scenario.origin.knows_len && scenario.origin.claims_ranges;
        require(is_divisible, LAW, || "a part is announced that cannot be continued".to_owned())?;
        return require(world.ever_stored != 0, LAW, || "a part is announced, and no chunk is stored".to_owned());
    }
    let was_stored = matches!(scenario.start, Start::Stored { .. });
    require(world.ever_stored == bits(0..LEN), LAW, || "a whole is announced before all chunks are stored".to_owned())?;
    require(world.has_end || was_stored, LAW, || "a whole is announced that has not ended as announced".to_owned())
}

/// Law 3, of clients. A clean end needs all bytes of the selection, and if the selection reaches the body's end, a
/// version that was sent to its end.
pub(crate) fn clean_end_is_complete(
    world: &World,
    client: usize,
    end: CursorEnd,
    scenario: &Scenario,
) -> Result<(), Breach> {
    const LAW: &str = "3 complete or error";
    if end != CursorEnd::Whole {
        return Ok(());
    }
    let selection = &scenario.clients[client].selection;
    let taken = usize::from(world.clients[client].taken);
    require(world.clients[client].phase == Phase::Promised, LAW, || format!("client {client} ends before a promise"))?;
    require(taken == selection.len(), LAW, || {
        format!("client {client} ends whole after {taken} of {} bytes", selection.len())
    })?;
    let reaches_end = selection.last() == Some(&(LEN - 1));
    require(!reaches_end || world.has_end || world.ever_stored & bits(LEN - 1..LEN) != 0, LAW, || {
        format!("client {client} ends whole, and no response has ended as announced")
    })
}

/// Law 6. Received are at most 1.3 times the chunks that were wanted, and `lead` for each run that was stopped; without
/// ranges there are at most two whole responses, and one for each run that was stopped.
///
/// Says nothing once origin or store have failed, nothing is stored, or the share was too small: then bytes must come
/// again.
pub(crate) fn cheap(world: &World, scenario: &Scenario) -> Result<(), Breach> {
    const LAW: &str = "6 cheap";
    if !is_counted(world, scenario) {
        return Ok(());
    }
    let ledger = &world.ledger;
    if !scenario.origin.takes_ranges {
        return require(ledger.whole_responses <= WHOLE_RESPONSES_MAX + ledger.aborted, LAW, || {
            format!("the origin sends the whole body {} times", ledger.whole_responses)
        });
    }
    let wanted = u64::from(ledger.wanted.count_ones()) * SIZES.chunk;
    require(ledger.received * 10 <= wanted * 13 + ledger.aborted * SIZES.lead * 10, LAW, || {
        format!("{} bytes came, {wanted} were wanted, {} runs were aborted", ledger.received, ledger.aborted)
    })
}

/// Returns whether law 6 says anything of this history.
pub(crate) fn is_counted(world: &World, scenario: &Scenario) -> bool {
    let is_ample = scenario.budget >= LEN && scenario.purse.squeezes == 0;
    is_stored(scenario) && is_ample && !world.was_hurt && !world.has_given_up && !world.is_outdated
}

/// Returns whether the object is to be stored.
fn is_stored(scenario: &Scenario) -> bool {
    !matches!(scenario.start, Start::Arriving { is_stored: false, .. })
}

/// Law 7. Memory is at most the budget and the least share of an object with a cursor, at every step.
///
/// One block may always be read, and a run is paused only after a piece has come, so a block and a piece come on top. If
/// the share is a chunk, one chunk may exceed it while it is completed for the store. Reads count from when they are
/// asked for. A share that shrinks frees nothing that is owed to clients: an event must not make it worse, except that
/// one read may begin for a client that moves.
pub(crate) fn memory(state: &State, reserved_before: u64, scenario: &Scenario) -> Result<(), Breach> {
    let reserved = state.reserved();
    let share = state.world.budget.max(SIZES.least);
    let is_completing = is_stored(scenario) && !state.world.has_given_up && share >= SIZES.chunk;
    let excess = if is_completing { SIZES.chunk } else { 0 };
    let limit = share + excess + SIZES.block + scenario.piece;
    let is_one_read = state.world.reads.len() == 1 && state.core.held_bytes() <= reserved_before;
    require(reserved <= limit.max(reserved_before) || is_one_read, "7 memory", || {
        format!("{reserved} bytes are held or read, with a share of {} (before: {reserved_before})", state.world.budget)
    })
}

/// Law 8. If no event is due, nobody waits: a client that sleeps has nothing to take, and something is due that can
/// wake it.
pub(crate) fn woken_or_answered(state: &State) -> Result<(), Breach> {
    const LAW: &str = "8 woken or answered";
    let is_due = state.world.is_work_due() || !state.world.timers.is_empty();
    for (number, client) in state.world.clients.iter().enumerate() {
        if !client.is_attached() || client.is_awake {
            continue;
        }
        let bytes = state.core.bytes_at(cursor(number));
        require(bytes.is_none(), LAW, || format!("client {number} sleeps, and {bytes:?} are there"))?;
        require(is_due, LAW, || format!("client {number} waits, and nothing is due"))?;
    }
    Ok(())
}

/// Law 9. A promise is kept unless origin or store break it later. Without a promise, only a failure ends a client
/// with an error; with one, nobody is sent away.
pub(crate) fn promise_is_kept(world: &World, client: usize, end: CursorEnd) -> Result<(), Breach> {
    const LAW: &str = "9 a promise is kept";
    let own = &world.clients[client];
    require(own.is_attached(), LAW, || format!("{end:?} for client {client}, who is gone"))?;
    let has_promise = own.phase == Phase::Promised;
    match end {
        CursorEnd::Whole => Ok(()),
        CursorEnd::Broken => require(own.is_hurt, LAW, || format!("client {client} is broken off without a failure")),
        CursorEnd::TooSlow => {
            require(own.is_awake, LAW, || format!("client {client} is too slow, and has nothing to take"))
        }
        CursorEnd::MoveOver => require(!has_promise && (own.is_hurt || world.is_outdated), LAW, || {
            format!("client {client} is to move over (promise: {has_promise})")
        }),
        CursorEnd::AskAlone => {
            require(!has_promise, LAW, || format!("client {client} is to ask alone, and has a promise"))
        }
    }
}

/// Law 9, of giving one. A head goes out when every byte is present, or in responses whose heads have come with this
/// validator and length.
pub(crate) fn promise_is_covered(world: &World, client: usize, scenario: &Scenario) -> Result<(), Breach> {
    const LAW: &str = "9 a promise is kept";
    require(world.clients[client].phase == Phase::AwaitsPromise, LAW, || {
        format!("client {client} gets a promise, and is {:?}", world.clients[client].phase)
    })?;
    let reader = &scenario.clients[client];
    let is_early = reader.terms.promise == PromiseRule::First && reader.terms.may_ask;
    let needed = &reader.selection[..if is_early { 1 } else { reader.selection.len() }];
    let covered = world.covered();
    let gap = needed.iter().find(|position| covered & 1 << **position == 0);
    require(gap.is_none(), LAW, || format!("client {client} gets a promise, and nobody has byte {gap:?}"))?;
    let doubt = needed.iter().find(|position| world.doubted & !world.without_store() & 1 << **position != 0);
    require(doubt.is_none(), LAW, || format!("client {client} gets a promise, and byte {doubt:?} is doubtful"))
}

/// Of terms: a request has a cause. Clients that may ask, or the cache itself, want something.
pub(crate) fn ask_has_a_cause(world: &World, scenario: &Scenario) -> Result<(), Breach> {
    let mut clients = world.clients.iter().zip(&scenario.clients);
    let is_caused = clients.any(|(client, reader)| client.is_attached() && reader.terms.may_ask);
    require(is_caused || world.is_kept, "orderly", || "a request is sent for clients that may cause none".to_owned())
}

/// Of the contract: a request names bytes that exist, and runs have names of their own.
pub(crate) fn ask_is_sensible(world: &World, run: RunId, ask: &OriginAsk) -> Result<(), Breach> {
    require(world.find(run).is_none(), "orderly", || format!("{run:?} is asked for twice"))?;
    let OriginAsk::Range { span, .. } = ask else { return Ok(()) };
    let is_sensible = span.start < span.end && span.start < LEN && (span.end <= LEN || span.end == u64::MAX);
    require(is_sensible, "orderly", || format!("{run:?} asks for {span:?} of {LEN} bytes"))
}

/// Of the contract: actions name runs that have not ended.
pub(crate) fn run_is_live(world: &World, run: RunId) -> Result<(), Breach> {
    require(world.find(run).is_some(), "orderly", || format!("{run:?} has ended, and an action names it"))
}

/// Of the contract: a run leaves the object only if its head has come and is another version's, or has no validator.
pub(crate) fn only_another_version_leaves(world: &World, run: RunId, scenario: &Scenario) -> Result<(), Breach> {
    let response = world.find(run).and_then(|exchange| exchange.response.as_ref());
    let is_other = response.is_some_and(|response| response.version != 0 || !scenario.origin.has_validator);
    require(is_other, "orderly", || format!("{run:?} leaves as another representation, and is none"))
}

/// Of the contract: a probe, read or write of a chunk is not begun while the same is under way.
pub(crate) fn is_asked_once(outstanding: u8, chunk: u64, action: &str) -> Result<(), Breach> {
    let is_new = chunk < LEN.div_ceil(SIZES.chunk) && outstanding & 1 << chunk == 0;
    require(is_new, "orderly", || format!("{action}({chunk}) is under way, or there is no such chunk"))
}

/// Of the contract: a read is of one chunk, of bytes that the store may have, and not under way. Unless it is all that
/// the store has of the chunk, it consists of blocks.
pub(crate) fn read_is_orderly(world: &World, range: &Range<u64>) -> Result<(), Breach> {
    let is_new = world.reads.iter().all(|other| other.end <= range.start || range.end <= other.start);
    let is_in_one = range.start < range.end && range.start / SIZES.chunk == (range.end - 1) / SIZES.chunk;
    require(is_new && is_in_one, "orderly", || format!("{range:?} is read, while {:?} are", world.reads))
}

/// Of the contract: a part is of one chunk, which is not being stored. Returns its span.
pub(crate) fn part_is_orderly(world: &World, chunk: u64, start: u64, pieces: &[Bytes]) -> Result<Range<u64>, Breach> {
    let part = start..start + pieces.iter().map(|piece| piece.len() as u64).sum::<u64>();
    let span = chunk_span(chunk);
    let is_proper = part.start < part.end && part != span && span.start <= part.start && part.end <= span.end;
    let is_free = world.stores & 1 << chunk == 0 && world.parts.iter().all(|other| other.start / SIZES.chunk != chunk);
    let is_news = bits(part.clone()) & !world.present != 0;
    require(is_proper && is_free && is_news, "orderly", || {
        format!("{part:?} is stored as a part of the chunk {chunk}")
    })?;
    Ok(part)
}

/// Of the contract: an object that is not to be stored, or has given up, stores nothing. A skipped chunk is not offered
/// again.
pub(crate) fn stores_only_what_is_wanted(world: &World, chunk: u64, scenario: &Scenario) -> Result<(), Breach> {
    require(is_stored(scenario) && !world.has_given_up, "orderly", || {
        "an object that stores nothing stores".to_owned()
    })?;
    require(world.skipped & (1 << chunk) == 0, "orderly", || format!("chunk {chunk} is stored, and was skipped"))
}

/// Law 2. Without the standing clients of a history, nobody's bytes would come earlier than by a tick (P3's 10 s
/// excepted): a client that takes its bytes gets to its end although the others stand still.
///
/// `waited_ms` is how long the way to its end takes, and `None` if it never comes.
pub(crate) fn no_waiting_on_a_client(
    client: usize,
    waited_ms: Option<u64>,
    was_hurt: bool,
    scenario: &Scenario,
) -> Result<(), Breach> {
    const LAW: &str = "2 no waiting on a client";
    let Some(waited_ms) = waited_ms else {
        return Err(Breach::new(LAW, format!("client {client} takes all it can, and never ends")));
    };
    let origin = &scenario.origin;
    // The bytes of a client that may cause no request do not come again either.
    let may_all_ask = scenario.clients.iter().all(|reader| reader.terms.may_ask);
    let is_divisible = origin.has_validator && origin.knows_len && origin.takes_ranges && may_all_ask;
    let longest_ms = if is_divisible { LONGEST_WAIT_MS } else { LONGEST_WAIT_INDIVISIBLE_MS };
    require(was_hurt || waited_ms <= longest_ms, LAW, || format!("client {client} waits for {waited_ms} ms"))
}

/// Law 2, of bytes that come and go. A client that takes its bytes when they are there is not woken for nothing again
/// and again. One that is slow misses them once, and once more for each shrinking of the share.
pub(crate) fn finds_what_it_was_woken_for(world: &World, client: usize) -> Result<(), Breach> {
    let misses = world.clients[client].misses;
    require(misses <= MISSES_MAX, "2 no waiting on a client", || {
        format!("client {client} is woken and finds nothing, for the {misses}th time")
    })
}

/// Law 10. Nothing is lost without reason: at rest, the store has of each chunk as much as came in one piece. Not of the
/// last one, which is dropped if nothing proves that it is the end.
///
/// Says nothing where the store fails, the origin changes, or what came may be dropped before it is stored.
pub(crate) fn nothing_is_lost(world: &World, scenario: &Scenario) -> Result<(), Breach> {
    let purse = &scenario.purse;
    let misfortunes = purse.losses + purse.troubles + purse.refusals + purse.skips + purse.changes + purse.lies;
    let origin = &scenario.origin;
    let is_divisible = origin.has_validator && origin.knows_len && origin.takes_ranges;
    let is_ample = scenario.budget >= LEN && purse.squeezes == 0;
    // What is read to complete a stored part may have come when the rest had gone.
    let has_parts = match &scenario.start {
        Start::Stored { missing } => missing.iter().any(|gap| (gap.start | gap.end) % SIZES.chunk != 0),
        Start::Arriving { .. } => false,
    };
    let is_storing = is_stored(scenario) && !world.has_given_up && !world.is_outdated;
    if misfortunes > 0 || has_parts || !is_divisible || !is_ample || !is_storing {
        return Ok(());
    }
    for chunk in 0..LEN.div_ceil(SIZES.chunk) - 1 {
        let span = chunk_span(chunk);
        let came = longest_run(span.clone().map(|position| world.came & (1 << position) != 0));
        let stored = (world.present & bits(span)).count_ones();
        require(stored >= came, "10 nothing is lost", || {
            format!("{came} bytes of chunk {chunk} came in one piece, and {stored} are stored")
        })?;
    }
    Ok(())
}

/// Law 10, of patience. Storing is given up because the store refused, or because a client waited while memory is short.
pub(crate) fn gives_up_for_a_reason(world: &World, scenario: &Scenario) -> Result<(), Breach> {
    let has_refused = world.purse.refusals < scenario.purse.refusals;
    let had_time = world.budget < LEN && world.now >= PATIENCE_MS;
    require(has_refused || had_time, "10 nothing is lost", || {
        format!("storing is given up after {} ms, and the store has not refused", world.now)
    })
}

fn longest_run(bytes: impl Iterator<Item = bool>) -> u32 {
    let mut longest = 0;
    let mut run = 0;
    for is_there in bytes {
        run = if is_there { run + 1 } else { 0 };
        longest = longest.max(run);
    }
    longest
}

/// Law 11. When all clients have left and nothing is wanted, the object is at rest after its timers: no run, no timer.
pub(crate) fn no_leak(is_at_rest: bool) -> Result<(), Breach> {
    require(is_at_rest, "11 no leak", || "everybody has left, and the object does not come to rest".to_owned())
}
