//! The oldest segment of the front moves out: its entries go to their sets, or are dropped.
//!
//! Invariants: an entry that its set may hold an older version of is never just dropped; a set is changed
//! by one move at a time; a segment is freed only when the sets written from it are durable, and what of it could
//! not be written to its set is durable elsewhere in the front. Cost: one read of
//! the segment; for each set that is written, one read of it, one write, and one read for each of its entries
//! that are elsewhere in the front; one sync a segment.
//! Idea: Kangaroo's threshold admission, counting also what was hit and how many bytes are at stake.

use super::{
    TinyEngine,
    contents::{self, ItemKind, RecordPiece, SetItem, item_bytes, room_bytes},
    front::{FrontSlot, FrontState},
    prefix_of,
    ring::PackRingState,
    rrip::{self, ResidentRank},
    sets::MayHold,
};
use crate::{
    clock::has_expired,
    format::pack::{self, PackedRecord},
    hash::KeyHash,
    units::{BLOCK_BYTES, SetNumber},
    volume::{counters::add, turn::TaskTurn},
};
use bytes::Bytes;
use futures_util::future::join_all;
use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
};

/// Sets that are moved to at once.
const SETS_AT_ONCE: usize = 16;

/// A pack of a segment, and where it lies.
pub(super) struct FoundPack {
    pub(super) header: pack::PackHeader,
    pub(super) listings: Vec<PackedRecord>,
}

/// Returns the packs in the bytes of a segment that begins at `start_bytes`, of any run.
pub(super) fn packs_in(engine: &TinyEngine, start_bytes: u64, bytes: &[u8]) -> Vec<FoundPack> {
    let mut found = Vec::new();
    let mut at = 0;
    while at + BLOCK_BYTES as usize <= bytes.len() {
        let step = match pack::decode_mended(engine.volume.id, start_bytes + at as u64, &bytes[at..]) {
            Some((header, listings)) if at + header.len_bytes as usize <= bytes.len() && header.len_bytes > 0 => {
                let len = (header.len_bytes as usize).next_multiple_of(BLOCK_BYTES as usize);
                found.push(FoundPack { header, listings });
                len
            }
            _ => BLOCK_BYTES as usize,
        };
        at += step;
    }
    found
}

/// The segment that moves out.
pub(super) struct OutgoingSegment {
    start_bytes: u64,
    bytes: Bytes,
}

impl OutgoingSegment {
    /// Returns the bytes from `offset_bytes`, at most `len_max`.
    pub(super) fn bytes_from(&self, offset_bytes: u64, len_max: u64) -> Bytes {
        let at = (offset_bytes - self.start_bytes) as usize;
        self.bytes.slice(at..self.bytes.len().min(at + len_max as usize))
    }

    pub(super) fn holds(&self, offset_bytes: u64) -> bool {
        (self.start_bytes..self.start_bytes + self.bytes.len() as u64).contains(&offset_bytes)
    }
}

/// An entry of the front that belongs to the set.
struct SetArrival {
    slot: FrontSlot,
    piece: RecordPiece,
    expires_at: u32,
    /// Set if the entry has to leave the front now.
    due: bool,
}

/// A set as it was.
pub(super) struct OldSet {
    pub(super) set: SetNumber,
    pub(super) version: u8,
    /// Number of entries the set had.
    pub(super) count: u64,
    /// The items of the set that may stay.
    pub(super) stay: Vec<SetItem>,
}

/// The outcome for one set.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SetOutcome {
    Written,
    Nothing,
    /// Somebody else changed it meanwhile.
    Not,
    /// The device did not take it.
    Failed,
}

impl TinyEngine {
    /// Moves the oldest segment of the front out; `false` if that cannot be done now.
    pub(super) async fn move_oldest(self: &Arc<Self>) -> bool {
        let Some(turn) = TaskTurn::take(&self.moving) else { return false };
        let is_moved = self.move_out_oldest().await;
        drop(turn);
        // Room is free, or another task may try to make it.
        let woken = self.lock().waiting.take();
        woken.wake();
        is_moved
    }

