//! The read side of the disk table: from a key to a verified entry.
//!
//! Cost: one read if the set is in memory, one more for each other key of the same tag that is read first, and none for
//! a miss unless another key has the same tag; otherwise one read of the whole set. An entry longer than its bin takes
//! one more read (`rests`). Invariant: a read during a change of the set does not prove that an entry is absent, and is
//! repeated.

use super::{DirtySet, TableEngine, TablePhase, TableState, summary::SetSummary};
use crate::{
    Reader, Result,
    engine::kit::lookup::{self, LookStep},
    format::bin::{BIN_HEADER_BYTES, BinHeader, is_blank},
    hash::FullHash,
    units::SetNumber,
    volume::{KeyVerdict, counters::add},
};
use bytes::{Bytes, BytesMut};
use std::sync::Arc;

/// The reads by which an entry is looked up.
enum LookupPlan {
    Dirty(Bytes),
    Miss,
    /// Read the bins of these ways, which have the key's tag.
    Bins(Vec<usize>),
    Set,
}

/// An entry, and the number of its way in the set.
struct FoundInWay {
    way: usize,
    reader: Reader,
}

/// The bytes of a bin, and its offset on the volume.
struct ReadBin {
    bytes: Bytes,
    offset_bytes: u64,
}

/// A key, its hash, and the set that it belongs to.
#[derive(Clone, Copy)]
pub(super) struct LookupTarget<'a> {
    pub(super) key: &'a [u8],
    pub(super) hash: FullHash,
    pub(super) set: SetNumber,
}

