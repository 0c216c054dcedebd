//! The ring: the remainders of entries longer than a bin, written one after the other in a circle.
//!
//! Owns: the write position, and the places that are being written. Entries are unknown here: a reader must check
//! whether a remainder was overwritten. Places are counted from the ring's first use and never repeat, so a place
//! implies both position and round. Invariants: a remainder is contiguous. No place is assigned while an earlier write
//! of the same bytes is in flight. Cost: constant memory. Source: HashCache (NSDI 2009), the circular log and its
//! generation number.

use std::collections::VecDeque;

/// The write position of the ring, a circular log, and the writes in flight. A place in the ring is the number of bytes
/// that were written to the ring before.
pub(crate) struct RingState {
    start_bytes: u64,
    len_bytes: u64,
    alignment_bytes: u64,
    /// The place where the next remainder, the part of a record outside its bin, is written.
    next: u64,
    /// Places that are being written, the oldest first. The `bool` says whether the write is done. Done places at the
    /// front of the list are removed.
    in_flight: VecDeque<(u64, bool)>,
}

/// Why the ring, the circular log, has no place for a remainder, the part of a record outside its bin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoPlace {
    /// An earlier write to the same bytes of the ring is in flight. The caller must wait for its end.
    Now,
    /// The remainder, the part of a record outside its bin, is longer than the ring and never fits.
    Ever,
}

impl RingState {
    /// Creates a ring of `len_bytes` at `start_bytes` of the volume, both multiples of `alignment_bytes`. Writing
    /// begins at the place `next`.
    pub(crate) fn new(start_bytes: u64, len_bytes: u64, alignment_bytes: u64, next: u64) -> Self {
        assert!(start_bytes.is_multiple_of(alignment_bytes) && len_bytes.is_multiple_of(alignment_bytes));
        let next = next.next_multiple_of(alignment_bytes);
        Self { start_bytes, len_bytes, alignment_bytes, next, in_flight: VecDeque::new() }
    }

    /// Returns the place for a remainder of `len_bytes`, the part of a record outside its bin. The place counts as
    /// being written until [`Self::written`].
    pub(crate) fn place(&mut self, len_bytes: u64) -> Result<u64, NoPlace> {
        let len_bytes = len_bytes.next_multiple_of(self.alignment_bytes);
        if len_bytes > self.len_bytes {
            return Err(NoPlace::Ever);
        }
        let left = self.len_bytes - self.next % self.len_bytes;
        let at = if len_bytes <= left { self.next } else { self.next + left };
        let oldest = self.in_flight.front().map_or(at, |&(oldest, _)| oldest);
        if at + len_bytes > oldest + self.len_bytes {
            return Err(NoPlace::Now);
        }
        assert!(
            at >= self.next && at % self.len_bytes + len_bytes <= self.len_bytes,
            "a rest is ahead and in one piece"
        );
        self.next = at + len_bytes;
        self.in_flight.push_back((at, false));
        Ok(at)
    }

    /// Notes that the write to the place `at` has ended, whether or not it succeeded.
    pub(crate) fn written(&mut self, at: u64) {
        let found = self.in_flight.iter_mut().find(|(place, _)| *place == at);
        *found.map(|(_, written)| written).expect("what is written was on its way") = true;
        while self.in_flight.front().is_some_and(|&(_, written)| written) {
            self.in_flight.pop_front();
        }
        debug_assert!(self.in_flight.iter().is_sorted_by_key(|&(place, _)| place), "places are given out in order");
    }

    /// Returns the offset on the volume of the `len_bytes` at the place `at`. Returns `None` if these bytes were
    /// overwritten since, or if the place is impossible.
    pub(crate) fn offset_bytes(&self, at: u64, len_bytes: u64) -> Option<u64> {
        let end = at.checked_add(len_bytes.checked_next_multiple_of(self.alignment_bytes)?)?;
        let within = at.is_multiple_of(self.alignment_bytes) && at % self.len_bytes + (end - at) <= self.len_bytes;
        let kept = at.checked_add(self.len_bytes)? >= self.next;
        (within && kept).then(|| self.start_bytes + at % self.len_bytes)
    }

    /// Checks that the places that are being written are in order, and at most the ring's length apart.
    pub(super) fn check(&self) {
        assert!(self.in_flight.iter().is_sorted_by(|(one, _), (other, _)| one < other), "places are in order");
        assert!(
            self.in_flight.back().is_none_or(|&(last, _)| last < self.next),
            "no place is ahead of the write point"
        );
        let oldest = self.in_flight.front().map_or(self.next, |&(oldest, _)| oldest);
        assert!(self.next - oldest <= self.len_bytes, "nothing on its way is overtaken");
    }

    /// Returns the place where the next remainder, the part of a record outside its bin, is written.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring() -> RingState {
        RingState::new(4096, 10 * 512, 512, 0)
    }

    #[test]
    fn a_rest_lies_in_one_piece_until_the_ring_comes_round() {
        let mut ring = ring();
        assert_eq!(ring.place(1000), Ok(0));
        assert_eq!(ring.place(3000), Ok(1024));
        ring.written(0);
        ring.written(1024);
        assert_eq!(ring.place(2000), Ok(5120), "not over the end");
        assert_eq!(ring.offset_bytes(5120, 2000), Some(4096));
        assert_eq!(ring.offset_bytes(0, 1000), None, "overwritten by what lies a round later");
        assert_eq!(ring.offset_bytes(1024, 3000), None);
        assert_eq!(ring.next(), 7168);
        assert_eq!(ring.place(5121), Err(NoPlace::Ever));
    }

    #[test]
    fn no_place_is_given_out_while_its_bytes_are_being_written() {
        let mut ring = ring();
        let places: Vec<_> = (0..10).map(|_| ring.place(512).unwrap()).collect();
        assert_eq!(ring.place(1), Err(NoPlace::Now));
        ring.written(places[1]);
        assert_eq!(ring.place(1), Err(NoPlace::Now), "the oldest is still on its way");
        ring.written(places[0]);
        assert_eq!(ring.place(1024), Ok(10 * 512));
        assert_eq!(ring.place(512), Err(NoPlace::Now));
    }

    #[test]
    fn hostile_places_are_none() {
        let mut ring = ring();
        ring.place(512).unwrap();
        for (at, len) in [(1, 512), (u64::MAX - 511, 512), (u64::MAX - 1023, 512), (512, u64::MAX), (4608, 1024)] {
            assert_eq!(ring.offset_bytes(at, len), None, "{at}, {len}");
        }
    }
}
