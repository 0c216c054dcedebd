//! A ring of segments to which packs are appended: the front of `tiny`, or the place of its long entries.
//!
//! Owns: the open pack, packs in flight, the segments in use, and the first pack of each. I/O is done elsewhere (the
//! caller gets [`SealedPack`]s to write), and the content of packs is unknown. Invariants: packs are on the volume in
//! the order of their sequences, without gaps within a segment. Segments are used in a circle, and the oldest is freed
//! first. A record is alive as long as its segment's first sequence is not greater than its own.
//!
//! On the volume, a sequence has 32 bits and wraps after 4 billion packs (50 days with a thousand removals per second).
//! In memory, it has 64 bits and does not wrap; a sequence read from the volume is the low half of the greatest one
//! possible. Cost: 8 bytes of memory per segment, one open pack and one spare. Idea: Kangaroo's KLog (SOSP 2021) and
//! HashCache's circular log (NSDI 2009).

mod check;

use crate::{
    device::AlignedBuffer,
    engine::kit::pack::{OpenPack, PackRecord, PackShape, SealedPack, copy_of},
    format::VolumeId,
    units::BLOCK_BYTES,
};
use std::{sync::Arc, time::Duration};

/// The place of a ring, a circular log, on the volume, and its division into segments and packs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RingArea {
    pub(crate) start_bytes: u64,
    pub(crate) segment_bytes: u64,
    pub(crate) segment_count: u32,
    /// Length in bytes at which a pack is complete.
    pub(crate) pack_bytes: u64,
    /// Records begin at multiples of this number of bytes.
    pub(crate) packing_bytes: u64,
}

/// The packs and segments of a ring, a circular log.
pub(crate) struct PackRingState {
    area: RingArea,
    volume: VolumeId,
    /// Sequence of the first pack in each segment; 0 if the segment is free.
    first_sequences: Vec<u64>,
    /// The segment that is being written (the head). `head_used_bytes` is the number of used bytes in this segment.
    head: u32,
    head_used_bytes: u64,
    /// Number of used segments: the head, which is being written, and those before it.
    used_count: u32,
    /// Sequence of the next pack. Its low 32 bits are never 0, because 0 means none.
    next_sequence: u64,
    open: Option<OpenPack>,
    in_flight: Vec<SealedPack>,
    /// Packs that the device refused, and that must be written again.
    failed: Vec<SealedPack>,
    /// The buffer of a written pack, kept for the next pack, because new memory costs a page fault for every 4 KiB.
    spare: Option<AlignedBuffer>,
}

/// The place at which a record was appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RingPlace {
    pub(crate) offset_bytes: u64,
    /// Low 32 bits of the sequence of the pack that contains the record.
    pub(crate) sequence: u32,
}

/// The error if no segment is free. The caller must free a segment first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RingFull;

impl RingArea {
    /// Bytes at the start of a pack that are reserved for its directory.
    pub(crate) const DIRECTORY_BYTES: u64 = BLOCK_BYTES;

    pub(crate) fn end_bytes(&self) -> u64 {
        self.start_bytes + self.segment_bytes * u64::from(self.segment_count)
    }

    pub(crate) fn segment_start_bytes(&self, segment: u32) -> u64 {
        self.start_bytes + u64::from(segment) * self.segment_bytes
    }

    pub(crate) fn segment_of(&self, offset_bytes: u64) -> Option<u32> {
        let segment = offset_bytes.checked_sub(self.start_bytes)? / self.segment_bytes;
        u32::try_from(segment).ok().filter(|&segment| segment < self.segment_count)
    }

    /// Returns the length in bytes of the longest record that fits in a segment.
    pub(crate) fn record_bytes_max(&self) -> u64 {
        self.segment_bytes - Self::DIRECTORY_BYTES
    }

    fn shape(&self) -> PackShape {
        PackShape { directory_bytes: Self::DIRECTORY_BYTES, packing_bytes: self.packing_bytes, whole: false }
    }

    /// Returns the length in bytes of a pack whose first record has `len_bytes`.
    fn pack_len_bytes(&self, len_bytes: u64) -> u64 {
        let alone =
            (Self::DIRECTORY_BYTES + len_bytes.next_multiple_of(self.packing_bytes)).next_multiple_of(BLOCK_BYTES);
        alone.max(self.pack_bytes)
    }
}

