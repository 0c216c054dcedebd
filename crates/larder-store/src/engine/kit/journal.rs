//! The journal of a map: the waiting changes, the pages in flight, and the part of the ring that is still needed.
//!
//! Owns: the page numbers, and the order in which pages are written. Only one write is in flight, so that a kill leaves
//! the journal complete up to some change, with nothing after it. A page is written once, so a durable page is never
//! overwritten while it is needed. I/O, the meaning of positions, and snapshots are elsewhere. Invariants: a page is
//! reused only when no start needs it. A page whose write failed is retried before any later page. Cost: 24 bytes per
//! waiting change. Idea: Squid's swap.state, and Markatos et al. (USITS'99), who propose saving BUDDY's map every few
//! minutes.

use super::room::NoRoom;
use crate::{
    device::AlignedBuffer,
    format::{
        VolumeId,
        journal::{MapChange, PAGE_CHANGE_COUNT, PageHeader, encode_page},
    },
    units::BLOCK_BYTES,
};
use std::{collections::VecDeque, sync::Arc, time::Duration};

/// Pause before a failed write is retried, unless a caller requests an earlier retry.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// Maximum number of pages that one operation writes.
const TRANSFER_PAGE_COUNT: usize = 16;

/// The journal of one volume.
pub(crate) struct MapJournal {
    volume: VolumeId,
    /// Offset in bytes at which the ring, the circular log of journal pages, begins on the volume.
    start_bytes: u64,
    /// Length of the ring, the circular log of journal pages, in pages; 0 if the volume has no journal.
    page_count: u64,
    /// Generation of this run, which is written into each page. `None` until pages may be written.
    run: Option<u64>,
    /// Whether the journal pages of earlier runs were read. While this is `false`, no change is recorded.
    goes_on: bool,
    /// Number that the next page gets when it is sealed, that is, closed to further changes.
    next: u64,
    /// Number of the oldest page that the next start would read.
    needed_from: u64,
    open: Vec<MapChange>,
    /// When the oldest change in the open page was made.
    opened_at: Duration,
    sealed: VecDeque<SealedPage>,
    /// Number of sealed pages that are being written.
    in_flight: usize,
    /// Number of changes noted since the volume was opened. `written` counts those that are on the volume.
    noted: u64,
    written: u64,
    /// Number of writes that failed.
    failed: u64,
    /// When the last write of pages failed; `None` if it succeeded. A failed write is retried after a pause, or at once
    /// if a caller requests it.
    stalled_at: Option<Duration>,
}

struct SealedPage {
    number: u64,
    pointer: u64,
    changes: Vec<MapChange>,
    /// Number of changes noted since the volume was opened, up to the end of this page.
    noted: u64,
}

/// A write of pages that the caller must submit.
pub(crate) struct JournalWrite {
    pub(crate) offset_bytes: u64,
    pub(crate) buffer: Arc<AlignedBuffer>,
}

impl MapJournal {
    /// Creates the journal of a volume. Its ring, a circular log, has `page_count` pages and begins at `start_bytes`.
    /// No page is written yet.
    pub(crate) fn new(volume: VolumeId, start_bytes: u64, page_count: u64) -> Self {
        Self {
            volume,
            start_bytes,
            page_count,
            run: None,
            goes_on: false,
            next: 0,
            needed_from: 0,
            open: Vec::new(),
            opened_at: Duration::ZERO,
            sealed: VecDeque::new(),
            in_flight: 0,
            noted: 0,
            written: 0,
            failed: 0,
            stalled_at: None,
        }
    }

    /// Returns whether the volume has a journal.
    pub(crate) fn is_kept(&self) -> bool {
        self.page_count > 0
    }

