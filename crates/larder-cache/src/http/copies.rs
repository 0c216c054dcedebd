//! Decides which resources of other nodes of the fleet are popular enough for a copy on this node's disk, and how many
//! bytes copies may take.
//!
//! Owns: the resources that were recently fetched from their owners, and the bytes that copies may still take.
//! `flight::copying` asks for both. Invariant: of all bytes that entries add to the store, copies are at most one in
//! `COPY_SHARE`, plus at most one `COPY_SHARE`-th of the volume that was saved up. So within one turn of the volume,
//! at most a tenth of it is written as copies. A start of the program saves nothing up.
//!
//! Why a share of the written bytes, and not a count of the stored ones: only the engine knows which entries are left,
//! and a list of all copies would take as much memory as the index has for them.
//!
//! Cost: 512 KiB once another node has responded, and one load and store per response of another node. A popular one
//! also takes a lock and reads the store's counters.

use larder_device::IgnorePoison;
use std::sync::{
    Mutex, OnceLock,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use larder_http::Timestamp;
use larder_store::{Stats, Store};

use crate::http::key_slots::KeySlots;

/// The resources that were recently fetched from other nodes, and how much room copies of them may take.
#[derive(Default)]
pub struct SiblingCopies {
    /// For each resource that was fetched from another node, a mark with the time. Unset until the first such fetch.
    fetched: OnceLock<KeySlots>,
    credit: Mutex<CopyCredit>,
}

/// The number of bytes that copies of other nodes' responses may still take.
#[derive(Debug, Default)]
struct CopyCredit {
    bytes: u64,
    /// Bytes written to the store, by its own counter, for which room was already added.
    counted_bytes: u64,
}

/// The mark of a resource in the table: the upper bits of its key's hash, the minute of the last fetch, and whether the
/// fetch before was recent, too.
#[derive(Clone, Copy)]
struct FetchMark {
    hash: u64,
    minute: u64,
    is_popular: bool,
}

impl SiblingCopies {
    /// Records that a resource is fetched from its owner, the node that is responsible for it. Returns whether the
    /// fetch before was within the last hour.
    pub fn note_fetch(&self, key: &[u8], now: Timestamp) -> bool {
        let (slot, new) = self.mark(key, now);
        let is_popular = FetchMark::read(slot, new.hash).is_some_and(|before| before.is_recent(new.minute));
        FetchMark { is_popular, ..new }.write(slot);
        is_popular
    }

    /// Returns whether a resource was recently fetched more than once from the node that owns it. Such a resource is
    /// worth a copy.
    ///
    /// If it was, this call counts as another recent use.
    pub fn is_popular(&self, key: &[u8], now: Timestamp) -> bool {
        let (slot, new) = self.mark(key, now);
        let before = FetchMark::read(slot, new.hash);
        let is_popular = before.is_some_and(|before| before.is_popular && before.is_recent(new.minute));
        if is_popular {
            FetchMark { is_popular, ..new }.write(slot);
        }
        is_popular
    }

    fn mark(&self, key: &[u8], now: Timestamp) -> (&AtomicU64, FetchMark) {
        let of_key = self.fetched.get_or_init(|| KeySlots::new(SLOT_COUNT)).slot(key);
        let minute = now.as_secs().unsigned_abs() / 60 % MINUTE_COUNT;
        (of_key.slot, FetchMark { hash: of_key.hash & HASH_BITS, minute, is_popular: false })
    }

    /// Takes `len` bytes of the room for copies. Returns `false`, and takes nothing, if less is left.
    pub fn take(&self, store: &Store, len: u64) -> bool {
        let Stats { size_bytes, admitted_bytes, .. } = store.stats();
        self.credit.lock().ignore_poison().take(len, admitted_bytes, size_bytes)
    }
}

impl CopyCredit {
    /// Takes `len` bytes, after adding room for what was written to the store since the last call. `written_bytes`
    /// counts what was written since the store was opened.
    fn take(&mut self, len: u64, written_bytes: u64, size_bytes: u64) -> bool {
        let new = written_bytes.saturating_sub(self.counted_bytes) / COPY_SHARE;
        self.counted_bytes += new * COPY_SHARE;
        self.bytes = (self.bytes + new).min(size_bytes / COPY_SHARE);
        let is_enough = len <= self.bytes;
        if is_enough {
            self.bytes -= len;
        }
        assert!(self.bytes <= size_bytes / COPY_SHARE, "no more is saved up than the share of the volume");
        is_enough
    }
}

impl FetchMark {
    /// Returns the mark in a slot. `None` if it is not that of the key with this hash.
    fn read(slot: &AtomicU64, hash: u64) -> Option<Self> {
        let word = slot.load(Relaxed);
        let mark = Self { hash: word & HASH_BITS, minute: word >> 1 & (MINUTE_COUNT - 1), is_popular: word & 1 == 1 };
        (mark.hash == hash).then_some(mark)
    }

    fn write(self, slot: &AtomicU64) {
        debug_assert!(self.hash & !HASH_BITS == 0 && self.minute < MINUTE_COUNT, "each part has its own bits");
        slot.store(self.hash | self.minute << 1 | u64::from(self.is_popular), Relaxed);
    }

    fn is_recent(self, minute: u64) -> bool {
        // Minutes start again after three weeks, so a mark that old may count as recent.
        (minute + MINUTE_COUNT - self.minute) % MINUTE_COUNT < RECENT_MINUTES
    }
}

/// Copies may take 1/`COPY_SHARE` of the bytes that are written to the store. At most 1/`COPY_SHARE` of the store's
/// size can be saved up.
const COPY_SHARE: u64 = 20;
/// Time in minutes after which a fetch from another node no longer counts as recent.
const RECENT_MINUTES: u64 = 60;
/// Number of minutes after which the minutes in marks start again at 0. Must be a power of two.
const MINUTE_COUNT: u64 = 1 << 15;
/// The bits of a mark that contain a part of the key's hash. Another part of the hash chooses the slot.
const HASH_BITS: u64 = !((MINUTE_COUNT << 1) - 1);
const SLOT_COUNT: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn minute(number: i64) -> Timestamp {
        Timestamp::from_millis((29_000_000 + number) * 60_000)
    }

    #[test]
    fn resource_is_popular_if_it_was_fetched_before_within_an_hour() {
        let copies = SiblingCopies::default();
        assert!(!copies.is_popular(b"a", minute(0)));
        assert!(!copies.note_fetch(b"a", minute(0)) && !copies.is_popular(b"a", minute(0)), "fetched once");
        assert!(!copies.note_fetch(b"b", minute(59)));
        assert!(copies.note_fetch(b"a", minute(59)) && copies.is_popular(b"a", minute(118)));
        // The use a minute ago counts as well.
        assert!(copies.is_popular(b"a", minute(177)) && !copies.is_popular(b"a", minute(237)));
        assert!(!copies.note_fetch(b"a", minute(237)) && !copies.is_popular(b"a", minute(237)), "too long ago");
        assert!(!copies.note_fetch(b"b", minute(59 + MINUTE_COUNT as i64 - 1)), "minutes that start again");
    }

    /// Guards against copies that displace the entries for which this node is responsible.
    #[test]
    fn copies_take_at_most_a_tenth_of_a_turn_however_long_nothing_was_copied() {
        const SIZE: u64 = 1 << 30;
        let mut credit = CopyCredit::default();
        assert!(!credit.take(1, 19, SIZE) && credit.take(1, 20, SIZE) && !credit.take(1, 20, SIZE));
        // Many turns without copies.
        let mut written = 100 * SIZE;
        let mut copied = 0;
        let end = written + SIZE;
        while written < end {
            while credit.take(1 << 16, written, SIZE) {
                copied += 1 << 16;
            }
            written += 1 << 20;
        }
        assert!((SIZE / 11..=SIZE / 10).contains(&copied), "{copied}");
    }
}
