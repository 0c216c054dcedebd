//! Checks that policies with entries in files create and remove as many files as their papers state, never exceed their
//! size, and restore everything after a clean stop.

use crate::support::{block_on, body, head, insert, key_bytes, options, version_of};
use larder_device::{Device, Directory, FileName, FileWork, MemoryDevice, MemoryDirectory};
use larder_store::{ErrorKind, Hints, Policy, Store, StoreOptions};
use std::{
    collections::HashSet,
    sync::{Arc, Mutex},
};

const SIZE_BYTES: u64 = 8 << 20;
const VOLUME_BYTES: u64 = 1 << 20;

/// A memory directory that records its operations.
struct NotingDirectory {
    inner: MemoryDirectory,
    done: Mutex<Done>,
}

#[derive(Default)]
struct Done {
    names: HashSet<FileName>,
    made: Vec<String>,
    removed: Vec<String>,
    writes: usize,
    reads: usize,
}

impl NotingDirectory {
    fn new() -> Arc<Self> {
        Arc::new(Self { inner: MemoryDirectory::new(SIZE_BYTES), done: Mutex::default() })
    }

    /// Returns the operations since the last call: files created and removed, and the numbers of writes and reads.
    fn take(&self) -> (Vec<String>, Vec<String>, usize, usize) {
        let mut done = self.done.lock().unwrap();
        let Done { made, removed, writes, reads, .. } = &mut *done;
        (std::mem::take(made), std::mem::take(removed), std::mem::take(writes), std::mem::take(reads))
    }
}

impl Directory for NotingDirectory {
    fn submit(&self, work: FileWork) {
        let mut done = self.done.lock().unwrap();
        match &work {
            FileWork::Write { file, .. } => {
                done.writes += 1;
                if done.names.insert(file.clone()) {
                    done.made.push(file.to_string());
                }
            }
            FileWork::Remove { file, .. } => {
                done.names.remove(file);
                done.removed.push(file.to_string());
            }
            FileWork::Read { .. } => done.reads += 1,
            FileWork::Clear { .. } => done.names.clear(),
            _ => {}
        }
        drop(done);
        self.inner.submit(work);
    }

    fn block_bytes(&self) -> u32 {
        self.inner.block_bytes()
    }

    fn name(&self) -> &'static str {
        "noting"
    }
}

struct Bench {
    device: Arc<MemoryDevice>,
    directory: Arc<NotingDirectory>,
    options: StoreOptions,
    store: Store,
}

impl Bench {
    fn new(row: &str) -> Self {
        let policy = Policy::named(row).unwrap();
        let options = StoreOptions { policy, size_bytes: SIZE_BYTES, ..options() };
        let device = Arc::new(MemoryDevice::new(VOLUME_BYTES));
        let directory = NotingDirectory::new();
        let store = open(&device, &directory, &options);
        Self { device, directory, options, store }
    }

    /// Opens the store again. Without closing it first, this is a crash.
    fn open_again(&mut self) {
        self.store = open(&self.device, &self.directory, &self.options);
    }

    fn insert_for_site(&self, key: u64, site: u64, body_len: usize) {
        let mut writer =
            self.store.insert(&key_bytes(key), head(key, 1, body_len), Hints { site, ..Hints::default() }).unwrap();
        writer.write(body(key, 1, body_len)).unwrap();
        block_on(writer.commit()).unwrap();
    }
}

fn open(device: &Arc<MemoryDevice>, directory: &Arc<NotingDirectory>, options: &StoreOptions) -> Store {
    let (device, directory): (Arc<dyn Device>, Arc<dyn Directory>) =
        (Arc::clone(device) as _, Arc::clone(directory) as _);
    Store::open_on_files(device, directory, options).unwrap()
}

fn rows() -> impl Iterator<Item = &'static Policy> {
    Policy::all().iter().filter(|policy| policy.layout.keeps_files())
}