    /// Continues the journal of earlier runs. The next page gets the number `next`. Until a new snapshot is durable, a
    /// start needs the pages from number `needed_from` on.
    pub(crate) fn go_on(&mut self, needed_from: u64, next: u64) {
        assert!(self.run.is_none() && self.sealed.is_empty() && needed_from <= next, "before anything is written");
        assert!(!self.is_kept() || next - needed_from <= self.page_count, "no more is needed than the ring holds");
        (self.needed_from, self.next, self.goes_on) = (needed_from, next, true);
    }

    /// Allows pages to be written, with `run`, the generation of this run, in each of them.
    pub(crate) fn begin(&mut self, run: u64) {
        assert!(self.run.is_none_or(|before| before <= run), "runs are numbered in their order");
        self.run = Some(run);
    }

    /// Notes a change of the map that was made at `since`. The flush interval begins at that time.
    pub(crate) fn note(&mut self, change: MapChange, since: Duration, pointer: u64) {
        if !self.is_kept() || !self.goes_on {
            return;
        }
        self.opened_at = if self.open.is_empty() { since } else { self.opened_at.min(since) };
        assert!((self.open.len() as u64) < PAGE_CHANGE_COUNT, "a full page is sealed");
        self.open.push(change);
        self.noted += 1;
        if self.open.len() as u64 == PAGE_CHANGE_COUNT {
            self.seal(pointer);
        }
    }

    /// Seals the open page, so that it is written although it is not full.
    pub(crate) fn seal(&mut self, pointer: u64) {
        if self.open.is_empty() {
            return;
        }
        let changes = std::mem::take(&mut self.open);
        self.sealed.push_back(SealedPage { number: self.next, pointer, changes, noted: self.noted });
        self.next += 1;
        assert!(self.sealed.len() as u64 <= self.next, "pages are numbered one by one");
    }

    /// Seals the open page if its oldest change has waited for `interval`.
    pub(crate) fn seal_after(&mut self, interval: Duration, now: Duration, pointer: u64) {
        if self.opened_at + interval <= now {
            self.seal(pointer);
        }
        assert!(self.open.is_empty() || self.opened_at + interval > now, "no change waits longer than it is to");
    }

    /// Returns the next write of pages, or `None` if no write may begin now. The headers of the pages state two values:
    /// `durable`, the number of the first page that is not durable yet, and the current `epoch`.
    pub(crate) fn next_write(&mut self, durable: u64, epoch: u32) -> Option<JournalWrite> {
        let run = self.run.filter(|_| self.in_flight == 0 && self.stalled_at.is_none())?;
        let first = self.sealed.front()?.number;
        let slot = first % self.page_count;
        let end = self.needed_from + self.page_count;
        let room = (self.page_count - slot).min(end.checked_sub(first)?) as usize;
        let count = self.sealed.len().min(TRANSFER_PAGE_COUNT).min(room);
        if count == 0 {
            return None;
        }
        assert!(first + count as u64 <= end, "no page that a start needs is written over");
        let mut buffer = AlignedBuffer::with_len(count * BLOCK_BYTES as usize);
        for (page, block) in self.sealed.iter().zip(buffer.as_mut_slice().chunks_mut(BLOCK_BYTES as usize)) {
            let header = PageHeader { number: page.number, run, durable, pointer: page.pointer, epoch };
            encode_page(self.volume, &header, &page.changes, block);
        }
        self.in_flight = count;
        Some(JournalWrite { offset_bytes: self.start_bytes + slot * BLOCK_BYTES, buffer: Arc::new(buffer) })
    }

    /// Notes the outcome of the write that was in flight.
    pub(crate) fn handle_written(&mut self, is_ok: bool, now: Duration) {
        assert!(self.in_flight > 0, "what is written was on its way");
        let count = std::mem::take(&mut self.in_flight);
        if !is_ok {
            return self.note_failure(now);
        }
        for page in self.sealed.drain(..count) {
            self.written = page.noted;
        }
        assert!(self.written <= self.noted, "what is written was noted");
    }

