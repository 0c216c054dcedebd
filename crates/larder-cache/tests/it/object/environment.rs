//! The world around a `Core`: three clients, an origin and a store, with every outcome that a scenario allows.
//!
//! The world keeps what an observer can know (bytes that came, chunks that are stored, clients that sleep) and checks
//! the laws at each step. It reads nothing of the core but its public interface. Misfortunes are counted in a purse
//! ([`Purse`]), so that every scenario is finite; whether one happens is decided when the response to an action is due,
//! which is as late as the core can notice it.

use crate::object::{
    laws::{self, Breach},
    scenario::{LEN, OriginKind, Purse, SIZES, Scenario, Start, byte_of},
};
use bytes::Bytes;
use larder_cache::object::{
    Action, Actions, Arrival, Core, CursorEnd, CursorId, Event, Head, OriginAsk, ProbeEnd, ReadEnd, RunId, Spans,
    StoreEnd, Tick,
};
use std::ops::Range;

/// Time at which a trace that never comes to rest is cut off: its core sets timers for ever.
const LATEST_MS: u64 = 300_000;

/// No client comes later: what the first second leaves behind (a stopped run, a standing client) is all that time does.
const LATEST_ATTACH_MS: u64 = 1_000;

/// A client that so often came too late for its bytes takes them before anything else happens. So a trace cannot go on
/// for ever with a client that is slow each time.
const MISSES_BEFORE_HASTE: u8 = 1;

/// A head as the model's origin sends it. Versions differ in their validators, if they have any.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ModelHead {
    validator: Option<[u8; 1]>,
    len: Option<u64>,
    takes_ranges: bool,
    is_updated: bool,
}

impl Head for ModelHead {
    fn validator(&self) -> Option<&[u8]> {
        self.validator.as_ref().map(|octets| &octets[..])
    }

    fn len(&self) -> Option<u64> {
        self.len
    }

    fn is_divisible(&self) -> bool {
        self.validator.is_some() && self.len.is_some() && self.takes_ranges
    }
}

/// Returns the head of a version of the body.
fn head_of(version: u8, origin: &OriginKind) -> ModelHead {
    ModelHead {
        validator: origin.has_validator.then_some([b'a' + version]),
        len: origin.knows_len.then_some(LEN),
        takes_ranges: origin.claims_ranges,
        is_updated: false,
    }
}

/// What a client does with the core's cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    NotThere,
    AwaitsPromise,
    Promised,
    Gone,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Client {
    pub(crate) phase: Phase,
    /// Bytes of its selection that it has taken.
    pub(crate) taken: u8,
    /// It is awake because of a `Wake`, so it expects bytes.
    pub(crate) is_woken: bool,
    /// Times that it found nothing although it was woken.
    pub(crate) misses: u8,
    /// It polls `bytes_at` next. A client that sleeps waits for `Wake`.
    pub(crate) is_awake: bool,
    /// Origin or store failed since the promise, or ever if there is no promise yet.
    pub(crate) is_hurt: bool,
}

impl Client {
    pub(crate) fn is_attached(&self) -> bool {
        matches!(self.phase, Phase::AwaitsPromise | Phase::Promised)
    }
}

/// A response of the origin, or a request without one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Exchange {
    pub(crate) id: RunId,
    pub(crate) ask: OriginAsk,
    pub(crate) response: Option<Response>,
    pub(crate) is_paused: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Response {
    pub(crate) version: u8,
    pub(crate) is_whole: bool,
    pub(crate) start: u64,
    pub(crate) position: u64,
    pub(crate) end: u64,
}

/// How a response's head states its span and length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum HeadKind {
    True,
    /// The origin has another version from this response on.
    OtherVersion,
    /// A 206 that ends before the asked end, which an origin may send.
    Short,
    WrongStart,
    WrongLength,
}

/// One step of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Attach(usize),
    Take(usize),
    Leave(usize),
    Probed(u64, ReadKind),
    Unsure(u64),
    /// The read that begins at a byte.
    Read(u64, ReadKind),
    Stored(u64, StoreEnd),
    /// The write of the part of a chunk that begins at a byte.
    StoredPart(u64, StoreEnd),
    Head(RunId, HeadKind),
    Bytes(RunId),
    TooManyBytes(RunId),
    End(RunId),
    Break(RunId),
    Update,
    Outdate,
    Squeeze,
    Release,
    Keep,
    Tick,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ReadKind {
    Found,
    Absent,
    Trouble,
}

