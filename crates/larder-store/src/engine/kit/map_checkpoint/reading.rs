//! The location of a map's snapshots and journal on a volume, and how a start reads them.
//!
//! Owns: [`MapCheckpointArea`], and which parts of headers, snapshot and journal count. Only headers are written here,
//! because they are read back. Invariant: a page counts only if it belongs to the snapshot, or to the sequence of the
//! journal, that the header names. Cost: one read of both. The format is described in docs/internals/format.md.

use crate::{
    Error, ErrorKind, Result,
    device::AlignedBuffer,
    format::{
        journal::{self, MapChange},
        snapshot::{
            HEADER_COUNT, MapRecovery, PAGE_LISTING_COUNT, PLACE_COUNT, SnapshotEntry, SnapshotHeader, decode_page,
        },
        superblock::VolumeShape,
    },
    units::BLOCK_BYTES,
    volume::{Volume, counters::add},
};
use bytes::Bytes;
use futures_util::future::join_all;
use std::sync::Arc;

/// Pages per read. Up to `TRANSFER_COUNT` reads are in flight at a time.
const TRANSFER_PAGE_COUNT: u64 = 256;
const TRANSFER_COUNT: usize = 4;
/// Minimum number of pages in a journal. It applies to small maps.
const JOURNAL_PAGES_MIN: u64 = 16;

/// The parts of the index area: headers, one place for snapshots (two if there is a journal), and the ring, the
/// circular log of the journal's pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MapCheckpointArea {
    start_bytes: u64,
    pub(super) snapshot_pages: u64,
    pub(super) journal_pages: u64,
}

/// The result of reading a journal.
pub(crate) struct ReplayedJournal {
    /// Number of the page after the last valid page.
    pub(crate) next: u64,
    pub(crate) pointer: Option<u64>,
    /// Whether a durable page is missing, or the superblock is older than the journal. In both cases no entry can be
    /// trusted.
    pub(crate) is_broken: bool,
}

impl MapCheckpointArea {
    /// Returns the length of the index area in bytes and the number of journal pages in it, for maps of up to
    /// `listing_count` entries.
    pub(crate) fn lengths(listing_count: u64, with_journal: bool) -> (u64, u64) {
        let snapshot_pages = listing_count.div_ceil(PAGE_LISTING_COUNT);
        let journal_pages = if with_journal { snapshot_pages.max(JOURNAL_PAGES_MIN) } else { 0 };
        let places = if with_journal { u64::from(PLACE_COUNT) } else { 1 };
        ((HEADER_COUNT + places * snapshot_pages + journal_pages) * BLOCK_BYTES, journal_pages)
    }

    pub(crate) fn of(shape: &VolumeShape) -> Self {
        let pages = (shape.index_bytes / BLOCK_BYTES).saturating_sub(HEADER_COUNT + shape.journal_pages);
        let places = if shape.journal_pages > 0 { u64::from(PLACE_COUNT) } else { 1 };
        let start_bytes = shape.index_area().start;
        Self { start_bytes, snapshot_pages: pages / places, journal_pages: shape.journal_pages }
    }

    /// Returns the maximum number of listings in a snapshot.
    pub(crate) fn listings_max(&self) -> u64 {
        self.snapshot_pages * PAGE_LISTING_COUNT
    }

    /// Returns the offset on the volume of a page of the snapshot at `place`, which is 0 or 1.
    pub(crate) fn page_bytes(&self, place: u32, page: u64) -> u64 {
        self.start_bytes + (HEADER_COUNT + u64::from(place) * self.snapshot_pages + page) * BLOCK_BYTES
    }

    /// Returns the offset on the volume of the snapshot that `header` names, and its generation.
    pub(crate) fn snapshot_of(&self, header: &SnapshotHeader) -> (u64, u64) {
        let MapRecovery { generation, place, .. } =
            header.recovery.unwrap_or(MapRecovery { generation: header.generation, ..MapRecovery::default() });
        (self.page_bytes(place, 0), generation)
    }

    pub(super) fn journal_start_bytes(&self) -> u64 {
        let places = if self.journal_pages > 0 { PLACE_COUNT } else { 1 };
        self.page_bytes(places, 0)
    }
}

/// Returns the header that is in effect; `None` if this cannot be determined. On volumes without a journal, both copies
/// must be readable, because an unreadable copy could be the newer one.
pub(crate) async fn read_header(volume: &Volume) -> Option<SnapshotHeader> {
    let area = volume.shape.index_area();
    let mut newest: Option<SnapshotHeader> = None;
    let mut unread = false;
    for copy in 0..HEADER_COUNT {
        match volume.read_for_start(area.start + copy * BLOCK_BYTES, BLOCK_BYTES).await {
            Ok(block) => {
                let found = SnapshotHeader::decode(volume.id, block.as_slice());
                newest = newest.into_iter().chain(found).max_by_key(|header| header.generation);
            }
            Err(_) => unread = true,
        }
    }
    let newest = newest.filter(|header| header.recovery.is_some() == (volume.shape.journal_pages > 0))?;
    Some(SnapshotHeader { whole: newest.whole && !unread, ..newest })
}

