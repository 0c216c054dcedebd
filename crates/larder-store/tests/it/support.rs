//! Shared parts of the engine's tests: a runtime, small stores on devices that can be inspected, and entries whose
//! bytes follow from key and version.

use bytes::Bytes;
pub(crate) use larder_device::block_on;
use larder_device::{AlignedBuffer, Device, MemoryDevice, Transfer};
use larder_store::{Clock, Hints, Reader, Stats, Store, StoreOptions};
use std::{
    io,
    sync::{Arc, Mutex},
    time::Duration,
};

/// Size of a small store: a dozen segments, so that reclaim is never far.
pub(crate) const SIZE_BYTES: u64 = (12 << 18) + (68 << 10);

/// Size of its segments.
pub(crate) const SEGMENT_BYTES: u64 = 256 << 10;

/// Returns the options of a small store in virtual time, without a thread of its own.
pub(crate) fn options() -> StoreOptions {
    StoreOptions {
        mean_entry_bytes: 2048,
        segment_size_bytes: Some(SEGMENT_BYTES),
        clock: Clock::manual(Duration::from_secs(1_700_000_000)),
        background: false,
        ..StoreOptions::new("", SIZE_BYTES)
    }
}

/// Opens the store that `image` holds.
pub(crate) fn open_image(image: Vec<u8>) -> Store {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::from_contents(image));
    Store::open_on(device, &options()).expect("the image has a whole superblock")
}

/// Answers a transfer as a device does that is dead.
pub(crate) fn refuse(transfer: Transfer) {
    let dead = || io::Error::other("the device is dead");
    match transfer {
        Transfer::Read { completion, .. } => completion.complete(Err(dead())),
        Transfer::Write { completion, .. } | Transfer::Sync { completion } => completion.complete(Err(dead())),
    }
}

/// A memory device that remembers every write in order.
pub(crate) struct RecordingDevice {
    inner: MemoryDevice,
    writes: Mutex<Vec<(u64, Arc<AlignedBuffer>)>>,
}

impl RecordingDevice {
    pub(crate) fn new() -> Self {
        Self { inner: MemoryDevice::new(SIZE_BYTES), writes: Mutex::new(Vec::new()) }
    }

    /// Returns all writes so far.
    pub(crate) fn writes(&self) -> Vec<(u64, Arc<AlignedBuffer>)> {
        self.writes.lock().unwrap().clone()
    }

    /// Returns the device's content.
    pub(crate) fn contents(&self) -> Vec<u8> {
        self.inner.contents()
    }
}

impl Device for RecordingDevice {
    fn submit(&self, transfer: Transfer) {
        if let Transfer::Write { offset_bytes, buffer, .. } = &transfer {
            // A copy: the engine uses its buffers again.
            let mut copy = AlignedBuffer::with_len(buffer.len());
            copy.as_mut_slice().copy_from_slice(buffer.as_slice());
            self.writes.lock().unwrap().push((*offset_bytes, Arc::new(copy)));
        }
        self.inner.submit(transfer);
    }

    larder_device::delegate_device!(inner);
}

/// A memory device that can delay reads.
pub(crate) struct GatedDevice {
    inner: MemoryDevice,
    /// The delayed reads, while reads are held.
    held: Mutex<Option<Vec<Transfer>>>,
}

impl GatedDevice {
    pub(crate) fn new() -> Self {
        Self { inner: MemoryDevice::new(SIZE_BYTES), held: Mutex::new(None) }
    }

    /// Delays all reads from now on.
    pub(crate) fn hold_reads(&self) {
        *self.held.lock().unwrap() = Some(Vec::new());
    }

    /// Returns the number of delayed reads.
    pub(crate) fn held_count(&self) -> usize {
        self.held.lock().unwrap().as_ref().map_or(0, Vec::len)
    }

    /// Completes all delayed reads, and delays none any longer.
    pub(crate) fn release_reads(&self) {
        let held = self.held.lock().unwrap().take();
        held.into_iter().flatten().for_each(|read| self.inner.submit(read));
    }
}

impl Device for GatedDevice {
    fn submit(&self, transfer: Transfer) {
        // A completion may submit again, so no lock is held while the device works.
        if matches!(transfer, Transfer::Read { .. })
            && let Some(held) = self.held.lock().unwrap().as_mut()
        {
            held.push(transfer);
            return;
        }
        self.inner.submit(transfer);
    }

    larder_device::delegate_device!(inner);
}

/// Returns the cost of `action`.
pub(crate) fn cost(store: &Store, action: impl FnOnce()) -> Stats {
    let before = store.stats();
    action();
    let mut after = store.stats();
    after.reads -= before.reads;
    after.read_bytes -= before.read_bytes;
    after.writes -= before.writes;
    after.written_bytes -= before.written_bytes;
    after.hits -= before.hits;
    after
}

/// Returns the key of number `key`.
pub(crate) fn key_bytes(key: u64) -> Vec<u8> {
    format!("http://example.test/{key}").into_bytes()
}

/// Returns the head of a version of a key.
pub(crate) fn head(key: u64, version: u64, body_len: usize) -> Bytes {
    format!("{key} {version} {body_len}").into_bytes().into()
}

/// Returns the body of a version of a key.
pub(crate) fn body(key: u64, version: u64, len: usize) -> Bytes {
    let mut state = key.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ version;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..len).map(|_| next()).collect::<Vec<_>>().into()
}

/// Stores a version of a key. Returns whether there was room.
pub(crate) fn insert(store: &Store, key: u64, version: u64, body_len: usize) -> bool {
    let mut writer = store.insert(&key_bytes(key), head(key, version, body_len), Hints::default()).unwrap();
    writer.write(body(key, version, body_len)).unwrap();
    block_on(writer.commit()).is_ok()
}

/// Returns the store's version of `key`, after checking every byte of it.
pub(crate) fn version_of(store: &Store, key: u64) -> Option<u64> {
    let reader = block_on(store.get(&key_bytes(key))).unwrap()?;
    checked_version(&reader, key)
}

/// Returns the version that a reader shows, or `None` if the body is damaged.
pub(crate) fn checked_version(reader: &Reader, key: u64) -> Option<u64> {
    let head = String::from_utf8(reader.head().to_vec()).unwrap();
    let fields: Vec<u64> = head.split(' ').map(|field| field.parse().unwrap()).collect();
    let &[own_key, version, body_len] = &fields[..] else { panic!("head {head}") };
    assert_eq!(own_key, key, "the entry of another key");
    assert_eq!(reader.len(), body_len);
    let read = block_on(reader.read(0..reader.len())).unwrap()?;
    // A new head keeps the body of the version that it replaced.
    let of_version = if version >= HEAD_VERSION { version - HEAD_VERSION } else { version };
    assert!(read == body(key, of_version, body_len as usize), "wrong bytes in version {version} of key {key}");
    Some(version)
}

/// Added to a version when its head is replaced, so that the two can be distinguished.
pub(crate) const HEAD_VERSION: u64 = 1 << 40;
