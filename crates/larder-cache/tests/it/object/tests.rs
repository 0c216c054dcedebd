//! The scenarios of the gate, each explored in full.

use crate::object::{
    exploration::{Explored, explore},
    scenario::{LEN, OriginKind, Purse, Reader, Scenario, Start},
};
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
        Purse { refusals: 1, ..none.clone() },
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
    explore_all([scenario("stored", Start::Stored { missing: 0 }, &readers, &DIVISIBLE)]);
}

#[test]
fn stored_body_with_gaps_serves_three_clients() {
    let readers: [&[Range<u64>]; 3] = [&[WHOLE], &[RANGE], &[WHOLE]];
    explore_all([
        crowded("gap", Start::Stored { missing: 0b0110 }, readers),
        crowded("two gaps", Start::Stored { missing: 0b1010 }, readers),
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
fn every_kind_of_origin_serves_two_clients() {
    let readers: [&[Range<u64>]; 2] = [&[WHOLE], &[RANGE]];
    explore_all(ORIGINS.iter().flat_map(|(name, origin)| {
        [arriving(), arriving_unstored()].map(|start| scenario(name, start, &readers, origin))
    }));
    explore_all(
        ORIGINS
            .iter()
            .filter(|(_, origin)| origin.knows_len)
            .map(|(name, origin)| scenario(name, Start::Stored { missing: 0b0110 }, &readers, origin)),
    );
}

#[test]
fn small_pieces_and_shares_serve_two_clients() {
    let starts = [arriving(), arriving_unstored(), arriving_part(), Start::Stored { missing: 0b0010 }];
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
    let starts = [arriving(), arriving_unstored(), arriving_part(), Start::Stored { missing: 0b0010 }];
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
    let base = scenario("two misfortunes, stored", Start::Stored { missing: 0b0010 }, &[&[1..3, 6..14]], &DIVISIBLE);
    explore_all(with_purses(&base, pairs_of_misfortunes()));
}

#[test]
fn each_pair_of_misfortunes_spares_a_client_of_an_arriving_part() {
    let base = scenario("two misfortunes, part", arriving_part(), &[&[LATE_RANGE]], &DIVISIBLE);
    explore_all(with_purses(&base, pairs_of_misfortunes()));
}
