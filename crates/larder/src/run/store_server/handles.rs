//! The values that one connection has open.
//!
//! Owns: the handles, and their limits, per connection and for the whole server. The cache stores the values.
//! Invariants: a value is visible only after its close succeeded. While a value is written, it takes at most the memory
//! of one chunk and one piece. An unfinished value is dropped when the connection ends, or when nothing was written to
//! it for [`WRITE_PATIENCE`], because its permit may be one of few that all clients share.
//!
//! Every connection has permits of its own, for [`OWN_HANDLES_MAX`] handles and [`OWN_WRITERS_MAX`] unfinished value.
//! Only further ones take shared permits. So whatever other clients hold, a client can read one value and write one at
//! a time.

use super::protocol::{RequestRefusal, Status};
use bytes::{Bytes, BytesMut};
use larder_cache::{Cache, Value, ValueWriter};
use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Maximum number of open handles of a connection.
const CONNECTION_HANDLES_MAX: usize = 64;
/// Maximum number of values that a connection may write at the same time.
const CONNECTION_WRITERS_MAX: usize = 8;
/// Number of handles of a connection that need no shared permit: one to read, one to write.
const OWN_HANDLES_MAX: usize = 2;
/// Number of values that a connection may write without a shared permit.
const OWN_WRITERS_MAX: usize = 1;
/// Maximum time without a write to an unfinished value. After that, the value is dropped.
const WRITE_PATIENCE: Duration = Duration::from_secs(60);
/// Number of shared permits for handles. Each handle for reading can hold a value of the memory cache.
const SHARED_HANDLES_MAX: usize = 1024;
/// Number of shared permits for values being written. Each value takes at most 1.25 MiB.
const SHARED_WRITERS_MAX: usize = 64;
/// Number of bytes of a response that each connection may always hold.
const RESPONSE_BYTES: usize = 64 << 10;
/// Memory for longer responses of all connections together, in bytes. While it is in use, reads return fewer bytes.
const SHARED_RESPONSE_BYTES: usize = 16 << 20;
/// Number of bytes that are passed to the cache at once.
///
/// The cache keeps each piece that it receives, and a piece of one byte takes much more memory than that. So small
/// writes are collected first.
const PIECE_BYTES: usize = 256 << 10;

/// The permits and limits that all connections share.
#[derive(Clone)]
pub(super) struct SharedLimits {
    handles: Arc<Semaphore>,
    writers: Arc<Semaphore>,
    /// Permits for the bytes of longer responses.
    response_bytes: Arc<Semaphore>,
    /// Maximum length of a value, in bytes.
    pub(super) value_bytes_max: u64,
}

impl SharedLimits {
    pub(super) fn new(value_bytes_max: u64) -> Self {
        Self {
            handles: Arc::new(Semaphore::new(SHARED_HANDLES_MAX)),
            writers: Arc::new(Semaphore::new(SHARED_WRITERS_MAX)),
            response_bytes: Arc::new(Semaphore::new(SHARED_RESPONSE_BYTES)),
            value_bytes_max,
        }
    }

    /// Lends memory for a response of `wanted` bytes, or for fewer if too little is free.
    ///
    /// It never waits, because a client that does not read its response would then block the others.
    pub(super) fn lend_memory(&self, wanted: usize) -> LentMemory {
        let Some(shared) = wanted.checked_sub(RESPONSE_BYTES).filter(|shared| *shared > 0) else {
            return LentMemory { bytes: wanted, permit: None };
        };
        let shared = u32::try_from(shared).expect("a response has at most 1 MiB");
        match Arc::clone(&self.response_bytes).try_acquire_many_owned(shared) {
            Ok(permit) => LentMemory { bytes: wanted, permit: Some(permit) },
            Err(_) => LentMemory { bytes: RESPONSE_BYTES, permit: None },
        }
    }
}

/// Memory that was lent for a response.
pub(super) struct LentMemory {
    /// Number of bytes that the response may have.
    pub(super) bytes: usize,
    /// The shared permit, which is returned when it is dropped. `None` if the connection's own share suffices.
    pub(super) permit: Option<OwnedSemaphorePermit>,
}

/// The handle and length of a value that was opened for reading.
pub(super) struct OpenedValue {
    pub(super) handle: u32,
    pub(super) len_bytes: u64,
}

