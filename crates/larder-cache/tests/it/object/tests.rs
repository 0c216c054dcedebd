//! The scenarios of the gate, each explored in full.

use crate::object::{
    exploration::{Explored, explore},
    scenario::{LEN, OriginKind, Purse, Reader, Scenario, Start},
};
use larder_cache::object::PromiseRule;
use std::ops::Range;

const WHOLE: Range<u64> = 0..LEN;
/// A share that never matters.
const AMPLE: u64 = 64;
/// Begins and ends within a chunk, and covers parts of two.
const RANGE: Range<u64> = 5..11;
/// The two chunks of an arriving 206.
const PART: Range<u64> = 4..12;
/// Begins within [`PART`] and ends behind it.
const LATE_RANGE: Range<u64> = 6..14;

/// Missing chunks of a stored body.
const GAP: &[(u64, u64)] = &[(4, 8)];
const GAP_OF_TWO: &[(u64, u64)] = &[(4, 12)];

const FIRST_HALF: Range<u64> = 0..8;
/// Readers where memory is short. There longer spans have too many states: each loss of bytes is a run of its own.
const SHORT_READERS: [&[Range<u64>]; 2] = [&[FIRST_HALF], &[RANGE]];

/// An origin with strong validators that takes ranges.
const DIVISIBLE: OriginKind =
    OriginKind { has_validator: true, knows_len: true, takes_ranges: true, claims_ranges: true };
const WITHOUT_RANGES: OriginKind =
    OriginKind { has_validator: true, knows_len: true, takes_ranges: false, claims_ranges: false };
const WITHOUT_VALIDATOR: OriginKind =
    OriginKind { has_validator: false, knows_len: true, takes_ranges: true, claims_ranges: true };
const WITHOUT_LENGTH: OriginKind =
    OriginKind { has_validator: false, knows_len: false, takes_ranges: false, claims_ranges: false };
/// Its stored head claims ranges that it takes no more.
const NO_MORE_RANGES: OriginKind =
    OriginKind { has_validator: true, knows_len: true, takes_ranges: false, claims_ranges: true };
const ORIGINS: [(&str, OriginKind); 5] = [
    ("divisible", DIVISIBLE),
    ("without ranges", WITHOUT_RANGES),
    ("without validator", WITHOUT_VALIDATOR),
    ("without length", WITHOUT_LENGTH),
    ("ranges no more", NO_MORE_RANGES),
];

fn arriving() -> Start {
    Start::Arriving { span: WHOLE, is_whole: true, is_stored: true }
}

fn arriving_unstored() -> Start {
    Start::Arriving { span: WHOLE, is_whole: true, is_stored: false }
}

fn arriving_part() -> Start {
    Start::Arriving { span: PART, is_whole: false, is_stored: true }
}

fn stored(missing: &[(u64, u64)]) -> Start {
    Start::Stored { missing: missing.iter().map(|&(start, end)| start..end).collect() }
}

/// A peaceful scenario: nothing fails, and arrivals are whole chunks.
fn scenario(name: &'static str, start: Start, readers: &[&[Range<u64>]], origin: &OriginKind) -> Scenario {
    Scenario {
        name,
        start,
        clients: readers.iter().map(|spans| Reader::new(spans, origin.knows_len)).collect(),
        origin: origin.clone(),
        purse: Purse::default(),
        budget: AMPLE,
        piece: 4,
        leavers: readers.len(),
        is_traced: false,
    }
}

/// A scenario with three clients, of which the first may leave. Arrivals are two chunks long.
fn crowded(name: &'static str, start: Start, readers: [&[Range<u64>]; 3]) -> Scenario {
    Scenario { leavers: 1, piece: 8, ..scenario(name, start, &readers, &DIVISIBLE) }
}

/// Explores scenarios, and prints how many states they have. Each broken law is reported once, with its first trace.
fn explore_all(scenarios: impl IntoIterator<Item = Scenario>) {
    let mut sum = Explored::default();
    let mut broken: Vec<String> = Vec::new();
    let mut number = 0;
    for scenario in scenarios {
        number += 1;
        match explore(&scenario) {
            Ok(explored) => {
                sum.states += explored.states;
                sum.steps += explored.steps;
            }
            Err(trace) => broken.push(trace),
        }
    }
    println!("{number} scenarios, {} states, {} steps", sum.states, sum.steps);
    broken.sort_by_key(|trace| trace.lines().nth(2).map(str::to_owned));
    broken.dedup_by_key(|trace| trace.lines().nth(2).map(str::to_owned));
    assert!(broken.is_empty(), "broken laws: {}", broken.join("\n"));
}

