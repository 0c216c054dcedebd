//! Lists the records of a segment from its trailer or, if it has none, from its units.
//!
//! Callers decide which of them are current. Invariants: only records of the segment's present use are listed. One
//! flipped bit hides none. If more is damaged or unreadable, a removal may be among the unlisted records. Then nothing
//! older is listed either, and `is_cut` is set. Units that a power loss kept from the device look like remains of an
//! earlier use, and count as never written. Cost: one read of a trailer (two of a long one), or the whole segment.

use super::{LogEngine, layout::group_bytes_max};
use crate::{
    format::{
        record::{DecodedRecord, RecordKind},
        trailer::{ListedKind, TrailerFooter, TrailerRecord},
        unit::{UnitHeader, unit_header_bytes},
    },
    units::{BLOCK_BYTES, SegmentId},
};
use bytes::Bytes;

/// Number of bytes at the end of a segment that are read first. They contain the trailer of up to 1,600 entries.
const TRAILER_GUESS_BYTES: u64 = 32 << 10;
/// Bytes of each read from a segment without a trailer.
const AHEAD_BYTES: u64 = 1 << 20;

/// The records of a segment's present use, in log order.
#[derive(Default)]
pub(super) struct ListedRecords {
    pub(super) records: Vec<TrailerRecord>,
    /// Whether records may be missing because the segment is damaged.
    pub(super) is_cut: bool,
}

/// Lists the records of a segment's present use, from its trailer or else from its units.
pub(super) async fn listings(engine: &LogEngine, segment: SegmentId) -> ListedRecords {
    match trailer_listings(engine, segment).await {
        Some(records) => ListedRecords { records, is_cut: false },
        None => unit_listings(engine, segment).await,
    }
}

async fn trailer_listings(engine: &LogEngine, segment: SegmentId) -> Option<Vec<TrailerRecord>> {
    let end = engine.geometry.segment_end_bytes(segment);
    let guess = TRAILER_GUESS_BYTES.min(engine.geometry.segment_bytes);
    let last = read_blocks(engine, end - guess, guess).await?;
    let footer = TrailerFooter::decode(engine.volume.id, &engine.geometry, segment, &last)?;
    if footer.sequence != engine.segments.sequence(segment) {
        return None;
    }
    let len = footer.trailer_bytes();
    let trailer = match guess.checked_sub(len) {
        Some(skip) => last.slice(skip as usize..),
        None => read_blocks(engine, end - len, len).await?,
    };
    footer.listings(engine.volume.id, &engine.geometry, &trailer)
}

/// Lists the records by reading the units. Skips blocks that are not part of the segment's present use.
async fn unit_listings(engine: &LogEngine, segment: SegmentId) -> ListedRecords {
    let geometry = &engine.geometry;
    let sequence = engine.segments.sequence(segment);
    let mut reader = SegmentReader { engine, segment, ahead: ReadAhead { offset_bytes: 0, bytes: Bytes::new() } };
    let mut listed = ListedRecords::default();
    let mut offset = 0;
    let mut number = 0;
    while offset + BLOCK_BYTES <= geometry.segment_bytes {
        let Some(first) = reader.bytes(offset, BLOCK_BYTES).await else {
            return ListedRecords { records: Vec::new(), is_cut: true };
        };
        let is_next = |header: &UnitHeader| {
            (header.segment, header.sequence) == (segment, sequence)
                && header.number >= number
                && offset + u64::from(header.len_bytes) <= geometry.segment_bytes
        };
        let header = UnitHeader::decode_mended(engine.volume.id, geometry, &first).filter(is_next);
        let Some(header) = header else {
            if UnitHeader::is_damaged(engine.volume.id, geometry, &first) {
                listed = ListedRecords { records: Vec::new(), is_cut: true };
            }
            offset += BLOCK_BYTES;
            continue;
        };
        let len = u64::from(header.len_bytes).max(BLOCK_BYTES);
        let Some(unit) = reader.bytes(offset, len).await else {
            return ListedRecords { records: Vec::new(), is_cut: true };
        };
        list_unit(engine, sequence, offset, &unit[..header.used_bytes as usize], &mut listed.records);
        offset += len;
        number = header.number + 1;
    }
    listed
}

