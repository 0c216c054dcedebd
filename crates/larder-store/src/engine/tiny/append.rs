//! The write side of `tiny`: commits, removals and new heads go to the front; packs that are due go to the device.
//!
//! Invariants: a record and its slot become visible together, under the state's lock. A retried removal takes no more
//! room while its tombstone waits for the device. Packs of the front that the device refuses are kept and rewritten.
//! Cost: a short entry is written once here, together with others; a long one once, to its ring.

use super::{
    FRONT_SPARE, TinyEngine, TinyState,
    front::{FrontSlot, FrontState},
    pauses::{PAUSE, REWRITES_MAX, is_over},
    prefix_of,
    read::TinyEntryPlace,
    ring::RingPlace,
};
use crate::{
    Error, ErrorKind, Result,
    engine::kit::{
        effects::completion_for,
        pack::{PackRecord, SealedPack},
        room::{NoRoom, append_with_room, flushed},
    },
    format::{
        pack::{PackedKind, RecordStub, STUB_BYTES},
        record::RecordParts,
    },
    hash::{FullHash, KeyHash},
    volume::waiters::{WokenTasks, wait_for},
};
use std::{io, sync::Arc, task::Waker, time::Duration};

/// Complete packs that must be written: of the front, the log before the sets, and of the long ring, the log of long
/// entries.
pub(super) struct SealedPacks {
    /// Time of the call that completed the packs.
    pub(super) now: Duration,
    pub(super) front: Vec<SealedPack>,
    long: Vec<SealedPack>,
}

impl SealedPacks {
    pub(super) fn at(now: Duration) -> Self {
        Self { now, front: Vec::new(), long: Vec::new() }
    }
}

/// The circular log to which a pack belongs.
#[derive(Clone, Copy)]
enum PackRing {
    Front,
    Long,
}

/// The data that is appended to the front, the log before the sets.
enum FrontLoad<'a, 'b> {
    Entry(&'a mut RecordParts<'b>),
    Tombstone(FullHash),
}

impl FrontLoad<'_, '_> {
    fn key_hash(&self) -> KeyHash {
        match self {
            FrontLoad::Entry(record) => record.meta.hash.key_hash(),
            FrontLoad::Tombstone(hash) => hash.key_hash(),
        }
    }
}

impl TinyEngine {
    /// Appends an entry. With `place`, where a lookup found the key's entry, appends only if that entry is still there.
    /// Returns whether the entry was appended.
    pub(super) async fn append_entry(
        self: &Arc<Self>,
        mut record: RecordParts<'_>,
        place: Option<TinyEntryPlace>,
    ) -> Result<bool> {
        Ok(self.append(FrontLoad::Entry(&mut record), place).await?.is_some())
    }

    pub(super) async fn remove_entry(self: &Arc<Self>, key: &[u8]) -> Result<()> {
        self.volume.check_open()?;
        let hash = self.volume.hash(key).1;
        let (given_up_before, unwritten) = {
            let state = self.lock();
            (state.given_up_count, self.unwritten_tombstone(&state, hash))
        };
        let offset_bytes = match unwritten {
            Some(offset_bytes) => offset_bytes,
            // If there is no room, the removal becomes pending, and its key is hidden until it is done
            // (see `pending_removals`).
            None => match self.append(FrontLoad::Tombstone(hash), None).await? {
                Some(place) => place.offset_bytes,
                None => return Ok(()),
            },
        };
        if self.lock().takes_nothing_now(self.volume.clock.now()) {
            // Without this, each removal would fill a pack with a single tombstone until the front is full.
            return Err(unwritten_removal());
        }
        self.flush_removal(prefix_of(hash.key_hash()), offset_bytes, given_up_before).await
    }

    /// Returns where the tombstone of a key, the record of its removal, is in the front, if it is the key's newest
    /// record and the device does not have it yet. A repeated removal then need not append another tombstone.
    fn unwritten_tombstone(&self, state: &TinyState, hash: FullHash) -> Option<u64> {
        let slot = state.newest(prefix_of(hash.key_hash())).filter(|slot| slot.state == FrontState::Removed)?;
        let offset_bytes = self.front_offset(slot.granule);
        let bytes = state.front.dirty_copy(offset_bytes, STUB_BYTES as u64)?;
        let stub =
            RecordStub::decode(self.volume.id, &bytes).filter(|stub| stub.len_bytes == 0 && stub.hash == hash)?;
        debug_assert_eq!(stub.hash, hash, "another key that looks alike has its own tombstone");
        Some(offset_bytes)
    }