impl PackRingState {
    /// Creates an empty ring.
    pub(crate) fn new(area: RingArea, volume: VolumeId) -> Self {
        assert!(area.segment_count >= 2 && area.segment_bytes.is_multiple_of(BLOCK_BYTES));
        Self {
            area,
            volume,
            first_sequences: vec![0; area.segment_count as usize],
            head: area.segment_count - 1,
            head_used_bytes: area.segment_bytes,
            used_count: 0,
            next_sequence: 1,
            open: None,
            in_flight: Vec::new(),
            failed: Vec::new(),
            spare: None,
        }
    }

    /// Continues the ring, a circular log, of an earlier run. This ring must be new. `first_sequences` has the first
    /// sequence of each segment (0 if unused). `next_sequence` must be greater than all sequences on the volume. The
    /// segment that the earlier run was writing is not continued.
    pub(crate) fn resume(&mut self, first_sequences: Vec<u64>, next_sequence: u64) {
        assert_eq!(first_sequences.len(), self.first_sequences.len());
        assert!(first_sequences.iter().all(|&first| first < next_sequence));
        let newest = (0..self.area.segment_count).max_by_key(|&segment| first_sequences[segment as usize]);
        self.head = newest.expect("a ring has segments");
        self.first_sequences = first_sequences;
        self.next_sequence = after(next_sequence - 1);
        let count = self.area.segment_count;
        let back = |steps: u32| (self.head + count - steps) % count;
        let oldest = (0..count).rev().find(|&steps| self.first_sequences[back(steps) as usize] != 0);
        self.used_count = oldest.map_or(0, |steps| steps + 1);
        self.head_used_bytes = self.area.segment_bytes;
    }

    /// Appends a record. If a pack becomes complete because of it, adds the pack to `sealed`, to be written.
    pub(crate) fn append(
        &mut self,
        parcel: PackRecord,
        now: Duration,
        sealed: &mut Vec<SealedPack>,
        write: impl FnOnce(&mut [u8], u32),
    ) -> Result<RingPlace, RingFull> {
        assert!(parcel.len_bytes <= self.area.record_bytes_max());
        if self.open.as_ref().is_some_and(|open| !open.takes(parcel.len_bytes)) {
            sealed.extend(self.seal());
        }
        if self.open.is_none() {
            self.open_pack(parcel.len_bytes, now)?;
        }
        let open = self.open.as_mut().expect("a pack was opened above");
        let at = open.append(parcel, write);
        let place = RingPlace { offset_bytes: open.offset_bytes + at, sequence: open.sequence };
        assert_eq!(self.area.segment_of(place.offset_bytes), Some(self.head), "a record goes into the head");
        Ok(place)
    }

    /// Returns whether a record of `len_bytes` can be appended now, even if it takes the last free segment.
    pub(crate) fn has_room(&self, len_bytes: u64) -> bool {
        self.has_room_leaving(0, len_bytes)
    }

    /// Returns whether a record of `len_bytes` can be appended now while `spare_count` segments stay free.
    pub(crate) fn has_room_leaving(&self, spare_count: u32, len_bytes: u64) -> bool {
        let after_open = match &self.open {
            Some(open) if open.takes(len_bytes) => return true,
            Some(open) => self.head_used_bytes + open.len_bytes(),
            None => self.head_used_bytes,
        };
        let needed = (RingArea::DIRECTORY_BYTES + len_bytes).next_multiple_of(BLOCK_BYTES);
        after_open + needed <= self.area.segment_bytes || self.free_count() > spare_count
    }

    /// Completes the open pack and returns it, to be written. Returns `None` if no pack is open.
    pub(crate) fn seal(&mut self) -> Option<SealedPack> {
        let open = self.open.take()?;
        let sealed = open.seal(self.volume, self.oldest_sequence() as u32);
        self.head_used_bytes += sealed.len_bytes();
        assert!(self.head_used_bytes <= self.area.segment_bytes);
        self.in_flight.push(sealed.clone());
        Some(sealed)
    }

    /// Ends the segment that is being written, so that the next pack goes to another one.
    pub(crate) fn end_segment(&mut self) {
        if self.open.is_none() {
            self.head_used_bytes = self.area.segment_bytes;
        }
        assert!(self.head_used_bytes <= self.area.segment_bytes, "packs end within their segment");
    }

