//! Retries writes that the device refused: packs of the front, and suspect sets.
//!
//! Owns: when and how writes are retried. Nothing is lost: until it is written, data is served from memory or counts as
//! absent. Invariants: there are pauses between retries, so a device that accepts nothing costs a few writes per
//! second. Retries need no additional room: a pack is moved to a new place once, and again only after the device has
//! accepted a write. A place that accepts no writes does not block others: packs move elsewhere, and entries whose set
//! fails are carried over within the front. Cost: nothing while no write fails.

use super::{
    TinyEngine, TinyState,
    append::{SealedPacks, stub_parcel},
    contents::{self, ItemKind, RecordPiece, SetListing},
    front::{FrontSlot, FrontState},
    moves::{OldSet, SetOutcome},
    outgoing::OutgoingSegment,
    pauses::{PAUSE, is_over},
    prefix_of,
    ring::RingPlace,
};
use crate::{
    engine::kit::{pack::SealedPack, room::NoRoom},
    format::{
        pack::{PackedKind, RecordStub},
        record::RecordParts,
    },
    hash::{FullHash, KeyHash},
    units::SetNumber,
    volume::counters::add,
};
use bytes::Bytes;
use std::{slice, sync::Arc, time::Duration};

/// Number of failed attempts after which a pack is written to another place.
const FAILURES_IN_PLACE_MAX: u8 = 2;
/// Number of consecutive failures to empty the oldest segment after which entries are dropped, because the device
/// refuses their sets. A device that refuses everything for a few seconds loses no entry.
const FAILED_MOVES_MAX: u32 = 10;
/// Maximum number of sets that are wiped in one round.
const WIPES_MAX: u64 = 256;

/// A set that could not be written, and those of its entries that the volume may have.
struct FailedSet {
    set: SetNumber,
    held: HeldEntries,
}

/// The entries that the volume may have of a set.
enum HeldEntries {
    Hashes(Vec<FullHash>),
    /// The volume may have any entries of the set, because the set is unreadable.
    Unknown,
}

impl HeldEntries {
    /// Returns whether the set may have an entry whose key's hash begins with `prefix`.
    fn may_have(&self, prefix: u32) -> bool {
        match self {
            Self::Hashes(hashes) => hashes.iter().any(|hash| prefix_of(hash.key_hash()) == prefix),
            Self::Unknown => true,
        }
    }
}

impl TinyEngine {
    /// Returns whether refused writes should be retried now.
    pub(super) fn retry_is_due(&self, now: Duration) -> bool {
        let state = self.lock();
        let has_failed = !state.front.failed_packs().is_empty() || !state.suspects.is_empty();
        state.ready && has_failed && is_over(state.retry_at, now) && !self.volume.health.is_out()
    }

    /// Returns whether emptying the oldest segment of the front, the log before the sets, may begin now.
    pub(super) fn move_may_begin(&self, now: Duration) -> bool {
        let state = self.lock();
        // A device that refuses packs would refuse sets too, and their entries would be lost. But if the front is full,
        // only this write can show whether the device accepts writes again.
        let may_take_sets = !state.is_device_suspect || state.front.free_count() == 0;
        state.move_is_due() && may_take_sets && is_over(state.move_at, now)
    }

    /// Notes that emptying the oldest segment failed, because the device refused sets. Returns whether this has
    /// happened so often that these sets must be given up.
    pub(super) fn note_failed_move(&self) -> bool {
        let mut state = self.lock();
        state.failed_moves += 1;
        state.move_at = Some(self.volume.clock.now() + PAUSE);
        state.failed_moves >= FAILED_MOVES_MAX
    }

    /// Returns whether an entry that waits in the front, the log before the sets, for its move to `set` is in a refused
    /// pack.
    pub(super) fn has_failed(&self, state: &TinyState, set: SetNumber) -> bool {
        let (first, last) = state.sets.prefixes(set);
        let mut places = state.index.range(first, last).map(|slot| self.front_offset(slot.granule));
        places.any(|offset| state.front.has_failed(offset))
    }

    /// Writes refused packs again, first at the same place, and after some failures at another place.
    pub(super) fn retry_failed(self: &Arc<Self>) {
        let mut sealed = SealedPacks::at(self.volume.clock.now());
        let mut state = self.lock();
        let may_move_on = !state.is_device_suspect;
        for pack in state.front.failed_packs().to_vec() {
            let moves_on = may_move_on && pack.failures >= FAILURES_IN_PLACE_MAX;
            if moves_on && self.append_pack_again(&mut state, &pack, &mut sealed).is_ok() {
                // The replacements of its records are newer, and in flight.
                state.appended_again_until = state.front.last_sequence();
                // If none of its records was needed, no write is in flight whose outcome would clear the suspicion, so
                // it is not raised.
                state.is_device_suspect |= state.front.is_pending(state.front.last_sequence());
                state.given_up_count += 1;
                state.front.give_up(pack.sequence);
            } else {
                sealed.front.extend(state.front.send_again(pack.sequence));
            }
        }
        drop(state);
        self.perform(sealed);
    }

