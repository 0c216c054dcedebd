//! Examining stores without changing them. Guards against damage that is not reported, and a check that causes damage.

use std::{
    fs::{self, File, OpenOptions},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use larder_device::Device;
use larder_store::{
    CheckFindings, EngineRow, ErrorKind, PathContent, Policy, Stats, Store, StoreOptions, check,
    index_bytes_max_default, inspect, mean_entry_bytes_default, survey,
};
use proptest::{
    strategy::{Strategy, ValueTree},
    test_runner::TestRunner,
};
use tempfile::TempDir;

use crate::support::{RecordingDevice, block_on, insert, key_bytes, options};

const SIZE_BYTES: u64 = 12 << 20;

struct Subject {
    _scratch: TempDir,
    path: PathBuf,
    policy: &'static Policy,
}

impl Subject {
    fn new() -> Self {
        Self::of(Policy::default_policy())
    }

    fn of(policy: &'static Policy) -> Self {
        let scratch = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        Self { path: scratch.path().join("store"), _scratch: scratch, policy }
    }

    fn open(&self) -> Store {
        let path = self.path.clone();
        let policy = self.policy;
        Store::open(StoreOptions { path, policy, size_bytes: SIZE_BYTES, ..options() }).unwrap()
    }

    fn filled(keys: u64) -> Self {
        Self::new().fill(keys)
    }

    fn fill(self, keys: u64) -> Self {
        let subject = self;
        let store = subject.open();
        for key in 0..keys {
            insert(&store, key, 1, 300 + 977 * (key as usize % 90));
        }
        block_on(store.close()).unwrap();
        subject
    }

    fn flip(&self, offset_bytes: u64, bit: u8) {
        flip(&self.path, offset_bytes, bit);
    }
}

fn flip(path: &Path, offset_bytes: u64, bit: u8) {
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset_bytes).unwrap();
    file.write_all_at(&[byte[0] ^ 1 << bit], offset_bytes).unwrap();
}

/// Returns every file of a store with its bytes: a single file, or those of its directory.
fn contents(path: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    if !path.is_dir() {
        return vec![(path.to_owned(), fs::read(path).unwrap())];
    }
    let mut entries: Vec<_> = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    entries.iter().flat_map(|entry| contents(entry)).collect()
}

/// Checks the store, and that this changes nothing.
#[track_caller]
fn checked(path: &Path) -> CheckFindings {
    let before = contents(path);
    let mut last = (0, 0);
    let findings = check(path, &mut |done, total| {
        assert!(last.0 <= done && done <= total, "progress goes forward");
        last = (done, total);
    })
    .unwrap();
    assert!(last.0 == last.1 && last.1 >= SIZE_BYTES - (1 << 20), "{last:?}");
    assert!(contents(path) == before, "a check changed the store");
    assert_eq!(findings.damage_count as usize, findings.damages.len());
    findings
}

#[test]
fn a_sound_store_has_no_damage_however_it_was_left() {
    let subject = Subject::filled(60);
    let findings = checked(&subject.path);
    assert_eq!((findings.entries, findings.damage_count, findings.removals), (60, 0, 0), "{findings:?}");
    assert!(findings.segments > 0 && findings.entry_bytes > 60 * 300);
    let (info, stats) = survey(&subject.path).unwrap();
    assert_eq!((info.size_bytes, stats.entries), (SIZE_BYTES, 60));
    // Full many times over, and not closed.
    let store = subject.open();
    for key in 0..2000 {
        insert(&store, key, 2, 40_000);
        if key % 7 == 0 {
            block_on(store.remove(&key_bytes(key))).unwrap();
        }
    }
    block_on(store.sync()).unwrap();
    let left = fs::read(&subject.path).unwrap();
    drop(store);
    fs::write(&subject.path, left).unwrap();
    let findings = checked(&subject.path);
    assert_eq!(findings.damages, [], "{findings:?}");
    assert!(findings.entries > 100 && findings.removals > 0, "{findings:?}");
    assert!(survey(&subject.path).unwrap().1.entries > 100);
}

