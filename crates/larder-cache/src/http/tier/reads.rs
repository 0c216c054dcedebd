//! Reads entries from the second tier.
//!
//! Owns: the limits of reads, and what a fault means. A read that fails or takes too long counts as a failure of the
//! tier; an entry or a pack that is gone or damaged is a miss of its own.

use std::{
    io,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Instant,
};

use bytes::Bytes;
use tokio::time::timeout;

use super::{
    Tier, hash_of,
    index::RecordPlace,
    record::{self, TierEntry},
};

/// The reason why an entry was not read from the tier.
enum ReadFault {
    /// The entry's pack no longer exists.
    Gone,
    /// The storage failed for this reason, or took too long.
    Failure(String),
    /// The tier is being stopped, so its tasks have ended.
    Stopping,
}

impl Tier {
    /// Returns whether the tier has an entry of this key. Needs no I/O.
    pub fn has(&self, key: &[u8]) -> bool {
        self.locate(hash_of(key)).is_some()
    }

    /// Finds the entry of a key. Needs no I/O if the tier has none. Returns `None` also if the tier is paused or fails,
    /// or if it takes longer than its time-out.
    pub async fn find(self: &Arc<Self>, key: &[u8]) -> Option<TierEntry> {
        let hash = hash_of(key);
        let place = self.locate(hash)?;
        if self.read_count.load(Relaxed) >= READ_COUNT_MAX || !self.lock_rest().admits(Instant::now()) {
            self.figures.bypassed.fetch_add(1, Relaxed);
            return None;
        }
        match self.read(place).await {
            Ok(bytes) => {
                self.note_success();
                self.accept(&bytes, place, key)
            }
            Err(ReadFault::Gone) => {
                // It responds: others have removed the pack, such as a rule of the bucket.
                self.note_success();
                self.figures.corrupt.fetch_add(1, Relaxed);
                self.lock().index.remove_pack(place.pack.number);
                None
            }
            Err(ReadFault::Failure(why)) => {
                self.note_failure(&why);
                None
            }
            Err(ReadFault::Stopping) => None,
        }
    }

    async fn read(self: &Arc<Self>, place: RecordPlace) -> Result<Bytes, ReadFault> {
        let own = Arc::clone(self);
        self.read_count.fetch_add(1, Relaxed);
        // In a task of the tier, so that a read that nobody waits for any longer still counts as running.
        let reading = self.tasks.spawn(async move {
            let read = own.storage.read(place).await;
            own.read_count.fetch_sub(1, Relaxed);
            read
        });
        match timeout(self.config.timeout, reading).await {
            Ok(Ok(Ok(bytes))) => Ok(bytes),
            Ok(Ok(Err(error))) if error.kind() == io::ErrorKind::NotFound => Err(ReadFault::Gone),
            Ok(Ok(Err(error))) => Err(ReadFault::Failure(error.to_string())),
            Ok(Err(_)) => Err(ReadFault::Stopping),
            Err(_) => Err(ReadFault::Failure("it does not respond in time".to_owned())),
        }
    }

    /// Verifies a record that was read at `place`, and returns its entry. Forgets the entry if the record is damaged.
    /// Returns `None` also if the key was changed meanwhile.
    fn accept(&self, bytes: &Bytes, place: RecordPlace, key: &[u8]) -> Option<TierEntry> {
        let hash = hash_of(key);
        let entry = record::decode(bytes, place, key, &self.key);
        let mut state = self.lock();
        // The key may have been changed meanwhile. Then its entry at another place must not be forgotten.
        let is_there = state.index.find(hash) == Some(place);
        if entry.is_none() {
            self.figures.corrupt.fetch_add(1, Relaxed);
            if is_there {
                state.index.forget(hash);
            }
        }
        let entry = entry.filter(|_| is_there)?;
        self.figures.hits.fetch_add(1, Relaxed);
        Some(entry)
    }
}

/// Maximum number of concurrent reads. Further reads are skipped, because the storage may have stopped responding.
const READ_COUNT_MAX: u64 = 64;
