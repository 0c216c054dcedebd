//! The content of a set's bins according to a read of the whole set, and the summaries that are kept.
//!
//! Owns: the choice of a key's bin, and of the bin to overwrite if the set is not in memory. Invariant: of two bins of
//! one key, the one written last counts. FIFO order needs no write for a hit, and overwrites the older of two bins of a
//! key first, so an older version never outlives a newer one. Cost: constant, for volumes of any size. Source:
//! HashCache (NSDI 2009), Set.

use crate::{
    engine::kit::sets::{SetPlace, SetShape, UnpackedSet, WAYS_MAX},
    format::{
        VolumeId,
        bin::{BinHeader, is_blank},
    },
    hash::FullHash,
    units::SetNumber,
};

/// Number of sets whose summaries are kept. With this number, storing an entry right after its miss rarely has to read
/// the set again.
const REMEMBERED_COUNT: usize = 64;

/// The content of a bin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BinContent {
    Empty,
    /// Bytes that are neither blank nor valid.
    Damaged,
    Entry {
        hash: FullHash,
        sequence: u64,
    },
}

/// The content of each bin of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SetSummary {
    bins: [BinContent; WAYS_MAX],
    way_count: usize,
    /// Whether the header of a bin confirms that the read was of this set. If not, the device may have read at a wrong
    /// position, and a blank bin does not prove that its way is empty.
    is_proven: bool,
}

impl SetSummary {
    /// Creates the summary of a set without entries.
    pub(crate) fn empty(way_count: usize) -> Self {
        Self { bins: [BinContent::Empty; WAYS_MAX], way_count, is_proven: true }
    }

    /// Returns the summary of `set`: the bytes of a whole set with bins of `bin_bytes`, which were read at
    /// `offset_bytes`.
    pub(crate) fn of(volume: VolumeId, set: &[u8], bin_bytes: usize, offset_bytes: u64) -> Self {
        let mut summary = Self { is_proven: false, ..Self::empty(set.len() / bin_bytes) };
        for ((bin, bytes), at) in
            summary.bins.iter_mut().zip(set.chunks(bin_bytes)).zip((offset_bytes..).step_by(bin_bytes))
        {
            let header = BinHeader::decode(volume, bytes, at);
            summary.is_proven |= header.is_some();
            *bin = match header {
                Some(header) if header.is_wiped() => BinContent::Empty,
                Some(header) => BinContent::Entry { hash: header.hash, sequence: header.sequence },
                None if is_blank(bytes) => BinContent::Empty,
                None => BinContent::Damaged,
            };
        }
        summary
    }

    /// Replaces the content of the bin in `way`.
    pub(crate) fn put(&mut self, way: usize, bin: BinContent) {
        assert!(way < self.way_count, "a way of the set: {way}");
        self.bins[way] = bin;
    }

    /// Returns the way with the newest entry of a key; `None` if there is none.
    pub(crate) fn newest(&self, wanted: FullHash) -> Option<usize> {
        let of_key = |way: &usize| matches!(self.bins[*way], BinContent::Entry { hash, .. } if hash == wanted);
        (0..self.way_count).filter(of_key).max_by_key(|&way| self.sequence(way))
    }

    /// Returns the way for a new entry of a key: the way with the key's present entry; without one, an empty way;
    /// without that, the way that was written first.
    pub(crate) fn victim(&self, hash: FullHash) -> usize {
        let oldest = (0..self.way_count).min_by_key(|&way| self.sequence(way)).expect("a set has ways");
        self.newest(hash).unwrap_or(oldest)
    }

    /// Returns the ways to wipe when a key is removed: those with the key's entries, and those that may have one.
    pub(crate) fn suspects(&self, wanted: FullHash) -> Vec<usize> {
        let suspect = |bin: BinContent| match bin {
            BinContent::Empty => !self.is_proven,
            BinContent::Damaged => true,
            BinContent::Entry { hash, .. } => hash == wanted,
        };
        (0..self.way_count).filter(|&way| suspect(self.bins[way])).collect()
    }

    /// Returns whether the bin in `way` has an entry.
    pub(crate) fn is_entry(&self, way: usize) -> bool {
        matches!(self.bins[way], BinContent::Entry { .. })
    }

    /// Returns the part of the set that is kept in memory, with the entries in the order of their writes, and the ways
    /// to wipe. Until these ways are wiped, memory cannot be relied on: damaged bins may become readable again, a key
    /// may have older entries, and blank bins may be misread.
    pub(crate) fn remembered(&self, shape: &SetShape) -> (UnpackedSet, Vec<usize>) {
        let mut set = UnpackedSet::empty(shape);
        let mut order: Vec<usize> = (0..self.way_count).filter(|&way| self.bins[way] != BinContent::Empty).collect();
        order.sort_by_key(|&way| std::cmp::Reverse(self.sequence(way)));
        let blank = |way: &usize| !self.is_proven && self.bins[*way] == BinContent::Empty;
        let mut kept = Vec::new();
        let mut stale = (0..self.way_count).filter(blank).collect::<Vec<_>>();
        let mut hashes = Vec::new();
        for way in order {
            match self.bins[way] {
                BinContent::Entry { hash, .. } if !hashes.contains(&hash) => {
                    hashes.push(hash);
                    kept.push(way);
                }
                _ => stale.push(way),
            }
        }
        for (way, hash) in kept.into_iter().zip(hashes).rev() {
            set.put(way, shape.tag(hash.key_hash()), 0, SetPlace::default());
        }
        (set, stale)
    }

    fn sequence(&self, way: usize) -> u64 {
        match self.bins[way] {
            BinContent::Entry { sequence, .. } => sequence,
            BinContent::Empty | BinContent::Damaged => 0,
        }
    }
}