    /// Notes that a pack is on the device, or is lost. A start finds the packs behind a lost pack, because each pack
    /// contains its own offset.
    pub(crate) fn written(&mut self, sequence: u32) {
        let Some(at) = self.in_flight.iter().position(|pack| pack.sequence == sequence) else { return };
        let SealedPack { buffer, offset_bytes, .. } = self.in_flight.swap_remove(at);
        assert!(self.area.segment_of(offset_bytes).is_some(), "a pack lies within the ring");
        // Fails if the device or a reader still has the buffer.
        if let Ok(mut buffer) = Arc::try_unwrap(buffer) {
            buffer.extend_to_capacity();
            self.spare = Some(buffer).filter(|buffer| buffer.len() as u64 == self.area.pack_bytes);
        }
    }

    /// Notes that the device refused a pack. Lookups of the pack's records are served from memory until the pack is
    /// written again.
    pub(crate) fn failed(&mut self, sequence: u32) {
        let Some(at) = self.in_flight.iter().position(|pack| pack.sequence == sequence) else { return };
        let pack = self.in_flight.swap_remove(at);
        assert!(!self.has_failed(pack.offset_bytes), "a pack that failed is not on its way");
        self.failed.push(SealedPack { failures: pack.failures.saturating_add(1), ..pack });
    }

    /// Returns the packs that the device refused.
    pub(crate) fn failed_packs(&self) -> &[SealedPack] {
        &self.failed
    }

    /// Returns whether a record at `offset_bytes` is in a pack that the device refused.
    pub(crate) fn has_failed(&self, offset_bytes: u64) -> bool {
        self.failed.iter().any(|pack| pack.span().contains(&offset_bytes))
    }

    /// Returns whether a record at `offset_bytes` is not on the device, because its pack is open, in flight or refused.
    pub(crate) fn is_unwritten(&self, offset_bytes: u64) -> bool {
        let sealed = self.in_flight.iter().chain(&self.failed).map(SealedPack::span);
        sealed.chain(self.open.iter().map(OpenPack::span)).any(|span| span.contains(&offset_bytes))
    }

    /// Returns a refused pack, to be written to the same place again.
    pub(crate) fn send_again(&mut self, sequence: u32) -> Option<SealedPack> {
        let at = self.failed.iter().position(|pack| pack.sequence == sequence)?;
        let pack = self.failed.swap_remove(at);
        assert!(
            self.is_alive(pack.offset_bytes, pack.sequence),
            "a pack is written again while its segment is its own"
        );
        self.in_flight.push(pack.clone());
        Some(pack)
    }

    /// Drops a refused pack, because none of its records is needed any more.
    pub(crate) fn give_up(&mut self, sequence: u32) {
        let count = self.failed.len();
        self.failed.retain(|pack| pack.sequence != sequence);
        assert_eq!(self.failed.len() + 1, count, "one pack is given up");
    }

    /// Frees `segment`, which must be the oldest one.
    pub(crate) fn release_oldest(&mut self, segment: u32) {
        assert_eq!(self.oldest(), Some(segment), "segments are freed oldest first");
        self.first_sequences[segment as usize] = 0;
        self.used_count -= 1;
    }

    /// Returns the oldest segment, if all its packs are on the device and it is not being written.
    pub(crate) fn oldest(&self) -> Option<u32> {
        if self.used_count == 0 || (self.used_count == 1 && !self.head_is_done()) {
            return None;
        }
        let count = self.area.segment_count;
        let segment = (self.head + count - (self.used_count - 1)) % count;
        let is_writing = |pack: &SealedPack| self.area.segment_of(pack.offset_bytes) == Some(segment);
        (!self.in_flight.iter().chain(&self.failed).any(is_writing)).then_some(segment)
    }

    /// Returns whether the ring, a circular log, still has the record at `offset_bytes` of the pack with this sequence.
    /// `false` means that the pack's segment was freed or reused.
    pub(crate) fn is_alive(&self, offset_bytes: u64, sequence: u32) -> bool {
        self.area.segment_of(offset_bytes).is_some_and(|segment| {
            let first = self.first_sequences[segment as usize];
            first != 0 && first <= self.widened(sequence)
        })
    }