/// Writes both copies of the header, makes them durable, and reads them back.
pub(crate) async fn write_headers(volume: &Volume, header: &SnapshotHeader) -> Result<()> {
    let mut block = AlignedBuffer::with_len(BLOCK_BYTES as usize);
    header.encode(volume.id, block.as_mut_slice());
    let block = Arc::new(block);
    let area = volume.shape.index_area();
    for copy in 0..HEADER_COUNT {
        volume.write(area.start + copy * BLOCK_BYTES, Arc::clone(&block)).await?;
        volume.sync().await?;
    }
    for copy in 0..HEADER_COUNT {
        let offset_bytes = area.start + copy * BLOCK_BYTES;
        let unavailable =
            |source| Error::io(ErrorKind::Unavailable, "cannot read back the head of the store's snapshot", source);
        let back = volume.device.read(offset_bytes, BLOCK_BYTES as usize).await.map_err(unavailable)?;
        if back.as_slice() != block.as_slice() {
            let place =
                format!("the head of the store's snapshot was written but is not there, at byte {offset_bytes}");
            return Err(Error::new(ErrorKind::Unavailable, place));
        }
    }
    Ok(())
}

/// Reads the snapshot that `header` names. Passes its listings to `take`, page by page. Returns how many listings were
/// read. Calls `pass` between reads.
pub(crate) async fn read_snapshot(
    volume: &Volume,
    header: &SnapshotHeader,
    mut take: impl FnMut(Vec<SnapshotEntry>),
    mut pass: impl FnMut(),
) -> u64 {
    let area = MapCheckpointArea::of(&volume.shape);
    let (start_bytes, generation) = area.snapshot_of(header);
    let listing_count = header.listing_count.min(area.listings_max());
    let page_count = listing_count.div_ceil(PAGE_LISTING_COUNT);
    let starts: Vec<_> = (0..page_count).step_by(TRANSFER_PAGE_COUNT as usize).collect();
    let mut count = 0;
    for starts in starts.chunks(TRANSFER_COUNT) {
        let reads = starts.iter().map(async |&first| {
            let pages = TRANSFER_PAGE_COUNT.min(page_count - first);
            (first, read_pages(volume, start_bytes + first * BLOCK_BYTES, pages).await)
        });
        for (first, pages) in join_all(reads).await {
            for (number, page) in (first as u32..).zip(pages.chunks(BLOCK_BYTES as usize)) {
                match decode_page(volume.id, generation, number, page) {
                    Some(listings) => {
                        count += listings.len() as u64;
                        take(listings);
                    }
                    None => add(&volume.counters.corrupt, 1),
                }
            }
        }
        pass();
    }
    count
}

/// Reads the journal from the page at which the header's snapshot began. Passes the changes to `take` in order.
pub(crate) async fn read_journal(
    volume: &Volume,
    recovery: MapRecovery,
    mut take: impl FnMut(MapChange),
) -> ReplayedJournal {
    let area = MapCheckpointArea::of(&volume.shape);
    let mut next = recovery.journal_from;
    let mut run = recovery.run;
    let mut pointer = None;
    let mut is_over = false;
    let mut is_broken = false;
    let mut epoch = recovery.epoch;
    let mut at = recovery.journal_from;
    let end = at + area.journal_pages;
    while at < end {
        let slot = at % area.journal_pages;
        let count = TRANSFER_PAGE_COUNT.min(area.journal_pages - slot).min(end - at);
        let offset_bytes = area.journal_start_bytes() + slot * BLOCK_BYTES;
        let Ok(pages) = volume.read_for_start(offset_bytes, count * BLOCK_BYTES).await else {
            // The unreadable pages may contain removals.
            is_broken = true;
            break;
        };
        let pages = (at..at + count).zip(pages.as_slice().chunks(BLOCK_BYTES as usize));
        for (number, page) in pages {
            let found = journal::decode_page(volume.id, page).filter(|(header, _)| header.number == number);
            match found {
                Some((header, changes)) if !is_over && header.run >= run => {
                    (next, run, pointer) = (number + 1, header.run, Some(header.pointer));
                    epoch = epoch.max(header.epoch);
                    changes.into_iter().for_each(&mut take);
                }
                found => {
                    is_over = true;
                    // A page after the gap shows whether the missing page was durable or only not yet written.
                    is_broken |= found.is_some_and(|(header, _)| header.run >= run && header.durable > next);
                }
            }
        }
        at += count;
    }
    // The superblock lost an invalidation that the journal knows of: invalidated entries would be valid again.
    is_broken |= epoch > volume.epoch();
    ReplayedJournal { next, pointer, is_broken }
}

/// Reads `count` pages at `offset_bytes`. Returns no bytes if the read fails; the failure is counted.
async fn read_pages(volume: &Volume, offset_bytes: u64, count: u64) -> Bytes {
    volume.read_for_start(offset_bytes, count * BLOCK_BYTES).await.map(Bytes::from_owner).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::superblock::{LogForm, PARAMETER_COUNT};

    #[test]
    fn an_area_holds_what_it_was_made_for() {
        for (count, with_journal) in [0, 1, PAGE_LISTING_COUNT, PAGE_LISTING_COUNT + 1, 1_000_000]
            .into_iter()
            .flat_map(|count| [(count, false), (count, true)])
        {
            let (index_bytes, journal_pages) = MapCheckpointArea::lengths(count, with_journal);
            let parameters = [0; PARAMETER_COUNT];
            let shape = VolumeShape {
                row: 2,
                size_bytes: 1 << 40,
                segment_bytes: 0,
                index_bytes,
                parameters,
                journal_pages,
                form: LogForm::Plain,
            };
            let area = MapCheckpointArea::of(&shape);
            let held = area.listings_max();
            assert!(held >= count && held < count + PAGE_LISTING_COUNT);
            assert_eq!(area.journal_start_bytes() + journal_pages * BLOCK_BYTES, shape.index_area().end);
            assert_eq!(journal_pages > 0, with_journal);
        }
    }
}
