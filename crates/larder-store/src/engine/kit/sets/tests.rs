//! Checks the bits per entry stated in the policy table, and that a set evicts its least recently used entry.

use super::*;
use crate::hash::KeyHash;
use proptest::prelude::*;
use std::collections::HashMap;

const SETMEM: SetShape =
    SetShape { ways: 8, tag_bits: 8, generation_bits: 0, position_bits: 0, length_bits: 0, positions: 0 };
const LOG_N: SetShape = SetShape { generation_bits: 4, position_bits: 32, positions: 8, ..SETMEM };
const LOG: SetShape = SetShape { length_bits: 8, ..LOG_N };
const LOG_LRU: SetShape = SetShape { positions: 4, ..LOG_N };

#[test]
fn bits_per_entry_are_those_of_the_paper() {
    let grouped = SetShape { length_bits: 8, ..LOG_LRU };
    for (shape, bits) in [(SETMEM, 11), (LOG_N, 47), (LOG, 55), (LOG_LRU, 31), (grouped, 35)] {
        let sets = PackedSets::new(shape, 100_000, true);
        let per_entry = sets.memory_bytes() as f64 * 8.0 / 800_000.0;
        assert!((per_entry - f64::from(bits)).abs() < 0.001, "{per_entry}, not {bits}");
    }
}

#[test]
fn a_set_is_unknown_until_it_is_written_and_when_it_is_forgotten() {
    let mut sets = PackedSets::new(SETMEM, 10, false);
    assert_eq!(sets.read(SetNumber(9)), None);
    sets.write(SetNumber(9), &UnpackedSet::empty(&SETMEM));
    assert_eq!((sets.read(SetNumber(9)), sets.read(SetNumber(8))), (Some(UnpackedSet::empty(&SETMEM)), None));
    sets.forget(SetNumber(9));
    assert_eq!(sets.read(SetNumber(9)), None);
    let mut fresh = PackedSets::new(SETMEM, 10, true);
    assert_eq!(fresh.read(SetNumber(9)), Some(UnpackedSet::empty(&SETMEM)), "a new volume has no entries");
    fresh.forget(SetNumber(9));
    assert_eq!(fresh.read(SetNumber(9)), None);
}

#[test]
fn a_miss_in_a_full_set_matches_another_key_in_3_percent() {
    let mut set = UnpackedSet::empty(&SETMEM);
    (0..8).for_each(|way| {
        set.put(way, way as u16 * 20 + 1, 0, SetPlace::default());
    });
    let found = (0..100_000_u64).filter(|n| set.find(SETMEM.tag(KeyHash(n * 2_654_435_761))).is_some()).count();
    assert!((3_000..3_300).contains(&found), "{found} of 100000");
}

#[test]
fn keys_are_spread_evenly_over_sets_of_any_number() {
    let mut counts = [0; 7];
    (0..7000_u64).for_each(|n| counts[set_of(KeyHash(n.wrapping_mul(0x9E37_79B9_7F4A_7C15)), 7).0 as usize] += 1);
    assert!(counts.iter().all(|count| (900..1100).contains(count)), "{counts:?}");
}

proptest! {
    /// Compares with a list in the order of use: the same entries, the same places in memory, the same demoted places.
    #[test]
    fn ranks_are_the_order_of_use(operations in prop::collection::vec((1..20_u16, 0..4_u8), 1..200), row in 0..3_usize) {
        let shape = [SETMEM, LOG_N, LOG_LRU][row];
        let kept = shape.positions as usize;
        let mut sets = PackedSets::new(shape, 3, false);
        sets.write(SetNumber(1), &UnpackedSet::empty(&shape));
        let mut used: Vec<u16> = Vec::new();
        let mut places: HashMap<u16, u64> = HashMap::new();
        let mut outside: HashMap<usize, u64> = HashMap::new();
        for (step, (tag, operation)) in operations.into_iter().enumerate() {
            let mut set = sets.read(SetNumber(1)).unwrap();
            let way = set.find(tag).unwrap_or_else(|| set.least_recent());
            let place = SetPlace { position: step as u64 + 1, length: 0 };
            let known = set.find(tag).is_some();
            prop_assert_eq!(known, used.contains(&tag));
            match operation {
                0 => {
                    let before = (!known && set.ways()[way].tag != 0).then(|| set.ways()[way].tag);
                    let demoted = set.put(way, tag, if kept == 0 { 0 } else { 5 }, place);
                    prop_assert_eq!(before, (!known && used.len() == 8).then(|| used[7]));
                    used.retain(|&other| other != tag && Some(other) != before);
                    used.insert(0, tag);
                    places.insert(tag, place.position);
                    outside.extend(demoted.map(|demoted| (demoted.way, demoted.place.position)));
                }
                1 if known => {
                    let position = set.place(way).map_or_else(|| outside.get(&way).copied().unwrap_or(0), |place| place.position);
                    let demoted = set.promote(way, SetPlace { position, length: 0 });
                    outside.extend(demoted.map(|demoted| (demoted.way, demoted.place.position)));
                    used.retain(|&other| other != tag);
                    used.insert(0, tag);
                }
                2 if known => {
                    set.clear(way);
                    used.retain(|&other| other != tag);
                }
                3 if !known && used.len() < 8 => {
                    outside.extend(set.append(tag, 0, place).map(|demoted| (demoted.way, demoted.place.position)));
                    used.push(tag);
                    places.insert(tag, place.position);
                }
                _ => {}
            }
            sets.write(SetNumber(1), &set);
            let mut ranks: Vec<_> = set.ways().iter().map(|way| way.rank).collect();
            ranks.sort_unstable();
            prop_assert!(ranks.iter().copied().eq(0..8), "{ranks:?}");
            prop_assert_eq!(set.entries(), used.len() as u64);
            let mut by_rank: Vec<_> = set.ways().iter().filter(|way| way.tag != 0).collect();
            by_rank.sort_by_key(|way| way.rank);
            prop_assert!(by_rank.iter().map(|way| way.tag).eq(used.iter().copied()));
            for &tag in used.iter().filter(|_| kept > 0) {
                let way = set.find(tag).unwrap();
                let position = set.place(way).map_or_else(|| outside[&way], |place| place.position);
                prop_assert_eq!(position, places[&tag], "tag {}", tag);
            }
            let mut again = sets.read(SetNumber(1)).unwrap();
            prop_assert_eq!(&again, &set);
            again.clear(0);
            prop_assert_eq!((sets.read(SetNumber(0)), sets.read(SetNumber(2))), (None, None), "neighbors are left alone");
        }
    }
}