    async fn move_out_oldest(self: &Arc<Self>) -> bool {
        let Some((segment, sequences)) = self.oldest_of_front() else { return false };
        let start_bytes = self.plan.front.segment_start_bytes(segment);
        let Ok(bytes) = self.volume.read(start_bytes, self.plan.front.segment_bytes).await else { return false };
        let mut packs = packs_in(self, start_bytes, &bytes);
        packs.retain(|found| self.lock().front.has_pack(segment, found.header.sequence));
        let outgoing = OutgoingSegment { start_bytes, bytes };
        let listed = || {
            packs.iter().flat_map(|found| {
                let start = found.header.offset_bytes;
                found.listings.iter().map(move |listing| (start + u64::from(listing.at), listing.key_hash))
            })
        };
        let mut sets = BTreeSet::new();
        // A missing pack was overwritten by a misdirected write or damaged. The index names its entries; their sets
        // must be written, or older versions there would resurface.
        if packs.len() as u64 != sequences.end - sequences.start {
            sets = self.forget_unlisted(&outgoing, &listed().map(|(offset, _)| offset).collect());
        }
        {
            let state = self.lock();
            // An entry that hides the content of a suspect set may be gone from memory and still be in this segment.
            let matters = |&(offset, key_hash): &(u64, KeyHash)| {
                state.index.find(prefix_of(key_hash), self.granule(offset)).is_some()
                    || state.is_doubted(state.sets.set_of(key_hash))
            };
            sets.extend(listed().filter(matters).map(|(_, key_hash)| state.sets.set_of(key_hash)));
        }
        let mut failed = Vec::new();
        for batch in sets.into_iter().collect::<Vec<_>>().chunks(SETS_AT_ONCE) {
            let moved = join_all(batch.iter().map(|&set| self.move_set(set, &outgoing))).await;
            if moved.contains(&SetOutcome::Not) {
                return false;
            }
            // A set whose write failed has lost its entries. If all of a batch fail, the others wait until the device
            // accepts writes again.
            let is_all_failed = moved.iter().all(|&moved| moved == SetOutcome::Failed);
            if is_all_failed && !self.note_failed_move() {
                return false;
            }
            let of_batch = batch.iter().zip(moved).filter(|(_, moved)| *moved == SetOutcome::Failed);
            failed.extend(of_batch.map(|(&set, _)| set));
        }
        if !failed.is_empty() && !self.carry_over(&outgoing, &failed).await {
            return false;
        }
        // The sets must be durable before the segment is reused. A power loss in between would otherwise lose both
        // copies.
        if !self.sync_sets().await {
            return false;
        }
        let mut state = self.lock();
        (state.move_at, state.failed_moves) = (None, 0);
        state.front.release_oldest(segment);
        true
    }

    /// Makes durable what was written to sets; whether it is.
    async fn sync_sets(&self) -> bool {
        if !std::mem::take(&mut self.lock().sets_unsynced) {
            return true;
        }
        let is_synced = self.volume.sync().await.is_ok();
        self.lock().sets_unsynced |= !is_synced;
        is_synced
    }

    /// Returns the oldest segment of the front and its sequences. If the index is full before the segments are, the
    /// segment being written is ended.
    fn oldest_of_front(self: &Arc<Self>) -> Option<(u32, std::ops::Range<u64>)> {
        let mut state = self.lock();
        if state.front.oldest().is_none() && state.index.is_full() {
            state.front.end_segment();
        }
        loop {
            let segment = state.front.oldest()?;
            match state.front.sequences(segment) {
                Some(sequences) => return Some((segment, sequences)),
                // Nothing of it was found when the store was opened.
                None => state.front.release_oldest(segment),
            }
        }
    }

    /// Forgets what the front's index has in a damaged segment and no pack there lists; the sets it belongs to.
    fn forget_unlisted(&self, outgoing: &OutgoingSegment, listed: &HashSet<u64>) -> BTreeSet<SetNumber> {
        let mut state = self.lock();
        let unlisted: Vec<_> = state
            .index
            .range(0, u32::MAX)
            .filter(|slot| {
                let offset = self.front_offset(slot.granule);
                outgoing.holds(offset) && !listed.contains(&offset)
            })
            .collect();
        add(&self.volume.counters.corrupt, unlisted.len() as u64);
        let key_hashes = unlisted.into_iter().map(|slot| KeyHash::of_prefix(slot.prefix));
        key_hashes
            .map(|key_hash| {
                state.forget_key(key_hash);
                state.sets.set_of(key_hash)
            })
            .collect()
    }

