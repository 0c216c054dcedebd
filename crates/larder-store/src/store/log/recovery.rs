//! What an earlier run left: which segments are whose, and which entries are where.
//!
//! First every segment's first and last block tell its sequence; then, newest segment first, its
//! trailer (or, where the run ended before one was written, its units) gives the index its entries.
//! Meanwhile the store is in use: what is not loaded yet is a miss, and whatever happens to a key now
//! counts more than what is loaded for it. Cost: two small reads and a trailer per segment.

use super::LogEngine;
use crate::{
    format::{
        record::{Decoded, Kind},
        trailer::{Footer, Listing},
        unit::{UNIT_HEADER_BYTES, UnitHeader},
    },
    index::{SizeClass, Slot},
    store::counters::add,
    units::{BLOCK_BYTES, SECTOR_BYTES, Sector, SegmentId},
};
use bytes::Bytes;
use futures_util::future::join_all;
use std::{
    sync::{Arc, atomic::Ordering},
    task::Waker,
};

/// Segments looked at together.
const BATCH: usize = 32;

/// Finds the segments of earlier runs, starts the log, and loads the index.
pub(super) async fn run(engine: &Arc<LogEngine>) {
    let mut found = Vec::new();
    let mut free = Vec::new();
    let segments: Vec<_> = engine.geometry.segments().collect();
    for batch in segments.chunks(BATCH) {
        let probes = batch.iter().map(async |&segment| (segment, probe(engine, segment).await));
        for (segment, sequence) in join_all(probes).await {
            match sequence {
                Some(sequence) => found.push((segment, sequence)),
                None => free.push(segment),
            }
        }
    }
    found.sort_by_key(|&(_, sequence)| sequence);
    // Writers need room at once: the oldest go first anyway.
    let missing = engine.reserve_segments().saturating_sub(free.len()).min(found.len());
    free.extend(found.drain(..missing).map(|(segment, _)| segment));
    engine.volume.counters.recoverable_segments.store(found.len() as u64, Ordering::Relaxed);
    let waiting = engine.lock_log().begin(free, &found);
    waiting.into_iter().for_each(Waker::wake);
    for batch in found.rchunks(BATCH) {
        let listed = batch.iter().rev().map(async |&(segment, _)| (segment, listings(engine, segment).await));
        for (segment, listings) in join_all(listed).await {
            load(engine, segment, &listings);
            add(&engine.volume.counters.recovered_segments, 1);
        }
    }
    engine.index.end_loading();
}

/// The sequence of a segment's last use, if it was used.
///
/// The first unit rules: it is the first thing written in a new use of the segment, and nothing behind
/// it is durable before it is.
async fn probe(engine: &LogEngine, segment: SegmentId) -> Option<u32> {
    let first = read(engine, engine.geometry.segment_start_bytes(segment), BLOCK_BYTES).await?;
    let unit = UnitHeader::decode(engine.volume.id, &engine.geometry, &first)?;
    (unit.segment == segment && unit.number == 0).then_some(unit.sequence)
}

/// The records of a segment's present use, in log order.
pub(super) async fn listings(engine: &LogEngine, segment: SegmentId) -> Vec<Listing> {
    match trailer_listings(engine, segment).await {
        Some(listings) => listings,
        None => unit_listings(engine, segment).await,
    }
}

async fn trailer_listings(engine: &LogEngine, segment: SegmentId) -> Option<Vec<Listing>> {
    let end = engine.geometry.segment_end_bytes(segment);
    let last = read(engine, end - BLOCK_BYTES, BLOCK_BYTES).await?;
    let footer = Footer::decode(engine.volume.id, &engine.geometry, segment, &last)?;
    if footer.sequence != engine.segments.sequence(segment) {
        return None;
    }
    let len = footer.trailer_bytes();
    let trailer = if len == BLOCK_BYTES { last } else { read(engine, end - len, len).await? };
    footer.listings(engine.volume.id, &engine.geometry, &trailer)
}

/// Reads the units one after the other, until one is not of this use of the segment.
async fn unit_listings(engine: &LogEngine, segment: SegmentId) -> Vec<Listing> {
    let (geometry, sequence) = (&engine.geometry, engine.segments.sequence(segment));
    let start = geometry.segment_start_bytes(segment);
    let mut listings = Vec::new();
    let (mut offset, mut number) = (0, 0);
    while offset + BLOCK_BYTES <= geometry.segment_bytes {
        let Some(first) = read(engine, start + offset, BLOCK_BYTES).await else { break };
        let Some(header) = UnitHeader::decode(engine.volume.id, geometry, &first) else { break };
        let len = u64::from(header.len_bytes);
        if (header.segment, header.sequence, header.number) != (segment, sequence, number)
            || offset + len > geometry.segment_bytes
        {
            break;
        }
        let Some(unit) = read(engine, start + offset, len).await else { break };
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

/// Gives a segment's records to the index, newest first.
fn load(engine: &LogEngine, segment: SegmentId, listings: &[Listing]) {
    let now_s = engine.volume.clock.now_s();
    let start = engine.geometry.segment_start_bytes(segment) / SECTOR_BYTES;
    for listing in listings.iter().rev() {
        if listing.tombstone {
            engine.index.load_removal(listing.placing);
            continue;
        }
        let position = Sector(start + u64::from(listing.sector));
        let size = SizeClass::holding(u64::from(listing.sectors));
        let short_lived = engine.segments.note(segment, listing.useless_after, now_s);
        engine.index.load(listing.placing, Slot { position, size, hits: 0, short_lived });
    }
}

/// Reads whole blocks; a failed read is as good as no data, and counted.
async fn read(engine: &LogEngine, offset_bytes: u64, len_bytes: u64) -> Option<Bytes> {
    match engine.volume.device.read(offset_bytes, len_bytes as usize).await {
        Ok(buffer) => Some(Bytes::from_owner(buffer)),
        Err(_) => {
            add(&engine.volume.counters.io_errors, 1);
            None
        }
    }
}
