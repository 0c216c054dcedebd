//! Checks a device that refuses some writes. A removed or replaced entry must not come back, now or after a kill, and a
//! failed write must be reported.

use crate::support::{block_on, insert, key_bytes, options, version_of};
use larder_device::{Completion, Device, MemoryDevice, Transfer};
use larder_store::{Policy, SplitMix64, Store, StoreOptions};
use std::{
    collections::HashSet,
    io,
    pin::pin,
    sync::{Arc, Mutex},
    task::{Context, Waker},
    time::Duration,
};

/// Whether a write to this place of this length is refused.
type Refusal = Box<dyn FnMut(u64, usize) -> bool + Send>;

/// A memory device that refuses writes as a full one does, which excludes no volume.
struct RefusingDevice {
    inner: MemoryDevice,
    refuses: Mutex<Refusal>,
    /// Completions of refused writes, while they are held back.
    held: Mutex<Option<Vec<Completion<()>>>>,
}

impl RefusingDevice {
    fn new(len_bytes: u64) -> Arc<Self> {
        let refuses: Refusal = Box::new(|_, _| false);
        let inner = MemoryDevice::new(len_bytes);
        Arc::new(Self { inner, refuses: Mutex::new(refuses), held: Mutex::new(None) })
    }

    fn refuse(&self, refuses: impl FnMut(u64, usize) -> bool + Send + 'static) {
        *self.refuses.lock().unwrap() = Box::new(refuses);
    }

    /// Holds back the completions of refused writes.
    fn hold(&self) {
        *self.held.lock().unwrap() = Some(Vec::new());
    }

    /// Completes all refused writes that were held back. Returns their number.
    fn let_go(&self) -> usize {
        let held = self.held.lock().unwrap().take().unwrap_or_default();
        let count = held.len();
        held.into_iter().for_each(|completion| completion.complete(Err(io::ErrorKind::StorageFull.into())));
        count
    }

    /// Returns the store as the next process finds it.
    fn killed(&self, options: &StoreOptions) -> Store {
        Store::open_on(Arc::new(self.inner.snapshot()), options).unwrap()
    }
}

impl Device for RefusingDevice {
    fn submit(&self, transfer: Transfer) {
        let is_refused = match &transfer {
            Transfer::Write { offset_bytes, buffer, .. } => (self.refuses.lock().unwrap())(*offset_bytes, buffer.len()),
            Transfer::Read { .. } | Transfer::Sync { .. } => false,
        };
        match transfer {
            Transfer::Write { completion, .. } if is_refused => {
                let mut held = self.held.lock().unwrap();
                if let Some(held) = &mut *held {
                    held.push(completion);
                    return;
                }
                drop(held);
                completion.complete(Err(io::ErrorKind::StorageFull.into()));
            }
            other => self.inner.submit(other),
        }
    }

    larder_device::delegate_device!(inner);
}

const SHORT: usize = 900;
/// A length that packs of the front do not have here.
const SET_BYTES: usize = 16 << 10;

fn store_of(row: &str) -> (Arc<RefusingDevice>, Store, StoreOptions) {
    let policy = Policy::named(row).expect("it is in the table");
    let mut options = StoreOptions { policy, mean_entry_bytes: 1024, identity_seed: Some(1), ..options() };
    options.tuning.tiny_set_bytes = SET_BYTES as u64;
    let device = RefusingDevice::new(16 << 20);
    let store = Store::open_on(Arc::clone(&device) as _, &options).unwrap();
    (device, store, options)
}

/// Stores and removes entries until everything in the front of `tiny` has moved to its sets.
fn push_through(store: &Store, options: &StoreOptions, keys: std::ops::Range<u64>) {
    for (key, round) in keys.zip(1_u64..) {
        // An entry refused for lack of room is stored again later by its caller.
        let _ = insert(store, key, 1, SHORT);
        if round.is_multiple_of(200) {
            pass_time(store, options);
        }
    }
}

fn pass_time(store: &Store, options: &StoreOptions) {
    options.clock.advance(Duration::from_secs(2));
    block_on(store.maintain());
}

/// Keys that are in the store, and in their sets.
fn settled_keys(store: &Store, options: &StoreOptions) -> Vec<u64> {
    (0..6000).for_each(|key| assert!(insert(store, key, 1, SHORT)));
    push_through(store, options, 10_000..12_000);
    (0..6000).filter(|&key| version_of(store, key).is_some()).collect()
}