/// The values that one connection has open.
pub(super) struct Handles {
    cache: Cache,
    limits: SharedLimits,
    open: HashMap<u32, OpenHandle>,
    last: u32,
}

struct OpenHandle {
    kind: HandleKind,
    /// The shared permit of the handle. `None` if it uses one of the connection's own permits.
    shared_place: Option<OwnedSemaphorePermit>,
}

enum HandleKind {
    Reads(Value),
    Writes(Box<UnfinishedValue>),
    /// An unfinished value that was dropped, because nothing was written to it for too long.
    Expired,
}

/// A value that is being written.
struct UnfinishedValue {
    writer: ValueWriter,
    /// The length that the client declared, in bytes. `None` if it did not know the length.
    declared_bytes: Option<u64>,
    /// Number of bytes that were accepted so far.
    len_bytes: u64,
    /// The last accepted bytes, which were not passed to the cache yet.
    piece: BytesMut,
    /// The time of the last write.
    written_at: Instant,
    /// Set while bytes are passed to the cache. It stays set if the cache refuses them.
    is_broken: bool,
    /// The shared permit for writing. `None` if the value uses one of the connection's own permits.
    shared_place: Option<OwnedSemaphorePermit>,
}

impl Handles {
    pub(super) fn new(cache: &Cache, limits: &SharedLimits) -> Self {
        Self { cache: cache.clone(), limits: limits.clone(), open: HashMap::new(), last: 0 }
    }

    pub(super) async fn open_to_read(&mut self, key: &[u8]) -> Result<OpenedValue, RequestRefusal> {
        let shared_place = self.place()?;
        let value = self.cache.get_value(key).await?;
        let value = value.ok_or_else(|| RequestRefusal::new(Status::NotFound, "the key has no value"))?;
        let len_bytes = value.len();
        let handle = self.insert(OpenHandle { kind: HandleKind::Reads(value), shared_place });
        Ok(OpenedValue { handle, len_bytes })
    }

    pub(super) fn open_to_write(&mut self, key: &[u8], declared_bytes: Option<u64>) -> Result<u32, RequestRefusal> {
        self.check_length(declared_bytes.unwrap_or_default())?;
        let shared_place = self.place()?;
        let writing = self.writing_place()?;
        let value = UnfinishedValue {
            writer: self.cache.entry(key).writer()?,
            declared_bytes,
            len_bytes: 0,
            piece: BytesMut::new(),
            written_at: Instant::now(),
            is_broken: false,
            shared_place: writing,
        };
        Ok(self.insert(OpenHandle { kind: HandleKind::Writes(Box::new(value)), shared_place }))
    }

    /// Returns `count` bytes of a value from `offset` on, or fewer if the value ends before.
    pub(super) async fn read(&self, handle: u32, offset: u64, count: u64) -> Result<Bytes, RequestRefusal> {
        let Some(OpenHandle { kind: HandleKind::Reads(value), .. }) = self.open.get(&handle) else {
            return Err(bad_handle(handle, "read"));
        };
        let begin = offset.min(value.len());
        let end = begin.saturating_add(count).min(value.len());
        Ok(value.read(begin..end).await?)
    }

    /// Appends bytes to a value that is being written.
    pub(super) async fn write(&mut self, handle: u32, bytes: &[u8]) -> Result<(), RequestRefusal> {
        let longest = self.limits.value_bytes_max;
        match self.open.get_mut(&handle).map(|open| &mut open.kind) {
            Some(HandleKind::Writes(value)) => value.append(bytes, longest).await,
            Some(HandleKind::Expired) => Err(expired()),
            Some(HandleKind::Reads(_)) | None => Err(bad_handle(handle, "written")),
        }
    }

    /// Returns the time at which the next unfinished value is dropped if nothing is written to it.
    pub(super) fn next_expiry(&self) -> Option<Instant> {
        self.writers().map(|value| value.written_at + WRITE_PATIENCE).min()
    }

    /// Drops the unfinished values to which nothing was written for too long.
    ///
    /// Their handles stay open, so that the client learns the reason.
    pub(super) fn expire(&mut self, now: Instant) {
        for open in self.open.values_mut() {
            let is_over = |value: &UnfinishedValue| value.written_at + WRITE_PATIENCE <= now;
            if matches!(&open.kind, HandleKind::Writes(value) if is_over(value)) {
                open.kind = HandleKind::Expired;
            }
        }
    }

