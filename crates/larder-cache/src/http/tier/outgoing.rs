//! Collects evicted entries in packs, and stores the packs.
//!
//! Owns: the open pack, the tasks of the tier's thread, and the writes of the journal. Invariant: an entry is in the
//! index only after its pack was stored. What the tier does not take in time is dropped, because the store does not
//! wait.

use std::{
    collections::HashSet,
    sync::{Arc, Weak, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use bytes::Bytes;
use larder_store::{EvictedEntry, EvictionFinish, EvictionReceiver, EvictionSink, Hints};
use tokio::{sync::mpsc, time::timeout};

use super::{
    Tier, TierState, hash_of,
    index::{PackName, PackedEntry},
    record,
    storage::PackStorage,
};
use crate::{chunk_format::split_chunk_key, random};

/// A pack (a file with many entries) that is being filled in memory.
pub(super) struct OpenPack {
    name: PackName,
    bytes: Vec<u8>,
    entries: Vec<PackedEntry>,
    opened: Instant,
}

/// A pack (a file with many entries) that is complete and waits to be stored.
pub(super) struct SealedPack {
    name: PackName,
    bytes: Bytes,
    entries: Vec<PackedEntry>,
}

/// A look: a read of entries from the store, some of which go to the tier. The tier refuses an entry whose key has
/// changed since the look began.
pub struct TierLook {
    pub(super) tier: Arc<Tier>,
    pub(super) moment: u64,
}

impl Tier {
    /// Adds an entry to the open pack, if the tier accepts it. The entry was read from the store by the look that began
    /// at `moment`.
    fn take(&self, entry: &EvictedEntry, moment: u64) {
        let hash = hash_of(&entry.key);
        if self.is_out_of_use.load(Relaxed) || !self.lock().index.accepts(hash, moment) {
            return;
        }
        // Computed without the lock, because it takes a millisecond for a chunk.
        let content = record::digest_of(entry);
        let mut state = self.lock();
        let state = &mut *state;
        let len = record::len_of(entry);
        let is_full = state.open.as_ref().is_some_and(|open| open.bytes.len() + len > PACK_BYTES);
        if is_full && let Some(pack) = state.seal() {
            self.send(state, pack);
        }
        if state.open.is_none() && !state.may_write(Instant::now()) {
            self.figures.dropped.fetch_add(1, Relaxed);
            return;
        }
        let TierState { index, open, heads, .. } = state;
        let open = open.get_or_insert_with(|| OpenPack::new(index.begin_pack()));
        let offset = u32::try_from(open.bytes.len()).expect("a pack is short");
        if index.await_pack(hash, (open.name.number, offset), moment) {
            let (offset, len) = record::append(&mut open.bytes, open.name.salt, (entry, &content), &self.key);
            open.entries.push(PackedEntry { hash, offset, len });
            // A chunk is found through the head of its body only.
            if let (head, Some(_)) = split_chunk_key(&entry.key) {
                heads.insert(head.into(), entry.hints.site);
            }
        }
    }

    /// Passes a complete pack to the task that stores packs. Drops the pack if too many bytes are already waiting.
    fn send(&self, state: &mut TierState, pack: SealedPack) {
        let len = pack.bytes.len();
        let name = pack.name;
        let count = pack.entries.len() as u64;
        if state.has_room_for(len) && self.sealed.try_send(pack).is_ok() {
            state.waiting_bytes += len;
            state.spend(len);
        } else {
            self.figures.dropped.fetch_add(count, Relaxed);
            state.index.give_up(name.number);
        }
    }

    /// Adds the heads of the long bodies whose chunks have just gone to the tier. The store still has the heads,
    /// because each was stored after its chunks.
    async fn add_heads(self: Arc<Self>) {
        let look = self.begin_look();
        let heads = std::mem::take(&mut self.lock().heads);
        for (key, site) in heads {
            if self.lock().index.knows(hash_of(&key)) {
                continue;
            }
            let Ok(Some(reader)) = self.store.get(&key).await else { continue };
            let Ok(Some(body)) = reader.read(0..reader.len()).await else { continue };
            let key = Bytes::from(key);
            let head = reader.head();
            // With the site, by which all entries of a site become invalid at once.
            let hints = Hints { site, ..Hints::default() };
            look.take(&EvictedEntry { key, head, body, hints });
        }
    }

    pub(super) async fn store_pack(&self, pack: SealedPack) {
        let SealedPack { name, bytes, entries } = pack;
        let len = bytes.len() as u64;
        let count = entries.len() as u64;
        match self.put(name, bytes).await {
            Ok(()) => {
                self.figures.packs.fetch_add(1, Relaxed);
                self.figures.bytes.fetch_add(len, Relaxed);
                self.figures.stored.fetch_add(count, Relaxed);
                let removed = self.lock().add(name, len, &entries, self.config.bytes_max);
                // An error means that the tier was given up.
                let _ = self.journal.append().await;
                self.remove_packs(removed).await;
            }
            Err(reason) => {
                if let Some(reason) = reason {
                    self.note_failure(&reason);
                }
                self.figures.dropped.fetch_add(count, Relaxed);
                self.lock().index.give_up(name.number);
            }
        }
    }

    /// Stores a pack. The error is the reason why that failed, or `None` if it was not tried because the tier is
    /// paused.
    async fn put(&self, name: PackName, bytes: Bytes) -> Result<(), Option<String>> {
        if !self.lock_rest().admits(Instant::now()) {
            return Err(None);
        }
        match timeout(PUT_PATIENCE, self.storage.put(name, bytes)).await {
            Ok(Ok(())) => {
                self.note_success();
                Ok(())
            }
            Ok(Err(error)) => Err(Some(error.to_string())),
            Err(_) => Err(Some("it does not store a pack in time".to_owned())),
        }
    }

    pub(super) async fn remove_packs(&self, packs: Vec<PackName>) {
        // Once this is out of use, the packs may be those of the process that took over.
        for name in packs.into_iter().take_while(|_| !self.is_out_of_use.load(Relaxed)) {
            // A pack that stays is removed at the next start.
            drop(timeout(PUT_PATIENCE, self.storage.remove(name)).await);
        }
    }
}

impl TierState {
    /// Returns whether a pack of `len` bytes may wait to be stored, in addition to those that wait already.
    fn has_room_for(&self, len: usize) -> bool {
        self.waiting_bytes == 0 || self.waiting_bytes + len <= WAITING_BYTES_MAX
    }

    pub(super) fn seal(&mut self) -> Option<SealedPack> {
        let OpenPack { name, bytes, entries, .. } = self.open.take()?;
        Some(SealedPack { name, bytes: bytes.into(), entries })
    }

    /// Adds a pack that was stored to the index. Returns the packs to be removed: the oldest ones above `bytes_max`, or
    /// this pack if all its entries are outdated.
    fn add(&mut self, name: PackName, len: u64, entries: &[PackedEntry], bytes_max: u64) -> Vec<PackName> {
        match self.index.add_pack(name, len, entries) {
            true => self.index.shrink_to(bytes_max),
            false => vec![name],
        }
    }

    /// Returns whether the daily budgets permit another pack.
    fn may_write(&mut self, now: Instant) -> bool {
        let writes = self.writes.as_mut().is_none_or(|writes| writes.has(PACK_BYTES as u64, now));
        writes && self.puts.as_mut().is_none_or(|puts| puts.has(1, now))
    }

    /// Takes a pack of `len` bytes from the daily budgets.
    fn spend(&mut self, len: usize) {
        self.writes.iter_mut().for_each(|writes| writes.spend(len as u64));
        self.puts.iter_mut().for_each(|puts| puts.spend(1));
    }
}

impl OpenPack {
    fn new(number: u32) -> Self {
        let name = PackName { number, salt: random() };
        Self { name, bytes: Vec::new(), entries: Vec::new(), opened: Instant::now() }
    }
}

impl TierLook {
    /// Adds an entry to the tier that was read from the store, or that the store did not admit.
    pub fn take(&self, entry: &EvictedEntry) {
        self.tier.take(entry, self.moment);
    }
}

impl Drop for TierLook {
    fn drop(&mut self) {
        self.tier.lock().index.end_look(self.moment);
    }
}

/// Returns the receiver to which the store passes the entries that it evicts.
pub(super) fn receiver(tier: &Weak<Tier>) -> EvictionReceiver {
    let wanting = tier.clone();
    let beginning = tier.clone();
    let finishing = tier.clone();
    let wants = move |hits: u8, len: u64| wanting.upgrade().is_some_and(|tier| tier.wants(hits, len));
    let begin = move || {
        let look = beginning.upgrade().map(|tier| tier.begin_look());
        let sink: EvictionSink = Box::new(move |entry| {
            if let Some(look) = &look {
                look.take(&entry);
            }
        });
        sink
    };
    let finish = move || {
        let tier = finishing.upgrade();
        let finishing: EvictionFinish = Box::pin(async move {
            if let Some(tier) = tier {
                tier.add_heads().await;
            }
        });
        finishing
    };
    EvictionReceiver { wants: Box::new(wants), begin: Box::new(begin), finish: Box::new(finish) }
}

/// Stores each pack that is passed to it, one after the other. A task of the tier.
pub(super) async fn store_packs(tier: Weak<Tier>, mut packs: mpsc::Receiver<SealedPack>) {
    while let Some(pack) = packs.recv().await {
        let Some(tier) = tier.upgrade() else { return };
        tier.lock().waiting_bytes -= pack.bytes.len();
        tier.store_pack(pack).await;
    }
}

/// Completes packs that are not full after the time `pack_age`. A task of the tier.
pub(super) async fn tend(tier: Weak<Tier>, pack_age: Duration) {
    loop {
        tokio::time::sleep(pack_age.clamp(TEND_INTERVAL_MIN, TEND_INTERVAL_MAX)).await;
        let Some(tier) = tier.upgrade() else { return };
        let mut state = tier.lock();
        let is_due = |open: &OpenPack| open.opened.elapsed() >= pack_age && state.has_room_for(open.bytes.len());
        if state.open.as_ref().is_some_and(is_due)
            && let Some(pack) = state.seal()
        {
            tier.send(&mut state, pack);
        }
    }
}

/// Removes packs that are not in the index, and all packs of `outdated`, a tier that was given up.
///
/// `known` and `end` are the packs and the next number at the start of the tier. Packs with later numbers stay, because
/// they may not be in the index yet.
pub(super) async fn tidy(storage: PackStorage, known: Vec<PackName>, end: u32, outdated: Option<PackStorage>) {
    drop(storage.remove_others(known.into_iter().collect(), end).await);
    if let Some(outdated) = outdated {
        drop(outdated.remove_others(HashSet::new(), u32::MAX).await);
    }
}

/// Length of a full pack in bytes.
pub(super) const PACK_BYTES: usize = 16 << 20;
/// Maximum time to store or remove a pack.
const PUT_PATIENCE: Duration = Duration::from_secs(60);
/// Maximum number of bytes in packs that wait to be stored, in addition to the pack that is being stored. Further packs
/// are dropped.
const WAITING_BYTES_MAX: usize = 2 * PACK_BYTES;
/// Maximum number of packs that wait to be stored.
pub(super) const PACKS_WAITING_MAX: usize = 64;
/// Minimum time between two checks of the open pack's age.
const TEND_INTERVAL_MIN: Duration = Duration::from_millis(10);
const TEND_INTERVAL_MAX: Duration = Duration::from_millis(500);