#[test]
fn a_file_is_made_per_entry_read_per_hit_and_removed_with_it() {
    for row in ["simple", "squid", "multiple-dirs"] {
        let bench = Bench::new(row);
        bench.directory.take();
        let mut names = Vec::new();
        for key in 0..20 {
            bench.insert_for_site(key, key % 3, 5000);
            let (made, removed, writes, reads) = bench.directory.take();
            assert_eq!((made.len(), removed.len(), writes, reads), (1, 0, 1, 0), "{row}");
            names.extend(made);
            assert_eq!(version_of(&bench.store, key), Some(1));
            assert_eq!(bench.directory.take(), (vec![], vec![], 0, 1), "{row}");
        }
        assert_eq!(version_of(&bench.store, 77), None);
        assert_eq!(bench.directory.take(), (vec![], vec![], 0, 0), "{row}");
        block_on(bench.store.remove(&key_bytes(4))).unwrap();
        assert_eq!(bench.directory.take(), (vec![], vec![names[4].clone()], 0, 0), "{row}");
        assert!(insert(&bench.store, 5, 2, 100));
        let (made, removed, ..) = bench.directory.take();
        assert_eq!((made.len(), &removed[..]), (1, &names[5..6]), "{row}: a new version removes the old one's file");
        let folders: Vec<_> = names.iter().map(|name| name.rsplit_once('/').map_or("", |(folder, _)| folder)).collect();
        let count = folders.iter().collect::<HashSet<_>>().len();
        match row {
            "simple" => assert_eq!(count, 1),
            // 256 files before the next directory.
            "squid" => assert_eq!((count, folders[0]), (1, "0/00")),
            _ => assert!(count == 3 && (3..20).all(|at| folders[at] == folders[at - 3]), "{folders:?}"),
        }
    }
}

#[test]
fn buddy_neither_makes_nor_removes_files_below_the_threshold() {
    let bench = Bench::new("buddy");
    // One file for each of two lengths.
    for key in 0..2 {
        assert!(insert(&bench.store, key, 1, 2000 + key as usize * 1000));
    }
    assert_eq!(bench.directory.take().0.len(), 2);
    for round in 0..20 {
        for key in 0..30 {
            assert!(insert(&bench.store, key, round, 2000 + (key + round) as usize % 2 * 1000));
        }
        block_on(bench.store.remove(&key_bytes(round))).unwrap();
    }
    let (made, removed, writes, _) = bench.directory.take();
    assert_eq!((made.len(), removed.len(), writes), (0, 0, 600));
    assert!((20..30).all(|key| version_of(&bench.store, key) == Some(19)));
    assert_eq!(bench.directory.take().3, 10, "a read a hit");
    // At any time at most thirty of the longer entries, in slots of 7 sectors; each takes the first free slot.
    assert!(bench.directory.inner.size_bytes() <= 31 * (5 + 7) * 512, "{}", bench.directory.inner.size_bytes());

    assert!(insert(&bench.store, 100, 1, 200_000));
    let (made, ..) = bench.directory.take();
    assert_eq!(made.len(), 1, "over the threshold it has a file of its own");
    block_on(bench.store.remove(&key_bytes(100))).unwrap();
    assert_eq!(bench.directory.take().1, made);
}

/// Checks the layout of SQUIDML, and that no file is looked for in another directory after the setting was changed.
#[test]
fn long_entries_of_buddy_are_in_the_directories_of_their_sites_and_are_found_whatever_the_setting() {
    let mut bench = Bench::new("buddy");
    bench.options.tuning.buddy_threshold_bytes = 8 << 10;
    bench.options.tuning.buddy_long_by_site = true;
    bench.open_again();
    bench.directory.take();
    for key in 0..6 {
        assert!(insert(&bench.store, key, 1, 20_000));
    }
    assert!(insert(&bench.store, 6, 1, 2000));
    let (made, ..) = bench.directory.take();
    let folders: Vec<_> = made.iter().map(|name| name.rsplit_once('/').map_or("", |(folder, _)| folder)).collect();
    assert_eq!(made.len(), 7, "{made:?}");
    assert!(folders[..6].iter().all(|folder| folder.starts_with("long/")) && folders[6].is_empty(), "{folders:?}");
    for is_by_site in [false, true] {
        block_on(bench.store.close()).unwrap();
        bench.options.tuning.buddy_long_by_site = is_by_site;
        bench.open_again();
        assert!((0..7).all(|key| version_of(&bench.store, key) == Some(1)), "{is_by_site}");
    }
}

#[test]
fn the_size_is_a_hard_bound_and_the_least_recently_used_go() {
    for policy in rows() {
        let bench = Bench::new(policy.name);
        let mut bench = bench;
        let mut stored = 0;
        for key in 0..3000_u64 {
            if key == 1500 {
                block_on(bench.store.close()).unwrap();
                stored = bench.store.stats().entries;
                bench.open_again();
            }
            stored += u64::from(insert(&bench.store, key, 1, (key * 7919 % 17) as usize * 1000 + 500));
            let files_bytes = bench.directory.inner.size_bytes();
            assert!(files_bytes <= SIZE_BYTES - (128 << 10), "{policy}: {files_bytes} after {key}");
            assert!(
                key == 0 || version_of(&bench.store, 0) == Some(1),
                "{policy}: asked for all the time, gone at {key}"
            );
        }
        let stats = bench.store.stats();
        assert!(stats.evicted > 1000 && stored == stats.entries + stats.evicted, "{policy}: {stats:?}");
        assert!(stats.commits > 1450, "{policy}: {stats:?}");
        assert_eq!((0..3000).filter(|&key| version_of(&bench.store, key).is_some()).count() as u64, stats.entries);
    }
}