    /// Closes a handle. A value that was being written becomes visible.
    pub(super) async fn close(&mut self, handle: u32) -> Result<(), RequestRefusal> {
        let closed = self.open.remove(&handle).ok_or_else(|| bad_handle(handle, "closed"))?;
        match closed.kind {
            HandleKind::Reads(_) => Ok(()),
            HandleKind::Writes(value) => value.finish().await,
            HandleKind::Expired => Err(expired()),
        }
    }

    /// Closes a handle and drops the value that was being written.
    pub(super) fn abandon(&mut self, handle: u32) -> Result<(), RequestRefusal> {
        self.open.remove(&handle).map(drop).ok_or_else(|| bad_handle(handle, "closed"))
    }

    /// Returns the values that are being written.
    fn writers(&self) -> impl Iterator<Item = &UnfinishedValue> {
        self.open.values().filter_map(|open| match &open.kind {
            HandleKind::Writes(value) => Some(&**value),
            HandleKind::Reads(_) | HandleKind::Expired => None,
        })
    }

    /// Takes a permit for a further handle. Returns `None` if the connection has one of its own permits left.
    fn place(&self) -> Result<Option<OwnedSemaphorePermit>, RequestRefusal> {
        if self.open.len() >= CONNECTION_HANDLES_MAX {
            let text = format!("a connection has at most {CONNECTION_HANDLES_MAX} open values: close one first");
            return Err(RequestRefusal::new(Status::TooMany, text));
        }
        if self.open.values().filter(|open| open.shared_place.is_none()).count() < OWN_HANDLES_MAX {
            return Ok(None);
        }
        take(&self.limits.handles, "further values are open", SHARED_HANDLES_MAX).map(Some)
    }

    /// Takes a permit for a further value to write. Returns `None` if the connection has one of its own permits left.
    fn writing_place(&self) -> Result<Option<OwnedSemaphorePermit>, RequestRefusal> {
        if self.writers().count() >= CONNECTION_WRITERS_MAX {
            let text = format!("a connection writes at most {CONNECTION_WRITERS_MAX} values at once: close one first");
            return Err(RequestRefusal::new(Status::TooMany, text));
        }
        if self.writers().filter(|value| value.shared_place.is_none()).count() < OWN_WRITERS_MAX {
            return Ok(None);
        }
        take(&self.limits.writers, "further values are being written", SHARED_WRITERS_MAX).map(Some)
    }

    fn insert(&mut self, value: OpenHandle) -> u32 {
        // A handle's number is reused only after 4 billion others, and never while it is open.
        loop {
            self.last = self.last.wrapping_add(1);
            if !self.open.contains_key(&self.last) {
                break;
            }
        }
        self.open.insert(self.last, value);
        assert!(self.open.len() <= CONNECTION_HANDLES_MAX);
        self.last
    }

    fn check_length(&self, len_bytes: u64) -> Result<(), RequestRefusal> {
        let longest = self.limits.value_bytes_max;
        if len_bytes > longest { Err(too_long(len_bytes, longest)) } else { Ok(()) }
    }
}

impl UnfinishedValue {
    /// Appends bytes to the value. After an error the value cannot be stored, because it would lack these bytes.
    async fn append(&mut self, mut bytes: &[u8], longest: u64) -> Result<(), RequestRefusal> {
        self.check_whole()?;
        self.is_broken = true;
        self.written_at = Instant::now();
        self.len_bytes += bytes.len() as u64;
        if let Some(declared) = self.declared_bytes.filter(|declared| *declared < self.len_bytes) {
            return Err(wrong_length(declared, self.len_bytes));
        }
        if self.len_bytes > longest {
            return Err(too_long(self.len_bytes, longest));
        }
        while !bytes.is_empty() {
            if self.piece.is_empty() {
                self.piece = BytesMut::with_capacity(bytes.len().min(PIECE_BYTES));
            }
            let (now, later) = bytes.split_at(bytes.len().min(PIECE_BYTES - self.piece.len()));
            self.piece.extend_from_slice(now);
            bytes = later;
            if self.piece.len() == PIECE_BYTES {
                self.writer.write(std::mem::take(&mut self.piece)).await?;
            }
        }
        self.is_broken = false;
        Ok(())
    }

