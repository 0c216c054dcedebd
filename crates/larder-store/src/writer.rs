//! An entry being written.
//!
//! Cost: the parts of the body are kept by reference and copied once, into the log's open unit.

use crate::{
    Error, ErrorKind, Hints, Result,
    format::record::{BODY_BYTES_MAX, HEAD_BYTES_MAX, RecordKind, RecordMeta, RecordParts, body_checksums},
    store::EngineVolumes,
};
use bytes::Bytes;
use futures_io::AsyncWrite;
use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

/// An entry being written. It becomes visible with [`Writer::commit`]; a writer that is dropped leaves no trace.
///
/// ```
/// # futures_executor::block_on(async {
/// use larder_store::{Hints, Store, StoreOptions};
///
/// # let directory = tempfile::tempdir().expect("a directory");
/// # let path = directory.path().join("example.larder");
/// let store = Store::open(StoreOptions::new(path, 16 << 20))?;
/// let mut writer = store.insert(b"key", "the head".into(), Hints::default())?;
/// writer.write("a body ".into())?;
/// writer.write("in two pieces".into())?;
/// assert_eq!(writer.len(), 20);
/// writer.commit().await?;
/// store.close().await
/// # }).expect("a store in a directory of its own");
/// ```
pub struct Writer {
    volumes: EngineVolumes,
    key: Box<[u8]>,
    head: Bytes,
    hints: Hints,
    /// The epoch when writing began. An invalidation since then also covers this entry.
    epoch: u32,
    parts: Vec<Bytes>,
    len_bytes: u64,
}

impl_debug!(Writer { key, hints, len_bytes });

impl Writer {
    /// Maximum length of the body of one entry, in bytes: 1 MiB. The caller must split a longer body into several
    /// entries.
    pub const BODY_MAX_BYTES: u64 = BODY_BYTES_MAX;
    /// Maximum length of a head, in bytes: 64 KiB.
    pub const HEAD_MAX_BYTES: usize = HEAD_BYTES_MAX;

    pub(crate) fn new(volumes: EngineVolumes, epoch: u32, key: &[u8], head: Bytes, hints: Hints) -> Self {
        Self { volumes, key: key.into(), head, hints, epoch, parts: Vec::new(), len_bytes: 0 }
    }

    /// Appends `bytes` to the body. Keeps a reference to them until the commit copies them.
    ///
    /// # Errors
    /// `Invalid` if the body would exceed [`Writer::BODY_MAX_BYTES`].
    pub fn write(&mut self, bytes: Bytes) -> Result<()> {
        let len_bytes = self.len_bytes + bytes.len() as u64;
        if len_bytes > Self::BODY_MAX_BYTES {
            let place = format!("body longer than {} bytes: {len_bytes}", Self::BODY_MAX_BYTES);
            return Err(Error::new(ErrorKind::Invalid, place));
        }
        if !bytes.is_empty() {
            self.len_bytes = len_bytes;
            self.parts.push(bytes);
        }
        Ok(())
    }

    /// Returns the length of the body so far, in bytes.
    pub fn len(&self) -> u64 {
        self.len_bytes
    }

    /// Returns whether the body is empty so far.
    pub fn is_empty(&self) -> bool {
        self.len_bytes == 0
    }

    /// Commits the entry if the policy admits it ([`crate::Store::admits`]). Otherwise returns `false`, and stores
    /// nothing.
    ///
    /// # Errors
    /// Like [`Writer::commit`].
    pub async fn offer(self) -> Result<bool> {
        let engine = self.volumes.of(&self.key);
        engine.volume().check_open()?;
        let key_hash = engine.volume().hash(&self.key).0;
        if !engine.admits(key_hash, (self.key.len() + self.head.len()) as u64 + self.len_bytes) {
            return Ok(false);
        }
        self.commit().await.map(|()| true)
    }

    /// Makes the entry visible to lookups, in place of any older entry of the key. Waits while too many bytes are
    /// waiting to be written ([`crate::StoreOptions::dirty_bytes_max`]).
    ///
    /// # Errors
    /// `Full` if there was no room within [`crate::StoreOptions::room_wait`], `Unavailable` if the device fails,
    /// `Closed` if the store is closed.
    pub async fn commit(self) -> Result<()> {
        // Its volume may have a new engine since the entry was begun.
        let engine = self.volumes.of(&self.key);
        engine.volume().check_open()?;
        self.volumes.remove_strays(&self.key).await?;
        let checksums = body_checksums(&self.parts);
        let hash = engine.volume().hash(&self.key).1;
        let meta = RecordMeta::new(RecordKind::Entry, hash, self.hints, self.epoch, self.len_bytes);
        let record = RecordParts {
            meta,
            key: &self.key,
            head: &self.head,
            parts: &[],
            checksums: &checksums,
            body: &self.parts,
        };
        engine.commit(record).await
    }
}

/// Appends to the body, for libraries that write to an `AsyncWrite`. Copies the bytes. Closing does not commit the
/// entry.
impl AsyncWrite for Writer {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let outcome = self.write(Bytes::copy_from_slice(bytes));
        Poll::Ready(outcome.map(|()| bytes.len()).map_err(io::Error::other))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
