//! Full segments whose last units or trailers are being written.
//!
//! Invariant: a trailer is written once every write of a unit of its segment has succeeded or failed.

use super::{LogState, LogTransfer, buffers::buffer_of};
use crate::{
    device::AlignedBuffer,
    format::{
        SegmentUse,
        trailer::{self, TrailerRecord, trailer_bytes},
    },
    units::SegmentId,
};
use std::sync::Arc;

/// A full segment whose last units or trailer are being written.
pub(super) struct ClosingSegment {
    pub(super) segment: SegmentId,
    pub(super) of: SegmentUse,
    pub(super) listings: Vec<TrailerRecord>,
    /// Bytes that the listings take in the trailer.
    pub(super) list_bytes: u64,
    pub(super) units_in_flight: u32,
    /// Number of the segment's first unit, if it could not be written ([`super::OpenSegment::hidden_from`]).
    pub(super) hidden_from: Option<u64>,
}

/// A trailer that is being written.
pub(super) struct TrailerInFlight {
    pub(super) segment: SegmentId,
    pub(super) buffer: Arc<AlignedBuffer>,
    /// Number of the segment's first unit, if it could not be written ([`super::OpenSegment::hidden_from`]).
    pub(super) hidden_from: Option<u64>,
}

impl LogState {
    /// Notes that the first unit of a segment, with the number `ticket`, could not be written. No header then shows the
    /// segment's present use, and recovery finds its other units only by the trailer.
    pub(super) fn hide(&mut self, segment: SegmentId, ticket: u64) {
        let open = self.open.iter_mut().flatten().filter(|open| open.segment == segment);
        let open = open.map(|open| &mut open.hidden_from);
        let closing = self.closing.iter_mut().filter(|closing| closing.segment == segment);
        let mut of_segment = open.chain(closing.map(|closing| &mut closing.hidden_from));
        let hidden_from = of_segment.next().expect("a segment has no trailer while a unit is on its way");
        assert_eq!(hidden_from.replace(ticket), None, "a segment has one first unit");
    }

    /// Notes the outcome of writing a trailer. If the write failed, recovery reads the segment's units instead, unless
    /// the segment's first unit could not be written either ([`Self::hide`]).
    pub(crate) fn trailer_written(&mut self, segment: SegmentId, ok: bool) {
        assert!(self.open_segments().all(|open| open.segment != segment), "a segment that is filled has no trailer");
        self.segments.set_clean(segment);
        if let Some(at) = self.trailers_in_flight.iter().position(|trailer| trailer.segment == segment) {
            let trailer = self.trailers_in_flight.swap_remove(at);
            if !ok {
                // This unit may be the only trace of the use, and it failed.
                self.untraced.push(self.segments.sequence(segment));
                self.untraced.sort_unstable();
            }
            if !ok && trailer.hidden_from.is_some() {
                // The next flush must fail.
                self.failed_units += 1;
            }
            self.keep_for_reuse(trailer.buffer);
        }
        self.effects.wake(self.waiting.take());
    }

    /// Starts to write the trailers of full segments whose units are all written.
    pub(super) fn write_due_trailers(&mut self) {
        let (due, closing) = self.closing.drain(..).partition(|closing| closing.units_in_flight == 0);
        self.closing = closing;
        for ClosingSegment { segment, of, mut listings, list_bytes, hidden_from, .. } in due {
            let len_bytes = trailer_bytes(list_bytes);
            let mut buffer = buffer_of(&mut self.spare, len_bytes);
            buffer.truncate(len_bytes as usize);
            trailer::encode(self.volume, &self.geometry, (segment, of), &listings, buffer.as_mut_slice());
            assert!(buffer.len() as u64 <= self.geometry.segment_bytes, "a trailer fits into its segment");
            let offset_bytes = self.geometry.segment_end_bytes(segment) - buffer.len() as u64;
            let buffer = Arc::new(buffer);
            self.trailers_in_flight.push(TrailerInFlight { segment, buffer: Arc::clone(&buffer), hidden_from });
            self.effects.transfers.push(LogTransfer::WriteTrailer { segment, offset_bytes, buffer });
            listings.clear();
            self.spare_listings = listings;
        }
    }
}
