//! An entry that was found: its head at once, its body in verified ranges.
//!
//! Invariant: a byte of a body is returned only after the checksum of its 64 KiB block was verified.

mod neighbors;
mod source;
mod stream;

use crate::{
    Hints, Result,
    format::record::{
        BODY_BLOCK_BYTES, BodyElsewhere, BodyPart, BodyStretch, DecodedRecord, PARTS_MAX, RecordKind, RecordMeta,
    },
    units::{SECTOR_BYTES, Sector, sectors},
    volume::Volume,
};
use bytes::Bytes;
use futures_util::future::try_join_all;
pub(crate) use neighbors::begin_records;
pub use neighbors::{NeighborEntry, NeighborSink};
pub(crate) use source::BodySource;
use std::{ops::Range, pin::pin, sync::Arc, sync::atomic::Ordering};
pub use stream::BodyStream;

/// An entry that a lookup found. Its head is in memory; its body is read when needed.
///
/// ```
/// # futures_executor::block_on(async {
/// use larder_store::{Hints, Store, StoreOptions};
///
/// # let directory = tempfile::tempdir().expect("a directory");
/// # let path = directory.path().join("example.larder");
/// let store = Store::open(StoreOptions::new(path, 16 << 20))?;
/// let mut writer = store.insert(b"key", "the head".into(), Hints::default())?;
/// writer.write("the body".into())?;
/// writer.commit().await?;
///
/// let reader = store.get(b"key").await?.expect("the entry was just committed");
/// assert_eq!((reader.head(), reader.len()), ("the head".into(), 8));
/// assert_eq!(reader.read(4..8).await?, Some("body".into()));
/// store.close().await
/// # }).expect("a store in a directory of its own");
/// ```
#[derive(Clone)]
pub struct Reader {
    source: BodyRest,
    /// The bytes of the record that were read, from its start.
    record: Bytes,
    decoded: Arc<DecodedRecord>,
}

impl_debug!(Reader {});

/// The source of the part of the body that was not read with the head.
#[derive(Clone)]
enum BodyRest {
    Elsewhere {
        source: Arc<dyn BodySource>,
        position: Sector,
    },
    /// No source is needed: the whole record was read.
    Whole(Arc<Volume>),
}

/// The parts of an entry that stay the same when the engine moves its record.
#[derive(PartialEq, Eq)]
pub(crate) struct EntryContent {
    /// The fields of the record, with kind, place and sequence set to fixed values.
    meta: RecordMeta,
    head: Bytes,
    body_checksum: u32,
}

impl Reader {
    /// Creates a reader of an entry whose record at `position` was read from its start, but perhaps not to its end.
    /// `source` reads the remainder of the body later.
    pub(crate) fn of_front(
        source: Arc<impl BodySource + 'static>,
        position: Sector,
        record: Bytes,
        decoded: DecodedRecord,
    ) -> Self {
        Self { source: BodyRest::Elsewhere { source, position }, record, decoded: Arc::new(decoded) }
    }

    /// Creates a reader of an entry that was read whole.
    pub(crate) fn whole(volume: Arc<Volume>, record: Bytes, decoded: DecodedRecord) -> Self {
        assert!(decoded.body_is_here() && decoded.len_bytes() <= record.len());
        Self { source: BodyRest::Whole(volume), record, decoded: Arc::new(decoded) }
    }

    /// Returns the head as it was committed.
    pub fn head(&self) -> Bytes {
        self.record.slice(self.decoded.head.clone())
    }

    /// Returns the length of the body in bytes.
    pub fn len(&self) -> u64 {
        self.decoded.meta.body_bytes
    }

    /// Returns the hints of the entry, or those of its newest head if the head was replaced. Only the lower 32 bits of
    /// the group are kept.
    pub fn hints(&self) -> Hints {
        let RecordMeta { site, group, expires_at, .. } = self.decoded.meta;
        Hints { site: site.0, group: u64::from(group), expires_at }
    }