    /// Returns the range of sequences of a segment's packs; `None` if the segment is free.
    pub(crate) fn sequences(&self, segment: u32) -> Option<std::ops::Range<u64>> {
        let first = self.first_sequences[segment as usize];
        let next = self.first_sequences[((segment + 1) % self.area.segment_count) as usize];
        let end = if next > first { next } else { self.next_sequence };
        (first != 0).then_some(first..end)
    }

    /// Returns whether `segment` can contain a pack whose sequence has these low 32 bits.
    pub(crate) fn has_pack(&self, segment: u32, sequence: u32) -> bool {
        self.sequences(segment).is_some_and(|sequences| sequences.contains(&self.widened(sequence)))
    }

    /// Returns the greatest sequence used so far that has these low 32 bits; 0 if there is none.
    pub(crate) fn widened(&self, sequence: u32) -> u64 {
        let last = self.last_sequence();
        last.saturating_sub(u64::from((last as u32).wrapping_sub(sequence)))
    }

    /// Returns up to `len_bytes` bytes at `offset_bytes` from a pack that the device does not have yet.
    pub(crate) fn dirty_copy(&self, offset_bytes: u64, len_bytes: u64) -> Option<Vec<u8>> {
        let open = self.open.as_ref().map(|open| (open.offset_bytes, open.bytes()));
        let sealed = self.in_flight.iter().chain(&self.failed).map(|pack| (pack.offset_bytes, pack.buffer.as_slice()));
        open.into_iter().chain(sealed).find_map(|(start, bytes)| copy_of(start, bytes, offset_bytes, len_bytes))
    }

    /// Returns whether the pack with this sequence or an earlier one is open or in flight.
    pub(crate) fn is_pending(&self, sequence: u64) -> bool {
        let open = self.open.iter().map(|open| open.sequence);
        let all = open.chain(self.in_flight.iter().map(|pack| pack.sequence));
        all.into_iter().any(|pending| self.widened(pending) <= sequence)
    }

    /// Returns the bytes of all packs that the device does not have yet.
    pub(crate) fn dirty_bytes(&self) -> u64 {
        let open = self.open.as_ref().map_or(0, OpenPack::len_bytes);
        open + self.in_flight.iter().chain(&self.failed).map(SealedPack::len_bytes).sum::<u64>()
    }

    pub(crate) fn opened_at(&self) -> Option<Duration> {
        self.open.as_ref().map(|open| open.opened_at)
    }

    pub(crate) fn last_sequence(&self) -> u64 {
        self.next_sequence - 1
    }

    pub(crate) fn free_count(&self) -> u32 {
        self.area.segment_count - self.used_count
    }

    /// Returns whether the segment that is being written is full.
    fn head_is_done(&self) -> bool {
        self.open.is_none() && self.head_used_bytes == self.area.segment_bytes
    }

    /// Returns the smallest sequence of all packs that are still needed.
    fn oldest_sequence(&self) -> u64 {
        self.first_sequences.iter().copied().filter(|&first| first != 0).min().unwrap_or(self.next_sequence)
    }

    fn open_pack(&mut self, len_bytes: u64, now: Duration) -> Result<(), RingFull> {
        let left = self.area.segment_bytes - self.head_used_bytes;
        let needed = (RingArea::DIRECTORY_BYTES + len_bytes.next_multiple_of(self.area.packing_bytes))
            .next_multiple_of(BLOCK_BYTES);
        if needed > left {
            if self.free_count() == 0 {
                return Err(RingFull);
            }
            self.head = (self.head + 1) % self.area.segment_count;
            assert_eq!(self.first_sequences[self.head as usize], 0, "a segment is freed before it is used again");
            self.head_used_bytes = 0;
            self.used_count += 1;
            self.first_sequences[self.head as usize] = self.next_sequence;
        }
        let room = self.area.segment_bytes - self.head_used_bytes;
        let len = self.area.pack_len_bytes(len_bytes).min(room);
        assert!(len_bytes < len && len <= room, "a pack holds the record it is opened for, and ends in its segment");
        let offset_bytes = self.area.segment_start_bytes(self.head) + self.head_used_bytes;
        let sequence = self.next_sequence;
        self.next_sequence = after(sequence);
        let buffer = match self.spare.take() {
            Some(mut spare) if spare.len() as u64 >= len => {
                spare.truncate(len as usize);
                spare
            }
            _ => AlignedBuffer::with_len(len as usize),
        };
        self.open = Some(OpenPack::new(self.area.shape(), offset_bytes, buffer, sequence as u32, now));
        Ok(())
    }