    async fn finish(mut self) -> Result<(), RequestRefusal> {
        self.check_whole()?;
        if let Some(declared) = self.declared_bytes.filter(|declared| *declared != self.len_bytes) {
            return Err(wrong_length(declared, self.len_bytes));
        }
        self.writer.write(self.piece).await?;
        assert_eq!(self.writer.len(), self.len_bytes, "every accepted byte is in the value");
        Ok(self.writer.finish().await?)
    }

    fn check_whole(&self) -> Result<(), RequestRefusal> {
        match self.is_broken {
            true => Err(RequestRefusal::new(Status::Failed, "an earlier write to this value failed: write it again")),
            false => Ok(()),
        }
    }
}

fn take(places: &Arc<Semaphore>, what: &str, count_max: usize) -> Result<OwnedSemaphorePermit, RequestRefusal> {
    let full = |_| RequestRefusal::new(Status::TooMany, format!("{count_max} {what}: try again later"));
    Arc::clone(places).try_acquire_owned().map_err(full)
}

fn expired() -> RequestRefusal {
    let text = format!("the value was dropped after {} s without a write: write it again", WRITE_PATIENCE.as_secs());
    RequestRefusal::new(Status::Failed, text)
}

fn bad_handle(handle: u32, verb: &str) -> RequestRefusal {
    RequestRefusal::new(Status::BadHandle, format!("no open value that can be {verb}: handle {handle}"))
}

fn wrong_length(declared: u64, len_bytes: u64) -> RequestRefusal {
    let text = format!("the value was declared with {declared} bytes, and has {len_bytes}");
    RequestRefusal::new(Status::WrongLength, text)
}

fn too_long(len_bytes: u64, longest: u64) -> RequestRefusal {
    RequestRefusal::new(Status::TooLong, format!("a value of {len_bytes} bytes: this store takes at most {longest}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
    }

    /// Guards against clients that hold all unfinished values for ever.
    #[test]
    fn value_to_which_nothing_is_written_gives_its_place_back() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::builder(folder.path().join("cache")).disk("64MB").memory("8MB").open().unwrap();
        let limits = SharedLimits::new(1 << 20);
        let mut handles = Handles::new(&cache, &limits);
        // The first has the connection's own place.
        let [idle, busy] = ["idle", "busy"].map(|key| handles.open_to_write(key.as_bytes(), None).unwrap());
        let first_expiry = handles.next_expiry().unwrap();
        handles.expire(first_expiry - Duration::from_secs(1));
        assert_eq!(limits.writers.available_permits(), SHARED_WRITERS_MAX - 1);
        block_on(handles.write(busy, b"x")).unwrap();
        handles.expire(first_expiry);
        let next = handles.open_to_write(b"next", None).unwrap();
        assert_eq!(limits.writers.available_permits(), SHARED_WRITERS_MAX - 1);
        for outcome in [block_on(handles.write(idle, b"x")), block_on(handles.close(idle))] {
            assert_eq!(outcome.unwrap_err().status, Status::Failed);
        }
        block_on(handles.close(next)).unwrap();
        block_on(handles.close(busy)).unwrap();
        assert_eq!(limits.writers.available_permits(), SHARED_WRITERS_MAX);
        assert_eq!(handles.next_expiry(), None);
    }

    /// Guards against memory that grows with the number of clients that request long responses and do not read them.
    #[test]
    fn long_responses_share_memory_and_then_become_shorter() {
        let limits = SharedLimits::new(1 << 30);
        assert_eq!(limits.lend_memory(RESPONSE_BYTES).bytes, RESPONSE_BYTES);
        let mut held = Vec::new();
        while let LentMemory { bytes: 0x10_0000, permit: Some(permit) } = limits.lend_memory(1 << 20) {
            held.push(permit);
        }
        assert_eq!(held.len(), SHARED_RESPONSE_BYTES / ((1 << 20) - RESPONSE_BYTES));
        let LentMemory { bytes, permit } = limits.lend_memory(1 << 20);
        assert!(bytes == RESPONSE_BYTES && permit.is_none(), "{bytes}");
        held.pop();
        assert_eq!(limits.lend_memory(1 << 20).bytes, 1 << 20, "what was returned is lent again");
    }
}
