//! Moves the oldest segment out of the front: its entries go to their sets, or are dropped.
//!
//! Invariants: an entry is not just dropped if its set may hold an older version of it. Only one move at a time changes
//! a set. A segment is freed only when the sets written from it are durable, and entries that could not be written to
//! their sets are durable elsewhere in the front. Cost: one read of the segment and one sync; for each set that is
//! written, one read, one write, and one read for each of its entries elsewhere in the front. Idea: Kangaroo's
//! threshold admission, which here also considers hits and the number of bytes.

use super::{
    TinyEngine,
    contents::{self, ItemKind, RecordPiece, SetDirectory, SetItem, SetListing, room_bytes},
    front::{FrontSlot, FrontState},
    outgoing::{OutgoingRecord, OutgoingSegment, packs_in},
    prefix_of,
    ring::PackRingState,
    rrip::{self, ResidentRank},
    sets::MayHold,
};
use crate::{
    clock::has_expired,
    hash::KeyHash,
    units::SetNumber,
    volume::{counters::add, turn::TaskTurn},
};
use futures_util::future::join_all;
use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
};

/// Number of sets that are processed at the same time.
const SETS_AT_ONCE: usize = 16;

/// Factor by which the bytes of an entry that was hit count more, because the entry is likely to be hit again.
const HIT_WEIGHT: u64 = 4;

/// An entry that may move from the front, the log before the sets, to its set.
struct SetArrival {
    slot: FrontSlot,
    piece: RecordPiece,
    expires_at: u32,
    /// Whether the entry must now leave the front, the log before the sets, because its segment is being emptied.
    due: bool,
}

impl SetArrival {
    /// Returns the bytes that a miss of this entry would transfer, multiplied by [`HIT_WEIGHT`] if the entry was hit.
    fn weighed_bytes(&self) -> u64 {
        self.piece.entry_bytes() * if self.slot.state == FrontState::Hit { HIT_WEIGHT } else { 1 }
    }
}

/// A set before it is written.
pub(super) struct OldSet {
    pub(super) set: SetNumber,
    pub(super) version: u8,
    /// Number of entries in the set.
    pub(super) count: u64,
    /// Entries of the set that may stay in it.
    pub(super) stay: Vec<SetItem>,
}

/// The result of moving entries to one set.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SetOutcome {
    Written,
    Nothing,
    /// Nothing was done, because another task is changing the set.
    Not,
    /// The device refused to write the set.
    Failed,
}

/// The fate of a useful entry when its set is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EntryFate {
    /// The entry is in the set, and leaves the front, the log before the sets.
    InSet,
    Evicted,
    /// The entry stays in the front, the log before the sets, until its own segment is emptied.
    Waits,
}

impl EntryFate {
    /// Returns what happens to an entry. `has_room` says whether the entry fits in the set. `due` is `None` for an
    /// entry that is in the set already. For an entry of the front, it says whether the entry must leave the front now.
    fn of(has_room: bool, due: Option<bool>) -> Self {
        match (has_room, due) {
            (true, _) => Self::InSet,
            (false, None | Some(true)) => Self::Evicted,
            (false, Some(false)) => Self::Waits,
        }
    }
}

impl TinyEngine {
    /// Empties the oldest segment of the front, the log before the sets. Returns `false` if that is not possible now.
    pub(super) async fn move_oldest(self: &Arc<Self>) -> bool {
        let Some(turn) = TaskTurn::take(&self.moving) else { return false };
        let is_moved = self.move_out_oldest().await;
        drop(turn);
        // There is free room, or another task may now try to make some.
        let woken = self.lock().waiting.take();
        woken.wake();
        is_moved
    }