/// Everything outside of the core.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct World {
    pub(crate) now: u64,
    pub(crate) timers: Vec<u64>,
    pub(crate) clients: Vec<Client>,
    pub(crate) exchanges: Vec<Exchange>,
    /// Chunks with an outstanding probe or store, by bit.
    pub(crate) probes: u8,
    pub(crate) stores: u8,
    /// Outstanding reads, and writes of parts of chunks.
    pub(crate) reads: Vec<Range<u64>>,
    pub(crate) parts: Vec<Range<u64>>,
    /// Bytes that the store has, and those that it had at any time, by bit.
    pub(crate) present: u32,
    pub(crate) ever_stored: u32,
    /// Bytes of the object's version that came from the origin or from the store, by bit.
    pub(crate) came: u32,
    /// Bytes of which the driver said that the store may have lost them, until a probe or a write.
    pub(crate) doubted: u32,
    /// Chunks that the driver does not keep, by bit.
    pub(crate) skipped: u8,
    /// A response of the object's version that reaches the body's end has ended as announced.
    pub(crate) has_end: bool,
    pub(crate) origin_version: u8,
    pub(crate) purse: Purse,
    /// Origin or store failed at any time.
    pub(crate) was_hurt: bool,
    pub(crate) is_outdated: bool,
    pub(crate) is_kept: bool,
    pub(crate) has_given_up: bool,
    pub(crate) budget: u64,
    pub(crate) ledger: Ledger,
}

/// What law 6 counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Ledger {
    pub(crate) received: u64,
    pub(crate) aborted: u64,
    pub(crate) whole_responses: u64,
    /// Chunks that a client or `Keep` has wanted, by bit.
    pub(crate) wanted: u8,
}

/// A core in its world.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(crate) core: Core<ModelHead>,
    pub(crate) world: World,
}

/// What happened, for a readable trace.
pub(crate) type Journal = Vec<String>;

pub(crate) fn cursor(client: usize) -> CursorId {
    CursorId(client as u32)
}

pub(crate) fn bits(range: Range<u64>) -> u32 {
    (range.start..range.end.min(LEN)).fold(0, |bits, position| bits | 1 << position)
}

fn chunk_bits(range: Range<u64>) -> u8 {
    let end = range.end.min(LEN).div_ceil(SIZES.chunk);
    (range.start / SIZES.chunk..end).fold(0, |bits, chunk| bits | 1 << chunk)
}

pub(crate) fn chunk_span(chunk: u64) -> Range<u64> {
    chunk * SIZES.chunk..((chunk + 1) * SIZES.chunk).min(LEN)
}

fn body_of(version: u8, span: Range<u64>) -> Bytes {
    span.map(|position| byte_of(version, position)).collect()
}

impl State {
    /// Builds the first state of a scenario: the first client, because of whom there is an object, is attached. The
    /// object's version is 0.
    pub(crate) fn first(scenario: &Scenario) -> Result<Self, Breach> {
        let head = head_of(0, &scenario.origin);
        let mut world = World {
            now: 0,
            timers: Vec::new(),
            clients: vec![Client::away(Phase::NotThere); scenario.clients.len()],
            exchanges: Vec::new(),
            probes: 0,
            stores: 0,
            reads: Vec::new(),
            parts: Vec::new(),
            present: 0,
            ever_stored: 0,
            came: 0,
            doubted: 0,
            skipped: 0,
            has_end: false,
            origin_version: 0,
            purse: scenario.purse.clone(),
            was_hurt: false,
            is_outdated: false,
            is_kept: false,
            has_given_up: false,
            budget: scenario.budget,
            ledger: Ledger::default(),
        };
        let core = match scenario.start.clone() {
            Start::Stored { missing } => {
                world.present = missing.into_iter().fold(bits(0..LEN), |present, gap| present & !bits(gap));
                world.ever_stored = world.present;
                Core::stored(SIZES, head)
            }
            Start::Arriving { span, is_whole, is_stored } => {
                let end = if is_whole && !scenario.origin.knows_len { u64::MAX } else { span.end };
                let (core, id) = Core::arriving(SIZES, head, span.start..end, is_whole, is_stored);
                let ask =
                    if is_whole { OriginAsk::Whole } else { OriginAsk::Range { span: span.clone(), if_range: false } };
                let response =
                    Response { version: 0, is_whole, start: span.start, position: span.start, end: span.end };
                world.ledger.whole_responses = u64::from(is_whole);
                world.ledger.wanted = chunk_bits(span);
                world.exchanges.push(Exchange { id, ask, response: Some(response), is_paused: false });
                core
            }
        };
        let mut state = Self { core, world };
        state.feed(Event::Budget(scenario.budget), scenario, &mut Journal::new())?;
        state.attach(0, scenario, &mut Journal::new())?;
        Ok(state)
    }