    /// Returns whether the body is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes of `range` of the body, after verifying their checksums.
    ///
    /// Returns `None` if the bytes are damaged or were overwritten since the lookup; treat the entry as a miss. Reads
    /// from the device only what the lookup has not read.
    ///
    /// # Errors
    /// `Unavailable` if the device fails, or the volume is excluded.
    ///
    /// # Panics
    /// If `range` is not within the body.
    pub async fn read(&self, range: Range<u64>) -> Result<Option<Bytes>> {
        assert!(range.start <= range.end && range.end <= self.len(), "range {range:?} of {}", self.len());
        if range.is_empty() {
            return Ok(Some(Bytes::new()));
        }
        self.volume().fenced(pin!(self.read_verified(range))).await
    }

    async fn read_verified(&self, range: Range<u64>) -> Result<Option<Bytes>> {
        if self.decoded.is_in_parts() {
            return self.read_in_parts(&range).await;
        }
        let blocks = range.start / BODY_BLOCK_BYTES..range.end.div_ceil(BODY_BLOCK_BYTES);
        let whole = blocks.start * BODY_BLOCK_BYTES..(blocks.end * BODY_BLOCK_BYTES).min(self.len());
        let bytes = match self.loaded(&whole) {
            Some(bytes) => bytes,
            None => match self.load(&whole).await? {
                Some(bytes) => bytes,
                None => return Ok(None),
            },
        };
        let mut pieces = bytes.chunks(BODY_BLOCK_BYTES as usize).zip(blocks);
        if !pieces.all(|(block, index)| self.decoded.verifies(&self.record, index, block)) {
            self.volume().counters.corrupt.fetch_add(1, Ordering::Relaxed);
            self.forget();
            return Ok(None);
        }
        let skip = (range.start - whole.start) as usize;
        Ok(Some(bytes.slice(skip..skip + (range.end - range.start) as usize)))
    }

    /// Returns whether both readers have the same entry: key, head, hints and body are equal. The store may have moved
    /// the entry between the two lookups. Reads nothing; bodies are compared by length and checksum.
    pub fn is_same_entry(&self, other: &Self) -> bool {
        self.content() == other.content()
    }

    /// Returns the body as a stream that supports reading and seeking.
    pub fn into_stream(self) -> BodyStream {
        BodyStream::new(self)
    }

    /// Returns the content by which this entry is compared with another. A replacement has a different content, a copy
    /// that the engine moved has the same.
    pub(crate) fn content(&self) -> EntryContent {
        let meta = RecordMeta { kind: RecordKind::Entry, sequence: 0, place: 0, ..self.decoded.meta.clone() };
        EntryContent { meta, head: self.head(), body_checksum: self.decoded.body_checksum(&self.record) }
    }

    pub(crate) fn decoded(&self) -> &DecodedRecord {
        &self.decoded
    }

    pub(crate) fn record(&self) -> &Bytes {
        &self.record
    }

    /// Returns the kind and the parts for a new record with another head, which refers to the body in its present
    /// place. Returns `None` if the body must be written again, because it is short, may still move, or is in too many
    /// parts.
    pub(crate) fn body_in_place(&self) -> Option<(RecordKind, Vec<BodyPart>)> {
        let BodyRest::Elsewhere { source, position } = &self.source else { return None };
        if self.len() <= BODY_BLOCK_BYTES || source.may_move(*position) {
            return None;
        }
        if !self.decoded.is_in_parts() {
            return Some((RecordKind::HeadUpdate(source.body_place(*position, &self.decoded)), Vec::new()));
        }
        let stretches = source.stretches(*position, &self.decoded, &self.record).into_iter();
        let parts: Vec<BodyPart> = stretches.filter_map(BodyStretch::into_part).collect();
        (parts.len() <= PARTS_MAX).then_some((RecordKind::InParts(parts.len() as u8), parts))
    }