    /// Appends a record. Waits a bounded time for space. Returns `None` if `place` is given and the key's entry is no
    /// longer there.
    async fn append(
        self: &Arc<Self>,
        mut load: FrontLoad<'_, '_>,
        place: Option<TinyEntryPlace>,
    ) -> Result<Option<RingPlace>> {
        let too_long = "the entry is longer than a segment of the store";
        append_with_room(self, too_long, self.flush_all(), |waker| self.try_append(&mut load, place, waker)).await
    }

    /// Appends a record if there is space now. Returns `None` if `place` is given and the key's entry is no longer
    /// there.
    fn try_append(
        self: &Arc<Self>,
        load: &mut FrontLoad<'_, '_>,
        place: Option<TinyEntryPlace>,
        waker: Option<&Waker>,
    ) -> std::result::Result<Option<RingPlace>, NoRoom> {
        let key_hash = load.key_hash();
        let mut sealed = SealedPacks::at(self.volume.clock.now());
        let mut state = self.lock();
        // Compared under the lock, because the caller read the entry without it.
        let unchanged = place.is_none_or(|place| Self::still_at(&state, key_hash, place));
        if !unchanged {
            return Ok(None);
        }
        let outcome = self.append_locked(&mut state, load, &mut sealed);
        if outcome == Err(NoRoom::Now) {
            // Registered under the same lock as the failed attempt, so that no wakeup is lost.
            waker.into_iter().for_each(|waker| state.waiting.add(waker));
        }
        assert!(outcome.is_err() || state.ready, "entries are taken once the store is ready");
        let call = state.move_is_due() || outcome.is_err();
        drop(state);
        self.perform(sealed);
        if call {
            self.volume.wakeup.wake();
        } else {
            self.volume.wakeup.wake_if_idle();
        }
        outcome.map(Some)
    }

    fn append_locked(
        &self,
        state: &mut TinyState,
        load: &mut FrontLoad<'_, '_>,
        sealed: &mut SealedPacks,
    ) -> std::result::Result<RingPlace, NoRoom> {
        let dirty_bytes = state.front.dirty_bytes() + state.long.dirty_bytes();
        let has_room = state.front.has_room_leaving(FRONT_SPARE, self.plan.short_bytes_max());
        let room = state.ready && !state.index.is_full() && has_room;
        if let FrontLoad::Entry(record) = load
            && record.len_bytes() > self.plan.long.record_bytes_max().max(self.plan.short_bytes_max())
        {
            return Err(NoRoom::Ever);
        }
        if !room || dirty_bytes > self.volume.options.dirty_bytes_max {
            return Err(NoRoom::Now);
        }
        let key_hash = load.key_hash();
        let (place, slot_state) = match load {
            FrontLoad::Entry(record) if record.len_bytes() <= self.plan.short_bytes_max() => {
                let place = self.append_short(state, record, sealed)?;
                (place, FrontState::Unused)
            }
            FrontLoad::Entry(record) => (self.append_long(state, record, sealed)?, FrontState::Unused),
            FrontLoad::Tombstone(hash) => {
                let stub = RecordStub { hash: *hash, offset_bytes: 0, len_bytes: 0, sequence: 0, own_sequence: 0 };
                let place = self.append_stub(state, stub, stub_parcel(&stub, PackedKind::Tombstone, 0), sealed)?;
                (place, FrontState::Removed)
            }
        };
        let slot =
            FrontSlot { prefix: prefix_of(key_hash), granule: self.granule(place.offset_bytes), state: slot_state };
        if state.index.insert(slot).is_err() {
            // The index is full of entries that were carried over. A miss is better than an older version.
            state.forget_key(key_hash);
        } else {
            debug_assert!(state.index.find(slot.prefix, slot.granule).is_some(), "what is appended is found");
        }
        Ok(place)
    }

    pub(super) fn append_short(
        &self,
        state: &mut TinyState,
        record: &mut RecordParts<'_>,
        sealed: &mut SealedPacks,
    ) -> std::result::Result<RingPlace, NoRoom> {
        let parcel = parcel_of(record);
        assert!(parcel.len_bytes <= self.plan.short_bytes_max(), "only short records stand in the front");
        let write = self.encoder(record);
        state.front.append(parcel, sealed.now, &mut sealed.front, write).map_err(|_| NoRoom::Now)
    }

    /// Returns a function that encodes a record into a buffer, with a given sequence.
    fn encoder(&self, record: &mut RecordParts<'_>) -> impl FnOnce(&mut [u8], u32) {
        let volume = self.volume.id;
        move |target, sequence| {
            record.meta.sequence = sequence;
            record.encode(volume, target);
        }
    }