/// Adds the records of a unit to `listings`. The unit begins `unit_offset` bytes from the start of its segment. Skips
/// bytes that are not a record.
fn list_unit(engine: &LogEngine, sequence: u32, unit_offset: u64, unit: &[u8], listings: &mut Vec<TrailerRecord>) {
    let geometry = &engine.geometry;
    let mut at = unit_header_bytes(geometry);
    // The group of the last record, and the start of the first of its adjacent records.
    let mut run: Option<(u32, u32)> = None;
    while at < unit.len() as u64 {
        let start_bytes = (unit_offset + at) as u32;
        let place = start_bytes / geometry.step_bytes as u32;
        let bytes = &unit[at as usize..];
        let belongs = |record: &DecodedRecord| {
            (record.meta.sequence, record.meta.place) == (sequence, place)
                && at + record.len_bytes() as u64 <= unit.len() as u64
        };
        let whole = DecodedRecord::decode(engine.volume.id, bytes).ok();
        let record = whole.or_else(|| DecodedRecord::decode_mended(engine.volume.id, bytes, sequence, place));
        let Some(record) = record.filter(belongs) else {
            at += geometry.step_bytes;
            run = None;
            continue;
        };
        let len_bytes = geometry.stepped(record.len_bytes() as u64);
        let key_hash = record.meta.hash.key_hash();
        let kind = ListedKind::of(record.meta.kind);
        let group = Some(record.meta.group).filter(|&group| group != 0 && record.meta.kind == RecordKind::Entry);
        let fits = |first: u32| u64::from(start_bytes - first) + len_bytes <= group_bytes_max(geometry);
        let first = run.filter(|&(of, first)| Some(of) == group && fits(first)).map(|(_, first)| first);
        run = group.map(|group| (group, first.unwrap_or(start_bytes)));
        let follows = first.is_some();
        let expires_at = record.meta.expires_at;
        let len_bytes = len_bytes as u32;
        listings.push(TrailerRecord { key_hash, start_bytes, len_bytes, kind, run_blocks: 0, follows, expires_at });
        TrailerRecord::extend_run(listings);
        at += u64::from(len_bytes);
    }
}

/// The bytes of a segment that were read last.
struct ReadAhead {
    offset_bytes: u64,
    bytes: Bytes,
}

/// Reads a segment from start to end, in larger pieces than its caller requests.
struct SegmentReader<'a> {
    engine: &'a LogEngine,
    segment: SegmentId,
    ahead: ReadAhead,
}

impl SegmentReader<'_> {
    /// Returns `len_bytes` of the segment from its offset `offset_bytes` on; both must be multiples of the block size.
    /// Returns `None` if these bytes are unreadable.
    async fn bytes(&mut self, offset_bytes: u64, len_bytes: u64) -> Option<Bytes> {
        let geometry = &self.engine.geometry;
        assert!(offset_bytes + len_bytes <= geometry.segment_bytes);
        let known = self.ahead.offset_bytes..self.ahead.offset_bytes + self.ahead.bytes.len() as u64;
        if !(known.contains(&offset_bytes) && offset_bytes + len_bytes <= known.end) {
            let start = geometry.segment_start_bytes(self.segment) + offset_bytes;
            let ahead = AHEAD_BYTES.max(len_bytes).min(geometry.segment_bytes - offset_bytes);
            let bytes = match read_blocks(self.engine, start, ahead).await {
                Some(bytes) => bytes,
                // A bad block further on must not fail the read of this one.
                None => read_blocks(self.engine, start, len_bytes).await?,
            };
            self.ahead = ReadAhead { offset_bytes, bytes };
        }
        let skip = (offset_bytes - self.ahead.offset_bytes) as usize;
        Some(self.ahead.bytes.slice(skip..skip + len_bytes as usize))
    }
}

/// Reads whole blocks. Returns `None` if the read fails several times; each failure is counted.
pub(super) async fn read_blocks(engine: &LogEngine, offset_bytes: u64, len_bytes: u64) -> Option<Bytes> {
    engine.volume.read_for_start(offset_bytes, len_bytes).await.ok().map(Bytes::from_owner)
}