    /// Moves the front's entries of a set into it, if that is worth a write. Entries that do not move and are in
    /// `outgoing` are dropped.
    async fn move_set(self: &Arc<Self>, set: SetNumber, outgoing: &OutgoingSegment) -> SetOutcome {
        let (slots, version, is_doubted) = {
            let state = self.lock();
            let (first, last) = state.sets.prefixes(set);
            // One write per set: two could land in either order, and the later one must win.
            if state.set_writes.contains_key(&set) {
                return SetOutcome::Not;
            }
            (state.index.range(first, last).collect::<Vec<_>>(), state.sets.version(set), state.is_doubted(set))
        };
        let (arrivals, broken) = self.arrivals(slots, outgoing).await;
        let worth = self.is_worth_a_write(set, &arrivals);
        let may_hold = {
            let state = self.lock();
            let held = |key_hash| state.sets.may_hold(key_hash) != MayHold::No;
            let is_held = |arrival: &SetArrival| arrival.due && held(arrival.piece.hash().key_hash());
            // Entries may leave the front unwritten only if the set holds no older version of theirs, which would
            // resurface.
            is_doubted || !broken.is_empty() || arrivals.iter().any(is_held)
        };
        if !worth && !may_hold {
            return self.drop_due(&arrivals);
        }
        let found = if is_doubted { None } else { self.items_of(set, version).await };
        let (items, version, is_doubted) = match found {
            Some(items) => (items, version, false),
            None if is_doubted => (Vec::new(), version, true),
            // An unreadable or outdated set may become readable again later, so nothing of it is trusted from now on.
            None => {
                let mut state = self.lock();
                state.forget_set(set);
                (Vec::new(), state.sets.version(set), true)
            }
        };
        let superseded = |item: &SetItem| {
            let hash = item.piece.hash();
            arrivals.iter().any(|arrival| arrival.piece.hash() == hash)
                || broken.iter().any(|slot| slot.prefix == prefix_of(hash.key_hash()))
        };
        // The filter may be wrong; the items decide. A write only to hide an older version is rare.
        let holds_older = is_doubted || items.iter().any(superseded);
        if !worth && !holds_older {
            self.leave(&broken);
            return self.drop_due(&arrivals);
        }
        let count = items.len() as u64;
        let stay = items.into_iter().filter(|item| !superseded(item) && self.is_useful(item)).collect();
        self.write_set(OldSet { set, version, count, stay }, arrivals, &broken).await
    }

    /// Returns what the front has of a set that can be read, and the slots of which nothing is believed.
    async fn arrivals(&self, slots: Vec<FrontSlot>, outgoing: &OutgoingSegment) -> (Vec<SetArrival>, Vec<FrontSlot>) {
        let (mut arrivals, mut broken): (Vec<SetArrival>, Vec<FrontSlot>) = (Vec::new(), Vec::new());
        assert!(slots.is_sorted_by_key(|slot| slot.prefix), "slots of one prefix follow one another, older ones first");
        for slot in slots {
            match self.arrival(slot, outgoing).await {
                Some(arrival) => arrivals.push(arrival),
                None => {
                    // It may be the newest record of a key, with a readable older one. Newer ones hide both, and stay:
                    // until the device has accepted them, the volume has only the older records.
                    let first = arrivals.partition_point(|arrival| arrival.slot.prefix < slot.prefix);
                    broken.extend(arrivals.drain(first..).map(|older| older.slot).chain([slot]));
                }
            }
        }
        (arrivals, broken)
    }

    /// Reads the record that a slot points to, from `outgoing` if it is there, otherwise from the device. Returns
    /// `None` if there is no such record.
    async fn arrival(&self, slot: FrontSlot, outgoing: &OutgoingSegment) -> Option<SetArrival> {
        let offset = self.front_offset(slot.granule);
        let due = outgoing.holds(offset);
        let bytes = if due {
            outgoing.bytes_from(offset, self.plan.short_bytes_max())
        } else {
            self.front_bytes(offset).await.ok()?
        };
        let piece = RecordPiece::of(self.volume.id, &bytes)?;
        let segment = self.plan.front.segment_of(offset)?;
        let is_there = self.lock().front.has_pack(segment, piece.sequence());
        if !is_there || prefix_of(piece.hash().key_hash()) != slot.prefix {
            return None;
        }
        let expires_at = match &piece.what {
            ItemKind::Record(decoded) => decoded.meta.expires_at,
            ItemKind::Stub(_) => 0,
        };
        Some(SetArrival { slot, piece, expires_at, due })
    }

    /// Returns whether dropping the due entries would lose enough to justify a write. If their set has much room, it
    /// always is.
    fn is_worth_a_write(&self, set: SetNumber, arrivals: &[SetArrival]) -> bool {
        let alive = || arrivals.iter().filter(|arrival| !arrival.piece.is_tombstone());
        let due = || alive().filter(|arrival| arrival.due);
        let bytes: u64 = due().map(|arrival| arrival.piece.entry_bytes()).sum();
        due().next().is_some()
            && (alive().count() as u64 >= self.volume.options.tuning.tiny_threshold
                || due().any(|arrival| arrival.slot.state == FrontState::Hit)
                || bytes >= self.plan.set_bytes
                || self.lock().sets.is_sparse(set))
    }