    /// Returns every step that can be next.
    pub(crate) fn steps(&self, scenario: &Scenario) -> Vec<Step> {
        if let Some(client) = self.world.hasty_client() {
            return vec![Step::Take(client)];
        }
        let mut steps = Vec::new();
        self.client_steps(scenario, &mut steps);
        self.store_steps(&mut steps);
        for exchange in &self.world.exchanges {
            self.origin_steps(exchange, scenario, &mut steps);
        }
        let purse = &self.world.purse;
        if purse.updates > 0 {
            steps.push(Step::Update);
        }
        if purse.outdates > 0 {
            steps.push(Step::Outdate);
        }
        if purse.squeezes > 0 && self.world.budget == scenario.budget {
            steps.push(Step::Squeeze);
        }
        if self.world.budget != scenario.budget {
            steps.push(Step::Release);
        }
        if purse.keeps > 0 && !self.world.is_kept {
            steps.push(Step::Keep);
        }
        let is_free = !self.world.is_work_due() || self.world.is_unwanted();
        if !self.world.timers.is_empty() && self.world.now < LATEST_MS && (is_free || purse.early_ticks > 0) {
            steps.push(Step::Tick);
        }
        steps
    }

    fn client_steps(&self, scenario: &Scenario, steps: &mut Vec<Step>) {
        for (number, client) in self.world.clients.iter().enumerate() {
            match client.phase {
                Phase::NotThere => {
                    // Clients come in the scenario's order; another order is another scenario.
                    if !self.world.is_outdated && self.world.now <= LATEST_ATTACH_MS {
                        steps.push(Step::Attach(number));
                    }
                    break;
                }
                Phase::AwaitsPromise | Phase::Promised => {
                    if client.is_awake {
                        steps.push(Step::Take(number));
                    }
                    if number < scenario.leavers {
                        steps.push(Step::Leave(number));
                    }
                }
                Phase::Gone => {}
            }
        }
    }

    fn store_steps(&self, steps: &mut Vec<Step>) {
        let world = &self.world;
        for chunk in 0..LEN.div_ceil(SIZES.chunk) {
            let bit = 1 << chunk;
            let is_present = world.present & bits(chunk_span(chunk)) != 0;
            if world.probes & bit != 0 {
                let answer = |kind| Step::Probed(chunk, kind);
                self.answers(is_present, answer, steps);
            }
            if world.stores & bit != 0 {
                self.write_ends(|end| Step::Stored(chunk, end), steps);
            }
            if is_present && world.purse.doubts > 0 {
                steps.push(Step::Unsure(chunk));
            }
        }
        for range in &world.reads {
            let is_present = world.present & bits(range.clone()) == bits(range.clone());
            self.answers(is_present, |kind| Step::Read(range.start, kind), steps);
        }
        for part in &world.parts {
            self.write_ends(|end| Step::StoredPart(part.start, end), steps);
        }
    }

    /// Adds the ends of a write, the good one first.
    fn write_ends(&self, answer: impl Fn(StoreEnd) -> Step, steps: &mut Vec<Step>) {
        steps.push(answer(StoreEnd::Done));
        if self.world.purse.refusals > 0 {
            steps.push(answer(StoreEnd::Refused));
        }
        if self.world.purse.skips > 0 {
            steps.push(answer(StoreEnd::Skipped));
        }
    }

    /// Adds the store's answers to a probe or a read, the true one first.
    fn answers(&self, is_present: bool, answer: impl Fn(ReadKind) -> Step, steps: &mut Vec<Step>) {
        steps.push(answer(if is_present { ReadKind::Found } else { ReadKind::Absent }));
        if is_present && self.world.purse.losses > 0 {
            steps.push(answer(ReadKind::Absent));
        }
        if self.world.purse.troubles > 0 {
            steps.push(answer(ReadKind::Trouble));
        }
    }

