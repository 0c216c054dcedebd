//! Checks that damaged bytes on the device cause a miss, never a wrong response or a panic.

use crate::support::{
    RecordingDevice, SEGMENT_BYTES, SIZE_BYTES, block_on, body, insert, key_bytes, open_image, options, version_of,
};
use larder_device::{AlignedBuffer, Device, FaultPlan, FaultyDevice, MemoryDevice};
use larder_store::{Policy, Store, StoreOptions};
use std::{collections::HashSet, sync::Arc, time::Duration};

const KEYS: u64 = 60;

fn filled() -> (Vec<u8>, usize) {
    let device = Arc::new(RecordingDevice::new());
    let store = Store::open_on(Arc::clone(&device) as Arc<dyn Device>, &options()).unwrap();
    for key in 0..KEYS {
        assert!(insert(&store, key, key + 1, (key as usize * 997) % 20_000));
    }
    block_on(store.close()).unwrap();
    let writes = device.writes();
    let ends = writes.iter().map(|(offset, buffer)| *offset as usize + buffer.len());
    let used = ends.filter(|end| *end < SIZE_BYTES as usize - 4096).max().unwrap();
    (device.contents(), used)
}

fn found(store: &Store) -> usize {
    let versions = (0..KEYS).map(|key| (key, version_of(store, key)));
    versions.filter(|(key, version)| version.inspect(|version| assert_eq!(*version, key + 1)).is_some()).count()
}

/// Returns pseudo-random numbers, the same in every run.
fn places(count: usize, below: usize) -> impl Iterator<Item = usize> {
    let mut state = 12_345_u64;
    (0..count).map(move |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 16) as usize % below
    })
}

#[test]
fn a_flipped_bit_costs_at_most_one_entry() {
    let (image, used) = filled();
    let whole = found(&open_image(image.clone()));
    assert_eq!(whole as u64, KEYS);
    let mut noticed = HashSet::new();
    for place in places(1500, used * 8) {
        let mut damaged = image.clone();
        damaged[place / 8] ^= 1 << (place % 8);
        let left = found(&open_image(damaged));
        assert!(left + 1 >= whole, "bit {place} cost {} entries", whole - left);
        noticed.insert(left);
    }
    assert!(noticed.len() == 2, "some flips hit entries, some hit nothing");
}

#[test]
fn a_garbled_block_costs_only_what_was_in_it() {
    let (image, used) = filled();
    for block in 0..used / 4096 {
        let mut damaged = image.clone();
        for (at, byte) in damaged[block * 4096..(block + 1) * 4096].iter_mut().enumerate() {
            *byte ^= (at * 131 + block) as u8;
        }
        let left = found(&open_image(damaged));
        assert!(left as u64 + 60 >= KEYS, "block {block}");
    }
}

#[test]
fn both_superblocks_gone_is_an_error_that_touches_nothing() {
    let (mut image, _) = filled();
    let last = (SIZE_BYTES / 4096 * 4096 - 4096) as usize;
    for at in [100, last + 100] {
        image[at] ^= 1;
    }
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::from_contents(image));
    let error = Store::open_on(device, &options()).expect_err("a damaged volume is refused");
    assert_eq!(error.kind(), larder_store::ErrorKind::Corrupt);
}

#[test]
fn one_superblock_gone_is_no_loss() {
    let (image, _) = filled();
    for at in [100, (SIZE_BYTES / 4096 * 4096 - 4096) as usize + 100] {
        let mut damaged = image.clone();
        damaged[at] ^= 1;
        assert_eq!(found(&open_image(damaged)) as u64, KEYS);
    }
}

/// Guards against an invalidated entry that comes back. One copy of the superblock is older because its last write was
/// lost, and the newer one is misread once.
#[test]
fn a_copy_of_the_superblock_that_is_misread_once_is_read_again() {
    let last = (SIZE_BYTES / 4096 * 4096 - 4096) as usize;
    for (older, misread) in [(0, 1), (last, 0)] {
        let device = Arc::new(RecordingDevice::new());
        let store = Store::open_on(Arc::clone(&device) as Arc<dyn Device>, &options()).unwrap();
        assert!(insert(&store, 1, 1, 100));
        let before = device.contents();
        block_on(store.clear()).unwrap();
        assert!(insert(&store, 2, 1, 100));
        block_on(store.close()).unwrap();
        let mut image = device.contents();
        image[older..older + 4096].copy_from_slice(&before[older..older + 4096]);
        let plan = FaultPlan { error_at: Some(misread), ..FaultPlan::default() };
        let device = FaultyDevice::with_contents(&MemoryDevice::from_contents(image), 1, plan);
        let again = Store::open_on(Arc::new(device), &options()).unwrap();
        assert_eq!((version_of(&again, 1), version_of(&again, 2)), (None, Some(1)));
    }
}