#[test]
fn nothing_comes_back_although_half_of_the_sets_are_not_written() {
    let (device, store, options) = store_of("tiny");
    let kept: Vec<u64> = settled_keys(&store, &options).into_iter().step_by(4).collect();
    assert!(kept.len() > 300, "{}", kept.len());
    let mut random = SplitMix64::new(7);
    device.refuse(move |_, len| len == SET_BYTES && random.below(2) == 0);
    for &key in &kept {
        // A change that is refused for lack of room succeeds once there is some.
        let change = || match key % 2 {
            0 => block_on(store.remove(&key_bytes(key))).is_ok(),
            _ => insert(&store, key, 2, SHORT),
        };
        (0..20)
            .find(|_| {
                change() || {
                    pass_time(&store, &options);
                    false
                }
            })
            .expect("there is room some time");
    }
    block_on(store.sync()).unwrap();
    let wrong = |store: &Store| {
        let newest = |key: &u64| if key.is_multiple_of(2) { None } else { Some(2) };
        let old = |key: &&u64| version_of(store, **key).is_some_and(|found| Some(found) != newest(key));
        kept.iter().filter(old).count()
    };
    for round in 1..=12 {
        push_through(&store, &options, 20_000 * round..20_000 * round + 400);
        assert_eq!((wrong(&store), wrong(&device.killed(&options))), (0, 0), "of {} in round {round}", kept.len());
    }
    device.refuse(|_, _| false);
    push_through(&store, &options, 900_000..904_000);
    block_on(store.close()).unwrap();
    assert_eq!(wrong(&device.killed(&options)), 0);
    assert!(store.stats().io_errors > 50, "{:?}", store.stats());
}

#[test]
fn a_place_that_takes_no_write_costs_what_belongs_there_and_keeps_nothing_else_from_being_stored() {
    let (device, store, options) = store_of("tiny");
    let kept: Vec<u64> = settled_keys(&store, &options).into_iter().step_by(4).collect();
    for &key in &kept {
        block_on(store.remove(&key_bytes(key))).unwrap();
    }
    // One set in eight, and a part of the front.
    device.refuse(|offset, len| {
        if len == SET_BYTES {
            (offset / SET_BYTES as u64).is_multiple_of(8)
        } else {
            (96 << 10..112 << 10).contains(&offset)
        }
    });
    for round in 1..=6 {
        push_through(&store, &options, 20_000 * round..20_000 * round + 1000);
        (0..6).for_each(|_| pass_time(&store, &options));
    }
    let taken = (0..1000).filter(|key| insert(&store, 800_000 + key, 1, SHORT)).count();
    assert!(taken > 900, "{taken} of 1000 are stored");
    block_on(store.sync()).unwrap();
    let found = |store: &Store| kept.iter().filter(|&&key| version_of(store, key).is_some()).count();
    assert_eq!((found(&store), found(&device.killed(&options))), (0, 0));
}

#[test]
fn a_store_that_cannot_be_written_serves_what_it_has_and_refuses_what_it_cannot_take() {
    let (device, store, options) = store_of("tiny");
    let kept = settled_keys(&store, &options);
    block_on(store.sync()).unwrap();
    device.refuse(|_, _| true);
    let taken = (0..40_000).filter(|key| insert(&store, 100_000 + key, 1, SHORT)).count();
    assert!(taken < 30_000, "{taken} are taken by a device that takes nothing");
    assert!(block_on(store.sync()).is_err());
    let removed: Vec<u64> = kept.iter().copied().step_by(200).collect();
    assert!(removed.iter().all(|&key| block_on(store.remove(&key_bytes(key))).is_err()));
    let found = |keys: &[u64]| keys.iter().filter(|&&key| version_of(&store, key).is_some()).count();
    assert_eq!(found(&removed), 0, "removed, although not for good");
    assert!(found(&kept) > kept.len() / 2, "{} of {}", found(&kept), kept.len());
    device.refuse(|_, _| false);
    (0..40).for_each(|_| pass_time(&store, &options));
    assert!(insert(&store, 1, 9, SHORT) && block_on(store.sync()).is_ok());
    push_through(&store, &options, 900_000..904_000);
    assert_eq!(found(&removed), 0);
    assert_eq!(version_of(&store, 1), Some(9));
    assert!(version_of(&store, 903_999).is_some());
}