    fn origin_steps(&self, exchange: &Exchange, scenario: &Scenario, steps: &mut Vec<Step>) {
        let purse = &self.world.purse;
        let id = exchange.id;
        if purse.breaks > 0 {
            steps.push(Step::Break(id));
        }
        let Some(response) = &exchange.response else {
            steps.push(Step::Head(id, HeadKind::True));
            if purse.changes > 0 {
                steps.push(Step::Head(id, HeadKind::OtherVersion));
            }
            let OriginAsk::Range { span, .. } = &exchange.ask else { return };
            if !scenario.origin.takes_ranges {
                return;
            }
            if purse.shorts > 0 && span.end.min(LEN) - span.start > 1 {
                steps.push(Step::Head(id, HeadKind::Short));
            }
            if purse.lies > 0 {
                steps.push(Step::Head(id, HeadKind::WrongStart));
                steps.push(Step::Head(id, HeadKind::WrongLength));
            }
            return;
        };
        if exchange.is_paused {
            return;
        }
        if response.position < response.end {
            steps.push(Step::Bytes(id));
        } else {
            steps.push(Step::End(id));
            let announces_len = scenario.origin.knows_len || !response.is_whole;
            if purse.lies > 0 && announces_len {
                steps.push(Step::TooManyBytes(id));
            }
        }
    }

    /// Takes a step, and checks the laws that can be checked at a step.
    pub(crate) fn take(&mut self, step: Step, scenario: &Scenario, journal: &mut Journal) -> Result<(), Breach> {
        match step {
            Step::Attach(client) => self.attach(client, scenario, journal),
            Step::Take(client) => self.take_bytes(client, scenario, journal),
            Step::Leave(client) => {
                self.world.clients[client].leave();
                self.feed(Event::Left(cursor(client)), scenario, journal)
            }
            Step::Probed(chunk, kind) => self.probed(chunk, kind, scenario, journal),
            Step::Unsure(chunk) => {
                self.world.purse.doubts -= 1;
                let is_read = self.world.reads.iter().any(|range| range.start / SIZES.chunk == chunk);
                self.world.doubted |= if is_read { 0 } else { bits(chunk_span(chunk)) };
                self.feed(Event::Unsure(chunk), scenario, journal)
            }
            Step::Read(start, kind) => self.read(start, kind, scenario, journal),
            Step::Stored(chunk, end) => {
                self.world.stores &= !(1 << chunk);
                self.world.end_write(chunk, chunk_span(chunk), end);
                self.feed(Event::Stored(chunk, end), scenario, journal)
            }
            Step::StoredPart(start, end) => {
                let chunk = self.world.end_part(start, end);
                self.feed(Event::StoredPart(chunk, end), scenario, journal)
            }
            Step::Head(id, kind) => self.head(id, kind, scenario, journal),
            Step::Bytes(id) => self.bytes(id, scenario, journal),
            Step::TooManyBytes(id) => self.too_many_bytes(id, scenario, journal),
            Step::End(id) => self.end(id, scenario, journal),
            Step::Break(id) => {
                self.world.purse.breaks -= 1;
                self.world.hurt();
                self.world.ledger.aborted += 1;
                self.world.remove(id);
                self.feed(Event::Came(id, Arrival::Broken), scenario, journal)
            }
            Step::Update => {
                self.world.purse.updates -= 1;
                let head = ModelHead { is_updated: true, ..head_of(0, &scenario.origin) };
                self.feed(Event::Updated(head), scenario, journal)
            }
            Step::Outdate => {
                self.world.purse.outdates -= 1;
                self.world.is_outdated = true;
                self.feed(Event::Outdated, scenario, journal)
            }
            Step::Squeeze => {
                self.world.purse.squeezes -= 1;
                self.world.budget = 0;
                self.feed(Event::Budget(0), scenario, journal)
            }
            Step::Release => {
                self.world.budget = scenario.budget;
                self.feed(Event::Budget(scenario.budget), scenario, journal)
            }
            Step::Keep => {
                self.world.purse.keeps -= 1;
                self.world.is_kept = true;
                self.world.ledger.wanted |= chunk_bits(0..LEN);
                self.feed(Event::Keep(0..LEN), scenario, journal)
            }
            Step::Tick => self.tick(scenario, journal),
        }
    }