#[test]
fn a_foreign_device_is_refused() {
    let mut image = vec![0; SIZE_BYTES as usize];
    image[5] = 7;
    let device: Arc<dyn Device> = Arc::new(larder_device::MemoryDevice::from_contents(image));
    let error = Store::open_on(device, &options()).expect_err("a foreign device is refused");
    assert_eq!(error.kind(), larder_store::ErrorKind::Invalid);
}

const LOG_ROWS: [&str; 5] = ["hashcache-log-n", "hashcache-log", "hashcache-log-lru", "log-clock", "log"];
const REPLACED_KEYS: u64 = 600;

fn options_of(row: &str) -> StoreOptions {
    StoreOptions { policy: Policy::named(row).unwrap(), size_bytes: 24 << 20, identity_seed: Some(1), ..options() }
}

/// Returns a volume on which every entry was replaced, after a clean stop or a kill.
fn replaced(row: &str, is_killed: bool) -> Vec<u8> {
    let device = Arc::new(MemoryDevice::new(options_of(row).size_bytes));
    let options = options_of(row);
    let store = Store::open_on(Arc::clone(&device) as Arc<dyn Device>, &options).unwrap();
    for version in 1..=2 {
        for key in 0..REPLACED_KEYS {
            assert!(insert(&store, key, version, 12_000));
            options.clock.advance(Duration::from_millis(100));
            block_on(store.maintain());
        }
    }
    if is_killed {
        block_on(store.sync()).unwrap();
        block_on(store.maintain());
    } else {
        block_on(store.close()).unwrap();
    }
    device.contents()
}

/// Counts the replaced entries that a store shows, and their replacements.
fn old_and_new(row: &str, image: Vec<u8>) -> (usize, usize) {
    let store = Store::open_on(Arc::new(MemoryDevice::from_contents(image)), &options_of(row)).unwrap();
    let versions: Vec<_> = (0..REPLACED_KEYS).filter_map(|key| version_of(&store, key)).collect();
    let old = versions.iter().filter(|&&version| version == 1).count();
    (old, versions.len() - old)
}

/// Guards against a replaced or removed entry that comes back when the device has lost whole segments.
#[test]
fn replaced_entry_stays_replaced_when_the_segment_of_its_replacement_is_erased() {
    for row in LOG_ROWS {
        for is_killed in [false, true] {
            let image = replaced(row, is_killed);
            let segment_bytes = SEGMENT_BYTES as usize;
            let index_bytes = u64::from_le_bytes(image[3584..3592].try_into().unwrap()) as usize;
            let data_start = (64 << 10) + index_bytes;
            let (old, whole) = old_and_new(row, image.clone());
            assert!(old == 0 && whole > 550, "{row}: {old} replaced, {whole} new before anything is erased");
            let segment_count = (image.len() - data_start) / segment_bytes;
            // After a kill, any of the newest quarter of the segments may be missing because the kill prevented its
            // write.
            let end = if is_killed { 31 + (segment_count - 31) / 4 } else { segment_count };
            let mut new_total = 0;
            for first in (0..end).step_by(3) {
                let mut erased = image.clone();
                let count = 4.min(segment_count - first);
                erased[data_start + first * segment_bytes..][..count * segment_bytes].fill(0);
                let (old, new) = old_and_new(row, erased);
                assert_eq!(old, 0, "{row}, killed: {is_killed}, erased from {first}: {new} new");
                new_total += new;
            }
            assert!(new_total > 0, "{row}: something is believed");
        }
    }
}

/// Guards against an older version of a key that is served, because the disk wrote its record over that of the newer
/// one.
#[test]
fn record_is_not_served_from_the_place_of_another_version() {
    const BODY_BYTES: usize = 3000;
    for row in LOG_ROWS {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(options_of(row).size_bytes));
        let store = Store::open_on(Arc::clone(&device), &options_of(row)).unwrap();
        for version in 1..=2 {
            assert!(insert(&store, 7, version, BODY_BYTES));
            block_on(store.sync()).unwrap();
        }
        assert_eq!(version_of(&store, 7), Some(2), "{row}");
        let whole = block_on(device.read(0, device.len_bytes() as usize)).unwrap();
        let start_of = |version: u64| {
            let wanted = body(7, version, BODY_BYTES);
            whole.as_slice().windows(BODY_BYTES).position(|window| window == wanted).unwrap()
        };
        let older = start_of(1);
        let newer = start_of(2);
        // The records begin less than a sector before their bodies, and have the same length.
        let around = 512..BODY_BYTES + 512;
        let mut damaged = AlignedBuffer::with_len(whole.len());
        damaged.as_mut_slice().copy_from_slice(whole.as_slice());
        let target = &mut damaged.as_mut_slice()[newer - around.start..][..around.end];
        target.copy_from_slice(&whole.as_slice()[older - around.start..][..around.end]);
        block_on(device.write(0, Arc::new(damaged))).unwrap();
        assert_eq!(version_of(&store, 7), None, "{row}");
    }
}

