//! Guards against one bit that flips while a store is closed, or after it was killed. It must cost at most one entry,
//! in every place and under every policy, and must not bring back a removed or replaced entry.
//!
//! Some hundred bits of each volume are flipped; with `LARDER_FLIPS=every`, every meaningful bit.

use crate::support::{block_on, head, insert, key_bytes, version_of};
use bytes::Bytes;
use larder_device::{AlignedBuffer, Completion, Device, Directory, FileName, FileWork, MemoryDevice, MemoryDirectory};
use larder_store::{Hints, LayoutAxis, Policy, Store};
use larder_torture::{SIZE_BYTES, options};
use std::{collections::HashMap, env, sync::Arc};

/// Number of examined keys. A third was removed and a third replaced.
const KEYS: u64 = 24;
/// Byte that fills the bodies of all other entries.
const FILL: u8 = 0xA5;
/// How many bits are flipped of a volume, unless all are.
const FLIP_COUNT: usize = 40;

/// A store after a stop of some kind.
struct Left {
    policy: &'static Policy,
    volume: Vec<u8>,
    files: Vec<(FileName, Vec<u8>)>,
    /// Entries found in the undamaged store.
    found: HashMap<u64, u64>,
}

impl Left {
    fn new(policy: &'static Policy, is_closed: bool) -> Self {
        let device = Arc::new(MemoryDevice::new(SIZE_BYTES));
        let directory = Arc::new(MemoryDirectory::new(SIZE_BYTES));
        let store = open(policy, &device, &directory);
        let mut filler = 1_000;
        let mut fill = |count| (0..count).for_each(|_| fill_one(&store, &mut filler));
        (0..KEYS).for_each(|key| assert!(insert(&store, key, 1, 100)));
        fill(5);
        // Half of the changes go to sealed units, half to the open one.
        for half in 0..2 {
            for key in (0..KEYS).filter(|key| key % 6 / 3 == half) {
                match key % 3 {
                    0 => block_on(store.remove(&key_bytes(key))).unwrap(),
                    1 => assert!(insert(&store, key, 2, 90)),
                    _ => {}
                }
            }
            fill(if half == 0 { 6 } else { 1 });
        }
        let finished = if is_closed { block_on(store.close()) } else { block_on(store.sync()) };
        finished.unwrap();
        let volume = device.contents();
        let files = files_of(&directory);
        let left = Self { policy, volume, files, found: HashMap::new() };
        let found = left.look(left.volume.clone());
        assert!(found.iter().all(|(key, version)| key % 3 != 0 && *version == 1 + u64::from(key % 3 == 1)), "{policy}");
        Self { found, ..left }
    }

    /// Returns the entries that a store finds on `volume`.
    fn look(&self, volume: Vec<u8>) -> HashMap<u64, u64> {
        let directory = Arc::new(MemoryDirectory::new(SIZE_BYTES));
        self.files.iter().for_each(|(name, bytes)| write_file(&directory, name, bytes));
        let store = open(self.policy, &Arc::new(MemoryDevice::from_contents(volume)), &directory);
        (0..KEYS).filter_map(|key| Some((key, version_of(&store, key)?))).collect()
    }

    /// Returns the meaningful bits. Long runs of one byte are bodies or unused room; they count as one bit per sector.
    fn bits(&self) -> Vec<usize> {
        let is_run = |at: usize| {
            let around = &self.volume[at.saturating_sub(8)..(at + 8).min(self.volume.len())];
            around.iter().all(|&byte| byte == around[0]) && (around[0] == 0 || around[0] == FILL)
        };
        let says_something = |at: &usize| !is_run(*at) || (at % 512 == 300 && self.volume[*at] == FILL);
        (0..self.volume.len()).filter(says_something).flat_map(|byte| (0..8).map(move |bit| byte * 8 + bit)).collect()
    }

    #[track_caller]
    fn flip(&self, bit: usize) {
        let mut volume = self.volume.clone();
        volume[bit / 8] ^= 1 << (bit % 8);
        let found = self.look(volume);
        let policy = self.policy;
        let place = (bit / 8, bit % 8);
        for (key, version) in &found {
            assert_eq!(self.found.get(key), Some(version), "{policy}: byte and bit {place:?} brought back key {key}");
        }
        // A pack or a cluster has a single checksum for several records.
        let lost_max = if matches!(policy.layout, LayoutAxis::Clusters | LayoutAxis::FrontAndSets) { KEYS } else { 1 };
        let lost = self.found.len() - found.len();
        assert!(
            lost as u64 <= lost_max,
            "{policy}: byte and bit {place:?} cost {lost} of {} entries",
            self.found.len()
        );
    }
}

fn open(policy: &'static Policy, device: &Arc<MemoryDevice>, directory: &Arc<MemoryDirectory>) -> Store {
    let device = Arc::clone(device) as Arc<dyn Device>;
    let options = options(policy, 1);
    if policy.layout.keeps_files() {
        Store::open_on_files(device, Arc::clone(directory) as Arc<dyn Directory>, &options).unwrap()
    } else {
        Store::open_on(device, &options).unwrap()
    }
}

/// Stores an entry that is never looked up.
fn fill_one(store: &Store, key: &mut u64) {
    *key += 1;
    let mut writer = store.insert(&key_bytes(*key), head(*key, 1, 60_000), Hints::default()).unwrap();
    writer.write(Bytes::from(vec![FILL; 60_000])).unwrap();
    block_on(writer.commit()).unwrap();
}

