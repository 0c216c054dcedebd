//! The read side of `tiny`: the front, then the set, then for a long entry its ring.
//!
//! Invariant: an entry is returned only if its record is complete, has exactly its key, was the last one written at its
//! place, and is the newest of the key. Cost: one read, two for a long entry; none while it is still in a write buffer.

use super::{
    TinyEngine,
    contents::{self, ItemKind, RecordPiece, SetDirectory},
    front::{FrontSlot, FrontState},
    prefix_of,
    set_in_flight::SetInFlight,
    sets::MayHold,
};
use crate::{
    Reader, Result,
    engine::kit::lookup::{self, LookStep},
    format::pack::RecordStub,
    hash::{FullHash, KeyHash},
    units::SetNumber,
    volume::{KeyVerdict, counters::add},
};
use bytes::Bytes;
use std::sync::Arc;

/// The place at which an entry was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TinyEntryPlace {
    Front {
        granule: u32,
    },
    /// In the key's set, which had the given version.
    Set {
        version: u8,
    },
}

/// The key of a lookup, with its hash.
#[derive(Clone, Copy)]
pub(super) struct WantedKey<'a> {
    pub(super) key: &'a [u8],
    pub(super) hash: FullHash,
}

/// An entry, and where it was found.
type Found = (TinyEntryPlace, Reader);

/// The record or stub of a key, and where it was found.
type Located = LookStep<(TinyEntryPlace, RecordPiece)>;

/// The result of reading a slot's record from the front, the log before the sets.
enum FrontRead {
    Piece(RecordPiece),
    /// The record is unreadable, or differs from what was written.
    Damaged,
    Moved,
}

impl TinyEngine {
    /// Returns the entry of `key`, and where it was found.
    pub(super) async fn look_up(self: &Arc<Self>, key: &[u8]) -> Result<Option<Found>> {
        let hash = self.volume.hash(key).1;
        let found = lookup::follow(&self.volume, true, || self.search(WantedKey { key, hash })).await?;
        if found.is_some() {
            self.note_hit(hash.key_hash());
        }
        Ok(found)
    }

    /// Returns whether the entry that was found at `place` is still the newest entry of its key.
    pub(super) fn still_at(state: &super::TinyState, key_hash: KeyHash, place: TinyEntryPlace) -> bool {
        let newest = state.newest(prefix_of(key_hash));
        match place {
            TinyEntryPlace::Front { granule } => {
                newest.is_some_and(|slot| slot.granule == granule && slot.state != FrontState::Removed)
            }
            TinyEntryPlace::Set { version } => {
                newest.is_none() && state.sets.version(state.sets.set_of(key_hash)) == version
            }
        }
    }

    /// Counts a hit of the newest entry with this hash, in the front (the log before the sets) or in its set.
    pub(super) fn note_hit(&self, key_hash: KeyHash) {
        let mut state = self.lock();
        let prefix = prefix_of(key_hash);
        match state.newest(prefix) {
            Some(slot) if slot.state == FrontState::Unused => {
                state.index.set_state(prefix, slot.granule, FrontState::Hit);
            }
            Some(_) => {}
            None if state.sets.may_hold(key_hash) == MayHold::Maybe => state.sets.note_hit(key_hash),
            None => {}
        }
    }

    /// Returns where `key`'s entry is. Reads its record in the front, the log before the sets, or in its set. For a
    /// long entry, reads only the stub that is there in place of the record.
    pub(super) async fn sees(self: &Arc<Self>, key: &[u8]) -> Result<Option<TinyEntryPlace>> {
        let hash = self.volume.hash(key).1;
        let found = lookup::follow(&self.volume, false, || self.locate(WantedKey { key, hash })).await?;
        let is_there = |piece: &RecordPiece| match &piece.what {
            ItemKind::Stub(stub) => stub.len_bytes > 0 && self.is_alive(stub),
            ItemKind::Record(_) => true,
        };
        Ok(found.filter(|(_, piece)| is_there(piece)).map(|(place, _)| place))
    }