#[test]
fn a_clean_stop_keeps_every_file_and_a_crash_those_that_were_written_down() {
    for policy in rows() {
        let mut bench = Bench::new(policy.name);
        let held = |bench: &Bench| (0..200).filter(|&key| version_of(&bench.store, key) == Some(1)).count();
        for key in 0..200 {
            bench.insert_for_site(key, key % 5, key as usize * 97);
        }
        assert!(insert(&bench.store, 300, 1, 150_000));
        for _ in 0..2 {
            block_on(bench.store.close()).unwrap();
            bench.open_again();
            assert_eq!(held(&bench), 200, "{policy}");
        }
        assert!(insert(&bench.store, 200, 1, 100_000));
        assert_eq!((held(&bench), version_of(&bench.store, 300)), (200, Some(1)), "{policy}");
        block_on(bench.store.sync()).unwrap();
        block_on(bench.store.remove(&key_bytes(300))).unwrap();
        let known = bench.directory.inner.size_bytes();
        assert!(insert(&bench.store, 400, 1, 150_000));
        bench.open_again();
        assert_eq!((held(&bench), version_of(&bench.store, 200)), (200, Some(1)), "{policy}");
        assert_eq!((version_of(&bench.store, 300), version_of(&bench.store, 400)), (None, None), "{policy}");
        assert_eq!(bench.directory.inner.size_bytes(), known, "{policy}: the file that was not written down is gone");
        assert!(insert(&bench.store, 1, 2, 5000));
        assert_eq!(version_of(&bench.store, 1), Some(2));
    }
}

#[test]
fn real_files_are_made_kept_over_a_stop_and_removed() {
    for policy in rows() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        let options =
            StoreOptions { policy, path: path.clone(), size_bytes: SIZE_BYTES, background: true, ..options() };
        let store = Store::open(options.clone()).unwrap();
        for key in 0..20 {
            assert!(insert(&store, key, 1, 9000));
        }
        assert!(Store::open(options.clone()).is_err_and(|error| error.kind() == ErrorKind::InUse), "in use");
        block_on(store.close()).unwrap();
        drop(store);
        let other_size = StoreOptions { size_bytes: SIZE_BYTES * 2, ..options.clone() };
        assert!(Store::open(other_size).is_err_and(|error| error.kind() == ErrorKind::Invalid), "{policy}");
        let store = Store::open(options.clone()).unwrap();
        assert_eq!(store.stats().size_bytes, SIZE_BYTES);
        // Its own thread loads it; commits wait for that.
        assert!(insert(&store, 20, 1, 9000));
        assert!((0..=20).all(|key| version_of(&store, key) == Some(1)), "{policy}");
        block_on(store.close()).unwrap();
        drop(store);
        assert_eq!(larder_store::survey(&path).unwrap().1.entries, 21, "{policy}");
        assert_eq!(damages(&path), 0, "{policy}");
        let mut files = vec![path.join("files")];
        while files.last().unwrap().is_dir() {
            let folder = files.pop().unwrap();
            files.extend(std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()));
        }
        let mut bytes = std::fs::read(files.last().unwrap()).unwrap();
        bytes[3000] ^= 1;
        std::fs::write(files.last().unwrap(), bytes).unwrap();
        assert_eq!(damages(&path), 1, "{policy}: a flipped bit is found");
        let one_file = StoreOptions { policy: Policy::named("stream").unwrap(), ..options };
        assert!(Store::open(one_file).is_err(), "{policy}: a directory is no volume");
    }
}

fn damages(store: &std::path::Path) -> u64 {
    larder_store::check(store, &mut |_, _| {}).unwrap().damage_count
}

#[test]
fn a_row_of_files_needs_a_directory_and_others_want_none() {
    let on = |row| StoreOptions { policy: Policy::named(row).unwrap(), size_bytes: SIZE_BYTES, ..options() };
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(SIZE_BYTES));
    let invalid = |outcome: larder_store::Result<Store>| outcome.is_err_and(|error| error.kind() == ErrorKind::Invalid);
    assert!(invalid(Store::open_on(Arc::clone(&device), &on("simple"))));
    assert!(invalid(Store::open_on_files(device, NotingDirectory::new(), &on("stream"))));
}