#[test]
fn what_the_front_could_not_take_is_written_again_before_a_sync_says_so() {
    let (device, store, options) = store_of("tiny");
    (0..50).for_each(|key| assert!(insert(&store, key, 1, SHORT)));
    block_on(store.sync()).unwrap();
    let mut places = HashSet::new();
    device.refuse(move |offset, _| places.insert(offset));
    (0..50).for_each(|key| assert!(insert(&store, key, 2, SHORT)));
    for key in 0..10 {
        block_on(store.remove(&key_bytes(key))).unwrap();
    }
    block_on(store.sync()).unwrap();
    let expected: Vec<_> = (0..50).map(|key| (key >= 10).then_some(2)).collect();
    let versions = |store: &Store| (0..50).map(|key| version_of(store, key)).collect::<Vec<_>>();
    assert_eq!(versions(&store), expected);
    assert_eq!(versions(&device.killed(&options)), expected);
}

#[test]
fn what_could_not_be_removed_or_replaced_in_a_disk_table_is_not_found_again() {
    for row in ["hashcache-basic", "hashcache-set", "hashcache-setmem", "hashcache-setmem-lru"] {
        let (device, store, options) = store_of(row);
        (0..40).for_each(|key| assert!(insert(&store, key, 1, SHORT)));
        block_on(store.sync()).unwrap();
        assert_eq!((0..40).filter(|&key| version_of(&store, key) == Some(1)).count(), 40, "{row}");
        device.refuse(|_, _| true);
        let refused = |key: &u64| {
            if key.is_multiple_of(2) {
                block_on(store.remove(&key_bytes(*key))).is_err()
            } else {
                !insert(&store, *key, 2, SHORT)
            }
        };
        assert_eq!((0..40).filter(refused).count(), 40, "{row}");
        let found = |store: &Store| (0..40).filter(|&key| version_of(store, key).is_some()).count();
        assert_eq!(found(&store), 0, "{row}");
        assert!(block_on(store.sync()).is_err(), "{row}: what was not wiped is said to be so");
        // Some of the suspect sets are rewritten when an entry is stored in them; the others never are.
        device.refuse(|_, _| false);
        (0..5).for_each(|key| assert!(insert(&store, key, 3, SHORT)));
        pass_time(&store, &options);
        let versions = |store: &Store| (0..40).map(|key| version_of(store, key)).collect::<Vec<_>>();
        let expected: Vec<_> = (0..40).map(|key| (key < 5).then_some(3)).collect();
        assert_eq!(versions(&store), expected, "{row}");
        assert_eq!(versions(&device.killed(&options)), expected, "{row}");
        block_on(store.sync()).unwrap();
    }
}

/// Guards against a replaced entry that comes back. The device refuses a segment's first unit, which shows the
/// segment's present use, and accepts the later ones.
#[test]
fn what_comes_after_a_first_unit_that_was_refused_is_found_after_a_kill() {
    for (row, was_used) in [("log", false), ("log", true), ("hashcache-log-n", true), ("hashcache-log", false)] {
        let (device, mut store, options) = store_of(row);
        if was_used {
            // So often that every segment was used before.
            (0..40_000).for_each(|key| _ = insert(&store, key, 1, SHORT));
        }
        assert!(insert(&store, 1, 1, SHORT) && insert(&store, 2, 1, SHORT));
        block_on(store.close()).unwrap();
        // The next entry goes to another segment.
        store = Store::open_on(Arc::clone(&device) as _, &options).unwrap();
        assert_eq!((version_of(&store, 1), version_of(&store, 2)), (Some(1), Some(1)), "{row}");
        device.hold();
        let mut left = 1;
        device.refuse(move |_, _| std::mem::replace(&mut left, 0) > 0);
        assert!(insert(&store, 3, 1, SHORT));
        let mut first_sync = pin!(store.sync());
        let mut context = Context::from_waker(Waker::noop());
        assert!(first_sync.as_mut().poll(&mut context).is_pending(), "{row}: the first unit is on its way");
        assert!(insert(&store, 1, 2, SHORT) && insert(&store, 4, 1, SHORT));
        let removed = key_bytes(2);
        let mut removal = pin!(store.remove(&removed));
        assert!(removal.as_mut().poll(&mut context).is_pending(), "{row}: nothing is removed for good before that");
        assert_eq!(device.let_go(), 1);
        assert!(block_on(first_sync).is_err() && block_on(removal).is_err(), "{row}: they are told");
        (0..3).find(|_| block_on(store.sync()).is_ok()).expect("nothing is refused any more");
        block_on(store.maintain());
        assert!(insert(&store, 5, 1, SHORT), "{row}: what could not be removed was");
        block_on(store.sync()).unwrap();
        for store in [&store, &device.killed(&options)] {
            let found: Vec<_> = (1..=5).map(|key| version_of(store, key)).collect();
            assert_eq!(found, [Some(2), None, None, Some(1), Some(1)], "{row}");
        }
    }
}
