//! What stands between a client and its bytes: gaps that nothing fills, runs to wait for, chunks to probe.

use super::{
    chunk_map::{ChunkMap, Place},
    runs::OriginRun,
};
use smallvec::SmallVec;
use std::ops::Range;

/// The steps that remain until all bytes of some spans are present, for a client or for the cache itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Survey {
    /// Parts that are neither present nor coming, in ascending order. They must be requested.
    pub(super) gaps: SmallVec<[Range<u64>; 2]>,
    /// The responses in progress that bring the other missing parts, as indexes into the list of runs.
    pub(super) runs: SmallVec<[usize; 2]>,
    /// Position of the first byte that may be in the store, but whose chunk has not been probed. `None` if there is
    /// none.
    pub(super) unknown: Option<u64>,
}

/// Returns what is still missing until all bytes of `spans` are present.
///
/// A response counts as bringing a byte that is at most `reach` bytes ahead of its next byte, or of other needed bytes
/// that it brings. A byte further ahead is a gap.
pub(super) fn survey(
    map: &ChunkMap,
    runs: &[OriginRun],
    reach: u64,
    spans: impl Iterator<Item = Range<u64>>,
) -> Survey {
    let mut found = Survey::default();
    let mut followed = None;
    for span in spans {
        let mut at = span.start;
        while at < span.end {
            let (place, end) = map.place(at);
            let end = end.min(span.end);
            at = match place {
                Place::Memory | Place::Reading | Place::Store => end,
                Place::Unknown => {
                    found.unknown.get_or_insert(at);
                    end
                }
                Place::Absent => follow(&mut found, &mut followed, runs, (at..end, reach)),
            };
        }
    }
    found
}

/// Index of the response that brings the needed bytes before a position, and the end of those bytes.
type Followed = Option<(usize, u64)>;

/// Adds the start of `missing` to the survey: as a gap, or as the response that brings it. Returns the end of the part
/// that was handled.
fn follow(found: &mut Survey, followed: &mut Followed, runs: &[OriginRun], missing: (Range<u64>, u64)) -> u64 {
    let (missing, reach) = missing;
    let next_run = runs.iter().map(|run| run.next).filter(|next| missing.contains(next) && *next > missing.start).min();
    let end = next_run.unwrap_or(missing.end);
    let Some(carrier) = carrier(runs, *followed, missing.start, reach) else {
        found.gaps.push(missing.start..end);
        return end;
    };
    let end = end.min(runs[carrier].end);
    *followed = Some((carrier, end));
    if !found.runs.contains(&carrier) {
        found.runs.push(carrier);
    }
    end
}

/// Returns the index of the response that will bring the byte `at` first. `None` if none brings it, or only after too
/// many other bytes.
fn carrier(runs: &[OriginRun], followed: Followed, at: u64, reach: u64) -> Option<usize> {
    let before = |index: usize| followed.filter(|(run, _)| *run == index).map_or(0, |(_, end)| end);
    let is_near = |index: usize| at - runs[index].next.max(before(index)).min(at) <= reach;
    let near = (0..runs.len()).filter(|&index| runs[index].brings(at) && is_near(index));
    near.max_by_key(|&index| runs[index].next)
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "a list of spans may have one")]
mod tests {
    use super::*;
    use crate::object::{RunId, Sizes};
    use bytes::Bytes;

    const SIZES: Sizes = Sizes { chunk: 4, block: 4, cut: u64::MAX, ahead: 8, lead: 8, gap: 2, kept: 0, least: 4 };

    type Spans = &'static [Range<u64>];

    fn surveyed(runs: &[Range<u64>], spans: &[Range<u64>]) -> Survey {
        let mut map = ChunkMap::empty(SIZES, Some(64));
        map.insert(20, &Bytes::from_static(b"wxyz"));
        let runs: Vec<OriginRun> =
            runs.iter().zip(0..).map(|(span, id)| OriginRun::open(RunId(id), span.clone())).collect();
        survey(&map, &runs, SIZES.ahead, spans.iter().cloned())
    }

    #[test]
    fn bytes_that_are_neither_present_nor_coming_are_gaps() {
        let cases: [(Spans, Spans, Spans, &[usize]); 6] = [
            (&[], &[0..64], &[0..20, 24..64], &[]),
            (&[0..64], &[0..64], &[], &[0]),
            (&[0..64], &[8..64], &[], &[0]),
            (&[0..64], &[9..64], &[9..20, 24..64], &[]),
            (&[0..64, 40..64], &[0..64], &[], &[0, 1]),
            (&[40..64], &[16..64], &[16..20, 24..40], &[0]),
        ];
        for (runs, spans, gaps, carriers) in cases {
            let found = surveyed(runs, spans);
            assert_eq!(found.gaps.as_slice(), gaps, "{runs:?} {spans:?}");
            assert_eq!(found.runs.as_slice(), carriers, "{runs:?} {spans:?}");
        }
    }
}