    /// Makes `sequence` the next one, as if all lower sequences had been used.
    #[cfg(test)]
    pub(crate) fn begin_at(&mut self, sequence: u64) {
        assert_eq!(self.used_count, 0);
        self.next_sequence = sequence;
    }
}

/// Returns the sequence after `sequence`. Skips sequences whose low 32 bits are 0.
fn after(sequence: u64) -> u64 {
    let next = sequence + 1;
    if next as u32 == 0 { next + 1 } else { next }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        format::pack::{self, PackedKind},
        hash::KeyHash,
    };

    const AREA: RingArea = RingArea {
        start_bytes: 1 << 20,
        segment_bytes: 64 << 10,
        segment_count: 4,
        pack_bytes: 16 << 10,
        packing_bytes: 64,
    };

    fn ring() -> PackRingState {
        PackRingState::new(AREA, VolumeId([1; 16]))
    }

    fn append(ring: &mut PackRingState, len_bytes: u64, sealed: &mut Vec<SealedPack>) -> Result<RingPlace, RingFull> {
        let parcel = PackRecord { key_hash: KeyHash(1), len_bytes, expires_at: 0, kind: PackedKind::Entry };
        ring.append(parcel, Duration::ZERO, sealed, |target, sequence| target.fill(sequence as u8))
    }

    #[test]
    fn a_ring_fills_its_segments_in_a_circle_and_frees_the_oldest_first() {
        let mut ring = ring();
        let mut sealed = Vec::new();
        let mut places = Vec::new();
        while let Ok(place) = append(&mut ring, 5000, &mut sealed) {
            places.push(place);
        }
        assert_eq!(ring.free_count(), 0);
        assert!(!ring.has_room(5000) && ring.has_room(0) == ring.has_room(1));
        assert!(places.iter().all(|place| ring.is_alive(place.offset_bytes, place.sequence)));
        assert_eq!(ring.oldest(), None, "nothing of it is with the device");
        sealed.iter().for_each(|pack| ring.written(pack.sequence));
        assert_eq!(ring.oldest(), Some(0));
        ring.release_oldest(0);
        assert!(!ring.is_alive(places[0].offset_bytes, places[0].sequence));
        let again = append(&mut ring, 5000, &mut sealed).unwrap();
        assert_eq!(again.offset_bytes, places[0].offset_bytes);
        assert!(!ring.is_alive(places[0].offset_bytes, places[0].sequence));
        assert!(ring.is_alive(again.offset_bytes, again.sequence));
    }

    #[test]
    fn what_is_not_with_the_device_is_read_from_memory() {
        let mut ring = ring();
        let mut sealed = Vec::new();
        let place = append(&mut ring, 300, &mut sealed).unwrap();
        assert_eq!(ring.dirty_copy(place.offset_bytes, 300), Some(vec![1; 300]));
        let last = ring.last_sequence();
        assert!(ring.is_pending(last) && ring.dirty_bytes() > 0);
        let pack = ring.seal().unwrap();
        assert_eq!(ring.dirty_copy(place.offset_bytes, 300), Some(vec![1; 300]));
        ring.written(pack.sequence);
        assert_eq!(ring.dirty_copy(place.offset_bytes, 300), None);
        assert!(!ring.is_pending(last) && ring.dirty_bytes() == 0);
    }

    #[test]
    fn what_the_device_did_not_take_is_kept_until_it_is_written_again() {
        let mut ring = ring();
        let mut sealed = Vec::new();
        let place = append(&mut ring, 300, &mut sealed).unwrap();
        let pack = ring.seal().unwrap();
        ring.end_segment();
        ring.failed(pack.sequence);
        assert!(!ring.is_pending(ring.last_sequence()) && ring.dirty_bytes() > 0);
        assert_eq!(ring.dirty_copy(place.offset_bytes, 300), Some(vec![1; 300]));
        assert_eq!(ring.oldest(), None, "its segment is not given away");
        let again = ring.send_again(pack.sequence).unwrap();
        assert_eq!((again.failures, again.offset_bytes), (1, pack.offset_bytes));
        assert!(ring.is_pending(ring.last_sequence()) && ring.failed_packs().is_empty());
        ring.written(pack.sequence);
        assert_eq!((ring.dirty_bytes(), ring.oldest()), (0, Some(0)));
    }

    #[test]
    fn a_resumed_ring_goes_on_behind_its_newest_segment() {
        let mut ring = ring();
        ring.resume(vec![21, 25, 0, 17], 30);
        assert_eq!((ring.free_count(), ring.oldest()), (1, Some(3)));
        assert!(ring.is_alive(AREA.start_bytes + 100, 22) && !ring.is_alive(AREA.segment_start_bytes(2), 5));
        assert_eq!(ring.sequences(3), Some(17..21));
        let mut sealed = Vec::new();
        let place = append(&mut ring, 100, &mut sealed).unwrap();
        assert_eq!((AREA.segment_of(place.offset_bytes), place.sequence), (Some(2), 30));
    }

    /// Guards against an abort of the process, and against entries that count as older than those that they replaced.
    #[test]
    fn sequences_go_on_when_those_on_the_volume_begin_again() {
        let mut ring = ring();
        let mut sealed = Vec::new();
        ring.begin_at(u64::from(u32::MAX) - 1);
        let places: Vec<_> = (0..6)
            .map(|_| {
                let place = append(&mut ring, 300, &mut sealed).unwrap();
                let pack = ring.seal().unwrap();
                let (header, _) = pack::decode(VolumeId([1; 16]), pack.offset_bytes, pack.buffer.as_slice()).unwrap();
                assert_eq!((header.sequence, header.oldest_sequence), (place.sequence, u32::MAX - 1));
                ring.written(pack.sequence);
                place
            })
            .collect();
        let on_volume: Vec<_> = places.iter().map(|place| place.sequence).collect();
        assert_eq!(on_volume, [u32::MAX - 1, u32::MAX, 1, 2, 3, 4], "0 stands for none");
        let widened: Vec<_> = on_volume.iter().map(|&sequence| ring.widened(sequence)).collect();
        assert!(widened.is_sorted() && widened[5] == ring.last_sequence());
        assert!(places.iter().all(|place| ring.is_alive(place.offset_bytes, place.sequence)));
        assert!(places.iter().all(|place| ring.has_pack(0, place.sequence)));
        assert!(!ring.is_alive(places[0].offset_bytes, u32::MAX - 2), "that was before");
    }

    #[test]
    fn a_pack_says_which_packs_are_still_needed() {
        let mut ring = ring();
        let mut sealed = Vec::new();
        for _ in 0..2 {
            append(&mut ring, AREA.record_bytes_max(), &mut sealed).unwrap();
            let pack = ring.seal().unwrap();
            ring.written(pack.sequence);
        }
        ring.release_oldest(0);
        append(&mut ring, 100, &mut sealed).unwrap();
        let pack = ring.seal().unwrap();
        let (header, _) = pack::decode(VolumeId([1; 16]), pack.offset_bytes, pack.buffer.as_slice()).unwrap();
        assert_eq!((header.sequence, header.oldest_sequence), (3, 2));
    }

    #[test]
    fn the_memory_of_a_written_pack_is_used_again_unless_it_is_long() {
        let mut ring = ring();
        let mut sealed = Vec::new();
        let mut place_of_pack = |len_bytes| {
            append(&mut ring, len_bytes, &mut sealed).unwrap();
            let SealedPack { sequence, buffer, .. } = ring.seal().unwrap();
            let place = buffer.as_slice().as_ptr();
            drop(buffer);
            ring.written(sequence);
            (place, ring.spare.as_ref().map(|spare| spare.as_slice().as_ptr()))
        };
        let (first, spare) = place_of_pack(300);
        assert_eq!(spare, Some(first));
        assert_eq!(place_of_pack(200).0, first);
        assert_eq!(place_of_pack(40_000).1, None);
    }

    #[test]
    fn a_record_longer_than_a_pack_gets_one_of_its_own() {
        let mut ring = ring();
        let mut sealed = Vec::new();
        append(&mut ring, 100, &mut sealed).unwrap();
        append(&mut ring, 40_000, &mut sealed).unwrap();
        let long = ring.seal().unwrap();
        assert_eq!((sealed.len(), long.len_bytes()), (1, 45_056));
        append(&mut ring, AREA.record_bytes_max(), &mut sealed).unwrap();
        assert_eq!(AREA.segment_of(ring.seal().unwrap().offset_bytes), Some(1));
    }
}
