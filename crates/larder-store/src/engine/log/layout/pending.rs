//! The end of the log that is not yet on the device. Reads copy it from memory, and flushes wait for it.

use super::LogState;
use crate::units::{SECTOR_BYTES, Sector};
use std::time::Duration;

impl LogState {
    /// Returns up to `sectors` of the log from `position` on; `None` if the device already has them.
    pub(crate) fn dirty_copy(&self, position: Sector, sectors: u64) -> Option<Vec<u8>> {
        if let Some(record) = self.buffered(position) {
            return Some(record[..record.len().min((sectors * SECTOR_BYTES) as usize)].to_vec());
        }
        let (start, bytes) = self.dirty_unit(position)?;
        let from = (position.byte_offset() - start.byte_offset()) as usize;
        let to = bytes.len().min(from + (sectors * SECTOR_BYTES) as usize);
        assert!(from <= to, "the position is within the bytes that were found");
        Some(bytes[from..to].to_vec())
    }

    /// Returns whether the record at `position` is not on the device yet. Such a record may still move, and another
    /// version of its entry may then get the position.
    pub(crate) fn may_move(&self, position: Sector) -> bool {
        self.buffered(position).is_some() || self.dirty_unit(position).is_some()
    }

    /// Returns the unit that contains `position`, as its start and its bytes; `None` if the device already has the
    /// unit.
    fn dirty_unit(&self, position: Sector) -> Option<(Sector, &[u8])> {
        let open = self.open_segments().filter_map(|open| open.unit_bytes(&self.geometry));
        let in_flight =
            self.in_flight.iter().map(|unit| (unit.start, &unit.buffer.as_slice()[..unit.used_bytes as usize]));
        open.chain(in_flight).find(|(start, bytes)| {
            position >= *start && position.byte_offset() < start.byte_offset() + bytes.len() as u64
        })
    }

    /// Returns whether a unit with the number `ticket` or a lower number is not written yet. A unit that recovery finds
    /// only by its segment's trailer counts as written when the trailer is written.
    pub(crate) fn is_pending(&self, ticket: u64) -> bool {
        let open = self.open_segments().filter_map(|open| open.unit.as_ref()).map(|unit| unit.ticket);
        let in_flight = self.in_flight.iter().map(|unit| unit.ticket);
        let closing = self.closing.iter().filter_map(|closing| closing.hidden_from);
        let trailers = self.trailers_in_flight.iter().filter_map(|trailer| trailer.hidden_from);
        open.chain(in_flight).chain(closing).chain(trailers).any(|pending| pending <= ticket)
    }

    /// Returns the number of the last unit that was begun, and how many units could not be written.
    pub(crate) fn last_ticket_and_failures(&self) -> (u64, u64) {
        (self.next_ticket - 1, self.failed_units)
    }

    /// Returns how many units could not be written.
    pub(crate) fn failed_units(&self) -> u64 {
        self.failed_units
    }

    /// Returns when the oldest open unit got its first record; `None` if no unit is open.
    pub(super) fn unit_opened_at(&self) -> Option<Duration> {
        self.open_segments().filter_map(|open| open.unit.as_ref()).map(|unit| unit.opened_at).min()
    }

    /// Returns whether records wait in memory, in open units or in groups.
    pub(crate) fn has_waiting_records(&self) -> bool {
        self.unit_opened_at().is_some() || self.groups.as_ref().is_some_and(|groups| groups.bytes() > 0)
    }

    /// Returns whether any write of the log is in flight.
    pub(crate) fn is_writing(&self) -> bool {
        !self.in_flight.is_empty() || !self.closing.is_empty() || !self.trailers_in_flight.is_empty()
    }
}
