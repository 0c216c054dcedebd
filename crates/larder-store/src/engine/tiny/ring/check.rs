//! Checks the invariants of a ring.

use super::PackRingState;

impl PackRingState {
    /// Checks which segments are used and in which order, and that each pack is within its segment.
    pub(in crate::engine::tiny) fn check(&self) {
        let count = self.area.segment_count;
        assert!(self.used_count <= count && self.head < count);
        assert!(self.head_used_bytes <= self.area.segment_bytes);
        for steps in 0..count {
            let first = self.first_sequences[((self.head + count - steps) % count) as usize];
            // Sequences are not always in order: if a power loss dropped a segment's first pack, a pack of an earlier
            // round may be in its place.
            assert!(
                first < self.next_sequence || (steps == 0 && first == self.next_sequence),
                "sequences are not foreseen"
            );
            assert!(steps < self.used_count || first == 0, "a segment that is not in use has no sequence");
        }
        let open = self.open.iter().map(|open| (open.offset_bytes, open.len_bytes()));
        let sealed = self.in_flight.iter().chain(&self.failed).map(|pack| (pack.offset_bytes, pack.len_bytes()));
        for (offset_bytes, len_bytes) in open.chain(sealed) {
            let segment = self.area.segment_of(offset_bytes).expect("a pack lies in the ring");
            let end_bytes = self.area.segment_start_bytes(segment) + self.area.segment_bytes;
            assert!(offset_bytes + len_bytes <= end_bytes, "a pack ends within its segment");
            assert_ne!(self.first_sequences[segment as usize], 0, "a pack that is not written is in a segment in use");
        }
    }

    /// Returns the number of segments of the ring.
    pub(in crate::engine::tiny) fn segment_count(&self) -> u64 {
        self.area.segment_count.into()
    }
}
