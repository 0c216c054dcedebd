//! Lookups after a start: they wait for their part of the index, or miss what is not loaded yet.

use crate::support::{block_on, insert, key_bytes, version_of};
use futures_util::{FutureExt, StreamExt, stream::FuturesUnordered};
use larder_device::{Device, MemoryDevice, Transfer};
use larder_store::{Policy, Store, StoreOptions};
use std::{
    ops::Range,
    sync::{Arc, Mutex, mpsc},
    thread,
    time::Duration,
};

const SIZE_BYTES: u64 = 64 << 20;
/// Bytes at both ends of a volume that have its superblocks, which are read before a store is open.
const SUPERBLOCKS_BYTES: u64 = 16 << 10;

/// A device in memory that holds the reads of a range back until it is told to let them go.
struct HeldDevice {
    inner: MemoryDevice,
    state: Mutex<HeldReads>,
}

struct HeldReads {
    /// The offsets whose reads are held back.
    held: Range<u64>,
    waiting: Vec<Transfer>,
    /// Offset and length of every read so far.
    seen: Vec<(u64, usize)>,
}

impl HeldDevice {
    fn new(inner: MemoryDevice, held: Range<u64>) -> Arc<Self> {
        Arc::new(Self { inner, state: Mutex::new(HeldReads { held, waiting: Vec::new(), seen: Vec::new() }) })
    }

    fn let_go(&self) {
        let waiting = {
            let mut state = self.state.lock().unwrap();
            state.held = 0..0;
            std::mem::take(&mut state.waiting)
        };
        waiting.into_iter().for_each(|transfer| self.inner.submit(transfer));
    }
}

impl Device for HeldDevice {
    fn submit(&self, transfer: Transfer) {
        if let Transfer::Read { offset_bytes, ref buffer, .. } = transfer {
            let mut state = self.state.lock().unwrap();
            state.seen.push((offset_bytes, buffer.len()));
            if state.held.contains(&offset_bytes) {
                state.waiting.push(transfer);
                return;
            }
        }
        self.inner.submit(transfer);
    }

    larder_device::delegate_device!(inner);
}

fn waiting_options(policy: &'static Policy) -> StoreOptions {
    StoreOptions { mean_entry_bytes: 2048, policy, waits_for_index: true, ..StoreOptions::new("", SIZE_BYTES) }
}

/// Creates a store with entries 0 to `count`, and returns its device after a close.
fn filled(options: &StoreOptions, count: u64) -> MemoryDevice {
    let device = Arc::new(MemoryDevice::new(options.size_bytes));
    let store = Store::open_on(device.clone(), options).unwrap();
    (0..count).for_each(|key| assert!(insert(&store, key, 1, 900)));
    block_on(store.close()).unwrap();
    drop(store);
    device.snapshot()
}

/// Guards against a program that fetches what it stored in its last run, because it asked too early.
#[test]
fn first_lookup_after_a_start_finds_what_was_stored_before() {
    for policy in Policy::all().iter().filter(|policy| !policy.layout.keeps_files()) {
        let options = waiting_options(policy);
        let device = HeldDevice::new(filled(&options, 1), SUPERBLOCKS_BYTES..SIZE_BYTES - SUPERBLOCKS_BYTES);
        let store = Store::open_on(device.clone(), &options).unwrap();
        let key = key_bytes(0);
        let mut found = Box::pin(store.get(&key));
        assert!(found.as_mut().now_or_never().is_none(), "{policy}: its bytes are not read yet");
        device.let_go();
        assert!(block_on(found).unwrap().is_some(), "{policy}");
        assert_eq!(version_of(&store, 1), None, "{policy}: a miss ends, too");
    }
}

#[test]
fn server_may_choose_misses_while_the_index_is_loaded() {
    let options = StoreOptions { waits_for_index: false, ..waiting_options(Policy::default_policy()) };
    let device = HeldDevice::new(filled(&options, 1), SUPERBLOCKS_BYTES..SIZE_BYTES - SUPERBLOCKS_BYTES);
    let store = Store::open_on(device.clone(), &options).unwrap();
    let missed = store.get(&key_bytes(0)).now_or_never().expect("nobody waits");
    assert!(missed.unwrap().is_none());
    device.let_go();
    block_on(store.ready());
    assert_eq!(version_of(&store, 0), Some(1));
}

/// Guards against lookups that wait for all of a large index.
#[test]
fn lookup_waits_for_its_own_part_of_the_index_only() {
    const LOOKUPS: u64 = 200;
    let options = waiting_options(Policy::default_policy());
    let image = filled(&options, 2_000);
    let device = HeldDevice::new(image.snapshot(), 0..0);
    let store = Store::open_on(device.clone(), &options).unwrap();
    block_on(store.ready());
    // The last read of a load is that of an image.
    let (last, _) = *device.state.lock().unwrap().seen.last().unwrap();
    block_on(store.close()).unwrap();
    let device = HeldDevice::new(image, last..last + 1);
    let store = Store::open_on(device.clone(), &options).unwrap();
    let (tell, told) = mpsc::channel();
    let own = store.clone();
    let lookups = thread::spawn(move || {
        let keys: Vec<_> = (0..LOOKUPS).map(|key| key_bytes(1 << 40 | key)).collect();
        let mut ends: FuturesUnordered<_> = keys.iter().map(|key| own.get(key)).collect();
        block_on(async {
            while let Some(found) = ends.next().await {
                tell.send(found.unwrap().is_some()).unwrap();
            }
        });
    });
    let next = || told.recv_timeout(Duration::from_secs(20));
    for number in 0..LOOKUPS / 4 {
        assert_eq!(next(), Ok(false), "lookup {number} waits for another part");
    }
    assert!(!store.stats().loaded);
    device.let_go();
    assert!((LOOKUPS / 4..LOOKUPS).all(|_| next() == Ok(false)));
    lookups.join().unwrap();
}
