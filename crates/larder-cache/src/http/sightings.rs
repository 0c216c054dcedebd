//! Known locations of the chunks of long bodies, so that a hit need not probe for them again.
//!
//! Owns: the locations, by representation. Probing is done in `presence`.
//!
//! Invariant: a chunk counts as seen only if the store confirms, without I/O, that it is still where it was. Reclaim,
//! removal, replacement and the invalidation of a volume all change the store's answer, so no event has to clear
//! anything here.
//!
//! Why: without known locations, a hit on a body of 1 GB reads 4 KiB of each of 1,000 records, 4 MB in all, 64 at a
//! time. With them, the hit costs 1,000 lookups in memory. A location is known once a chunk was stored or probed since
//! the start. Memory: 24 bytes per chunk, for at most [`CHUNK_COUNT_MAX`] chunks: 3 MiB for 128 GiB of long bodies.

use larder_device::IgnorePoison;
use std::sync::{Arc, Mutex};

use larder_store::LocatedEntry;
use quick_cache::{Weighter, sync::Cache};

use crate::chunk_format::chunks_of;

/// The locations at which chunks of long bodies were seen in the store.
pub(crate) struct ChunkSightings(Cache<u64, Arc<BodySightings>, ChunkCount>);

/// For each chunk of one body, by its number: where it was seen in the store.
pub(crate) struct BodySightings(Mutex<Box<[ChunkSighting]>>);

/// The result of the last probe or write of a chunk, if there was one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChunkSighting {
    /// Nothing is known about the chunk.
    Nothing,
    /// The chunk was seen at this location in the store. It may have moved since.
    Seen(LocatedEntry),
    /// The store did not have the chunk. It may have been stored since.
    Absent,
}

impl ChunkSightings {
    /// Returns what is known about the chunks of a body, which has this representation number and `len` bytes.
    pub(crate) fn of(&self, representation: u64, len: u64) -> Arc<BodySightings> {
        let count = usize::try_from(chunks_of(&(0..len)).end).unwrap_or(usize::MAX).min(CHUNK_COUNT_MAX);
        if let Some(chunks) = self.0.get(&representation) {
            return chunks;
        }
        let chunks = Arc::new(BodySightings(Mutex::new(vec![ChunkSighting::Nothing; count].into())));
        self.0.insert(representation, Arc::clone(&chunks));
        chunks
    }
}

impl Default for ChunkSightings {
    fn default() -> Self {
        Self(Cache::with_weighter(BODY_COUNT_USUAL, CHUNK_COUNT_MAX as u64, ChunkCount))
    }
}

impl BodySightings {
    /// Returns what is known about chunk `number`.
    pub(crate) fn known(&self, number: u64) -> ChunkSighting {
        let chunks = self.0.lock().ignore_poison();
        usize::try_from(number).ok().and_then(|number| chunks.get(number).copied()).unwrap_or(ChunkSighting::Nothing)
    }

    /// Records what was found out about chunk `number`.
    pub(crate) fn note(&self, number: u64, known: ChunkSighting) {
        let mut chunks = self.0.lock().ignore_poison();
        if let Some(place) = usize::try_from(number).ok().and_then(|number| chunks.get_mut(number)) {
            *place = known;
        }
    }
}

#[derive(Clone)]
struct ChunkCount;

impl Weighter<u64, Arc<BodySightings>> for ChunkCount {
    fn weight(&self, _: &u64, chunks: &Arc<BodySightings>) -> u64 {
        chunks.0.lock().ignore_poison().len() as u64
    }
}

/// Maximum number of chunks, in all bodies together, about which something is remembered.
const CHUNK_COUNT_MAX: usize = 128 << 10;
/// Number of bodies for which the table is sized initially.
const BODY_COUNT_USUAL: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_of_a_body_stays_known_and_is_bounded() {
        let sightings = ChunkSightings::default();
        sightings.of(1, 3 << 20).note(2, ChunkSighting::Absent);
        assert_eq!(sightings.of(1, 3 << 20).known(2), ChunkSighting::Absent);
        assert_eq!(sightings.of(1, 3 << 20).known(3), ChunkSighting::Nothing);
        // These are as large as a hundred bodies of 4 GiB, which exceeds the limit.
        for representation in 2..102 {
            sightings.of(representation, 4 << 30).note(0, ChunkSighting::Absent);
        }
        let kept = (2..102).filter(|representation| sightings.0.get(representation).is_some()).count();
        assert!(kept > 0 && kept * 4096 <= CHUNK_COUNT_MAX, "{kept}");
    }
}