#[test]
fn what_was_invalidated_is_told_apart() {
    let subject = Subject::filled(20);
    let store = subject.open();
    block_on(store.clear()).unwrap();
    insert(&store, 100, 1, 500);
    block_on(store.close()).unwrap();
    drop(store);
    let findings = checked(&subject.path);
    assert_eq!((findings.entries, findings.invalidated), (21, 20));
}

/// Flips any meaningful bit: in records, unit headers, trailers and superblocks.
#[test]
fn a_flipped_bit_anywhere_in_use_is_found() {
    // Few enough entries that no segment is reused, because remains of its first use may be damaged.
    let subject = Subject::filled(200);
    let whole = fs::read(&subject.path).unwrap();
    let magics: Vec<usize> = (0..whole.len())
        .step_by(8)
        .filter(|at| [b"LDRr", b"LDRu"].iter().any(|magic| whole[*at..].starts_with(*magic)))
        .collect();
    let trailers = (0..whole.len() - 64).step_by(64).filter(|at| whole[*at..].starts_with(b"LDRt"));
    let mut runner = TestRunner::deterministic();
    let mut pick = |range: std::ops::Range<usize>| range.new_tree(&mut runner).unwrap().current();
    // In records, headers, superblocks and footers, the first 48 bytes are always meaningful.
    let mut places: Vec<usize> = magics.iter().map(|at| at + pick(0..48)).step_by(magics.len() / 40).collect();
    places.extend(trailers.map(|at| at + pick(0..40)).take(10));
    places.extend([3, 20, 70, whole.len() - 4096 + 20]);
    assert!(places.len() > 50);
    for place in places {
        let bit = pick(0..8) as u8;
        subject.flip(place as u64, bit);
        let findings = checked(&subject.path);
        assert_ne!(findings.damage_count, 0, "bit {bit} of byte {place}");
        let nearest = findings.damages.iter().map(|damage| damage.offset_bytes.abs_diff(place as u64)).min().unwrap();
        assert!(nearest < 64 << 10, "byte {place}: {:?}", findings.damages);
        subject.flip(place as u64, bit);
    }
    assert_eq!(checked(&subject.path).damage_count, 0);
}

/// Guards against policies that a check covers less thoroughly than the default one.
#[test]
fn in_every_row_a_flipped_bit_in_a_record_is_found() {
    for policy in Policy::all() {
        let subject = Subject::of(policy).fill(60);
        let findings = checked(&subject.path);
        assert_eq!(findings.damages, [], "{policy}");
        assert!((30..=140).contains(&findings.entries), "{policy}: {findings:?}");
        check_told(policy, &subject, &findings);
        let mut records = Vec::new();
        for (file, bytes) in contents(&subject.path) {
            let starts = (0..bytes.len()).step_by(8).filter(|at| bytes[*at..].starts_with(b"LDRr"));
            records.extend(starts.map(|at| (file.clone(), at as u64)));
        }
        assert!(records.len() > 28, "{policy}");
        for (index, (file, start)) in records.iter().step_by(4).enumerate() {
            // The magic, the head, the key, the body.
            let place = start + [1, 20, 70, 250][index % 4];
            flip(file, place, 6);
            let findings = checked(&subject.path);
            assert_ne!(findings.damage_count, 0, "{policy}: byte {place} of {}", file.display());
            flip(file, place, 6);
        }
        assert_eq!(checked(&subject.path).damages, [], "{policy}");
    }
}

/// Checks that a survey reports the same as the open store, and no more than the volume has.
#[track_caller]
fn check_told(policy: &'static Policy, subject: &Subject, findings: &CheckFindings) {
    let (info, told) = survey(&subject.path).unwrap();
    assert_eq!(info.policy, Some(policy));
    let path = subject.path.clone();
    let size_bytes = SIZE_BYTES;
    // The mean for a store of this size, as in the survey.
    let mean_entry_bytes = mean_entry_bytes_default(size_bytes);
    let index_bytes_max = index_bytes_max_default(size_bytes);
    let options = StoreOptions { path, policy, size_bytes, mean_entry_bytes, index_bytes_max, ..options() };
    let store = Store::open(options).unwrap();
    let open = store.stats();
    block_on(store.close()).unwrap();
    let figures = |stats: &Stats| (stats.entries, stats.counts_all_entries, stats.entries_max);
    assert_eq!(figures(&told), figures(&open), "{policy}");
    // Files of slots take some bytes once they exist.
    let more = open.index_bytes - told.index_bytes;
    assert!(more == 0 || (policy.name == "buddy" && more * 50 < told.index_bytes), "{policy}: {told:?}, open {open:?}");
    assert!(told.loaded && told.entries <= findings.entries, "{policy}: {told:?}");
    let has_no_index = matches!(policy.name, "hashcache-basic" | "hashcache-set");
    assert_eq!(told.index_bytes == 0, has_no_index, "{policy}: {told:?}");
    // Tables know of a set once it was read.
    assert_eq!(told.counts_all_entries, !matches!(policy.engine, EngineRow::Table(_)), "{policy}: {told:?}");
    assert!(!told.counts_all_entries || told.entries >= 55, "{policy}: {told:?}");
    assert_eq!(told.segments_in_use, findings.segments, "{policy}");
}

