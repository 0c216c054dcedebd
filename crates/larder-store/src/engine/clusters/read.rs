//! The read side of `ucfs`: reads a whole cluster for one entry, and offers its other entries to the neighbors' sink.
//!
//! Invariant: a cluster is trusted only if its directory has the expected sequence. A record is trusted only if it is
//! whole and of that sequence. For a neighbor, the head is checked here, and the body when it is read. Cost: one read
//! of a cluster; for a long entry, of its clusters up to the end of the entry.

use super::{ClustersEngine, entries::EntryPlace, layout::ClusterPlace};
use crate::{
    Reader, Result,
    engine::kit::lookup::{self, LookStep},
    format::{pack, record::DecodedRecord},
    hash::{FullHash, KeyHash},
    units::SECTOR_BYTES,
    volume::{KeyVerdict, counters::add},
};
use bytes::Bytes;
use std::sync::Arc;

/// The place at which an entry was found, and the sequence of its cluster at that time.
pub(super) type FoundInCluster = (EntryPlace, u32);

impl ClustersEngine {
    /// Returns the entry of `key`, and where it was found.
    pub(super) async fn look_up(self: &Arc<Self>, key: &[u8]) -> Result<Option<(FoundInCluster, Reader)>> {
        let hash = self.volume.hash(key).1;
        lookup::follow(&self.volume, true, || self.look(key, hash)).await
    }

    async fn look(&self, key: &[u8], hash: FullHash) -> Result<LookStep<(FoundInCluster, Reader)>> {
        let key_hash = hash.key_hash();
        let (place, sequence, dirty) = {
            let state = self.lock();
            let Some(place) = state.find(key_hash) else { return Ok(LookStep::Nothing) };
            (place, state.clusters.sequence(place.cluster), state.clusters.dirty_copy(cluster_place(place)))
        };
        let found = (place, sequence);
        let (record, cluster) = match dirty {
            Some(copy) => (Some(Bytes::from(copy)), None),
            None => {
                let bytes = self.read_cluster(place).await?;
                (self.is_of(&bytes, found).then(|| record_at(&bytes, place)).flatten(), Some(bytes))
            }
        };
        let verdict = record.as_ref().map_or(KeyVerdict::Damaged, |record| self.volume.judge(record, hash, key));
        let is_sound = matches!(&verdict, KeyVerdict::Sound(decoded) if decoded.meta.sequence == sequence);
        // The cluster may have been reused during the read. Then the bytes prove nothing, and the lookup starts again.
        if !is_sound && !self.is_at(key_hash, found) {
            return Ok(LookStep::Moved);
        }
        match (verdict, record) {
            // Even if it was replaced during the read, it was the key's entry when it was requested.
            (KeyVerdict::Sound(decoded), Some(record)) if is_sound => {
                self.touch_cluster(found, cluster);
                return Ok(LookStep::Found((found, Reader::whole(Arc::clone(&self.volume), record, decoded))));
            }
            (KeyVerdict::FalseMatch, _) => add(&self.volume.counters.false_matches, 1),
            (KeyVerdict::Useless, _) => self.forget_at(key_hash, found),
            _ => {
                add(&self.volume.counters.corrupt, 1);
                self.forget_at(key_hash, found);
            }
        }
        Ok(LookStep::Nothing)
    }

    /// Returns whether an entry is still where it was found.
    fn is_at(&self, key_hash: KeyHash, (place, sequence): FoundInCluster) -> bool {
        let state = self.lock();
        state.entries.find(key_hash) == Some(place) && state.clusters.sequence(place.cluster) == sequence
    }

    fn forget_at(&self, key_hash: KeyHash, (place, sequence): FoundInCluster) {
        let mut state = self.lock();
        if state.entries.find(key_hash) == Some(place) && state.clusters.sequence(place.cluster) == sequence {
            state.forget(key_hash, place);
        }
    }

    /// Reads the whole cluster of an entry. For a long entry, reads its clusters up to its end.
    async fn read_cluster(&self, place: EntryPlace) -> Result<Bytes> {
        let end = u64::from(place.offset_sectors) + u64::from(place.sectors);
        let len_bytes = (end * SECTOR_BYTES).max(self.area.cluster_bytes);
        self.volume.read_in_batch(self.area.offset_bytes(place.cluster), len_bytes).await
    }

    /// Returns whether `bytes` begin with a valid directory that has the expected sequence. If not, the cluster was
    /// reused or is damaged.
    fn is_of(&self, bytes: &Bytes, (place, sequence): FoundInCluster) -> bool {
        let offset = self.area.offset_bytes(place.cluster);
        pack::decode_header(self.volume.id, offset, bytes).is_ok_and(|header| header.sequence == sequence)
    }

    /// Makes a cluster the most recently used one. If its bytes were read, passes the cluster's other entries to the
    /// receiver of neighbors, entries that were read along with the requested one. Takes the entries from the cluster's
    /// list, which is in adjacent memory; looking up each key of the directory would access memory at random.
    fn touch_cluster(&self, (asked, sequence): FoundInCluster, bytes: Option<Bytes>) {
        let read = bytes.and_then(|bytes| Some((bytes, self.volume.neighbors()?)));
        let mut present: Vec<(KeyHash, EntryPlace)> = Vec::new();
        {
            let mut state = self.lock();
            state.clusters.touch(asked.cluster);
            if read.is_some() && state.clusters.sequence(asked.cluster) == sequence {
                present.reserve(state.clusters.entry_count(asked.cluster));
                let chain = state.entries.chain(state.clusters.first(asked.cluster));
                present.extend(chain.filter(|(_, place)| place.offset_sectors != asked.offset_sectors));
            }
        }
        let Some((bytes, sink)) = read else { return };
        // The chain begins with the newest entry.
        for (key_hash, place) in present.into_iter().rev() {
            let Some(record) = record_at(&bytes, place) else { continue };
            let Ok(decoded) = DecodedRecord::decode(self.volume.id, &record) else { continue };
            let is_it = decoded.meta.hash.key_hash() == key_hash && decoded.meta.sequence == sequence;
            if is_it && let Some(neighbor) = self.volume.neighbor(record, decoded) {
                sink(neighbor);
            }
        }
    }
}

pub(super) fn cluster_place(place: EntryPlace) -> ClusterPlace {
    ClusterPlace { cluster: place.cluster, offset_sectors: place.offset_sectors, sectors: place.sectors }
}

fn record_at(bytes: &Bytes, place: EntryPlace) -> Option<Bytes> {
    let from = usize::from(place.offset_sectors) * SECTOR_BYTES as usize;
    let to = from + usize::from(place.sectors) * SECTOR_BYTES as usize;
    (to <= bytes.len()).then(|| bytes.slice(from..to))
}