    fn attach(&mut self, client: usize, scenario: &Scenario, journal: &mut Journal) -> Result<(), Breach> {
        let spans: Spans = scenario.clients[client].spans.iter().cloned().collect();
        for span in &spans {
            self.world.ledger.wanted |= chunk_bits(span.clone());
        }
        self.world.clients[client].phase = Phase::AwaitsPromise;
        self.world.clients[client].is_hurt = self.world.was_hurt;
        let terms = scenario.clients[client].terms;
        self.feed(Event::Attach(cursor(client), spans, terms), scenario, journal)
    }

    /// The client takes what is there, and says that it is ready when nothing is there any more.
    fn take_bytes(&mut self, client: usize, scenario: &Scenario, journal: &mut Journal) -> Result<(), Breach> {
        let selection = &scenario.clients[client].selection;
        let id = cursor(client);
        let taken = usize::from(self.world.clients[client].taken);
        let bytes = self.core.bytes_at(id).unwrap_or_default();
        laws::no_mixture(&bytes, 0, &selection[taken..])?;
        self.world.clients[client].taken += bytes.len() as u8;
        self.world.clients[client].is_awake = false;
        let is_woken = std::mem::take(&mut self.world.clients[client].is_woken);
        self.world.clients[client].misses += u8::from(bytes.is_empty() && is_woken);
        laws::finds_what_it_was_woken_for(&self.world, client)?;
        let position = match bytes.len() {
            0 => self.core.position(id).ok_or_else(|| Breach::new("orderly", format!("{id:?} has no position")))?,
            number => selection[taken + number - 1] + 1,
        };
        self.feed_quietly(Event::Moved(id, position), scenario, journal)?;
        let is_promised = self.world.clients[client].phase == Phase::Promised;
        let has_more = self.core.bytes_at(id).is_some();
        if is_promised && !has_more && !bytes.is_empty() {
            let position = self.core.position(id).unwrap_or(position);
            self.feed_quietly(Event::Moved(id, position), scenario, journal)?;
        }
        let own = &mut self.world.clients[client];
        own.is_awake |= own.phase == Phase::Promised && has_more;
        laws::woken_or_answered(self)
    }

    fn probed(&mut self, chunk: u64, kind: ReadKind, scenario: &Scenario, journal: &mut Journal) -> Result<(), Breach> {
        self.world.probes &= !(1 << chunk);
        self.world.doubted &= !bits(chunk_span(chunk));
        self.world.suffer(chunk, kind);
        let end = match kind {
            ReadKind::Found => self.world.found(chunk),
            ReadKind::Absent => ProbeEnd::Absent,
            ReadKind::Trouble => ProbeEnd::Trouble,
        };
        self.feed(Event::Probed(chunk, end), scenario, journal)
    }

    fn read(&mut self, start: u64, kind: ReadKind, scenario: &Scenario, journal: &mut Journal) -> Result<(), Breach> {
        let place = self.world.reads.iter().position(|range| range.start == start).expect("steps name reads");
        let range = self.world.reads[place].clone();
        self.world.suffer(start / SIZES.chunk, kind);
        let found = match kind {
            ReadKind::Found => {
                self.world.came |= bits(range.clone());
                ReadEnd::Bytes(body_of(0, range.clone()))
            }
            ReadKind::Absent => ReadEnd::Absent,
            ReadKind::Trouble => ReadEnd::Trouble,
        };
        self.feed(Event::Read(range, found), scenario, journal)
    }