    /// Notes that a page of the journal or of a snapshot could not be written. It is retried after a pause.
    pub(crate) fn note_failure(&mut self, now: Duration) {
        self.failed += 1;
        self.stalled_at = Some(now);
    }

    /// Lets the next write begin at once, although the previous write failed.
    pub(crate) fn try_again(&mut self) {
        self.stalled_at = None;
    }

    /// Lets the next write begin if the pause after the last failed write is over.
    pub(crate) fn try_again_at(&mut self, now: Duration) {
        self.stalled_at = self.stalled_at.filter(|at| now < *at + RETRY_PAUSE);
    }

    pub(crate) fn is_stalled(&self) -> bool {
        self.stalled_at.is_some()
    }

    /// Returns whether pages may be written.
    pub(crate) fn is_begun(&self) -> bool {
        self.run.is_some()
    }

    /// Returns the generation of this run; 0 if pages may not be written yet.
    pub(crate) fn run(&self) -> u64 {
        self.run.unwrap_or_default()
    }

    /// Frees the pages before `from`, because a durable snapshot contains their changes.
    pub(crate) fn release_before(&mut self, from: u64) {
        assert!(self.needed_from <= from && from <= self.next, "what is released was written, and once");
        self.needed_from = from;
    }

    /// Returns the number of the first page that is not on the volume yet.
    pub(crate) fn written_until(&self) -> u64 {
        self.sealed.front().map_or(self.next, |page| page.number)
    }

    /// Returns the number of changes noted since the volume was opened.
    pub(crate) fn noted(&self) -> u64 {
        self.noted
    }

    pub(crate) fn is_written_until(&self, noted: u64) -> bool {
        !self.is_kept() || self.written >= noted
    }

    pub(crate) fn failed(&self) -> u64 {
        self.failed
    }

    /// Returns whether sealed pages wait for their write to begin.
    pub(crate) fn has_sealed(&self) -> bool {
        self.sealed.len() > self.in_flight
    }

    /// Returns whether all sealed pages are on the volume. The open page does not count.
    pub(crate) fn is_all_written_but_open(&self) -> bool {
        self.sealed.is_empty()
    }

    /// Returns whether changes are waiting to be written.
    pub(crate) fn is_dirty(&self) -> bool {
        !self.open.is_empty() || !self.sealed.is_empty()
    }

    /// Returns whether the ring, the circular log of journal pages, is full up to the part that is reserved for
    /// removals. New entries must then wait for a snapshot, which frees pages.
    pub(crate) fn is_short(&self) -> bool {
        self.is_kept() && self.used_pages() + 1 + self.page_count / 8 >= self.page_count
    }

    /// Returns an error if the ring, the circular log of journal pages, has no space for the changes of a new entry.
    pub(crate) fn check_room(&self) -> Result<(), NoRoom> {
        match (self.is_short(), self.is_stalled()) {
            (false, _) => Ok(()),
            (true, false) => Err(NoRoom::Now),
            (true, true) => Err(NoRoom::Stalled),
        }
    }

    /// Returns how much of a snapshot should be written by now, in thousandths. Returns `None` if no snapshot should be
    /// begun.
    ///
    /// A snapshot begins when half of the ring, the circular log of journal pages, is used, and must end when three
    /// quarters are. Its cost per change therefore does not depend on the size of the map.
    pub(crate) fn snapshot_due(&self) -> Option<u64> {
        let beyond = self.used_pages().checked_sub(self.page_count / 2).filter(|_| self.is_kept())?;
        Some(beyond * 1000 / (self.page_count / 4).max(1))
    }

