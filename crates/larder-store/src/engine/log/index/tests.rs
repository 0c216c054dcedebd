//! Checks that the slots found include the newest record of a key, that no record of another key is lost, and that
//! nearly all entries fit.

use super::*;
use crate::{SplitMix64, hash::KeyHash};
use proptest::prelude::*;
use std::collections::{HashMap, HashSet};

fn slot(position: u64) -> IndexSlot {
    IndexSlot { position: Sector(position), size: SizeClass::holding(3), hits: 0, short_lived: false }
}

/// Returns a hash like [`key_hash`]. No two of these have the same address.
fn distinct(n: u64) -> KeyHash {
    assert!(n < 1 << 13);
    KeyHash(key_hash(n).0 & !0x7f_ffff | n << 10)
}

/// Creates the index of a volume of 512 MiB.
fn index() -> VolumeIndex {
    of_sectors(1 << 20)
}

fn of_sectors(sectors: u64) -> VolumeIndex {
    VolumeIndex::new(IndexShape::new(sectors), 1 << 30)
}

/// Returns a well-mixed 64-bit number.
fn key_hash(n: u64) -> KeyHash {
    KeyHash(SplitMix64::new(n).next_u64())
}

#[test]
fn an_index_grows_with_its_entries_and_loses_none() {
    let index = index();
    for n in 0..200_000 {
        assert_eq!(index.insert(key_hash(n), slot(n + 1), &[]), InsertOutcome::New, "entry {n}");
    }
    let kept = (0..200_000).filter(|&n| index.peek(key_hash(n)).at(Sector(n + 1)).is_some()).count();
    assert_eq!((kept, index.entries()), (200_000, 200_000));
}

#[test]
fn an_entry_takes_60_bits_at_most_at_any_number_of_entries() {
    let index = index();
    let mut next = 0;
    for entries in [10_000_u64, 12_000, 40_000, 41_000, 42_000, 43_000, 44_000, 100_000, 400_000] {
        (next..entries).for_each(|n| _ = index.insert(key_hash(n), slot(n + 1), &[]));
        next = entries;
        let bits = index.memory_bytes() as f64 * 8.0 / entries as f64;
        let told = index.shape().bits_per_entry(entries);
        assert!(bits <= 60.0 && (bits / told - 1.0).abs() < 0.06, "{bits} bits, told {told}, at {entries}");
    }
}

#[test]
fn an_index_shrinks_when_entries_become_fewer() {
    let index = index();
    (0..100_000).for_each(|n| _ = index.insert(key_hash(n), slot(n + 1), &[]));
    let full = index.memory_bytes();
    (10_000..100_000).for_each(|n| _ = index.remove(key_hash(n), &[Sector(n + 1)]));
    assert!(index.memory_bytes() < full / 7, "{} of {full}", index.memory_bytes());
    assert!((0..10_000).all(|n| index.peek(key_hash(n)).at(Sector(n + 1)).is_some()));
    (0..10_000).for_each(|n| _ = index.remove(key_hash(n), &[Sector(n + 1)]));
    assert_eq!(index.memory_bytes(), of_sectors(1 << 20).memory_bytes(), "an empty one takes what it began with");
}

#[test]
fn a_spent_budget_loses_what_was_hit_least() {
    let index = VolumeIndex::new(IndexShape::new(1 << 16), 10_000);
    for n in 0..1_000 {
        index.insert(key_hash(n), slot(n + 1), &[]);
        index.find(key_hash(n));
    }
    let lost = (1_000..10_000).filter(|&n| index.insert(key_hash(n), slot(n + 1), &[]) != InsertOutcome::New).count();
    assert!(lost > 8_000 && index.memory_bytes() < 10_500, "{lost} lost, {} bytes", index.memory_bytes());
    let left = (0..1_000).filter(|&n| index.peek(key_hash(n)).at(Sector(n + 1)).is_some()).count();
    assert!(left > 900, "{left} of those that were hit");
}

#[test]
fn keys_of_one_address_stay_side_by_side() {
    let index = index();
    for position in [10, 20, 30] {
        assert_eq!(index.insert(KeyHash(7), slot(position), &[]), InsertOutcome::New);
    }
    assert_eq!(index.find(KeyHash(7)).iter().count(), 3);
    assert_eq!(index.insert(KeyHash(7), slot(40), &[Sector(20)]), InsertOutcome::Replaced(slot(20)));
    assert_eq!(index.remove(KeyHash(7), &[Sector(10), Sector(99)]), 1);
    let mut left: Vec<_> = index.peek(KeyHash(7)).iter().map(|slot| slot.position.0).collect();
    left.sort_unstable();
    assert_eq!((left, index.entries()), (vec![30, 40], 2));
    index.count_hit(KeyHash(7), Some(Sector(40)));
    let hits = |position| index.peek(KeyHash(7)).at(Sector(position)).map(|slot| slot.hits);
    assert_eq!((hits(30), hits(40)), (Some(0), Some(1)));
}