    fn head(&mut self, id: RunId, kind: HeadKind, scenario: &Scenario, journal: &mut Journal) -> Result<(), Breach> {
        let world = &mut self.world;
        if kind == HeadKind::OtherVersion {
            world.purse.changes -= 1;
            world.origin_version ^= 1;
            world.hurt();
        }
        let version = world.origin_version;
        let mut head = head_of(version, &scenario.origin);
        let ask = world.exchange(id).ask.clone();
        let (mut span, is_whole) = match ask {
            OriginAsk::Range { span, if_range }
                if scenario.origin.takes_ranges && !(if_range && (version != 0 || head.validator.is_none())) =>
            {
                head.len = Some(LEN); // Content-Range states it
                (span.start..span.end.min(LEN), false)
            }
            OriginAsk::Range { .. } | OriginAsk::Whole => (0..LEN, true),
        };
        match kind {
            HeadKind::True | HeadKind::OtherVersion => {}
            HeadKind::Short => {
                world.purse.shorts -= 1;
                span.end -= 1;
            }
            HeadKind::WrongStart => {
                world.purse.lies -= 1;
                world.hurt();
                span.start = if span.start == 0 { 1 } else { span.start - 1 };
            }
            HeadKind::WrongLength => {
                world.purse.lies -= 1;
                world.hurt();
                head.len = Some(LEN + 1);
            }
        }
        world.ledger.whole_responses += u64::from(is_whole);
        let response = Response { version, is_whole, start: span.start, position: span.start, end: span.end };
        world.exchange_mut(id).response = Some(response);
        laws::cheap(world, scenario)?;
        if is_whole && !scenario.origin.knows_len {
            span.end = u64::MAX;
        }
        self.feed(Event::Came(id, Arrival::Head { head, span, is_whole }), scenario, journal)?;
        match kind {
            HeadKind::WrongStart | HeadKind::WrongLength => laws::lie_ends_its_run(&self.world, id),
            HeadKind::OtherVersion | HeadKind::True => laws::other_version_leaves(&self.world, id, version, scenario),
            HeadKind::Short => Ok(()),
        }
    }

    fn bytes(&mut self, id: RunId, scenario: &Scenario, journal: &mut Journal) -> Result<(), Breach> {
        let world = &mut self.world;
        let Some(response) = &mut world.exchange_mut(id).response else { unreachable!("it flows") };
        let end = (response.position + scenario.piece).min(response.end);
        let span = response.position..end;
        let version = response.version;
        response.position = end;
        world.ledger.received += span.end - span.start;
        if version == 0 {
            world.came |= bits(span.clone());
        }
        laws::cheap(world, scenario)?;
        self.feed(Event::Came(id, Arrival::Bytes(body_of(version, span))), scenario, journal)
    }

    fn too_many_bytes(&mut self, id: RunId, scenario: &Scenario, journal: &mut Journal) -> Result<(), Breach> {
        self.world.purse.lies -= 1;
        self.world.hurt();
        let Some(response) = &self.world.exchange(id).response else { unreachable!("it has ended") };
        let bytes = body_of(response.version, response.end..response.end + 2);
        self.feed(Event::Came(id, Arrival::Bytes(bytes)), scenario, journal)?;
        laws::lie_ends_its_run(&self.world, id)
    }

    fn end(&mut self, id: RunId, scenario: &Scenario, journal: &mut Journal) -> Result<(), Breach> {
        let exchange = self.world.remove(id);
        let Some(response) = exchange.response else { unreachable!("it has ended") };
        self.world.has_end |= response.version == 0 && response.end == LEN;
        let received = response.end - response.start;
        self.feed(Event::Came(id, Arrival::End(Some(received))), scenario, journal)
    }

    fn tick(&mut self, scenario: &Scenario, journal: &mut Journal) -> Result<(), Breach> {
        let world = &mut self.world;
        if world.is_work_due() && !world.is_unwanted() {
            world.purse.early_ticks -= 1;
        }
        let Some(next) = world.timers.iter().copied().min() else { unreachable!("a timer is set") };
        world.now = next.max(world.now);
        let now = world.now;
        world.timers.retain(|timer| *timer > now);
        self.feed(Event::Tick, scenario, journal)
    }

    /// Returns the bytes in memory and those that reads will bring.
    pub(crate) fn reserved(&self) -> u64 {
        self.core.held_bytes() + self.world.reads.iter().map(|range| range.end - range.start).sum::<u64>()
    }

    fn feed(&mut self, event: Event<ModelHead>, scenario: &Scenario, journal: &mut Journal) -> Result<(), Breach> {
        self.feed_quietly(event, scenario, journal)?;
        laws::woken_or_answered(self)
    }