/// Returns a purse for each single misfortune.
fn misfortunes() -> Vec<Purse> {
    let none = Purse::default();
    vec![
        Purse { breaks: 1, ..none.clone() },
        Purse { changes: 1, ..none.clone() },
        Purse { lies: 1, ..none.clone() },
        Purse { shorts: 1, ..none.clone() },
        Purse { losses: 1, ..none.clone() },
        Purse { troubles: 1, ..none.clone() },
        Purse { doubts: 1, ..none.clone() },
        Purse { refusals: 1, ..none.clone() },
        Purse { skips: 1, ..none.clone() },
        Purse { squeezes: 1, ..none.clone() },
        Purse { outdates: 1, ..none.clone() },
        Purse { updates: 1, ..none.clone() },
        Purse { keeps: 1, ..none.clone() },
        Purse { early_ticks: 1, ..none },
    ]
}

/// Returns a purse for each pair of misfortunes, and for each misfortune twice.
fn pairs_of_misfortunes() -> Vec<Purse> {
    let single = misfortunes();
    let mut pairs = Vec::new();
    for (number, first) in single.iter().enumerate() {
        pairs.extend(single[number..].iter().map(|second| first.plus(second)));
    }
    pairs
}

fn with_purses(base: &Scenario, purses: impl IntoIterator<Item = Purse>) -> Vec<Scenario> {
    purses.into_iter().map(|purse| Scenario { purse, ..base.clone() }).collect()
}

#[test]
fn stored_body_serves_three_clients() {
    let readers: [&[Range<u64>]; 3] = [&[WHOLE], &[RANGE], &[1..3, 9..14]];
    explore_all([scenario("stored", stored(&[]), &readers, &DIVISIBLE)]);
}

#[test]
fn stored_body_with_gaps_serves_three_clients() {
    let readers: [&[Range<u64>]; 3] = [&[WHOLE], &[RANGE], &[WHOLE]];
    explore_all([
        crowded("gap", stored(GAP_OF_TWO), readers),
        crowded("two gaps", stored(&[(4, 8), (12, 16)]), readers),
    ]);
}

#[test]
fn arriving_body_serves_three_clients() {
    explore_all([crowded("arriving", arriving(), [&[WHOLE], &[WHOLE], &[RANGE]])]);
}

#[test]
fn arriving_part_serves_three_clients() {
    explore_all([crowded("arriving part", arriving_part(), [&[PART], &[RANGE], &[WHOLE]])]);
}

#[test]
fn unstored_body_serves_three_clients() {
    explore_all([crowded("unstored", arriving_unstored(), [&[WHOLE], &[WHOLE], &[RANGE]])]);
}

#[test]
fn parts_of_chunks_serve_two_clients() {
    let parts = [stored(&[(6, 8)]), stored(&[(4, 5), (11, 14)]), stored(&[(8, 10), (11, 12)])];
    let misfortunes = [
        Purse { breaks: 1, ..Purse::default() },
        Purse { losses: 1, ..Purse::default() },
        Purse { keeps: 1, ..Purse::default() },
        Purse { doubts: 1, ..Purse::default() },
    ];
    explore_all(parts.into_iter().flat_map(|start| {
        let base = Scenario { leavers: 0, ..scenario("parts", start, &[&[WHOLE], &[RANGE]], &DIVISIBLE) };
        let short = Scenario { budget: 4, ..base.clone() }.with_readers(&SHORT_READERS);
        let single = base.clone().with_readers(&[&[1..3, 6..14]]);
        with_purses(&single, misfortunes.clone()).into_iter().chain([base, short])
    }));
}

#[test]
fn clients_on_other_terms_are_served_beside_others() {
    let starts = [arriving(), arriving_unstored(), stored(GAP), stored(&[(9, 12)])];
    let purses = [Purse::default(), Purse { breaks: 1, ..Purse::default() }, Purse { losses: 1, ..Purse::default() }];
    let terms = [(false, PromiseRule::All), (true, PromiseRule::First)];
    explore_all(starts.into_iter().flat_map(|start| {
        let base =
            Scenario { leavers: 0, piece: 8, ..scenario("terms", start, &[&[FIRST_HALF], &[LATE_RANGE]], &DIVISIBLE) };
        let others = [0, 1].into_iter().flat_map(|client| terms.map(|terms| (client, terms)));
        let read = others.map(|(client, (may_ask, promise))| base.clone().with_terms(client, may_ask, promise));
        read.flat_map(|scenario| with_purses(&scenario, purses.clone())).collect::<Vec<_>>()
    }));
}