    /// Wipes suspect sets, whose bytes must not be trusted. Returns whether more suspect sets are left and no wipe has
    /// failed.
    pub(super) async fn wipe_suspects(self: &Arc<Self>) -> bool {
        for _ in 0..WIPES_MAX {
            let (set, version) = {
                let mut state = self.lock();
                let Some(set) = state.suspects.next() else { return false };
                (set, state.sets.version(set))
            };
            let nothing = OldSet { set, version, count: 0, stay: Vec::new() };
            if self.replace_set(&nothing, &[], Vec::new()).await != SetOutcome::Written {
                self.lock().retry_at = Some(self.volume.clock.now() + PAUSE);
                return false;
            }
        }
        true
    }

    /// Handles those entries of `outgoing`, the segment that is being emptied, whose sets are in `failed`: the device
    /// refused to write them. Entries that replace something in these sets are appended to the front again; the others
    /// are dropped. Returns whether the segment can be freed.
    pub(super) async fn carry_over(self: &Arc<Self>, outgoing: &OutgoingSegment, failed: &[SetNumber]) -> bool {
        let mut sealed = SealedPacks::at(self.volume.clock.now());
        let mut is_carried = true;
        for &set in failed {
            let held = self.held_on_volume(set).await;
            let mut state = self.lock();
            is_carried &= self.append_set_again(&mut state, &FailedSet { set, held }, outgoing, &mut sealed).is_ok();
        }
        let now = sealed.now;
        self.perform(sealed);
        let is_written = |state: &TinyState| failed.iter().all(|&set| !self.has_failed(state, set));
        if is_carried && self.flush_until(is_written).await {
            return true;
        }
        self.lock().move_at = Some(now + PAUSE);
        false
    }

    /// Reads the hashes of all entries that the volume has of a set, including outdated ones.
    async fn held_on_volume(&self, set: SetNumber) -> HeldEntries {
        let offset = self.plan.set_start_bytes(set);
        let Ok(bytes) = self.volume.read(offset, self.plan.set_bytes).await else {
            return HeldEntries::Unknown;
        };
        // Bytes that are not a set now will not be one after a restart either.
        let directory = contents::directory(self.volume.id, offset, &bytes);
        let listings = directory.iter().flat_map(|directory| &directory.listings);
        let hash = |listing: &SetListing| match listing.piece(&self.volume, &bytes) {
            Some(piece) => piece.hash(),
            None => likely_hash(listing.key_hash(&self.volume, &bytes)),
        };
        HeldEntries::Hashes(listings.map(hash).collect())
    }

    fn append_set_again(
        &self,
        state: &mut TinyState,
        FailedSet { set, held }: &FailedSet,
        outgoing: &OutgoingSegment,
        sealed: &mut SealedPacks,
    ) -> Result<(), NoRoom> {
        let (first, last) = state.sets.prefixes(*set);
        let slots: Vec<_> = state.index.range(first, last).collect();
        assert!(slots.iter().all(|slot| (first..=last).contains(&slot.prefix)), "the keys of one set");
        for slot in slots {
            // It may have been dropped together with another entry that has the same prefix.
            let Some(slot) = state.index.find(slot.prefix, slot.granule) else { continue };
            let offset = self.front_offset(slot.granule);
            if !outgoing.holds(offset) {
                continue;
            }
            if !held.may_have(slot.prefix) {
                state.index.remove(slot.prefix, slot.granule);
                add(&self.volume.counters.evicted, u64::from(slot.state != FrontState::Removed));
                continue;
            }
            self.append_again(state, slot, &outgoing.bytes_from(offset, self.plan.short_bytes_max()), sealed)?;
        }
        // The key of a record may have been forgotten, just now or before. After a kill, the record itself would have
        // superseded the old entry in its set. From now on, a tombstone does.
        let records = outgoing.records.iter().map(|record| record.key_hash);
        let gone: Vec<_> = records.chain(state.lost_keys.iter().copied()).collect();
        for key_hash in gone.into_iter().filter(|key_hash| (first..=last).contains(&prefix_of(*key_hash))) {
            if state.newest(prefix_of(key_hash)).is_none() {
                self.hide_held(state, held, key_hash, sealed)?;
            }
        }
        Ok(())
    }