fn files_of(directory: &MemoryDirectory) -> Vec<(FileName, Vec<u8>)> {
    let (completion, listed) = Completion::pair();
    directory.submit(FileWork::List { completion });
    let read = |name: FileName| {
        let bytes = directory.contents(&name).unwrap();
        (name, bytes)
    };
    block_on(listed).unwrap().into_iter().map(read).collect()
}

fn write_file(directory: &MemoryDirectory, name: &FileName, bytes: &[u8]) {
    let mut buffer = AlignedBuffer::with_len(bytes.len());
    buffer.as_mut_slice().copy_from_slice(bytes);
    let (completion, written) = Completion::pair();
    let file = name.clone();
    let buffer = Arc::new(buffer);
    directory.submit(FileWork::Write { file, offset_bytes: 0, buffer, completion });
    block_on(written).unwrap();
}

#[test]
fn in_every_row_a_flipped_bit_costs_at_most_one_entry_and_brings_nothing_back() {
    let every = env::var("LARDER_FLIPS").is_ok_and(|which| which == "every");
    for policy in Policy::all() {
        for is_closed in [true, false] {
            let left = Left::new(policy, is_closed);
            let bits = left.bits();
            let step = if every { 1 } else { (bits.len() / FLIP_COUNT) | 1 };
            let mut count = 0;
            for &bit in bits.iter().step_by(step) {
                left.flip(bit);
                count += 1;
            }
            println!("{policy}: {count} of {} bits, of {} entries, closed {is_closed}", bits.len(), left.found.len());
            assert!(count >= FLIP_COUNT / 2, "{policy}: {count}");
        }
    }
}

/// Returns the length of the unit header that begins here.
fn header_len(bytes: &[u8]) -> Option<usize> {
    let forms = [(b"LDRu", 48), (b"LDRg", 56)];
    forms.into_iter().find(|(magic, _)| bytes.starts_with(*magic)).map(|(_, len)| len)
}

/// Checks damage to any byte of a segment's first header, which shows the segment's present use.
#[test]
fn a_flipped_bit_in_a_segments_first_header_costs_nothing_and_brings_nothing_back() {
    for policy in Policy::all().iter().filter(|policy| policy.layout == LayoutAxis::Segments) {
        for is_closed in [true, false] {
            let left = Left::new(policy, is_closed);
            let is_first =
                |at: &usize| header_len(&left.volume[*at..]).is_some() && left.volume[at + 32..at + 36] == [0; 4];
            let firsts: Vec<usize> = (0..left.volume.len() - 4096).step_by(4096).filter(is_first).collect();
            assert!(firsts.len() >= 3, "{policy}: {firsts:?}");
            let header = |first: &usize| *first..first + header_len(&left.volume[*first..]).unwrap();
            for (count, byte) in firsts.iter().flat_map(header).enumerate() {
                let mut volume = left.volume.clone();
                volume[byte] ^= 1 << (count % 8);
                assert_eq!(left.look(volume), left.found, "{policy}: bit {} of byte {byte}", count % 8);
            }
        }
    }
}

/// If the whole first block is lost, only the trailer or the checkpoint shows the use.
#[test]
fn a_segment_whose_first_block_is_gone_loses_what_was_in_that_block() {
    for policy in Policy::all().iter().filter(|policy| policy.layout == LayoutAxis::Segments) {
        let left = Left::new(policy, true);
        let mut firsts = (0..left.volume.len() - 4096).step_by(4096);
        let first = firsts.find(|at| header_len(&left.volume[*at..]).is_some()).unwrap();
        let mut volume = left.volume.clone();
        volume[first..first + 4096].iter_mut().enumerate().for_each(|(at, byte)| *byte ^= (at * 131 + 7) as u8);
        let found = left.look(volume);
        assert!(found.iter().all(|(key, version)| left.found.get(key) == Some(version)), "{policy}");
        // An entry takes a sector at least.
        assert!(found.len() + 8 > left.found.len() && found.len() > 8, "{policy}: {} found", found.len());
    }
}

/// Two flipped bits cannot be corrected. It is unknown what such a unit removed or replaced, so nothing older is
/// trusted.
#[test]
fn a_unit_that_is_damaged_for_certain_costs_what_is_older_and_brings_nothing_back() {
    for policy in Policy::all().iter().filter(|policy| policy.layout == LayoutAxis::Segments) {
        for is_closed in [true, false] {
            let left = Left::new(policy, is_closed);
            let mut empty_count = 0;
            let units = (0..left.volume.len() - 4096).step_by(4096);
            for unit in units.filter(|at| header_len(&left.volume[*at..]).is_some()) {
                let mut volume = left.volume.clone();
                volume[unit + 36] ^= 3;
                let found = left.look(volume);
                let is_old = found.iter().any(|(key, version)| left.found.get(key) != Some(version));
                assert!(!is_old, "{policy}: the unit at byte {unit} brought something back");
                empty_count += usize::from(found.is_empty());
            }
            // With a trailer, the units' headers are not needed. But the oldest segment of either generation may have
            // been reused.
            assert!(if is_closed { empty_count <= 2 } else { empty_count > 0 }, "{policy}: {empty_count}");
        }
    }
}