#[test]
fn what_is_displaced_takes_the_others_of_its_address_along() {
    // A single bucket, which all keys share.
    let index = VolumeIndex::new(IndexShape::new(1 << 16), 128);
    for position in 1..=16 {
        assert_eq!(index.insert(KeyHash(7), slot(position), &[]), InsertOutcome::New);
    }
    let InsertOutcome::Displaced(_, address) = index.insert(KeyHash(8), slot(99), &[]) else {
        panic!("16 slots and one more")
    };
    assert_eq!((address, index.entries()), (index.address(KeyHash(7)), 1), "an older one might be of the same key");
}

#[test]
fn a_miss_in_a_full_index_rarely_matches_another_key() {
    // A volume full of entries of a little more than 2 KiB.
    let index = index();
    for n in 0..225_000 {
        index.insert(key_hash(n), slot(n + 1), &[]);
    }
    let matched = (1_000_000..1_200_000).filter(|&n| !index.peek(key_hash(n)).is_empty()).count() as f64;
    assert!(matched / 200_000.0 <= 0.004, "{matched} of 200000");
}

#[test]
fn finding_counts_hits_up_to_the_most_a_slot_can_tell() {
    let index = index();
    index.insert(KeyHash(7), slot(9), &[]);
    for hits in [0, 1, 2, 3, 3] {
        assert_eq!(index.find(KeyHash(7)).only(), Some(IndexSlot { hits, ..slot(9) }));
    }
}

#[test]
fn removal_by_place_touches_only_the_entry_it_means() {
    let index = index();
    index.insert(KeyHash(7), slot(10), &[]);
    assert_eq!(index.remove(KeyHash(7), &[Sector(9)]), 0);
    assert_eq!(index.remove(KeyHash(7), &[Sector(10)]), 1);
    assert_eq!((index.peek(KeyHash(7)).only(), index.entries()), (None, 0));
}

#[test]
fn loading_never_overrides_what_happened_since() {
    let index = index();
    index.begin_loading();
    index.insert(KeyHash(1), slot(100), &[]);
    index.insert(KeyHash(2), slot(200), &[]);
    index.remove(KeyHash(2), &[Sector(200)]);
    index.note_removed(KeyHash(2), slot(201));
    let entry = |key_hash, position| LoadedRecord::new(key_hash, slot(position), false);
    let removal = |key_hash, position| LoadedRecord::new(key_hash, slot(position), true);
    let news = [
        removal(KeyHash(3), 16),
        entry(KeyHash(1), 11),
        entry(KeyHash(2), 12),
        entry(KeyHash(3), 13),
        entry(KeyHash(4), 15),
        entry(KeyHash(4), 14),
        removal(KeyHash(4), 10),
    ];
    index.load(&news);
    assert_eq!([1, 2, 3].map(|n| index.peek(KeyHash(n)).only()), [Some(slot(100)), None, None]);
    index.remove(KeyHash(1), &[Sector(100)]);
    index.load(&[entry(KeyHash(1), 11)]);
    index.end_loading();
    assert_eq!(index.peek(KeyHash(1)).only(), None, "not even when the newer one is gone");
    assert_eq!((index.peek(KeyHash(4)).only(), index.entries()), (Some(slot(15)), 1), "the newer of two comes first");
}

#[test]
fn other_keys_of_an_address_are_loaded_beside_each_other() {
    let index = index();
    index.begin_loading();
    // The same partition and address, but different keys.
    let one = KeyHash(7 | 1 << 25);
    let other = KeyHash(7 | 2 << 25);
    assert_eq!(index.address(one), index.address(other));
    index.insert(one, slot(50), &[]);
    let entry = |key_hash, position| LoadedRecord::new(key_hash, slot(position), false);
    index.load(&[
        entry(other, 40),
        LoadedRecord::new(KeyHash(7), slot(30), true),
        entry(one, 20),
        entry(other, 10),
        entry(KeyHash(7), 5),
    ]);
    index.end_loading();
    let mut found: Vec<_> = index.peek(KeyHash(7)).iter().map(|slot| slot.position.0).collect();
    found.sort_unstable();
    assert_eq!(found, [40, 50], "each key's newest, and nothing of what was removed");
}

#[test]
fn a_removal_gets_a_slot_where_an_image_may_have_what_it_removed() {
    let old = index();
    let new = index();
    old.insert(KeyHash(7), slot(10), &[]);
    new.begin_loading();
    new.load(&[LoadedRecord::new(KeyHash(7), slot(20), true), LoadedRecord::new(KeyHash(8), slot(21), true)]);
    load_images(&old, &new, |_| true);
    new.end_loading();
    assert!(new.peek(KeyHash(7)).at(Sector(20)).is_some(), "who looks for the key finds its removal first");
    assert_eq!(
        (new.peek(KeyHash(8)).is_empty(), new.entries()),
        (true, 2),
        "and nothing where there is nothing to remove"
    );
}