    /// Gives an event to the core and executes its actions, without a look at sleeping clients.
    fn feed_quietly(
        &mut self,
        event: Event<ModelHead>,
        scenario: &Scenario,
        journal: &mut Journal,
    ) -> Result<(), Breach> {
        let reserved_before = self.reserved();
        if let Event::Read(range, _) = &event {
            self.world.reads.retain(|other| other != range);
        }
        if scenario.is_traced {
            journal.push(format!("{} ms: {event:?}", self.world.now));
        }
        let mut actions = Actions::new();
        self.core.on(Tick(self.world.now), event, &mut actions);
        for action in actions {
            if scenario.is_traced {
                journal.push(format!("    -> {action:?}"));
            }
            self.world.perform(action, scenario)?;
        }
        if !laws::is_counted(&self.world, scenario) {
            self.world.ledger = Ledger::default(); // states that differ in it alone merge
        }
        laws::memory(self, reserved_before, scenario)
    }
}

impl Client {
    fn away(phase: Phase) -> Self {
        Self { phase, taken: 0, is_woken: false, misses: 0, is_awake: false, is_hurt: false }
    }

    fn leave(&mut self) {
        // One value for all who are gone, so that equal states merge.
        *self = Self::away(Phase::Gone);
    }
}

impl World {
    /// Returns whether an event of the origin or the store is due.
    pub(crate) fn is_work_due(&self) -> bool {
        let is_store_due = (self.probes | self.stores) != 0 || !(self.reads.is_empty() && self.parts.is_empty());
        is_store_due || self.exchanges.iter().any(|exchange| !exchange.is_paused)
    }

    /// Returns whether nobody ever wants anything of the object: no client reads it, and the cache itself did not want
    /// it.
    pub(crate) fn is_unwanted(&self) -> bool {
        !self.is_kept && self.is_unread()
    }

    /// Returns whether no client reads the object.
    pub(crate) fn is_unread(&self) -> bool {
        !self.clients.iter().any(Client::is_attached)
    }

    /// Returns a client that takes its bytes before anything else happens, because it came too late before.
    fn hasty_client(&self) -> Option<usize> {
        self.clients.iter().position(|client| client.is_awake && client.misses >= MISSES_BEFORE_HASTE)
    }

    pub(crate) fn find(&self, id: RunId) -> Option<&Exchange> {
        self.exchanges.iter().find(|exchange| exchange.id == id)
    }

    fn exchange(&self, id: RunId) -> &Exchange {
        self.find(id).expect("steps name live exchanges")
    }

    fn exchange_mut(&mut self, id: RunId) -> &mut Exchange {
        self.exchanges.iter_mut().find(|exchange| exchange.id == id).expect("steps name live exchanges")
    }

    fn remove(&mut self, id: RunId) -> Exchange {
        let place = self.exchanges.iter().position(|exchange| exchange.id == id);
        self.exchanges.remove(place.expect("steps name live exchanges"))
    }

    /// Returns what a probe for a chunk finds.
    fn found(&self, chunk: u64) -> ProbeEnd {
        let span = chunk_span(chunk);
        let is_present = |position: &u64| self.present & (1 << position) != 0;
        let mut present = span.clone().filter(is_present);
        match (present.next(), span.clone().rfind(is_present)) {
            (Some(first), Some(last)) if (first..last + 1) == span => ProbeEnd::Whole,
            (Some(first), Some(last)) => ProbeEnd::Part(first..last + 1),
            _ => ProbeEnd::Absent,
        }
    }

    /// Notes what a failed probe or read says of a chunk: one that was there and is not found was evicted.
    fn suffer(&mut self, chunk: u64, kind: ReadKind) {
        match kind {
            ReadKind::Found => {}
            ReadKind::Absent => {
                let lost = self.present & bits(chunk_span(chunk));
                if lost != 0 {
                    self.present &= !lost;
                    self.purse.losses -= 1;
                    self.hurt();
                }
            }
            ReadKind::Trouble => {
                self.purse.troubles -= 1;
                self.hurt();
            }
        }
    }

    /// Notes the end of the write of a part. Returns its chunk.
    fn end_part(&mut self, start: u64, end: StoreEnd) -> u64 {
        let place = self.parts.iter().position(|part| part.start == start).expect("steps name writes");
        let part = self.parts.remove(place);
        self.end_write(start / SIZES.chunk, part, end);
        start / SIZES.chunk
    }