    /// Appends a long entry to the long ring, the log of long entries, and its stub to the front, the log before the
    /// sets.
    fn append_long(
        &self,
        state: &mut TinyState,
        record: &mut RecordParts<'_>,
        sealed: &mut SealedPacks,
    ) -> std::result::Result<RingPlace, NoRoom> {
        let parcel = parcel_of(record);
        assert!(parcel.len_bytes > self.plan.short_bytes_max(), "short records stand in the front");
        while !state.long.has_room(parcel.len_bytes) {
            let oldest = state.long.oldest().ok_or(NoRoom::Now)?;
            state.long.release_oldest(oldest);
        }
        let write = self.encoder(record);
        let place = state.long.append(parcel, sealed.now, &mut sealed.long, write).map_err(|_| NoRoom::Now)?;
        let stub = RecordStub {
            hash: record.meta.hash,
            offset_bytes: place.offset_bytes,
            len_bytes: parcel.len_bytes as u32,
            sequence: place.sequence,
            own_sequence: 0,
        };
        self.append_stub(state, stub, stub_parcel(&stub, PackedKind::Stub, parcel.expires_at), sealed)
    }

    pub(super) fn append_stub(
        &self,
        state: &mut TinyState,
        stub: RecordStub,
        parcel: PackRecord,
        sealed: &mut SealedPacks,
    ) -> std::result::Result<RingPlace, NoRoom> {
        assert_eq!(stub.len_bytes == 0, parcel.kind == PackedKind::Tombstone, "a stub without a record is a removal");
        let write = |target: &mut [u8], sequence: u32| {
            RecordStub { own_sequence: sequence, ..stub }.encode(self.volume.id, target);
        };
        state.front.append(parcel, sealed.now, &mut sealed.front, write).map_err(|_| NoRoom::Now)
    }

    /// Submits the packs that have waited for the flush interval. Returns the tasks that wait for space, so that they
    /// check whether their deadlines have passed.
    pub(super) fn flush_due(self: &Arc<Self>, now: Duration) -> WokenTasks {
        let interval = self.volume.options.flush_interval;
        let mut sealed = SealedPacks::at(now);
        let mut state = self.lock();
        // The long entry is sealed first: its stub must not be found without it.
        if state.long.opened_at().is_some_and(|opened_at| now >= opened_at + interval) {
            sealed.long.extend(state.long.seal());
        }
        if state.front.opened_at().is_some_and(|opened_at| now >= opened_at + interval) {
            sealed.front.extend(state.front.seal());
        }
        let woken = state.waiting.take();
        drop(state);
        self.perform(sealed);
        woken
    }

    /// Submits all packs, and waits until the device has them.
    pub(super) async fn flush_all(self: &Arc<Self>) -> Result<()> {
        let told = {
            let mut state = self.lock();
            // A pack that failed since the last flush counts as a failure of this flush, because it was not reported
            // yet.
            let failed = state.failed_packs;
            std::mem::replace(&mut state.reported_failures, failed)
        };
        let is_written = self.flush_until(|state| state.front.failed_packs().is_empty()).await;
        flushed(is_written && self.lock().failed_packs == told)
    }

    /// Submits all packs. Waits until the tombstone at `offset_bytes` is on the device, in its own pack or in another
    /// one to which it was moved. `given_up_before` is the number of packs given up before the tombstone was appended.
    async fn flush_removal(self: &Arc<Self>, prefix: u32, offset_bytes: u64, given_up_before: u64) -> Result<()> {
        let is_written = |state: &TinyState| {
            if state.given_up_count == given_up_before && !state.front.is_unwritten(offset_bytes) {
                return true;
            }
            // The tombstone may have been in a pack that was given up. In that case, the newest entry of its key in the
            // front must be on the volume. If there is none, it is unknown whether the tombstone was ever written.
            let mut places = state.index.range(prefix, prefix).map(|slot| self.front_offset(slot.granule));
            state.newest(prefix).is_some() && !places.any(|place| state.front.is_unwritten(place))
        };
        if self.flush_until(is_written).await {
            return Ok(());
        }
        Err(unwritten_removal())
    }

    /// Submits all packs, and refused packs again, until `is_written` returns `true` or [`REWRITES_MAX`] retries have
    /// failed. Returns whether `is_written` returned `true`.
    pub(super) async fn flush_until(self: &Arc<Self>, is_written: impl Fn(&TinyState) -> bool) -> bool {
        // A simultaneous retry makes failed packs pending again, in their place or in a later pack.
        let is_settled = |state: &TinyState, last: u64| !state.front.is_pending(last.max(state.appended_again_until));
        for rewrites_left in (0..=REWRITES_MAX).rev() {
            let last = self.flush_open().await;
            let state = self.lock();
            if is_settled(&state, last) && is_written(&state) {
                return true;
            }
            drop(state);
            if rewrites_left > 0 {
                self.retry_failed();
            }
        }
        false
    }