    /// Returns the number of the page that will contain the next change.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    fn used_pages(&self) -> u64 {
        self.next - self.needed_from
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        format::{journal::decode_page, snapshot::SnapshotEntry},
        hash::KeyHash,
    };

    const VOLUME: VolumeId = VolumeId([4; 16]);
    const SECOND: Duration = Duration::from_secs(1);

    fn change(sequence: u32) -> MapChange {
        let listing = SnapshotEntry { key_hash: KeyHash(9), place: 1, sectors: 1, sequence, expires_at: 0 };
        MapChange { listing, is_gone: false }
    }

    fn journal(page_count: u64) -> MapJournal {
        let mut journal = MapJournal::new(VOLUME, 1 << 20, page_count);
        journal.go_on(20, 20);
        journal.begin(3);
        journal
    }

    /// Returns the numbers of the pages in `write`.
    fn numbers(write: &JournalWrite) -> Vec<u64> {
        let pages = write.buffer.as_slice().chunks(BLOCK_BYTES as usize);
        pages.map(|page| decode_page(VOLUME, page).unwrap().0.number).collect()
    }

    #[test]
    fn pages_go_out_one_transfer_after_the_other_and_what_failed_goes_first() {
        let mut journal = journal(16);
        for sequence in 0..3 {
            journal.note(change(sequence), SECOND, 0);
            journal.seal(7);
        }
        let write = journal.next_write(0, 1).unwrap();
        assert_eq!((write.offset_bytes, numbers(&write)), ((1 << 20) + 4 * BLOCK_BYTES, vec![20, 21, 22]));
        assert!(journal.next_write(0, 1).is_none(), "one at a time");
        journal.note(change(3), SECOND, 0);
        journal.seal(7);
        journal.handle_written(false, SECOND);
        assert!(journal.next_write(0, 1).is_none() && !journal.is_written_until(1), "not at once");
        journal.try_again_at(SECOND);
        assert!(journal.next_write(0, 1).is_none());
        journal.try_again_at(3 * SECOND);
        assert_eq!(numbers(&journal.next_write(0, 1).unwrap()), [20, 21, 22, 23]);
        journal.handle_written(true, SECOND);
        assert!(journal.is_written_until(4) && !journal.is_dirty() && journal.written_until() == 24);
    }

    #[test]
    fn pages_that_a_start_needs_are_not_used_again_before_a_snapshot_replaces_them() {
        let mut journal = journal(16);
        let fill = |journal: &mut MapJournal, count| {
            for sequence in 0..count {
                journal.note(change(sequence), SECOND, 0);
                journal.seal(0);
            }
        };
        fill(&mut journal, 8);
        assert_eq!((journal.snapshot_due(), journal.is_short()), (Some(0), false));
        fill(&mut journal, 12);
        assert!(journal.is_short());
        let mut written = Vec::new();
        while let Some(write) = journal.next_write(0, 1) {
            written.extend(numbers(&write));
            journal.handle_written(true, SECOND);
        }
        assert_eq!(
            written,
            (20..36).collect::<Vec<_>>(),
            "as many as there are, and no transfer beyond the ring's end"
        );
        assert!(!journal.is_written_until(20));
        journal.release_before(38);
        assert_eq!(numbers(&journal.next_write(0, 1).unwrap()), [36, 37, 38, 39]);
        journal.handle_written(true, SECOND);
        assert!(journal.is_written_until(20) && !journal.is_short() && journal.snapshot_due().is_none());
    }

    #[test]
    fn a_full_page_is_sealed_by_itself_and_one_that_waits_when_its_time_has_come() {
        let mut journal = journal(16);
        (0..PAGE_CHANGE_COUNT as u32).for_each(|sequence| journal.note(change(sequence), 5 * SECOND, 0));
        journal.note(change(1000), 6 * SECOND, 0);
        journal.note(change(1001), 4 * SECOND, 0);
        journal.seal_after(SECOND, 4 * SECOND, 0);
        assert_eq!(numbers(&journal.next_write(0, 1).unwrap()), [20]);
        journal.handle_written(true, SECOND);
        assert!(!journal.is_written_until(PAGE_CHANGE_COUNT + 1) && journal.next_write(0, 1).is_none());
        journal.seal_after(SECOND, 5 * SECOND, 0);
        assert!(journal.next_write(0, 1).is_some());
    }
}