    /// Returns the bytes of `range` of a body that several records hold.
    async fn read_in_parts(&self, range: &Range<u64>) -> Result<Option<Bytes>> {
        let BodyRest::Elsewhere { source, position } = &self.source else { return Ok(None) };
        let stretches = source.stretches(*position, &self.decoded, &self.record);
        let met = stretches.iter().filter(|of| of.range.start < range.end && range.start < of.range.end);
        let mut read = try_join_all(met.map(|stretch| self.read_stretch(&**source, stretch, range))).await?;
        if read.len() == 1 {
            return Ok(read.pop().flatten());
        }
        let mut joined = Vec::with_capacity((range.end - range.start) as usize);
        for piece in read {
            let Some(piece) = piece else { return Ok(None) };
            joined.extend_from_slice(&piece);
        }
        Ok(Some(joined.into()))
    }

    /// Returns the bytes of `range` that lie in `stretch`, one stored piece of the body, after verifying them.
    async fn read_stretch(
        &self,
        source: &dyn BodySource,
        stretch: &BodyStretch,
        range: &Range<u64>,
    ) -> Result<Option<Bytes>> {
        let of = &stretch.range;
        let start = range.start.max(of.start) - of.start;
        let end = range.end.min(of.end) - of.start;
        let blocks = start / BODY_BLOCK_BYTES..end.div_ceil(BODY_BLOCK_BYTES);
        let whole = blocks.start * BODY_BLOCK_BYTES..(blocks.end * BODY_BLOCK_BYTES).min(of.end - of.start);
        let behind_front = self.decoded.body_start as u64;
        let loaded = (behind_front + whole.start) as usize..(behind_front + whole.end) as usize;
        let bytes = if stretch.is_here && loaded.end <= self.record.len() {
            self.record.slice(loaded)
        } else {
            let Some(bytes) = self.load_from(source, stretch.place, &whole).await? else { return Ok(None) };
            bytes
        };
        let mut pieces = bytes.chunks(BODY_BLOCK_BYTES as usize).zip(blocks);
        if !pieces.all(|(block, index)| self.decoded.verifies(&self.record, stretch.checksum_of(index), block)) {
            self.volume().counters.corrupt.fetch_add(1, Ordering::Relaxed);
            self.forget();
            return Ok(None);
        }
        Ok(Some(bytes.slice((start - whole.start) as usize..(end - whole.start) as usize)))
    }

    /// Returns the bytes of `range` if they were read together with the head.
    fn loaded(&self, range: &Range<u64>) -> Option<Bytes> {
        if !self.decoded.body_is_here() {
            return None;
        }
        let start = self.decoded.body_start as u64;
        let from = start + range.start;
        let to = start + range.end;
        (to <= self.record.len() as u64).then(|| self.record.slice(from as usize..to as usize))
    }

    async fn load(&self, range: &Range<u64>) -> Result<Option<Bytes>> {
        let BodyRest::Elsewhere { source, position } = &self.source else { return Ok(None) };
        self.load_from(&**source, source.body_place(*position, &self.decoded), range).await
    }

    /// Reads `range` of the bytes stored at `place`.
    async fn load_from(
        &self,
        source: &dyn BodySource,
        place: BodyElsewhere,
        range: &Range<u64>,
    ) -> Result<Option<Bytes>> {
        let Some(offset) = place.offset_bytes.checked_add(range.start) else { return Ok(None) };
        let first = Sector(offset / SECTOR_BYTES);
        let skip = offset % SECTOR_BYTES;
        let len = range.end - range.start;
        let is_there = || source.is_in_use(first, place.sequence);
        if !is_there() {
            self.forget();
            return Ok(None);
        }
        let read = source.read_sectors(first, sectors(skip + len)).await?;
        let Some(bytes) = read.filter(|bytes| bytes.len() as u64 >= skip + len && is_there()) else {
            self.forget();
            return Ok(None);
        };
        Ok(Some(bytes.slice(skip as usize..(skip + len) as usize)))
    }

    fn forget(&self) {
        if let BodyRest::Elsewhere { source, position } = &self.source {
            source.forget_through(self.decoded.meta.hash.key_hash(), *position);
        }
    }

    fn volume(&self) -> &Volume {
        match &self.source {
            BodyRest::Elsewhere { source, .. } => source.volume(),
            BodyRest::Whole(volume) => volume,
        }
    }
}