    /// Appends tombstones, records of removals, to the front: one for each entry with this hash prefix that the volume
    /// may have in a set.
    fn hide_held(
        &self,
        state: &mut TinyState,
        held: &HeldEntries,
        key_hash: KeyHash,
        sealed: &mut SealedPacks,
    ) -> Result<(), NoRoom> {
        let likely = likely_hash(key_hash);
        let hashes = match held {
            HeldEntries::Hashes(hashes) => &hashes[..],
            HeldEntries::Unknown => slice::from_ref(&likely),
        };
        let prefix = prefix_of(key_hash);
        for &hash in hashes.iter().filter(|hash| prefix_of(hash.key_hash()) == prefix) {
            let stub = RecordStub { hash, offset_bytes: 0, len_bytes: 0, sequence: 0, own_sequence: 0 };
            let place = self.append_stub(state, stub, stub_parcel(&stub, PackedKind::Tombstone, 0), sealed)?;
            state.appended_again_until = state.front.last_sequence();
            let granule = self.granule(place.offset_bytes);
            let slot = FrontSlot { prefix, granule, state: FrontState::Removed };
            state.index.insert_in_reserve(slot).map_err(|_| NoRoom::Now)?;
            debug_assert_eq!(state.newest(prefix), Some(slot), "nothing is newer than the tombstone");
        }
        Ok(())
    }

    fn append_pack_again(
        &self,
        state: &mut TinyState,
        pack: &SealedPack,
        sealed: &mut SealedPacks,
    ) -> Result<(), NoRoom> {
        for listing in &pack.listings {
            let granule = self.granule(pack.offset_bytes + u64::from(listing.at));
            if let Some(slot) = state.index.find(prefix_of(listing.key_hash), granule) {
                let from = listing.at as usize;
                let to = (from + listing.len as usize).min(pack.buffer.len());
                assert!(from < to, "a pack holds what it lists");
                let bytes = Bytes::copy_from_slice(&pack.buffer.as_slice()[from..to]);
                self.append_again(state, slot, &bytes, sealed)?;
            }
        }
        Ok(())
    }

    /// Appends the record or stub of `slot` once more to the front, the log before the sets, unless the front has a
    /// newer record of its key. `bytes` are those of the record.
    fn append_again(
        &self,
        state: &mut TinyState,
        slot: FrontSlot,
        bytes: &Bytes,
        sealed: &mut SealedPacks,
    ) -> Result<(), NoRoom> {
        let Some(piece) =
            RecordPiece::of(self.volume.id, bytes).filter(|piece| prefix_of(piece.hash().key_hash()) == slot.prefix)
        else {
            state.forget_key(KeyHash::of_prefix(slot.prefix));
            return Ok(());
        };
        let key_hash = piece.hash().key_hash();
        let newest = state.newest(slot.prefix).expect("the slot itself is there");
        assert_eq!(newest.prefix, slot.prefix, "what is newer is of a key that looks alike");
        if newest.granule != slot.granule {
            let newest_bytes = state.front.dirty_copy(self.front_offset(newest.granule), self.plan.short_bytes_max());
            let newer = newest_bytes.and_then(|bytes| RecordPiece::of(self.volume.id, &Bytes::from(bytes)));
            if newer.is_some_and(|newer| newer.hash() == piece.hash()) {
                state.index.remove(slot.prefix, slot.granule);
            } else {
                // It is unknown whether that record has the same key, or another one with the same prefix.
                state.forget_key(key_hash);
            }
            return Ok(());
        }
        let place = self.append_piece(state, &piece, sealed)?;
        state.appended_again_until = state.front.last_sequence();
        state.index.remove(slot.prefix, slot.granule);
        if state.index.insert(FrontSlot { granule: self.granule(place.offset_bytes), ..slot }).is_err() {
            state.forget_key(key_hash);
        }
        Ok(())
    }

    fn append_piece(
        &self,
        state: &mut TinyState,
        piece: &RecordPiece,
        sealed: &mut SealedPacks,
    ) -> Result<RingPlace, NoRoom> {
        match &piece.what {
            ItemKind::Stub(stub) => {
                let kind = if piece.is_tombstone() { PackedKind::Tombstone } else { PackedKind::Stub };
                self.append_stub(state, *stub, stub_parcel(stub, kind, 0), sealed)
            }
            ItemKind::Record(decoded) => {
                let bytes = &piece.bytes;
                let checksums = decoded.checksums(&piece.bytes);
                let body = [bytes.slice(decoded.body_start..decoded.len_bytes())];
                let key = &bytes[decoded.key.clone()];
                let head = &bytes[decoded.head.clone()];
                let mut record = RecordParts {
                    meta: decoded.meta.clone(),
                    key,
                    head,
                    parts: &[],
                    checksums: &checksums,
                    body: &body,
                };
                self.append_short(state, &mut record, sealed)
            }
        }
    }
}

/// Returns a full hash with these low bits, for an entry whose full hash is unknown. A tombstone (record of a removal)
/// with this hash hides all entries with the same prefix.
fn likely_hash(key_hash: KeyHash) -> FullHash {
    FullHash(u128::from(key_hash.0))
}