    /// Submits the open packs. Waits until the device has accepted or refused all packs. Returns the sequence of the
    /// last pack of the front, the log before the sets.
    async fn flush_open(self: &Arc<Self>) -> u64 {
        let mut sealed = SealedPacks::at(self.volume.clock.now());
        let (front, long) = {
            let mut state = self.lock();
            sealed.long.extend(state.long.seal());
            sealed.front.extend(state.front.seal());
            (state.front.last_sequence(), state.long.last_sequence())
        };
        self.perform(sealed);
        let is_done =
            |state: &mut TinyState| (!state.front.is_pending(front) && !state.long.is_pending(long)).then_some(());
        wait_for(|| self.lock(), is_done).await;
        front
    }

    /// Submits the writes of complete packs.
    pub(super) fn perform(self: &Arc<Self>, sealed: SealedPacks) {
        let long = sealed.long.into_iter().map(|pack| (PackRing::Long, pack));
        for (ring, pack) in long.chain(sealed.front.into_iter().map(|pack| (PackRing::Front, pack))) {
            let SealedPack { sequence, offset_bytes, buffer, .. } = pack;
            let written = completion_for(self, move |engine, outcome| engine.pack_written(ring, sequence, &outcome));
            self.volume.submit_write(offset_bytes, buffer, written);
        }
    }

    fn pack_written(&self, ring: PackRing, sequence: u32, outcome: &io::Result<()>) {
        self.volume.note_write(outcome);
        let mut state = self.lock();
        state.is_device_suspect &= outcome.is_err();
        match (ring, outcome) {
            (PackRing::Front, Ok(())) => state.front.written(sequence),
            (PackRing::Front, Err(_)) => {
                state.front.failed(sequence);
                state.retry_at = Some(self.volume.clock.now() + PAUSE);
            }
            (PackRing::Long, outcome) => {
                state.long.written(sequence);
                state.failed_packs += u64::from(outcome.is_err());
            }
        }
        let woken = state.waiting.take();
        drop(state);
        if outcome.is_err() {
            self.volume.wakeup.wake_if_idle();
        }
        woken.wake();
    }
}

impl TinyState {
    /// Returns whether the device has refused all recent writes and no retry is due.
    fn takes_nothing_now(&self, now: Duration) -> bool {
        self.is_device_suspect && !is_over(self.retry_at, now)
    }

    /// Drops all entries with the key's hash prefix from the front, the log before the sets, and their set's content
    /// from memory. The newest record of one of these entries is lost.
    pub(super) fn forget_key(&mut self, key_hash: KeyHash) {
        let prefix = prefix_of(key_hash);
        let slots: Vec<_> = self.index.range(prefix, prefix).collect();
        for slot in slots {
            self.index.remove(prefix, slot.granule);
        }
        let set = self.sets.set_of(key_hash);
        self.forget_set(set);
        debug_assert!(self.newest(prefix).is_none(), "nothing of the key is left in the front");
    }
}

fn unwritten_removal() -> Error {
    Error::new(ErrorKind::Unavailable, "a removal could not be written to the store")
}

/// Returns the description of a stub for the pack that it is appended to.
pub(super) fn stub_parcel(stub: &RecordStub, kind: PackedKind, expires_at: u32) -> PackRecord {
    PackRecord { key_hash: stub.hash.key_hash(), len_bytes: STUB_BYTES as u64, expires_at, kind }
}

fn parcel_of(record: &RecordParts<'_>) -> PackRecord {
    PackRecord {
        key_hash: record.meta.hash.key_hash(),
        len_bytes: record.len_bytes(),
        expires_at: record.meta.expires_at,
        kind: PackedKind::Entry,
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::tests::{keys_alike, options},
        *,
    };
    use crate::{
        Store,
        device::{MemoryDevice, block_on},
        families::AnyEngine,
    };

    /// Guards against a removal that is acknowledged because the tombstone of another key is on the device.
    #[test]
    fn a_waiting_tombstone_is_that_of_its_key_only() {
        let options = options();
        let store = Store::open_on(Arc::new(MemoryDevice::new(options.size_bytes)), &options).unwrap();
        let AnyEngine::Tiny(engine) = store.first_engine() else { panic!("another engine") };
        let [own, other] = keys_alike(&engine.volume).map(|key| engine.volume.hash(&key.to_le_bytes()).1);
        let place = block_on(engine.append(FrontLoad::Tombstone(own), None)).unwrap().unwrap();
        let state = engine.lock();
        assert_eq!(engine.unwritten_tombstone(&state, own), Some(place.offset_bytes));
        assert_eq!(engine.unwritten_tombstone(&state, other), None);
    }
}