/// Moves every partition's image of `from` to `to`, which already has newer entries.
fn load_images(from: &VolumeIndex, to: &VolumeIndex, keep: impl Fn(IndexSlot) -> bool) {
    let shape = from.shape();
    for partition in 0..shape.partition_count {
        let (mut image, bucket_count) =
            from.take_image(partition, |image, bucket_count| (image.to_vec(), bucket_count));
        if !image.is_empty() {
            shape.retain(&mut image, bucket_count, &keep);
            assert!(to.load_image(partition, &image, bucket_count));
        }
    }
}

#[test]
fn an_image_brings_back_what_it_held_but_for_what_was_left_out() {
    for entries in [50, 3_000, 60_000] {
        let before = index();
        for n in 0..entries {
            before.insert(key_hash(n), slot(n + 1), &[]);
        }
        let after = index();
        load_images(&before, &after, |slot| slot.position.0 % 3 != 0);
        let sorted = |matches: SlotMatches| {
            let mut positions: Vec<_> = matches.iter().map(|slot| slot.position.0).collect();
            positions.sort_unstable();
            positions
        };
        let expected = |n: u64| -> Vec<u64> {
            sorted(before.peek(key_hash(n))).into_iter().filter(|position| position % 3 != 0).collect()
        };
        assert!((0..entries).all(|n| sorted(after.peek(key_hash(n))) == expected(n)));
        let kept: HashSet<_> = (0..entries).flat_map(expected).collect();
        assert_eq!(after.entries(), kept.len() as u64);
    }
}

#[test]
fn only_partitions_with_other_slots_than_their_image_count_as_changed() {
    let index = index();
    let take = || index.take_image(0, |_, _| ());
    assert!(!index.is_changed(0));
    index.insert(KeyHash(7), slot(9), &[]);
    assert!(index.is_changed(0));
    take();
    index.find(KeyHash(7));
    assert!(!index.is_changed(0), "a hit is no change");
    index.remove(KeyHash(7), &[Sector(9)]);
    assert!(index.is_changed(0));
    take();
    index.begin_loading();
    index.load(&[LoadedRecord::new(KeyHash(5), slot(3), false)]);
    assert!(index.is_changed(0));
}

proptest! {
    /// Compares with a map that may only forget: an entry that is found is the last one inserted.
    #[test]
    fn an_entry_found_is_the_last_one_inserted(operations in prop::collection::vec((0..3_u8, 0..60_u64), 1..400)) {
        let index = index();
        let mut model = HashMap::new();
        for (step, (operation, key)) in operations.into_iter().enumerate() {
            let key_hash = distinct(key);
            let entry = slot(step as u64 + 1);
            match operation {
                0 => {
                    let before: Vec<_> = model.get(&key).map(|slot: &IndexSlot| slot.position).into_iter().collect();
                    index.insert(key_hash, entry, &before);
                    model.insert(key, entry);
                }
                1 => {
                    let before: Vec<_> = index.peek(key_hash).iter().map(|slot| slot.position).collect();
                    index.remove(key_hash, &before);
                    model.remove(&key);
                }
                _ => {}
            }
            let found = index.peek(key_hash);
            if !found.is_empty() {
                prop_assert_eq!(model.get(&key).copied(), found.only());
            }
        }
        prop_assert!(index.entries() <= model.len() as u64);
    }

    /// A restart from an image of some moment: everything after that moment takes precedence over the image.
    #[test]
    fn what_is_known_when_an_image_is_loaded_is_newer_than_the_image(
        before in prop::collection::vec(0..80_u64, 0..80),
        after in prop::collection::vec((any::<bool>(), 0..80_u64), 0..80),
    ) {
        let old = index();
        let new = index();
        new.begin_loading();
        for (&key, position) in before.iter().zip(1..) {
            let replaced: Vec<_> = old.peek(distinct(key)).iter().map(|slot| slot.position).collect();
            old.insert(distinct(key), slot(position), &replaced);
        }
        let mut model: HashMap<u64, Option<IndexSlot>> = HashMap::new();
        for (step, &(inserted, key)) in after.iter().enumerate() {
            let key_hash = distinct(key);
            let newest = slot(1000 + step as u64);
            let replaced: Vec<_> = new.peek(key_hash).iter().map(|slot| slot.position).collect();
            if inserted {
                new.insert(key_hash, newest, &replaced);
            } else {
                new.remove(key_hash, &replaced);
                new.note_removed(key_hash, newest);
            }
            model.insert(key, inserted.then_some(newest));
        }
        load_images(&old, &new, |_| true);
        new.end_loading();
        for key in 0..80 {
            let mut found = new.peek(distinct(key));
            found.sort_descending(|slot| slot.position.0);
            match (model.get(&key), found.iter().next()) {
                (Some(Some(newer)), Some(first)) => prop_assert_eq!(*newer, first, "the newest is among them"),
                (Some(None), Some(first)) => prop_assert!(first.position.0 >= 1000, "its removal is among them"),
                (None, Some(_)) => prop_assert_eq!(found.only(), old.peek(distinct(key)).only()),
                (_, None) => {}
            }
        }
    }
}
