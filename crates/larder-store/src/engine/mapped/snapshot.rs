//! Start and end of a run: the map comes back from a snapshot, or starts empty.
//!
//! At start both headers are read; the newer sound one rules. Before anything else is written both are replaced
//! by one that says the snapshot is used, and read back, so that a crash never leads back to a snapshot that
//! is no longer true; only then is the store opened for writing. The header also reserves the numbers
//! of the writes to come: a run after a crash goes on behind them, so no number is used twice and no record of the
//! run that crashed is ever believed. Closing writes the pages, syncs, then the headers. Cost: 24 bytes
//! read and written per entry; lookups are misses until their entry is loaded, commits wait.

use super::{
    MappedEngine,
    map::Entry,
    state::{MappedState, NUMBERS_PER_BATCH, Phase},
};
use crate::{
    Error, ErrorKind, Result,
    device::AlignedBuffer,
    engine::kit::numbers::Numbers,
    format::snapshot::{self, HEADER_COUNT, Header, Listing, PAGE_LISTING_COUNT, encode_page},
    hash::KeyHash,
    units::BLOCK_BYTES,
    volume::{counters::add, waiters::wait_for},
};
use bytes::Bytes;
use futures_util::future::join_all;
use std::sync::Arc;

/// Pages read or written as one transfer, and transfers made together.
const TRANSFER_PAGE_COUNT: u64 = 256;
const TRANSFER_COUNT: usize = 4;

impl MappedEngine {
    pub(super) async fn load_snapshot(self: &Arc<Self>) {
        let found = self.read_header().await;
        let next_write =
            found.as_ref().map_or(self.volume.clock.since_epoch().as_millis() as u32, |header| header.next_write);
        {
            let mut state = self.lock();
            state.generation = found.as_ref().map_or(0, |header| header.generation);
            state.numbers = Numbers::new(next_write.into(), NUMBERS_PER_BATCH);
        }
        let begun = self.begin_run().await;
        // What cannot be marked as used can be read all the same, and nothing of it changes.
        let all_known = self.load_entries(found.filter(|header| header.whole)).await;
        let begun = match begun {
            Ok(()) => self.drop_unknown_files(all_known).await,
            Err(error) => Err(error),
        };
        if let Err(error) = &begun {
            tracing::error!("the store takes nothing: {error}");
            self.volume.note_failed_start();
            self.lock().all_known = all_known;
        }
        self.enter(if begun.is_ok() { Phase::Open } else { Phase::Unusable });
    }

    /// Begins the run after all, if that failed at the start.
    pub(super) async fn retry_start(self: &Arc<Self>) {
        if self.lock().phase != Phase::Unusable {
            return;
        }
        let Some(_turn) = self.volume.start_turn() else { return };
        // As it is now: somebody else may just have been done.
        let (phase, all_known) = {
            let state = self.lock();
            (state.phase, state.all_known)
        };
        if phase == Phase::Unusable
            && self.begin_run().await.is_ok()
            && self.drop_unknown_files(all_known).await.is_ok()
        {
            self.enter(Phase::Open);
        }
    }

    /// Loads what the snapshot lists; whether that was all.
    async fn load_entries(self: &Arc<Self>, whole: Option<Header>) -> bool {
        let Some(header) = whole else { return false };
        let mut all_known = self.lock().set_slot_counts(&header.slot_counts);
        all_known &= self.load_pages(&header).await;
        self.lock().point_at(header.pointer);
        all_known
    }

    /// In rows with files, all files go unless the snapshot tells whose each is.
    async fn drop_unknown_files(&self, all_known: bool) -> Result<()> {
        if let (Some(directory), false) = (&self.volume.directory, all_known) {
            self.lock().forget_all();
            let failed =
                |source| Error::io(ErrorKind::Unavailable, "cannot remove the files of an earlier run", source);
            directory.clear().await.map_err(failed)?;
        }
        Ok(())
    }

    /// Reserves more numbers for writes.
    pub(super) async fn reserve_numbers(&self) {
        let Some(_turn) = self.volume.head_turn() else { return };
        if let Err(error) = self.begin_run().await {
            tracing::error!("{error}");
        }
    }

    /// Waits until everything is written, then writes the snapshot.
    pub(super) async fn write_snapshot(self: &Arc<Self>) -> Result<()> {
        self.wait_loaded().await;
        // In this order: what is committed until here is flushed, and nothing is after.
        let was_open = self.lock().phase == Phase::Open;
        self.enter(Phase::Closed);
        let flushed = self.flush_all().await;
        if !was_open {
            return flushed;
        }
        let header = self.closing_header();
        self.write_pages(&header).await?;
        self.volume.sync().await?;
        self.write_headers(&header).await?;
        flushed
    }

    /// Waits until the start is over.
    pub(super) async fn wait_loaded(&self) {
        wait_for(|| self.lock(), |state: &mut MappedState| (state.phase != Phase::Loading).then_some(())).await;
    }

    fn closing_header(&self) -> Header {
        let state = self.lock();
        Header {
            generation: state.generation + 1,
            whole: true,
            listing_count: state.map.entry_count(),
            next_write: state.numbers.next() as u32,
            pointer: state.pointer(),
            slot_counts: state.slot_counts(),
        }
    }

    fn enter(&self, phase: Phase) {
        let mut state = self.lock();
        state.phase = phase;
        let woken = state.waiting.take();
        drop(state);
        woken.wake();
    }