    async fn search(&self, wanted: WantedKey<'_>) -> Result<LookStep<Found>> {
        match self.locate(wanted).await? {
            LookStep::Found((place, piece)) => self.open(wanted, piece, place).await,
            LookStep::Nothing => Ok(LookStep::Nothing),
            LookStep::Moved => Ok(LookStep::Moved),
        }
    }

    async fn locate(&self, wanted: WantedKey<'_>) -> Result<Located> {
        let key_hash = wanted.hash.key_hash();
        let prefix = prefix_of(key_hash);
        let (slots, ready) = {
            let state = self.lock();
            (state.index.range(prefix, prefix).collect::<Vec<_>>(), state.ready)
        };
        if !ready {
            return Ok(LookStep::Nothing);
        }
        for slot in slots.into_iter().rev() {
            if slot.state == FrontState::Removed {
                return Ok(LookStep::Nothing);
            }
            match self.read_front(slot).await? {
                FrontRead::Moved => return Ok(LookStep::Moved),
                FrontRead::Damaged => {
                    add(&self.volume.counters.corrupt, 1);
                    return Ok(LookStep::Nothing);
                }
                FrontRead::Piece(piece) if piece.hash() == wanted.hash => {
                    return Ok(LookStep::Found((TinyEntryPlace::Front { granule: slot.granule }, piece)));
                }
                FrontRead::Piece(_) => add(&self.volume.counters.false_matches, 1),
            }
        }
        self.search_set(wanted).await
    }

    /// Reads the record or stub of a slot of the front, the log before the sets.
    async fn read_front(&self, slot: FrontSlot) -> Result<FrontRead> {
        let offset = self.front_offset(slot.granule);
        let bytes = match self.waiting_front_bytes(offset) {
            Some(copy) => copy,
            None => self.volume.read_in_batch(offset, self.front_len_bytes(offset)).await?,
        };
        let piece = RecordPiece::of(self.volume.id, &bytes);
        let state = self.lock();
        if state.index.find(slot.prefix, slot.granule).is_none() {
            return Ok(FrontRead::Moved);
        }
        let segment = self.plan.front.segment_of(offset);
        let is_present =
            |piece: &RecordPiece| segment.is_some_and(|segment| state.front.has_pack(segment, piece.sequence()));
        Ok(piece.filter(is_present).map_or(FrontRead::Damaged, FrontRead::Piece))
    }

    /// Reads the front, the log before the sets, from `offset` on: as many bytes as the longest record takes.
    pub(super) async fn front_bytes(&self, offset: u64) -> Result<Bytes> {
        match self.waiting_front_bytes(offset) {
            Some(copy) => Ok(copy),
            None => self.volume.read(offset, self.front_len_bytes(offset)).await,
        }
    }

    /// Returns the bytes of the front, the log before the sets, from `offset` on; `None` if the device already has
    /// them.
    fn waiting_front_bytes(&self, offset: u64) -> Option<Bytes> {
        self.lock().front.dirty_copy(offset, self.plan.short_bytes_max()).map(Bytes::from)
    }

    fn front_len_bytes(&self, offset: u64) -> u64 {
        self.plan.short_bytes_max().min(self.plan.front.end_bytes() - offset)
    }