    async fn move_out_oldest(self: &Arc<Self>) -> bool {
        let Some((segment, sequences)) = self.oldest_of_front() else { return false };
        let start_bytes = self.plan.front.segment_start_bytes(segment);
        let Ok(bytes) = self.volume.read(start_bytes, self.plan.front.segment_bytes).await else { return false };
        let mut packs = packs_in(self.volume.id, start_bytes, &bytes);
        packs.retain(|found| self.lock().front.has_pack(segment, found.header.sequence));
        let outgoing = OutgoingSegment::new(start_bytes, bytes, &packs);
        // A missing pack was damaged or overwritten by a misdirected write. The index still has its entries.
        if packs.len() as u64 != sequences.end - sequences.start {
            self.forget_unlisted(&outgoing);
        }
        let sets = self.sets_of(&outgoing);
        let mut failed = Vec::new();
        for batch in sets.into_iter().collect::<Vec<_>>().chunks(SETS_AT_ONCE) {
            let moved = join_all(batch.iter().map(|&set| self.move_set(set, &outgoing))).await;
            if moved.contains(&SetOutcome::Not) {
                return false;
            }
            // A set whose write failed has lost its entries. If all sets of a batch fail, the others wait until the
            // device accepts writes again.
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
        // The sets must be durable before the segment is reused. Otherwise a power loss could lose both copies.
        if !self.sync_sets().await {
            return false;
        }
        let mut state = self.lock();
        (state.move_at, state.failed_moves) = (None, 0);
        state.lost_keys.clear();
        state.front.release_oldest(segment);
        true
    }

    /// Makes the written sets durable. Returns whether that succeeded.
    async fn sync_sets(&self) -> bool {
        if !std::mem::take(&mut self.lock().sets_unsynced) {
            return true;
        }
        let is_synced = self.volume.sync().await.is_ok();
        self.lock().sets_unsynced |= !is_synced;
        is_synced
    }

    /// Returns the oldest segment of the front, the log before the sets, and the sequences of its packs. If the index
    /// is full although no segment is complete, ends the segment that is being written.
    fn oldest_of_front(self: &Arc<Self>) -> Option<(u32, std::ops::Range<u64>)> {
        let mut state = self.lock();
        if state.front.oldest().is_none() && state.index.is_full() {
            state.front.end_segment();
        }
        loop {
            let segment = state.front.oldest()?;
            match state.front.sequences(segment) {
                Some(sequences) => return Some((segment, sequences)),
                // No pack of it was found when the store was opened.
                None => state.front.release_oldest(segment),
            }
        }
    }

    /// Drops the entries of a damaged segment that no pack lists, and remembers their keys as lost.
    fn forget_unlisted(&self, outgoing: &OutgoingSegment) {
        let listed: HashSet<u64> = outgoing.records.iter().map(|record| record.offset_bytes).collect();
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
        for slot in unlisted {
            let key_hash = KeyHash::of_prefix(slot.prefix);
            state.forget_key(key_hash);
            state.lost_keys.push(key_hash);
            debug_assert!(state.is_suspect(state.sets.set_of(key_hash)), "the set of a lost key is rewritten");
        }
    }

    /// Returns the sets that must be processed before the segment is reused.
    fn sets_of(&self, outgoing: &OutgoingSegment) -> BTreeSet<SetNumber> {
        let state = self.lock();
        // A record that supersedes content of a suspect set may be gone from the index and still be in this segment.
        let matters = |record: &&OutgoingRecord| {
            state.index.find(prefix_of(record.key_hash), self.granule(record.offset_bytes)).is_some()
                || state.is_suspect(state.sets.set_of(record.key_hash))
        };
        let listed = outgoing.records.iter().filter(matters).map(|record| record.key_hash);
        // The sets of lost records must be written. Otherwise older versions in these sets would resurface.
        let all = listed.chain(state.lost_keys.iter().copied());
        all.map(|key_hash| state.sets.set_of(key_hash)).collect()
    }

    /// Moves entries from the front, the log before the sets, to their set, if that is worth a write. Otherwise drops
    /// those in `outgoing`, the segment that is being emptied.
    async fn move_set(self: &Arc<Self>, set: SetNumber, outgoing: &OutgoingSegment) -> SetOutcome {
        let (slots, version, is_suspect) = {
            let state = self.lock();
            let (first, last) = state.sets.prefixes(set);
            // Only one write per set, because two could reach the device in either order, and the later one must win.
            if state.set_writes.contains_key(&set) {
                return SetOutcome::Not;
            }
            (state.index.range(first, last).collect::<Vec<_>>(), state.sets.version(set), state.is_suspect(set))
        };
        let (arrivals, broken) = self.arrivals(slots, outgoing).await;
        let worth = self.is_worth_a_write(set, &arrivals);
        let may_hold = {
            let state = self.lock();
            let held = |key_hash| state.sets.may_hold(key_hash) != MayHold::No;
            let is_held = |arrival: &SetArrival| arrival.due && held(arrival.piece.hash().key_hash());
            // An entry may be dropped only if the set holds no older version of it, which would resurface.
            is_suspect || !broken.is_empty() || arrivals.iter().any(is_held)
        };
        if !worth && !may_hold {
            return self.drop_due(&arrivals);
        }
        let found = if is_suspect { None } else { self.items_of(set, version).await };
        let (items, version, is_suspect) = match found {
            Some(items) => (items, version, false),
            None if is_suspect => (Vec::new(), version, true),
            // An unreadable or outdated set may become readable later, so it is marked as suspect now.
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
        // The Bloom filter can be wrong; the items decide. A write only to supersede an older version is rare.
        let holds_older = is_suspect || items.iter().any(superseded);
        if !worth && !holds_older {
            self.leave(&broken);
            return self.drop_due(&arrivals);
        }
        let count = items.len() as u64;
        let stay = items.into_iter().filter(|item| !superseded(item) && self.is_useful(item)).collect();
        self.write_set(OldSet { set, version, count, stay }, arrivals, &broken).await
    }

    /// Returns the entries of the front, the log before the sets, that belong to a set and can be read. Also returns
    /// the slots of entries that cannot be trusted.
    async fn arrivals(&self, slots: Vec<FrontSlot>, outgoing: &OutgoingSegment) -> (Vec<SetArrival>, Vec<FrontSlot>) {
        let (mut arrivals, mut broken): (Vec<SetArrival>, Vec<FrontSlot>) = (Vec::new(), Vec::new());
        assert!(slots.is_sorted_by_key(|slot| slot.prefix), "slots of one prefix follow one another, older ones first");
        for slot in slots {
            match self.arrival(slot, outgoing).await {
                Some(arrival) => arrivals.push(arrival),
                None => {
                    // The unreadable record may be the newest of its key, so older records of it must not be used
                    // either. Newer records supersede them all and stay in the front: until the device has them, the
                    // volume has only the older ones.
                    let first = arrivals.partition_point(|arrival| arrival.slot.prefix < slot.prefix);
                    broken.extend(arrivals.drain(first..).map(|older| older.slot).chain([slot]));
                }
            }
        }
        (arrivals, broken)
    }

    /// Reads the record of a slot, from `outgoing` if the record is in that segment, otherwise from the device. Returns
    /// `None` if there is no such record, or if its body is damaged.
    async fn arrival(&self, slot: FrontSlot, outgoing: &OutgoingSegment) -> Option<SetArrival> {
        let offset = self.front_offset(slot.granule);
        let due = outgoing.holds(offset);
        let bytes = if due {
            outgoing.bytes_from(offset, self.plan.short_bytes_max())
        } else {
            self.front_bytes(offset).await.ok()?
        };
        let piece = RecordPiece::of(self.volume.id, &bytes).filter(RecordPiece::is_sound)?;
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

    /// Returns whether an entry must leave the front, the log before the sets, and its set is worth a write. A set is
    /// worth a write if enough entries or bytes arrive, or if the set has much space left.
    fn is_worth_a_write(&self, set: SetNumber, arrivals: &[SetArrival]) -> bool {
        let alive = || arrivals.iter().filter(|arrival| !arrival.piece.is_tombstone());
        let due = || alive().filter(|arrival| arrival.due);
        let tuning = &self.volume.options.tuning;
        let bytes: u64 = alive().map(SetArrival::weighed_bytes).sum();
        due().next().is_some()
            && (alive().count() as u64 >= tuning.tiny_threshold.max(self.least_to_move)
                || bytes * 100 >= self.plan.set_bytes * tuning.tiny_move_percent
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

    /// Reads the entries of a set. Returns `None` if the set is unreadable or damaged, or has another version than
    /// `version`. A `version` of 0 stands for any version.
    async fn items_of(&self, set: SetNumber, version: u8) -> Option<Vec<SetItem>> {
        let offset = self.plan.set_start_bytes(set);
        if self.lock().sets.holds_nothing(set) {
            return Some(Vec::new());
        }
        let bytes = self.volume.read(offset, self.plan.set_bytes).await.ok()?;
        let listings = match contents::directory(self.volume.id, offset, &bytes) {
            Some(SetDirectory { version: found, listings }) if version == 0 || found == version => listings,
            _ => return None,
        };
        let item = |listing: &SetListing| {
            let piece = listing.piece(&self.volume, &bytes)?;
            Some(SetItem { piece, expires_at: listing.expires_at(), rank: listing.rank() })
        };
        listings.iter().map(item).collect()
    }

    /// Returns whether an entry of a set has not expired, and lookups may still return it.
    fn is_useful(&self, item: &SetItem) -> bool {
        let expired = has_expired(item.expires_at, self.volume.clock.now_s());
        match &item.piece.what {
            _ if expired => false,
            ItemKind::Record(decoded) => !self.volume.is_useless(decoded),
            ItemKind::Stub(stub) => stub.len_bytes != 0 && self.lock().long.is_alive(stub.offset_bytes, stub.sequence),
        }
    }

    /// Rewrites a set: chooses the entries to keep from those in the set and those that move in from the front, the log
    /// before the sets.
    async fn write_set(
        self: &Arc<Self>,
        mut old: OldSet,
        arrivals: Vec<SetArrival>,
        broken: &[FrontSlot],
    ) -> SetOutcome {
        let (newest, gone) = newest_of(arrivals, &self.lock().front);
        let mut leaving: Vec<FrontSlot> =
            gone.iter().map(|arrival| arrival.slot).chain(broken.iter().copied()).collect();
        let mut residents = Vec::new();
        let mut candidates = Vec::new();
        for item in std::mem::take(&mut old.stay) {
            // Hit bits are read now, before the write clears them.
            let hit = self.lock().sets.was_hit(item.piece.hash().key_hash());
            residents.push(ResidentRank { len_bytes: item.len_bytes(), rank: item.rank, hit, new: false });
            candidates.push((item, None));
        }
        for SetArrival { slot, piece, expires_at, due } in newest {
            let item = SetItem { piece, expires_at, rank: 0 };
            if !self.is_useful(&item) {
                leaving.push(slot);
                continue;
            }
            let hit = slot.state == FrontState::Hit;
            residents.push(ResidentRank { len_bytes: item.len_bytes(), rank: 0, hit, new: true });
            candidates.push((item, Some((slot, due))));
        }
        let kept = rrip::merge(&residents, room_bytes(self.plan.set_bytes), candidates.len());
        let mut ranks = vec![None; candidates.len()];
        kept.iter().for_each(|&(index, rank)| ranks[index] = Some(rank));
        let mut content = Vec::new();
        for ((mut item, arrived), rank) in candidates.into_iter().zip(ranks) {
            let fate = EntryFate::of(rank.is_some(), arrived.map(|(_, due)| due));
            if let Some((slot, _)) = arrived.filter(|_| fate != EntryFate::Waits) {
                leaving.push(slot);
            }
            add(&self.volume.counters.evicted, u64::from(fate == EntryFate::Evicted));
            if let Some(rank) = rank {
                item.rank = rank;
                content.push(item);
            }
        }
        content.sort_by_key(|item| item.rank);
        self.replace_set(&old, &content, leaving).await
    }
}

/// Splits the entries that move in from the front, the log before the sets, into the newest of each key, and all
/// others.
fn newest_of(mut arrivals: Vec<SetArrival>, front: &PackRingState) -> (Vec<SetArrival>, Vec<SetArrival>) {
    let age = |arrival: &SetArrival| (front.widened(arrival.piece.sequence()), arrival.slot.granule);
    arrivals.sort_by_key(|arrival| std::cmp::Reverse(age(arrival)));
    let mut seen = HashSet::new();
    arrivals.into_iter().partition(|arrival| seen.insert(arrival.piece.hash()))
}