    fn drop_due(&self, arrivals: &[SetArrival]) -> SetOutcome {
        let mut state = self.lock();
        for arrival in arrivals.iter().filter(|arrival| arrival.due) {
            let gone = state.index.remove(arrival.slot.prefix, arrival.slot.granule);
            add(&self.volume.counters.evicted, u64::from(gone && !arrival.piece.is_tombstone()));
        }
        SetOutcome::Nothing
    }

    fn leave(&self, slots: &[FrontSlot]) {
        let mut state = self.lock();
        for slot in slots {
            state.index.remove(slot.prefix, slot.granule);
        }
    }

    /// Reads the items of a set. Returns `None` if it is unreadable, damaged, or not of this version (0 is any).
    async fn items_of(&self, set: SetNumber, version: u8) -> Option<Vec<SetItem>> {
        let offset = self.plan.set_start_bytes(set);
        if self.lock().sets.holds_nothing(set) {
            return Some(Vec::new());
        }
        let bytes = self.volume.read(offset, self.plan.set_bytes).await.ok()?;
        let listings = match contents::directory(self.volume.id, offset, &bytes) {
            Some((found, listings)) if version == 0 || found == version => listings,
            _ => return None,
        };
        let item = |listing: &PackedRecord| {
            let piece = contents::listed(self.volume.id, listing, &bytes)?;
            Some(SetItem { piece, expires_at: listing.expires_at, rank: listing.rank })
        };
        listings.iter().map(item).collect()
    }

    /// Returns whether an item of a set may still be useful.
    fn is_useful(&self, item: &SetItem) -> bool {
        let expired = has_expired(item.expires_at, self.volume.clock.now_s());
        match &item.piece.what {
            _ if expired => false,
            ItemKind::Record(decoded) => !self.volume.is_useless(decoded),
            ItemKind::Stub(stub) => stub.len_bytes != 0 && self.lock().long.is_alive(stub.offset_bytes, stub.sequence),
        }
    }

    /// Writes a set with the items that stay, of its own and of the arrivals.
    async fn write_set(
        self: &Arc<Self>,
        mut old: OldSet,
        arrivals: Vec<SetArrival>,
        broken: &[FrontSlot],
    ) -> SetOutcome {
        let (newest, gone) = newest_of(arrivals, &self.lock().front);
        let mut leaving: Vec<FrontSlot> =
            gone.iter().map(|arrival| arrival.slot).chain(broken.iter().copied()).collect();
        let (mut residents, mut items, mut slots) = (Vec::new(), Vec::new(), Vec::new());
        for item in std::mem::take(&mut old.stay) {
            // Hit bits are read now, before the write clears them for the next round.
            let hit = self.lock().sets.was_hit(item.piece.hash().key_hash());
            let len_bytes = item_bytes(item.piece.bytes.len());
            residents.push(ResidentRank { len_bytes, rank: item.rank, hit, new: false });
            items.push(item);
            slots.push(None);
        }
        for SetArrival { slot, piece, expires_at, due } in newest {
            let item = SetItem { piece, expires_at, rank: 0 };
            if !self.is_useful(&item) {
                leaving.push(slot);
                continue;
            }
            let len_bytes = item_bytes(item.piece.bytes.len());
            residents.push(ResidentRank { len_bytes, rank: 0, hit: slot.state == FrontState::Hit, new: true });
            items.push(item);
            slots.push(Some((slot, due)));
        }
        let kept = rrip::merge(&residents, room_bytes(self.plan.set_bytes), items.len());
        let mut ranks = vec![None; items.len()];
        kept.iter().for_each(|&(index, rank)| ranks[index] = Some(rank));
        let mut content = Vec::new();
        for ((mut item, slot), rank) in items.into_iter().zip(slots).zip(ranks) {
            // An entry that is neither due nor kept stays in the front: its own segment will decide.
            if let Some((slot, _)) = slot.filter(|&(_, due)| due || rank.is_some()) {
                leaving.push(slot);
            }
            match rank {
                Some(rank) => {
                    item.rank = rank;
                    content.push(item);
                }
                None => add(&self.volume.counters.evicted, 1),
            }
        }
        content.sort_by_key(|item| item.rank);
        self.replace_set(&old, &content, leaving).await
    }
}

/// Splits the arrivals into the newest of each key, and the others.
fn newest_of(mut arrivals: Vec<SetArrival>, front: &PackRingState) -> (Vec<SetArrival>, Vec<SetArrival>) {
    let age = |arrival: &SetArrival| (front.widened(arrival.piece.sequence()), arrival.slot.granule);
    arrivals.sort_by_key(|arrival| std::cmp::Reverse(age(arrival)));
    let mut seen = HashSet::new();
    arrivals.into_iter().partition(|arrival| seen.insert(arrival.piece.hash()))
}