impl TableEngine {
    pub(super) fn target<'a>(&self, key: &'a [u8]) -> LookupTarget<'a> {
        let (key_hash, hash) = self.volume.hash(key);
        LookupTarget { key, hash, set: self.set_of(key_hash) }
    }

    /// Returns the entry of `key`, and the value that the change counter of its set had before the read.
    pub(super) async fn look_up(self: &Arc<Self>, key: &[u8]) -> Result<Option<(u32, Reader)>> {
        let target = self.target(key);
        lookup::follow(&self.volume, true, || self.look(target)).await
    }

    async fn look(self: &Arc<Self>, target: LookupTarget<'_>) -> Result<LookStep<(u32, Reader)>> {
        let (plan, changes) = {
            let mut state = self.lock();
            (state.plan(&target), state.changes(target.set))
        };
        let found = match plan {
            LookupPlan::Miss => return Ok(LookStep::Nothing),
            LookupPlan::Dirty(record) => {
                let found = self.judge(&target, record).map(|reader| (changes, reader));
                return Ok(found.map_or(LookStep::Nothing, LookStep::Found));
            }
            LookupPlan::Bins(ways) => self.search_bins(&target, &ways, changes).await?,
            LookupPlan::Set => self.search_set(&target, changes).await?,
        };
        if let Some(FoundInWay { way, reader }) = found {
            self.lock().promote(target.set, target.hash.key_hash(), Some(way));
            return Ok(LookStep::Found((changes, reader)));
        }
        if self.lock().is_settled(target.set, changes) {
            return Ok(LookStep::Nothing);
        }
        self.wait(|state| (!state.is_being_written(target.set)).then_some(())).await;
        Ok(LookStep::Moved)
    }

    /// Returns the value that the change counter of `key`'s set had before the read; `None` if the key has no entry.
    ///
    /// Reads only the header of the entry's bin. For an entry that is longer than its bin, also checks in memory that
    /// the ring, the circular log, has not overwritten the remainder.
    pub(super) async fn sees(self: &Arc<Self>, key: &[u8]) -> Result<Option<u32>> {
        self.volume.check_open()?;
        let target = self.target(key);
        let (plan, changes) = {
            let mut state = self.lock();
            (state.plan(&target), state.changes(target.set))
        };
        let header = match plan {
            LookupPlan::Miss => return Ok(None),
            LookupPlan::Dirty(_) => return Ok(Some(changes)),
            LookupPlan::Bins(ways) => {
                let mut own = None;
                for way in ways {
                    own = self.header(target.set, way).await?.filter(|header| header.hash == target.hash);
                    if own.is_some() {
                        break;
                    }
                }
                own
            }
            LookupPlan::Set => {
                let (bytes, summary) = self.read_set(target.set, changes).await?;
                summary.newest(target.hash).and_then(|way| {
                    let bin = &bytes[way * self.layout.bin_bytes as usize..];
                    BinHeader::decode(self.volume.id, bin, self.layout.bin_offset_bytes(target.set, way as u64))
                })
            }
        };
        let first = self.layout.first_bytes();
        let is_there = header.is_some_and(|header| {
            let rest = u64::from(header.record_bytes).saturating_sub(first);
            header.hash == target.hash && (rest == 0 || self.lock().ring.offset_bytes(header.rest_at, rest).is_some())
        });
        Ok(is_there.then_some(changes))
    }

    /// Reads the header of the bin in `way`. Returns `None` if the header is not valid.
    pub(super) async fn header(&self, set: SetNumber, way: usize) -> Result<Option<BinHeader>> {
        let offset_bytes = self.layout.bin_offset_bytes(set, way as u64);
        let bin = self.volume.read(offset_bytes, BIN_HEADER_BYTES as u64).await?;
        Ok(BinHeader::decode(self.volume.id, &bin, offset_bytes))
    }

    /// Reads the bins in `ways`, one after the other, until one has the entry of `target`.
    async fn search_bins(
        self: &Arc<Self>,
        target: &LookupTarget<'_>,
        ways: &[usize],
        changes: u32,
    ) -> Result<Option<FoundInWay>> {
        for &way in ways {
            let offset_bytes = self.layout.bin_offset_bytes(target.set, way as u64);
            let bytes = self.volume.read_in_batch(offset_bytes, self.layout.bin_bytes).await?;
            if let Some(reader) = self.open_bin(target, ReadBin { bytes, offset_bytes }, changes).await? {
                return Ok(Some(FoundInWay { way, reader }));
            }
        }
        Ok(None)
    }

    /// Reads a set. Keeps its content in memory, unless the set's change counter is no longer `changes`.
    pub(super) async fn read_set(&self, set: SetNumber, changes: u32) -> Result<(Bytes, SetSummary)> {
        let bytes = self.volume.read(self.layout.set_offset_bytes(set), self.layout.set_bytes()).await?;
        Ok(self.take_set(set, bytes, changes))
    }

    /// Keeps the content of a set in memory after it was read, unless the set's change counter is no longer `changes`.
    fn take_set(&self, set: SetNumber, bytes: Bytes, changes: u32) -> (Bytes, SetSummary) {
        let offset_bytes = self.layout.set_offset_bytes(set);
        let summary = SetSummary::of(self.volume.id, &bytes, self.layout.bin_bytes as usize, offset_bytes);
        let mut state = self.lock();
        let holds_others = state.held.get(&set).is_some_and(Option::is_some);
        if state.is_settled(set, changes) && !holds_others {
            state.recent.remember(set, summary);
            if let Some(shape) = state.memory.shape()
                && state.memory.peek(set).is_none()
            {
                let (contents, stale) = summary.remembered(&shape);
                // If bins must be wiped first, that is left to the next writer.
                if stale.is_empty() {
                    state.memory.write(set, &contents);
                }
            }
        }
        (bytes, summary)
    }

    async fn search_set(self: &Arc<Self>, target: &LookupTarget<'_>, changes: u32) -> Result<Option<FoundInWay>> {
        let offset_bytes = self.layout.set_offset_bytes(target.set);
        let bytes = self.volume.read_in_batch(offset_bytes, self.layout.set_bytes()).await?;
        let (bytes, summary) = self.take_set(target.set, bytes, changes);
        let Some(way) = summary.newest(target.hash) else { return Ok(None) };
        let bin_bytes = self.layout.bin_bytes as usize;
        let bin = bytes.slice(way * bin_bytes..(way + 1) * bin_bytes);
        let bin = ReadBin { bytes: bin, offset_bytes: self.layout.bin_offset_bytes(target.set, way as u64) };
        let found = self.open_bin(target, bin, changes).await?;
        Ok(found.map(|reader| FoundInWay { way, reader }))
    }

    /// Returns the entry of `target` from a bin that was read; `None` if the bin has another entry or is damaged.
    async fn open_bin(
        self: &Arc<Self>,
        target: &LookupTarget<'_>,
        ReadBin { bytes: bin, offset_bytes }: ReadBin,
        changes: u32,
    ) -> Result<Option<Reader>> {
        let is_settled = || self.lock().is_settled(target.set, changes);
        let Some(header) = BinHeader::decode(self.volume.id, &bin, offset_bytes) else {
            if is_settled() && !is_blank(&bin) {
                add(&self.volume.counters.corrupt, 1);
            }
            return Ok(None);
        };
        if header.hash != target.hash {
            if is_settled() && !header.is_wiped() {
                add(&self.volume.counters.false_matches, 1);
            }
            return Ok(None);
        }
        let Some(record) = self.whole_record(&header, &bin).await? else { return Ok(None) };
        let found = self.judge(target, record);
        // Header and record must be of the same write. If not, an older write's remainder was read.
        Ok(found.filter(|reader| reader.decoded().meta.sequence == header.sequence as u32))
    }

    /// Returns the whole record of a bin, including its part in the ring, the circular log. Returns `None` if the ring
    /// has overwritten that part.
    async fn whole_record(&self, header: &BinHeader, bin: &Bytes) -> Result<Option<Bytes>> {
        let len = u64::from(header.record_bytes);
        let first = self.layout.first_bytes();
        let begin = bin.slice(BIN_HEADER_BYTES..BIN_HEADER_BYTES + len.min(first) as usize);
        if len <= first {
            // A copy, so that a short entry does not keep a whole set's memory.
            return Ok(Some(Bytes::copy_from_slice(&begin)));
        }
        let Some(rest) = self.rest(header, len - first).await? else { return Ok(None) };
        let mut record = BytesMut::with_capacity(len as usize);
        record.extend_from_slice(&begin);
        record.extend_from_slice(&rest);
        Ok(Some(record.freeze()))
    }

    fn judge(&self, target: &LookupTarget<'_>, record: Bytes) -> Option<Reader> {
        match self.volume.judge(&record, target.hash, target.key) {
            KeyVerdict::Sound(decoded) => Some(Reader::whole(Arc::clone(&self.volume), record, decoded)),
            KeyVerdict::Useless => None,
            KeyVerdict::FalseMatch => {
                add(&self.volume.counters.false_matches, 1);
                None
            }
            KeyVerdict::Damaged => {
                add(&self.volume.counters.corrupt, 1);
                None
            }
        }
    }
}

impl TableState {
    fn plan(&mut self, target: &LookupTarget<'_>) -> LookupPlan {
        match self.phase {
            TablePhase::Loading => return LookupPlan::Miss,
            // No set is in memory yet.
            TablePhase::Failed => return LookupPlan::Set,
            TablePhase::Ready => {}
        }
        if let Some(Some(DirtySet { hash, record, .. })) = self.held.get(&target.set)
            && *hash == target.hash
        {
            return record.clone().map_or(LookupPlan::Miss, LookupPlan::Dirty);
        }
        if self.suspects.contains(target.set) {
            return LookupPlan::Miss;
        }
        let Some((shape, contents)) = self.memory.shape().zip(self.memory.read(target.set)) else {
            return LookupPlan::Set;
        };
        let ways: Vec<usize> = contents.ways_with(shape.tag(target.hash.key_hash())).collect();
        if ways.is_empty() { LookupPlan::Miss } else { LookupPlan::Bins(ways) }
    }
}