/// Bytes of bodies, all over the store.
#[test]
fn a_flipped_bit_in_a_body_is_found() {
    let subject = Subject::filled(60);
    let whole = fs::read(&subject.path).unwrap();
    let records: Vec<usize> = (0..whole.len()).step_by(8).filter(|at| whole[*at..].starts_with(b"LDRr")).collect();
    // Some entries are in parts.
    assert!((60..80).contains(&records.len()), "{}", records.len());
    for pair in records.windows(2).filter(|pair| pair[1] - pair[0] > 2048).step_by(3) {
        let place = (pair[0] + 1024) as u64;
        subject.flip(place, 5);
        let findings = checked(&subject.path);
        assert_eq!(findings.damage_count, 1, "byte {place}: {findings:?}");
        assert!((59..=60).contains(&findings.entries), "byte {place}: {findings:?}");
        assert_eq!((findings.damages[0].offset_bytes, findings.damages[0].what), (pair[0] as u64, "a record's body"));
        subject.flip(place, 5);
    }
}

#[test]
fn what_is_no_store_is_said_so_and_left_alone() {
    let subject = Subject::new();
    assert_eq!(inspect(&subject.path).unwrap(), PathContent::Nothing);
    assert_eq!(check(&subject.path, &mut |_, _| {}).unwrap_err().kind(), ErrorKind::Invalid);
    File::create(&subject.path).unwrap().set_len(1 << 20).unwrap();
    assert_eq!(inspect(&subject.path).unwrap(), PathContent::OtherFile);
    assert_eq!(survey(&subject.path).unwrap_err().kind(), ErrorKind::Invalid);
    let held = Subject::filled(1);
    let store = held.open();
    assert_eq!(survey(&held.path).unwrap_err().kind(), ErrorKind::InUse);
    drop(store);
    survey(&held.path).unwrap();
}

/// Guards against an operator who replaces a disk because a process was killed. The process ends after any of its last
/// writes.
#[test]
fn check_finds_no_damage_after_a_kill_at_any_write() {
    for policy in Policy::all().iter().filter(|policy| !policy.layout.keeps_files()) {
        let device = Arc::new(RecordingDevice::new());
        let mut options = StoreOptions { policy, ..options() };
        // Less room stays free than by default, so that it is given to others sooner.
        options.tuning.stream_used_percent = 93;
        let store = Store::open_on(Arc::clone(&device) as Arc<dyn Device>, &options).unwrap();
        for key in 0..400 {
            // Bodies of many lengths, so that room is given to others in pieces.
            insert(&store, key, 1, 500 + (key * 7919 % 40_000) as usize);
            options.clock.advance(Duration::from_millis(50));
            block_on(store.maintain());
        }
        let subject = Subject::of(policy);
        let mut image = vec![0; crate::support::SIZE_BYTES as usize];
        let writes = device.writes();
        for (number, (offset_bytes, buffer)) in writes.iter().enumerate() {
            image[*offset_bytes as usize..][..buffer.len()].copy_from_slice(buffer.as_slice());
            if number + 60 < writes.len() {
                continue;
            }
            fs::write(&subject.path, &image).unwrap();
            let findings = check(&subject.path, &mut |_, _| {}).unwrap();
            assert_eq!(findings.damages, [], "{policy}, write {number} of {}", writes.len());
        }
    }
}
