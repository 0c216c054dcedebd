//! Tests of the index: an entry that changes on its way is not added, and the index is that of its journal.

use super::*;

fn entry(hash: u64, offset: u32, len: u32) -> PackedEntry {
    PackedEntry { hash, offset, len }
}

fn name(number: u32, salt: u64) -> PackName {
    PackName { number, salt }
}

fn with_pack(hashes: &[u64]) -> TierIndex {
    let mut index = TierIndex::new();
    let pack = index.begin_pack();
    let moment = index.begin_look();
    assert!(hashes.iter().all(|hash| index.await_pack(*hash, (pack, 0), moment)));
    let entries: Vec<_> = hashes.iter().map(|hash| entry(*hash, 0, 100)).collect();
    assert!(index.add_pack(name(pack, 5), 100, &entries));
    index
}

/// Guards against a removed entry that comes back from the tier.
#[test]
fn entry_that_changes_on_its_way_is_not_added() {
    let mut index = TierIndex::new();
    let moment = index.begin_look();
    // The key is removed after the entry was read from the store.
    index.begin_change(1);
    let during = index.begin_look();
    assert!(!index.await_pack(1, (1, 0), during), "during the change");
    index.end_change(1);
    assert!(!index.await_pack(1, (1, 0), moment), "after the change");
    // The key is removed while its pack is being stored.
    let pack = index.begin_pack();
    let moment = index.begin_look();
    assert!(index.await_pack(1, (pack, 0), moment) && index.await_pack(2, (pack, 50), moment));
    index.begin_change(1);
    index.end_change(1);
    assert!(index.add_pack(name(pack, 5), 100, &[entry(1, 0, 50), entry(2, 50, 50)]));
    assert_eq!((index.find(1), index.find(2).is_some()), (None, true));
    // A new version in the same pack is another record.
    let pack = index.begin_pack();
    let moment = index.begin_look();
    assert!(index.await_pack(7, (pack, 0), moment));
    index.begin_change(7);
    index.end_change(7);
    let later = index.begin_look();
    assert!(index.await_pack(7, (pack, 60), later));
    assert!(index.add_pack(name(pack, 5), 120, &[entry(7, 0, 60), entry(7, 60, 60)]));
    assert_eq!(index.find(7).unwrap().offset, 60);
    // Once stored, it is not stored again.
    let later = index.begin_look();
    assert!(!index.await_pack(2, (9, 0), later));
}

/// Guards against an entry that returns into the store after it was removed there, or after everything was.
#[test]
fn entry_that_changes_is_not_put_back_and_nothing_is_added_while_all_is_emptied() {
    let mut index = with_pack(&[1, 2]);
    let place = index.find(1).unwrap();
    assert!(index.begin_restoring(1, place) && !index.begin_restoring(1, place));
    assert!(index.is_restoring(Some(1)) && index.is_restoring(None) && !index.is_restoring(Some(2)));
    index.end_restoring(1);
    index.begin_change(1);
    assert!(!index.begin_restoring(1, place) && !index.is_restoring(None));
    index.end_change(1);
    let before = index.begin_look();
    assert_eq!(index.begin_clearing(), [name(1, 5)]);
    let during = index.begin_look();
    assert!(!index.accepts(3, during));
    index.end_clearing();
    let after = index.begin_look();
    assert!(!index.accepts(3, before) && !index.accepts(3, during) && index.accepts(3, after));
    // A pack that was on its way is useless then.
    assert!(!index.add_pack(name(2, 6), 100, &[entry(2, 0, 100)]));
    assert_eq!((index.pack_count(), index.bytes()), (0, 0));
}

#[test]
fn journal_of_all_changes_gives_the_same_index() {
    let mut index = with_pack(&[1, 2, 3]);
    assert!(index.begin_change(2));
    index.end_change(2);
    let pack = index.begin_pack();
    let moment = index.begin_look();
    assert!(index.await_pack(4, (pack, 0), moment));
    assert!(index.add_pack(name(pack, 6), 70, &[entry(4, 0, 70)]));
    let lines = index.take_lines();
    for lines in [&lines, &index.snapshot()] {
        let mut other = TierIndex::new();
        lines.iter().for_each(|line| other.apply(line));
        assert_eq!((other.entry_count(), other.bytes(), other.pack_count()), (3, 170, 2));
        assert!([1, 3, 4].into_iter().all(|hash| other.find(hash) == index.find(hash)));
        assert_eq!((other.find(2), other.begin_pack()), (None, 3));
    }
}

/// Guards against a read of gigabytes, or a panic, because of a journal with impossible lines.
#[test]
fn impossible_lines_of_a_journal_are_left_out() {
    let mut index = TierIndex::new();
    let place = |pack, offset, len| PackPlace { pack, offset, len };
    for line in [
        JournalLine::Entry { hash: 1, place: place(9, 0, 10) },
        JournalLine::Pack { name: name(u32::MAX, 1), bytes: 100 },
        JournalLine::Pack { name: name(8, 1), bytes: u64::MAX },
        JournalLine::Pack { name: name(5, 1), bytes: 100 },
        JournalLine::Pack { name: name(5, 1), bytes: 100 },
        JournalLine::Entry { hash: 2, place: place(5, 50, u32::MAX) },
        JournalLine::Entry { hash: 3, place: place(5, u32::MAX, u32::MAX) },
        JournalLine::PackRemoved { pack: 7 },
    ] {
        index.apply(&line);
    }
    assert_eq!((index.entry_count(), index.pack_count(), index.bytes()), (0, 1, 100));
}

#[test]
fn oldest_packs_go_first() {
    let mut index = with_pack(&[1, 2]);
    let pack = index.begin_pack();
    let moment = index.begin_look();
    assert!(index.await_pack(3, (pack, 0), moment));
    assert!(index.add_pack(name(pack, 6), 100, &[entry(3, 0, 100)]));
    assert_eq!(index.shrink_to(150), [name(1, 5)]);
    assert_eq!((index.find(1), index.find(3).is_some(), index.bytes()), (None, true, 100));
    assert_eq!(index.clear(), [name(2, 6)]);
    assert_eq!((index.entry_count(), index.bytes()), (0, 0));
}