/// The summaries of the sets that were read most recently.
pub(crate) struct RecentSummaries(Box<[Option<(SetNumber, SetSummary)>]>);

impl RecentSummaries {
    pub(crate) fn new() -> Self {
        Self(vec![None; REMEMBERED_COUNT].into_boxed_slice())
    }

    pub(crate) fn find(&self, set: SetNumber) -> Option<&SetSummary> {
        let (known, summary) = self.0[Self::at(set)].as_ref()?;
        (*known == set).then_some(summary)
    }

    pub(crate) fn remember(&mut self, set: SetNumber, summary: SetSummary) {
        self.0[Self::at(set)] = Some((set, summary));
    }

    pub(crate) fn forget(&mut self, set: SetNumber) {
        if self.find(set).is_some() {
            self.0[Self::at(set)] = None;
        }
        debug_assert!(self.find(set).is_none(), "what is forgotten is not found");
    }

    fn at(set: SetNumber) -> usize {
        (set.0 % REMEMBERED_COUNT as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::KeyHash;

    const VOLUME: VolumeId = VolumeId([8; 16]);
    /// Offset of the set on the volume.
    const AT: u64 = 5 << 30;
    const SHAPE: SetShape =
        SetShape { ways: 4, tag_bits: 8, generation_bits: 0, position_bits: 0, length_bits: 0, positions: 0 };

    /// Returns the summary of a set with four bins of 512 bytes. Each bin is given as a hash and a sequence, or is
    /// empty.
    fn summary(bins: [Option<(u128, u64)>; 4]) -> SetSummary {
        let mut set = vec![0; 4 * 512];
        for ((bytes, bin), way) in set.chunks_mut(512).zip(bins).zip(0..) {
            if let Some((hash, sequence)) = bin {
                let hash = FullHash(hash);
                let offset_bytes = AT + way * 512;
                let header = BinHeader { hash, sequence, record_bytes: 100, ..BinHeader::wiped(offset_bytes) };
                header.encode(VOLUME, bytes);
            }
        }
        SetSummary::of(VOLUME, &set, 512, AT)
    }

    #[test]
    fn the_bin_written_last_counts_and_the_one_written_first_goes() {
        let full = summary([Some((1, 30)), Some((2, 10)), Some((1, 40)), Some((3, 20))]);
        assert_eq!(full.newest(FullHash(1)), Some(2));
        assert_eq!((full.newest(FullHash(9)), full.victim(FullHash(9))), (None, 1));
        assert_eq!(full.victim(FullHash(3)), 3, "an entry takes the place of its older one");
        assert_eq!(full.suspects(FullHash(1)), [0, 2]);
        let with_room = summary([Some((1, 30)), Some((2, 10)), None, Some((3, 20))]);
        assert_eq!(with_room.victim(FullHash(9)), 2);
    }

    #[test]
    fn memory_keeps_the_last_written_of_a_key_and_names_what_must_be_wiped() {
        // 2 and 2 + 255 have the same tag.
        let (both, stale) = summary([Some((2, 30)), Some((257, 40)), Some((5, 20)), None]).remembered(&SHAPE);
        let of_tag: Vec<_> = both.ways_with(SHAPE.tag(KeyHash(2))).collect();
        assert_eq!((stale, of_tag, both.entries()), (vec![], vec![0, 1], 3));
        let (set, stale) = summary([Some((2, 30)), Some((2, 40)), Some((5, 20)), None]).remembered(&SHAPE);
        assert_eq!(stale, [0]);
        assert_eq!(
            (set.find(SHAPE.tag(KeyHash(2))), set.find(SHAPE.tag(KeyHash(5))), set.entries()),
            (Some(1), Some(2), 2)
        );
        let ranks: Vec<_> = [1, 2].map(|way| set.ways()[way].rank).into();
        assert_eq!(ranks, [0, 1], "the order of writing is the order of use");
        let mut bytes = vec![0; 4 * 512];
        BinHeader::wiped(AT).encode(VOLUME, &mut bytes);
        bytes[512] = 1;
        let damaged = SetSummary::of(VOLUME, &bytes, 512, AT);
        assert_eq!((damaged.remembered(&SHAPE).1, damaged.suspects(FullHash(1))), (vec![1], vec![1]));
    }

    #[test]
    fn blank_bins_prove_nothing_unless_one_beside_them_says_where_it_is() {
        let blank = SetSummary::of(VOLUME, &[0; 4 * 512], 512, AT);
        assert_eq!((blank.remembered(&SHAPE).1, blank.suspects(FullHash(1))), (vec![0, 1, 2, 3], vec![0, 1, 2, 3]));
        let mut elsewhere = vec![0; 4 * 512];
        BinHeader::wiped(AT + 512).encode(VOLUME, &mut elsewhere);
        assert_eq!(SetSummary::of(VOLUME, &elsewhere, 512, AT).suspects(FullHash(1)), [0, 1, 2, 3]);
        elsewhere.rotate_right(512);
        assert_eq!(SetSummary::of(VOLUME, &elsewhere, 512, AT).suspects(FullHash(1)), []);
    }

    #[test]
    fn only_the_sets_used_last_are_remembered() {
        let mut recent = RecentSummaries::new();
        let one = summary([Some((1, 1)), None, None, None]);
        recent.remember(SetNumber(3), one);
        assert_eq!(
            (recent.find(SetNumber(3)), recent.find(SetNumber(3 + REMEMBERED_COUNT as u64))),
            (Some(&one), None)
        );
        recent.forget(SetNumber(3 + REMEMBERED_COUNT as u64));
        recent.remember(SetNumber(4), one);
        recent.forget(SetNumber(4));
        assert_eq!((recent.find(SetNumber(3)), recent.find(SetNumber(4))), (Some(&one), None));
    }
}