    /// Notes the end of a write, which takes the place of what the store had of the chunk.
    fn end_write(&mut self, chunk: u64, span: Range<u64>, end: StoreEnd) {
        match end {
            StoreEnd::Done => {
                self.present = self.present & !bits(chunk_span(chunk)) | bits(span.clone());
                self.ever_stored |= bits(span);
                self.doubted &= !bits(chunk_span(chunk));
            }
            StoreEnd::Refused => {
                self.purse.refusals -= 1;
                self.hurt();
            }
            StoreEnd::Skipped => {
                self.purse.skips -= 1;
                self.skipped |= 1 << chunk;
            }
        }
    }

    /// Notes that origin or store failed: promises may be broken from now on.
    fn hurt(&mut self) {
        self.was_hurt = true;
        for client in self.clients.iter_mut().filter(|client| client.is_attached()) {
            client.is_hurt = true;
        }
    }

    fn perform(&mut self, action: Action, scenario: &Scenario) -> Result<(), Breach> {
        match action {
            Action::Ask(id, ask) => {
                laws::ask_is_sensible(self, id, &ask)?;
                laws::ask_has_a_cause(self, scenario)?;
                self.exchanges.push(Exchange { id, ask, response: None, is_paused: false });
            }
            Action::Pause(id) | Action::Resume(id) => {
                laws::run_is_live(self, id)?;
                self.exchange_mut(id).is_paused = matches!(action, Action::Pause(_));
            }
            Action::Stop(id) | Action::Other(id) => {
                laws::run_is_live(self, id)?;
                if matches!(action, Action::Other(_)) {
                    laws::only_another_version_leaves(self, id, scenario)?;
                    self.is_outdated = true; // the driver has a newer object from now on
                }
                self.remove(id);
                self.ledger.aborted += 1;
            }
            Action::Probe(chunk) => {
                laws::is_asked_once(self.probes, chunk, "Probe")?;
                self.probes |= 1 << chunk;
            }
            Action::Read(range) => {
                laws::read_is_orderly(self, &range)?;
                self.reads.push(range);
            }
            Action::Store(chunk, pieces) => {
                laws::is_asked_once(self.stores, chunk, "Store")?;
                laws::stored_chunk_is_of_one_version(chunk_span(chunk), &pieces)?;
                laws::stores_only_what_is_wanted(self, chunk, scenario)?;
                self.stores |= 1 << chunk;
            }
            Action::StorePart { chunk, start, pieces } => {
                let part = laws::part_is_orderly(self, chunk, start, &pieces)?;
                laws::stored_chunk_is_of_one_version(part.clone(), &pieces)?;
                laws::stores_only_what_is_wanted(self, chunk, scenario)?;
                self.parts.push(part);
            }
            Action::CommitHead { is_whole } => laws::complete_or_error(self, is_whole, scenario)?,
            Action::Promise(id) => {
                let number = id.0 as usize;
                laws::promise_is_covered(self, number, scenario)?;
                let client = &mut self.clients[number];
                client.phase = Phase::Promised;
                client.is_awake = true;
                client.is_hurt = false;
            }
            Action::Wake(id) => {
                let client = &mut self.clients[id.0 as usize];
                client.is_awake = client.phase == Phase::Promised;
                client.is_woken = client.is_awake;
            }
            Action::End(id, end) => self.end_cursor(id.0 as usize, end, scenario)?,
            Action::Timer(at) => {
                if !self.timers.contains(&at.0) {
                    self.timers.push(at.0);
                    self.timers.sort_unstable();
                }
            }
            Action::GivenUp => {
                laws::gives_up_for_a_reason(self, scenario)?;
                self.has_given_up = true;
            }
        }
        Ok(())
    }

    fn end_cursor(&mut self, client: usize, end: CursorEnd, scenario: &Scenario) -> Result<(), Breach> {
        laws::promise_is_kept(self, client, end)?;
        laws::clean_end_is_complete(self, client, end, scenario)?;
        self.clients[client].leave();
        Ok(())
    }

    /// Returns the bytes of the body that are present or promised by responses whose heads have come, by bit.
    pub(crate) fn covered(&self) -> u32 {
        self.present | self.without_store()
    }

    /// Returns the bytes that came, or are promised by responses whose heads have come, by bit.
    pub(crate) fn without_store(&self) -> u32 {
        let responses = self.exchanges.iter().filter_map(|exchange| exchange.response.as_ref());
        let coming = responses.filter(|response| response.version == 0);
        coming.fold(self.came, |all, response| all | bits(response.position..response.end))
    }
}
