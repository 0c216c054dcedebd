//! What is at stake: an entry that is found must be the newest of its address, and nearly all fit.

use super::*;
use proptest::prelude::*;
use std::collections::HashMap;

fn slot(position: u64) -> Slot {
    Slot { position: Sector(position), size: SizeClass::holding(3), hits: 0, short_lived: false }
}

/// A well-mixed 64-bit number (SplitMix64).
fn placing(n: u64) -> u64 {
    let mut z = n.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[test]
fn at_95_percent_fill_fewer_than_half_a_percent_are_lost() {
    let entries = 200_000;
    let index = Index::new(entries, 1 << 30);
    let lost = (0..index.entries_max())
        .map(|n| index.insert(placing(n), slot(n + 1)))
        .filter(|inserted| *inserted != Inserted::New)
        .count() as f64;
    let share = lost / index.entries_max() as f64;
    assert!(share <= 0.005, "{share}");
    assert!(index.entries() as f64 >= entries as f64 * 0.995);
}

#[test]
fn a_miss_in_a_full_index_rarely_finds_a_stranger() {
    let index = Index::new(100_000, 1 << 30);
    for n in 0..index.entries_max() {
        index.insert(placing(n), slot(n + 1));
    }
    let strangers = (1_000_000..1_200_000).filter(|&n| index.peek(placing(n)).is_some()).count() as f64;
    assert!(strangers / 200_000.0 <= 0.004, "{strangers} of 200000");
}

#[test]
fn finding_counts_hits_up_to_the_most_a_slot_can_tell() {
    let index = Index::new(100, 1 << 20);
    index.insert(7, slot(9));
    for hits in [0, 1, 2, 3, 3] {
        assert_eq!(index.find(7), Some(Slot { hits, ..slot(9) }));
    }
}

#[test]
fn removal_by_place_touches_only_the_entry_it_means() {
    let index = Index::new(100, 1 << 20);
    index.insert(7, slot(10));
    assert!(!index.remove_at(7, Sector(9)));
    assert!(index.remove_at(7, Sector(10)));
    assert_eq!((index.peek(7), index.entries()), (None, 0));
}

#[test]
fn loading_never_overrides_what_happened_since() {
    let index = Index::new(100, 1 << 20);
    index.begin_loading();
    index.insert(1, slot(100));
    index.insert(2, slot(200));
    index.remove(2);
    index.load_removal(3);
    assert!(!index.load(1, slot(11)) && !index.load(2, slot(12)) && !index.load(3, slot(13)));
    assert!(index.load(4, slot(14)) && !index.load(4, slot(15)), "the newer of two comes first");
    index.remove(1);
    assert!(!index.load(1, slot(11)), "not even when the newer one is gone");
    index.end_loading();
    assert_eq!((index.peek(1), index.peek(4)), (None, Some(slot(14))));
}

proptest! {
    /// Against a map that may only forget: what is found is what was put there last.
    #[test]
    fn an_entry_found_is_the_last_one_inserted(operations in prop::collection::vec((0..3_u8, 0..60_u64), 1..400)) {
        let index = Index::new(40, 1 << 20);
        let mut model = HashMap::new();
        for (step, (operation, key)) in operations.into_iter().enumerate() {
            let (placing, entry) = (placing(key), slot(step as u64 + 1));
            match operation {
                0 => {
                    index.insert(placing, entry);
                    model.insert(key, entry);
                }
                1 => {
                    index.remove(placing);
                    model.remove(&key);
                }
                _ => {}
            }
            if let Some(found) = index.peek(placing) {
                prop_assert_eq!(model.get(&key), Some(&found));
            }
        }
        prop_assert!(index.entries() <= model.len() as u64);
    }
}