#[test]
fn client_that_may_not_ask_is_not_left_behind() {
    let starts = [arriving(), arriving_unstored(), stored(&[(12, 16)])];
    explore_all(starts.into_iter().flat_map(|start| {
        let base = Scenario { leavers: 0, budget: 4, ..scenario("terms, short", start, &SHORT_READERS, &DIVISIBLE) };
        [0, 1].map(|client| base.clone().with_terms(client, false, PromiseRule::All))
    }));
}

#[test]
fn every_kind_of_origin_serves_two_clients() {
    let readers: [&[Range<u64>]; 2] = [&[WHOLE], &[RANGE]];
    explore_all(ORIGINS.iter().flat_map(|(name, origin)| {
        [arriving(), arriving_unstored()].map(|start| scenario(name, start, &readers, origin))
    }));
    explore_all(
        ORIGINS
            .iter()
            .filter(|(_, origin)| origin.knows_len)
            .map(|(name, origin)| scenario(name, stored(GAP_OF_TWO), &readers, origin)),
    );
}

#[test]
fn small_pieces_and_shares_serve_two_clients() {
    let starts = [arriving(), arriving_unstored(), arriving_part(), stored(GAP)];
    explore_all(starts.into_iter().flat_map(|start| {
        let readers: [&[Range<u64>]; 2] = [&[WHOLE], &[RANGE]];
        let ample = Scenario { piece: 3, leavers: 0, ..scenario("small pieces", start.clone(), &readers, &DIVISIBLE) };
        let base = Scenario { leavers: 0, ..scenario("small share", start, &SHORT_READERS, &DIVISIBLE) };
        // Small pieces of a part have too many states if memory is short, too.
        let piece = if matches!(base.start, Start::Arriving { is_whole: false, .. }) { 4 } else { 2 };
        let small = [(piece, 4), (4, 8)].map(|(piece, budget)| Scenario { piece, budget, ..base.clone() });
        std::iter::once(ample).chain(small)
    }));
}

#[test]
fn each_misfortune_spares_two_clients() {
    let readers: [&[Range<u64>]; 2] = [&[WHOLE], &[RANGE]];
    let starts = [arriving(), arriving_unstored(), arriving_part(), stored(GAP)];
    let scenarios = starts.into_iter().map(|start| Scenario {
        leavers: 0,
        piece: 8,
        ..scenario("one misfortune", start, &readers, &DIVISIBLE)
    });
    explore_all(scenarios.flat_map(|base| {
        let peaceful = misfortunes().into_iter().filter(|purse| purse.squeezes == 0);
        let squeezed = with_purses(&base, [Purse { squeezes: 1, ..Purse::default() }]);
        let short = squeezed.into_iter().map(|scenario| scenario.with_readers(&SHORT_READERS));
        with_purses(&base, peaceful).into_iter().chain(short).collect::<Vec<_>>()
    }));
}

#[test]
fn each_misfortune_spares_clients_of_poor_origins() {
    let readers: [&[Range<u64>]; 2] = [&[WHOLE], &[RANGE]];
    let poor = ORIGINS.iter().skip(1);
    explore_all(poor.flat_map(|(name, origin)| {
        let base = Scenario { leavers: 0, piece: 8, ..scenario(name, arriving(), &readers, origin) };
        with_purses(&base, misfortunes())
    }));
}

#[test]
fn each_pair_of_misfortunes_spares_a_client_of_an_arriving_body() {
    let base = Scenario { piece: 8, ..scenario("two misfortunes, arriving", arriving(), &[&[WHOLE]], &DIVISIBLE) };
    explore_all(with_purses(&base, pairs_of_misfortunes()));
}

#[test]
fn each_pair_of_misfortunes_spares_a_client_of_a_stored_body() {
    let base = scenario("two misfortunes, stored", stored(GAP), &[&[1..3, 6..14]], &DIVISIBLE);
    explore_all(with_purses(&base, pairs_of_misfortunes()));
}

#[test]
fn each_pair_of_misfortunes_spares_a_client_of_an_arriving_part() {
    let base = scenario("two misfortunes, part", arriving_part(), &[&[LATE_RANGE]], &DIVISIBLE);
    explore_all(with_purses(&base, pairs_of_misfortunes()));
}