    async fn search_set(&self, wanted: WantedKey<'_>) -> Result<Located> {
        let key_hash = wanted.hash.key_hash();
        let (set, version, dirty) = {
            let state = self.lock();
            if state.sets.may_hold(key_hash) != MayHold::Maybe {
                return Ok(LookStep::Nothing);
            }
            let set = state.sets.set_of(key_hash);
            (set, state.sets.version(set), state.set_writes.get(&set).and_then(SetInFlight::believed))
        };
        let offset = self.plan.set_start_bytes(set);
        let bytes = match dirty {
            Some(buffer) => Bytes::from_owner(SharedBuffer(buffer)),
            None => self.volume.read_in_batch(offset, self.plan.set_bytes).await?,
        };
        let listings = match contents::directory(self.volume.id, offset, &bytes) {
            Some(SetDirectory { version: found, listings }) if found == version => listings,
            _ => return Ok(self.set_is_damaged(set, version)),
        };
        let WantedKey { key, hash } = wanted;
        for listing in listings.iter().filter(|listing| listing.may_be(self.volume.id, &bytes, key, hash)) {
            let Some(piece) = listing.piece(&self.volume, &bytes) else {
                return Ok(self.set_is_damaged(set, version));
            };
            if piece.hash() == wanted.hash {
                return Ok(LookStep::Found((TinyEntryPlace::Set { version }, piece)));
            }
        }
        // Since the front was searched, the entry may have moved from the front into the set, or a new version may be
        // in the front.
        let state = self.lock();
        let moved = state.sets.version(set) != version || state.newest(prefix_of(key_hash)).is_some();
        Ok(if moved { LookStep::Moved } else { LookStep::Nothing })
    }

    /// Handles a set that differs from what was last written to it: drops its content from memory, so that it is
    /// rewritten.
    fn set_is_damaged(&self, set: SetNumber, version: u8) -> Located {
        let mut state = self.lock();
        if state.sets.version(set) != version || state.set_writes.contains_key(&set) {
            return LookStep::Moved;
        }
        add(&self.volume.counters.corrupt, 1);
        state.forget_set(set);
        drop(state);
        // The set must be rewritten.
        self.volume.wakeup.wake_if_idle();
        LookStep::Nothing
    }

    /// Returns the entry. If `piece` is a stub, reads the record to which it refers.
    async fn open(&self, wanted: WantedKey<'_>, piece: RecordPiece, place: TinyEntryPlace) -> Result<LookStep<Found>> {
        let (bytes, stub) = match piece.what {
            ItemKind::Record(_) => (piece.bytes, None),
            ItemKind::Stub(stub) => match self.read_long(&stub).await? {
                Some(bytes) => (bytes, Some(stub)),
                None => return Ok(LookStep::Nothing),
            },
        };
        match self.volume.judge(&bytes, wanted.hash, wanted.key) {
            KeyVerdict::Sound(decoded) if stub.is_none_or(|stub| stub.sequence == decoded.meta.sequence) => {
                Ok(LookStep::Found((place, Reader::whole(Arc::clone(&self.volume), bytes, decoded))))
            }
            KeyVerdict::Sound(_) | KeyVerdict::FalseMatch | KeyVerdict::Damaged => {
                let overwritten = stub.is_some_and(|stub| !self.is_alive(&stub));
                add(&self.volume.counters.corrupt, u64::from(!overwritten));
                Ok(LookStep::Nothing)
            }
            KeyVerdict::Useless => Ok(LookStep::Nothing),
        }
    }

    fn is_alive(&self, stub: &RecordStub) -> bool {
        self.lock().long.is_alive(stub.offset_bytes, stub.sequence)
    }

    /// Reads the record to which a stub refers. Returns `None` if the stub is a tombstone, or the long ring, the log of
    /// long entries, has overwritten the record.
    async fn read_long(&self, stub: &RecordStub) -> Result<Option<Bytes>> {
        let len = u64::from(stub.len_bytes);
        let end = stub.offset_bytes.checked_add(len);
        let is_within = end.is_some_and(|end| end <= self.plan.long.end_bytes());
        let dirty = {
            let state = self.lock();
            if len == 0 || !is_within || !state.long.is_alive(stub.offset_bytes, stub.sequence) {
                return Ok(None);
            }
            state.long.dirty_copy(stub.offset_bytes, len)
        };
        match dirty {
            Some(copy) => Ok(Some(Bytes::from(copy))),
            None => self.volume.read_in_batch(stub.offset_bytes, len).await.map(Some),
        }
    }
}

/// A shared buffer as the owner of bytes, so that the buffer lives as long as any slice of them.
struct SharedBuffer(Arc<crate::device::AlignedBuffer>);

impl AsRef<[u8]> for SharedBuffer {
    fn as_ref(&self) -> &[u8] {
        self.0.as_slice()
    }
}
