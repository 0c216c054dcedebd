//! What is at stake: an entry that is found must be the newest of its address, and nearly all fit.

use super::*;
use proptest::prelude::*;
use std::collections::{HashMap, HashSet};

fn slot(position: u64) -> Slot {
    Slot { position: Sector(position), size: SizeClass::holding(3), hits: 0, short_lived: false }
}

/// As [`placing`], but no two have the same address.
fn distinct(n: u64) -> u64 {
    assert!(n < 1 << 13);
    placing(n) & !0x1fff | n
}

fn index(entries: u64, sectors: u64) -> Index {
    Index::new(IndexShape::new(entries, sectors))
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
    let index = index(entries, 1 << 30);
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
    let index = index(100_000, 1 << 30);
    for n in 0..index.entries_max() {
        index.insert(placing(n), slot(n + 1));
    }
    let strangers = (1_000_000..1_200_000).filter(|&n| index.peek(placing(n)).is_some()).count() as f64;
    assert!(strangers / 200_000.0 <= 0.004, "{strangers} of 200000");
}

#[test]
fn finding_counts_hits_up_to_the_most_a_slot_can_tell() {
    let index = index(100, 1 << 20);
    index.insert(7, slot(9));
    for hits in [0, 1, 2, 3, 3] {
        assert_eq!(index.find(7), Some(Slot { hits, ..slot(9) }));
    }
}

#[test]
fn removal_by_place_touches_only_the_entry_it_means() {
    let index = index(100, 1 << 20);
    index.insert(7, slot(10));
    assert!(!index.remove_at(7, Sector(9)));
    assert!(index.remove_at(7, Sector(10)));
    assert_eq!((index.peek(7), index.entries()), (None, 0));
}

#[test]
fn loading_never_overrides_what_happened_since() {
    let index = index(100, 1 << 20);
    index.begin_loading();
    index.insert(1, slot(100));
    index.insert(2, slot(200));
    index.remove(2);
    let entry = |placing, position| index.shape().loaded(placing, Some(slot(position)));
    index.load(&[index.shape().loaded(3, None), entry(1, 11), entry(2, 12), entry(3, 13), entry(4, 14), entry(4, 15)]);
    assert_eq!([1, 2, 3].map(|placing| index.peek(placing)), [Some(slot(100)), None, None]);
    index.remove(1);
    index.load(&[entry(1, 11)]);
    index.end_loading();
    assert_eq!(index.peek(1), None, "not even when the newer one is gone");
    assert_eq!((index.peek(4), index.entries()), (Some(slot(14)), 1), "the newer of two comes first");
}

/// Moves every partition's image of `from` to `to`, which knows newer things already.
fn load_images(from: &Index, to: &Index, keep: impl Fn(Slot) -> bool) {
    let shape = from.shape();
    for partition in 0..shape.partition_count {
        let mut image = vec![0; shape.image_bytes()];
        from.take_image(partition, &mut image);
        shape.retain(&mut image, &keep);
        to.load_image(partition, &image);
    }
}

#[test]
fn an_image_brings_back_what_it_held_but_for_what_was_left_out() {
    for entries in [50, 3_000, 60_000] {
        let before = index(entries, 1 << 30);
        for n in 0..entries {
            before.insert(placing(n), slot(n + 1));
        }
        let after = index(entries, 1 << 30);
        load_images(&before, &after, |slot| slot.position.0 % 3 != 0);
        let expected = |n: u64| before.peek(placing(n)).filter(|slot| slot.position.0 % 3 != 0);
        assert!((0..entries).all(|n| after.peek(placing(n)) == expected(n)));
        let kept: HashSet<_> = (0..entries).filter_map(expected).map(|slot| slot.position.0).collect();
        assert_eq!(after.entries(), kept.len() as u64);
    }
}

#[test]
fn only_partitions_with_other_slots_than_their_image_count_as_changed() {
    let index = index(100, 1 << 20);
    let take = || index.take_image(0, &mut vec![0; index.shape().image_bytes()]);
    assert!(!index.is_changed(0));
    index.insert(7, slot(9));
    assert!(index.is_changed(0));
    take();
    index.find(7);
    assert!(!index.is_changed(0), "a hit is no change");
    index.remove_at(7, Sector(9));
    assert!(index.is_changed(0));
    take();
    index.load(&[index.shape().loaded(5, Some(slot(3)))]);
    assert!(index.is_changed(0));
}

proptest! {
    /// Against a map that may only forget: what is found is what was put there last.
    #[test]
    fn an_entry_found_is_the_last_one_inserted(operations in prop::collection::vec((0..3_u8, 0..60_u64), 1..400)) {
        let index = index(40, 1 << 20);
        let mut model = HashMap::new();
        for (step, (operation, key)) in operations.into_iter().enumerate() {
            let (placing, entry) = (distinct(key), slot(step as u64 + 1));
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

    /// A restart from an image of some moment: what came after it counts, whatever else the image says.
    #[test]
    fn what_is_known_when_an_image_is_loaded_is_newer_than_the_image(
        before in prop::collection::vec(0..80_u64, 0..80),
        after in prop::collection::vec((any::<bool>(), 0..80_u64), 0..80),
    ) {
        let (old, new) = (index(60, 1 << 20), index(60, 1 << 20));
        new.begin_loading();
        for (&key, position) in before.iter().zip(1..) {
            old.insert(distinct(key), slot(position));
        }
        let mut model: HashMap<u64, Option<Slot>> = HashMap::new();
        for (step, &(inserted, key)) in after.iter().enumerate() {
            let entry = inserted.then(|| slot(1000 + step as u64));
            match entry {
                Some(entry) => _ = new.insert(distinct(key), entry),
                None => _ = new.remove(distinct(key)),
            }
            model.insert(key, entry);
        }
        load_images(&old, &new, |_| true);
        new.end_loading();
        for key in 0..80 {
            let found = new.peek(distinct(key));
            match model.get(&key) {
                Some(newer) => prop_assert!(found == *newer || found.is_none()),
                None => prop_assert!(found.is_none() || found == old.peek(distinct(key))),
            }
        }
        // No address is there twice: what is removed once is gone.
        for key in 0..80 {
            new.remove(distinct(key));
        }
        prop_assert_eq!(new.entries(), 0);
        prop_assert!((0..80).all(|key| new.peek(distinct(key)).is_none()));
    }
}
