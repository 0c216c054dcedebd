//! Checks that the map returns the entry that was last stored, and that its order is the order of use.

use super::*;
use crate::{SplitMix64, hash::KeyHash};
use proptest::prelude::*;
use std::collections::VecDeque;

fn entry(n: u32) -> MapEntry {
    MapEntry { place: MapPlace(u64::from(n) << 4), sectors: n % 4096, sequence: n, expires_at: 0 }
}

/// Returns a well-mixed 64-bit number.
fn key_hash(n: u64) -> KeyHash {
    KeyHash(SplitMix64::new(n).next_u64())
}

#[test]
fn an_entry_costs_at_most_288_bits_and_the_table_keeps_its_promise() {
    let entries = 100_000;
    let mut map = EntryMap::new(entries, 0);
    for n in 0..entries {
        map.insert(key_hash(n), entry(n as u32));
    }
    assert!(map.is_full());
    let held = map.nodes.capacity() as u64 * size_of::<MapNode>() as u64 + map.table.capacity() as u64 * 4;
    assert_eq!(held, map.memory_bytes(), "nothing grew beyond what is printed");
    assert!(held * 8 <= 273 * entries, "{} bits an entry", held * 8 / entries);
}

#[test]
fn extreme_fields_come_back_as_they_were() {
    let mut map = EntryMap::new(4, 0);
    let extreme =
        MapEntry { place: MapPlace((1 << PLACE_BITS) - 1), sectors: 4095, sequence: u32::MAX, expires_at: 4095 };
    map.insert(KeyHash(u64::MAX), extreme);
    map.insert(KeyHash(0), entry(0));
    assert_eq!(
        (map.find(KeyHash(u64::MAX)), map.find(KeyHash(0)), map.find(KeyHash(1))),
        (Some(extreme), Some(entry(0)), None)
    );
}

#[test]
fn only_the_write_that_made_an_entry_moves_or_removes_it() {
    let mut map = EntryMap::new(4, 0);
    map.insert(KeyHash(7), entry(1));
    assert!(!map.set_place(KeyHash(7), 2, MapPlace(9)) && !map.set_place(KeyHash(8), 1, MapPlace(9)));
    assert!(map.set_place(KeyHash(7), 1, MapPlace(9)));
    assert_eq!(map.find(KeyHash(7)), Some(MapEntry { place: MapPlace(9), ..entry(1) }));
    assert_eq!(map.remove_write(KeyHash(7), 2), None);
    assert!(map.remove_write(KeyHash(7), 1).is_some());
    assert_eq!((map.find(KeyHash(7)), map.entry_count()), (None, 0));
}

#[derive(Clone, Debug)]
enum Operation {
    Insert(u64),
    Remove(u64),
    Touch(u64),
    EvictOldest,
}

fn operation() -> impl Strategy<Value = Operation> {
    // Few keys, in a table so small that probing wraps around its end.
    let key = 0..24_u64;
    prop_oneof![
        4 => key.clone().prop_map(Operation::Insert),
        2 => key.clone().prop_map(Operation::Remove),
        2 => key.prop_map(Operation::Touch),
        1 => Just(Operation::EvictOldest),
    ]
}

proptest! {
    #[test]
    fn it_does_what_a_list_in_order_of_use_does(operations in prop::collection::vec(operation(), 1..400)) {
        let mut map = EntryMap::new(16, 0);
        let mut model: VecDeque<(KeyHash, MapEntry)> = VecDeque::new();
        for (n, operation) in (1_u32..).zip(operations) {
            match operation {
                Operation::Insert(key) => {
                    let before = model.iter().position(|(held, _)| *held == key_hash(key)).and_then(|at| model.remove(at));
                    if before.is_none() && map.is_full() {
                        let (oldest, _) = map.oldest().unwrap();
                        map.remove(oldest);
                        model.pop_front();
                    }
                    prop_assert_eq!(map.insert(key_hash(key), entry(n)), before.map(|(_, entry)| entry));
                    model.push_back((key_hash(key), entry(n)));
                }
                Operation::Remove(key) => {
                    let before = model.iter().position(|(held, _)| *held == key_hash(key)).and_then(|at| model.remove(at));
                    prop_assert_eq!(map.remove(key_hash(key)), before.map(|(_, entry)| entry));
                }
                Operation::Touch(key) => {
                    map.touch(key_hash(key));
                    if let Some(held) = model.iter().position(|(held, _)| *held == key_hash(key)).and_then(|at| model.remove(at)) {
                        model.push_back(held);
                    }
                }
                Operation::EvictOldest => {
                    let oldest = map.oldest();
                    prop_assert_eq!(oldest, model.pop_front());
                    oldest.into_iter().for_each(|(oldest, _)| { map.remove(oldest); });
                }
            }
            prop_assert_eq!(map.oldest_first().collect::<VecDeque<_>>(), model.clone());
            for key in 0..24 {
                let expected = model.iter().find(|(held, _)| *held == key_hash(key)).map(|(_, entry)| *entry);
                prop_assert_eq!(map.find(key_hash(key)), expected);
            }
        }
    }
}
