//! What records a segment holds: from its trailer, or where there is none, from its units.
//!
//! Does not: judge which of them are still anybody's entry. Invariant: only records of the segment's present
//! use are listed. Cost: one read of a trailer (two of a long one), or the whole segment.

use super::LogEngine;
use crate::{
    format::{
        record::{Decoded, Kind},
        trailer::{Footer, Listing},
        unit::{UNIT_HEADER_BYTES, UnitHeader},
    },
    store::counters::add,
    units::{BLOCK_BYTES, SECTOR_BYTES, SegmentId},
};
use bytes::Bytes;

/// What is read of a segment's end: the trailer of 1,600 entries fits.
const TRAILER_GUESS_BYTES: u64 = 32 << 10;

/// The records of a segment's present use, in log order.
pub(super) async fn listings(engine: &LogEngine, segment: SegmentId) -> Vec<Listing> {
    match trailer_listings(engine, segment).await {
        Some(listings) => listings,
        None => unit_listings(engine, segment).await,
    }
}

async fn trailer_listings(engine: &LogEngine, segment: SegmentId) -> Option<Vec<Listing>> {
    let end = engine.geometry.segment_end_bytes(segment);
    let guess = TRAILER_GUESS_BYTES.min(engine.geometry.segment_bytes);
    let last = read_blocks(engine, end - guess, guess).await?;
    let footer = Footer::decode(engine.volume.id, &engine.geometry, segment, &last)?;
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

/// Reads the units one after the other, until one is not of this use of the segment.
async fn unit_listings(engine: &LogEngine, segment: SegmentId) -> Vec<Listing> {
    let (geometry, sequence) = (&engine.geometry, engine.segments.sequence(segment));
    let start = geometry.segment_start_bytes(segment);
    let mut listings = Vec::new();
    let (mut offset, mut number) = (0, 0);
    while offset + BLOCK_BYTES <= geometry.segment_bytes {
        let Some(first) = read_blocks(engine, start + offset, BLOCK_BYTES).await else { break };
        let Some(header) = UnitHeader::decode(engine.volume.id, geometry, &first) else { break };
        let len = u64::from(header.len_bytes);
        if (header.segment, header.sequence, header.number) != (segment, sequence, number)
            || offset + len > geometry.segment_bytes
        {
            break;
        }
        let Some(unit) = read_blocks(engine, start + offset, len).await else { break };
        list_unit(engine, sequence, offset, &unit[..header.used_bytes as usize], &mut listings);
        offset += len;
        number += 1;
    }
    listings
}

/// Lists the records of a unit that begins `unit_offset` bytes into its segment.
fn list_unit(engine: &LogEngine, sequence: u32, unit_offset: u64, unit: &[u8], listings: &mut Vec<Listing>) {
    let mut at = UNIT_HEADER_BYTES;
    while at < unit.len() as u64 {
        let Ok(record) = Decoded::decode(engine.volume.id, &unit[at as usize..]) else { return };
        if record.meta.sequence != sequence || at + record.len_sectors() * SECTOR_BYTES > unit.len() as u64 {
            return;
        }
        listings.push(Listing {
            placing: record.meta.hash.placing(),
            sector: ((unit_offset + at) / SECTOR_BYTES) as u32,
            sectors: record.len_sectors() as u16,
            tombstone: record.meta.kind == Kind::Tombstone,
            useless_after: record.meta.useless_after,
        });
        at += record.len_sectors() * SECTOR_BYTES;
    }
}

/// Reads whole blocks; a failed read is as good as no data, and counted.
pub(super) async fn read_blocks(engine: &LogEngine, offset_bytes: u64, len_bytes: u64) -> Option<Bytes> {
    match engine.volume.device.read(offset_bytes, len_bytes as usize).await {
        Ok(buffer) => Some(Bytes::from_owner(buffer)),
        Err(_) => {
            add(&engine.volume.counters.io_errors, 1);
            None
        }
    }
}