    /// Marks the snapshot used and reserves numbers for writes.
    async fn begin_run(&self) -> Result<()> {
        let (generation_before, end) = {
            let state = self.lock();
            (state.generation, state.numbers.next_end())
        };
        // The time makes generations grow even if both headers were lost.
        let generation = (generation_before + 1).max(self.volume.clock.since_epoch().as_millis() as u64);
        let header = Header {
            generation,
            whole: false,
            listing_count: 0,
            next_write: end as u32,
            pointer: 0,
            slot_counts: Vec::new(),
        };
        self.write_headers(&header).await?;
        let mut state = self.lock();
        state.generation = generation;
        state.numbers.reserve_until(end);
        Ok(())
    }

    /// The header that rules, if one can be told: a copy that cannot be read might be newer.
    async fn read_header(&self) -> Option<Header> {
        let area = self.volume.shape.index_area();
        let mut newest: Option<Header> = None;
        let mut unread = false;
        for copy in 0..HEADER_COUNT {
            match self.volume.device.read(area.start + copy * BLOCK_BYTES, BLOCK_BYTES as usize).await {
                Ok(block) => {
                    let found = Header::decode(self.volume.id, block.as_slice());
                    newest = newest.into_iter().chain(found).max_by_key(|header| header.generation);
                }
                Err(_) => {
                    add(&self.volume.counters.io_errors, 1);
                    unread = true;
                }
            }
        }
        newest.map(|header| Header { whole: header.whole && !unread, ..header })
    }

    /// Writes both copies, makes them durable, and looks whether they are there.
    async fn write_headers(&self, header: &Header) -> Result<()> {
        let mut block = AlignedBuffer::with_len(BLOCK_BYTES as usize);
        header.encode(self.volume.id, block.as_mut_slice());
        let block = Arc::new(block);
        let area = self.volume.shape.index_area();
        for copy in 0..HEADER_COUNT {
            self.volume.write(area.start + copy * BLOCK_BYTES, Arc::clone(&block)).await?;
            self.volume.sync().await?;
        }
        for copy in 0..HEADER_COUNT {
            let offset_bytes = area.start + copy * BLOCK_BYTES;
            let unavailable =
                |source| Error::io(ErrorKind::Unavailable, "cannot read back the head of the store's snapshot", source);
            let back = self.volume.device.read(offset_bytes, BLOCK_BYTES as usize).await.map_err(unavailable)?;
            if back.as_slice() != block.as_slice() {
                let place =
                    format!("the head of the store's snapshot was written but is not there, at byte {offset_bytes}");
                return Err(Error::new(ErrorKind::Unavailable, place));
            }
        }
        Ok(())
    }

    /// Whether every listing was found and has its place.
    async fn load_pages(self: &Arc<Self>, header: &Header) -> bool {
        let mut loaded = 0;
        let listing_count = header.listing_count.min(snapshot::listings_in(self.volume.shape.index_bytes));
        let page_count = listing_count.div_ceil(PAGE_LISTING_COUNT);
        let starts: Vec<_> = (0..page_count).step_by(TRANSFER_PAGE_COUNT as usize).collect();
        for starts in starts.chunks(TRANSFER_COUNT) {
            let reads = starts.iter().map(async |&first| {
                let count = TRANSFER_PAGE_COUNT.min(page_count - first);
                (first, self.read_pages(first, count).await)
            });
            for (first, pages) in join_all(reads).await {
                let pages = pages.unwrap_or_default();
                for (number, page) in (first as u32..).zip(pages.chunks(BLOCK_BYTES as usize)) {
                    loaded += self.load_page(header.generation, number, page);
                }
            }
            // Commits that wait look at the time.
            let woken = self.lock().waiting.take();
            woken.wake();
        }
        loaded == header.listing_count
    }

    /// Loads the listings of a page; how many have their place.
    fn load_page(&self, generation: u64, number: u32, page: &[u8]) -> u64 {
        let Some(listings) = snapshot::decode_page(self.volume.id, generation, number, page) else {
            add(&self.volume.counters.corrupt, 1);
            return 0;
        };
        let mut state = self.lock();
        let mut load = |listing: &Listing| {
            let Listing { key_hash, place, sectors, sequence, expires_at } = *listing;
            state.load(key_hash, Entry { place, sectors, sequence, expires_at })
        };
        listings.iter().filter(|listing| load(listing)).count() as u64
    }

    /// Reads pages of the snapshot; a failed read is as good as no data, and counted.
    async fn read_pages(&self, first: u64, count: u64) -> Option<Bytes> {
        let read = self.volume.read(self.page_start_bytes(first), count * BLOCK_BYTES).await;
        read.ok()
    }

    async fn write_pages(&self, header: &Header) -> Result<()> {
        let listings: Vec<_> = {
            let state = self.lock();
            let listing = |(key_hash, entry): (KeyHash, Entry)| {
                let Entry { place, sectors, sequence, expires_at } = entry;
                Listing { key_hash, place, sectors, sequence, expires_at }
            };
            state.map.oldest_first().map(listing).collect()
        };
        assert_eq!(listings.len() as u64, header.listing_count, "a closed store does not change");
        let pages: Vec<_> = listings.chunks(PAGE_LISTING_COUNT as usize).collect();
        for (at, pages) in pages.chunks(TRANSFER_PAGE_COUNT as usize).enumerate() {
            let first = at as u64 * TRANSFER_PAGE_COUNT;
            let mut buffer = AlignedBuffer::with_len(pages.len() * BLOCK_BYTES as usize);
            let blocks = buffer.as_mut_slice().chunks_mut(BLOCK_BYTES as usize);
            for ((number, listings), block) in (first as u32..).zip(pages).zip(blocks) {
                encode_page(self.volume.id, header.generation, number, listings, block);
            }
            self.volume.write(self.page_start_bytes(first), Arc::new(buffer)).await?;
        }
        Ok(())
    }

    fn page_start_bytes(&self, number: u64) -> u64 {
        self.volume.shape.index_area().start + (HEADER_COUNT + number) * BLOCK_BYTES
    }
}