/// Guards against a power loss that leaves a later unit of a run without the first one. The next run must not use the
/// sequence again, or that unit counts as its own, with an older version of a key.
#[test]
fn unit_that_is_left_of_a_lost_run_does_not_join_the_next_run() {
    let options = options_of("log");
    let open = |device: &Arc<MemoryDevice>| Store::open_on(Arc::clone(device) as Arc<dyn Device>, &options).unwrap();
    let insert_as_unit = |store: &Store, key: u64, version: u64| {
        assert!(insert(store, key, version, 3000));
        options.clock.advance(Duration::from_secs(1));
        block_on(store.maintain());
    };
    let device = Arc::new(MemoryDevice::new(options.size_bytes));
    block_on(open(&device).close()).unwrap();
    let before = device.contents();
    let store = open(&device);
    insert_as_unit(&store, 2, 1);
    let with_first = device.contents();
    insert_as_unit(&store, 1, 1);
    let mut image = device.contents();
    assert_eq!(version_of(&store, 1), Some(1));
    // The first unit is lost, except for the superblock that was written before it.
    let data = 64 << 10..image.len() - 4096;
    for at in data.filter(|&at| with_first[at] != before[at]) {
        image[at] = before[at];
    }
    let device = Arc::new(MemoryDevice::from_contents(image));
    let store = open(&device);
    assert_eq!((version_of(&store, 1), version_of(&store, 2)), (None, None));
    insert_as_unit(&store, 1, 2);
    block_on(store.sync()).unwrap();
    let store = open(&Arc::new(device.snapshot()));
    assert_eq!(version_of(&store, 1), Some(2));
}

/// Checks that sequences which were skipped by starts after kills do not count as erased segments.
#[test]
fn kills_without_end_lose_nothing_that_was_synced() {
    for row in LOG_ROWS {
        let options = options_of(row);
        let mut image = MemoryDevice::new(options.size_bytes).contents();
        for key in 0..80 {
            let device = Arc::new(MemoryDevice::from_contents(image));
            let store = Store::open_on(Arc::clone(&device) as Arc<dyn Device>, &options).unwrap();
            assert!(insert(&store, key, 1, 12_000));
            block_on(store.sync()).unwrap();
            let found = (0..=key).filter(|&key| version_of(&store, key) == Some(1)).count() as u64;
            assert_eq!(found, key + 1, "{row}");
            image = device.contents();
        }
    }
}

/// Guards against a removed entry that comes back, because a start believes a journal without the page that records the
/// removal.
#[test]
fn removed_entry_stays_removed_whichever_block_is_lost() {
    const BLOCK_BYTES: usize = 4096;
    for row in ["stream", "esp", "ucfs"] {
        let options = options_of(row);
        let device = Arc::new(MemoryDevice::new(options.size_bytes));
        let store = Store::open_on(Arc::clone(&device) as Arc<dyn Device>, &options).unwrap();
        let insert_all = |keys: std::ops::Range<u64>| {
            assert!(keys.into_iter().all(|key| insert(&store, key, 1, 3000)), "{row}");
            block_on(store.sync()).unwrap();
            options.clock.advance(Duration::from_secs(1));
            block_on(store.maintain());
        };
        insert_all(0..20);
        for key in 0..5 {
            block_on(store.remove(&key_bytes(key))).unwrap();
        }
        block_on(store.sync()).unwrap();
        insert_all(20..25);
        insert_all(25..30);
        let image = device.contents();
        let is_written = |at: &usize| image[*at..*at + BLOCK_BYTES].iter().any(|&byte| byte != 0);
        let superblock_end = image.len() - BLOCK_BYTES;
        for at in (BLOCK_BYTES..superblock_end).step_by(BLOCK_BYTES).filter(is_written) {
            let mut damaged = image.clone();
            damaged[at..at + BLOCK_BYTES].fill(0);
            let store = Store::open_on(Arc::new(MemoryDevice::from_contents(damaged)), &options).unwrap();
            block_on(store.ready());
            let returned: Vec<_> = (0..5).filter(|&key| version_of(&store, key).is_some()).collect();
            assert!(returned.is_empty(), "{row}, without the block at {at}: {returned:?}");
        }
    }
}
