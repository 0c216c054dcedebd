//! Makes all stored responses of a site, a prefix, a URL or a tag unusable or stale, without reading any of them.
//!
//! Owns: the purges, in memory and in a file next to the store, and their count. Each stored head keeps the count at
//! the moment its request was sent to the origin. Heads are judged when `lookup` finds them; nothing is removed here.
//!
//! Invariants:
//! - A response that was requested before a purge is judged by it even if it arrives later, from memory, the store or
//!   the origin.
//! - The clock decides only how long a response has been stale.
//! - A count is on record before a head can carry it.
//! - A record that cannot be read, or that belongs to another store (see [`Store::set_label`]), empties the store: any
//!   of its responses may have been purged.
//!
//! Cost: a load and a comparison per lookup; memory and one line of the file per purge, never per entry. Idea:
//! Varnish's bans, with a count in place of their times and an index in place of their list.

mod index;
mod journal;

use std::{
    mem,
    path::PathBuf,
    sync::{
        Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
        atomic::{
            AtomicU64,
            Ordering::{Acquire, Release},
        },
    },
};

use larder_http::{StoredHead, Timestamp, key::KeyOf, tags::tags_of};
use larder_store::{Invalidation, Store};

pub(crate) use self::index::{COUNT_MAX, PurgeMode, PurgeScope, PurgeVerdict};
use self::{
    index::{Purge, PurgeIndex, host_of_url},
    journal::{JournalState, PurgeJournal},
};
use crate::cache::{
    entry::{CachedEntry, random},
    epochs::EpochMoment,
};

/// The purges so far.
pub(crate) struct Purges {
    /// Number of the last purge.
    latest: AtomicU64,
    /// Number of the last recorded purge.
    recorded: AtomicU64,
    known: RwLock<PurgeCheck>,
    record: Mutex<PurgeRecordPlace>,
}

#[derive(Default)]
struct PurgeCheck {
    index: PurgeIndex,
    /// The purges that are not recorded yet.
    unrecorded: Vec<Purge>,
    /// Whether the record must be rewritten.
    must_rewrite: bool,
}

/// The place where purges are recorded.
enum PurgeRecordPlace {
    /// No record is needed, because no stored response outlives the process.
    NotNeeded,
    /// There is no file for the record.
    NoPlace,
    Beside(PurgeRecordFile),
}

/// The purge record next to a store.
struct PurgeRecordFile {
    store: Store,
    journal: PurgeJournal,
    label: u64,
    /// Whether the store must be emptied before any purge is recorded.
    must_empty: bool,
}

/// The moment at which some work that may store a response began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WorkStart {
    /// The moment, for comparing changes of single keys.
    pub(crate) moment: EpochMoment,
    /// Number of purges that were recorded. A stored head keeps this number.
    pub(crate) purge_count: u64,
    /// Number of purges that had been made, whether recorded or not.
    pub(crate) seen_count: u64,
}

/// The outcome of a purge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PurgeResult {
    /// Whether older purges were widened because there were too many.
    pub(crate) is_widened: bool,
}

impl Purges {
    /// Reads the record of `store`'s purges from this file. Blocks to read it, and to empty the store if the record
    /// cannot be trusted.
    pub(crate) fn open(path: Option<PathBuf>, store: Option<&Store>) -> Self {
        let mut index = PurgeIndex::default();
        let record = match (store, path.map(PurgeJournal::new)) {
            (None, _) => PurgeRecordPlace::NotNeeded,
            (Some(store), None) => {
                if store.labels().any(|label| label != 0) {
                    empty(store, "there is no place for it");
                }
                PurgeRecordPlace::NoPlace
            }
            (Some(store), Some(journal)) => PurgeRecordPlace::Beside(PurgeRecordFile::open(store, journal, &mut index)),
        };
        let number = index.last_number();
        let known = RwLock::new(PurgeCheck { index, unrecorded: Vec::new(), must_rewrite: false });
        Self { latest: AtomicU64::new(number), recorded: AtomicU64::new(number), known, record: Mutex::new(record) }
    }

    /// Returns the start of work that may store something.
    pub(crate) fn begin(&self, moment: EpochMoment) -> WorkStart {
        WorkStart { moment, purge_count: self.recorded.load(Acquire), seen_count: self.latest.load(Acquire) }
    }

    /// Applies all purges so far to an entry under this key.
    pub(crate) fn judge(&self, entry: &CachedEntry, key: &[u8]) -> PurgeVerdict {
        let latest = self.latest.load(Acquire);
        if entry.judged_count() >= latest && entry.head.purge_count() <= latest {
            return PurgeVerdict::Stands;
        }
        let verdict = self.judge_head(&entry.head, key);
        if verdict == PurgeVerdict::Stands {
            entry.note_judged(latest);
        }
        verdict
    }

    /// Applies all purges so far to a response with this head and key.
    pub(crate) fn judge_head(&self, head: &StoredHead, key: &[u8]) -> PurgeVerdict {
        let known = self.known();
        if head.purge_count() > known.index.last_number() {
            // The entry's count includes purges that were never recorded, so it is unknown which purges it precedes.
            return PurgeVerdict::Gone;
        }
        known.index.judge(url_of(key), || Box::new(tags_of(head.fields())), head.purge_count())
    }

    /// Returns whether a purge since `began` may concern the response under this key, whatever its tags.
    pub(crate) fn may_concern(&self, key: &[u8], began: WorkStart) -> bool {
        self.latest.load(Acquire) > began.seen_count && self.known().index.may_concern(url_of(key), began.seen_count)
    }

    /// Returns the number of the last purge, for [`CachedEntry::note_judged`] of an entry judged after this call.
    pub(crate) fn latest(&self) -> u64 {
        self.latest.load(Acquire)
    }

    /// Purges `scopes`. The purge affects every lookup at once. Blocks until it is recorded.
    ///
    /// # Errors
    /// The purge could not be recorded, with the reason for the operator. It stays in effect until the process ends,
    /// and recording is retried.
    pub(crate) fn purge(&self, scopes: Vec<PurgeScope>, mode: PurgeMode, at: Timestamp) -> Result<PurgeResult, String> {
        let mut known = self.known_mut();
        let number = known.index.last_number() + 1;
        for scope in scopes {
            let purge = Purge { number, mode, at, scope };
            known.index.apply(&purge);
            known.unrecorded.push(purge);
        }
        let is_widened = known.index.widen_if_full();
        known.must_rewrite |= is_widened;
        self.latest.store(number, Release);
        drop(known);
        if is_widened {
            tracing::warn!(
                "more than {COUNT_MAX} purges: older ones are extended to their sites, or to everything stored \
                 before them"
            );
        }
        self.save()?;
        assert!(self.recorded.load(Acquire) >= number, "what was saved is on record");
        Ok(PurgeResult { is_widened })
    }

    /// Returns whether some purges are not on record yet.
    pub(crate) fn are_unsaved(&self) -> bool {
        let known = self.known();
        known.must_rewrite || !known.unrecorded.is_empty()
    }

    /// Records the purges that are not recorded yet. Blocks.
    ///
    /// # Errors
    /// The purges could not be recorded, with the reason for the operator.
    pub(crate) fn save(&self) -> Result<(), String> {
        // Tasks that wait for this lock find their purges recorded by the task before them, so one sync serves all.
        let mut record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
        let beside = match &mut *record {
            PurgeRecordPlace::NotNeeded => {
                let mut known = self.known_mut();
                known.unrecorded = Vec::new();
                self.recorded.store(known.index.last_number(), Release);
                return Ok(());
            }
            PurgeRecordPlace::NoPlace => {
                self.known_mut().unrecorded = Vec::new();
                return Err("there is no place next to the store for the record of purges".to_owned());
            }
            PurgeRecordPlace::Beside(beside) => beside,
        };
        let (number, added, all) = {
            let mut known = self.known_mut();
            if known.unrecorded.is_empty() && !known.must_rewrite {
                return Ok(());
            }
            let is_whole = known.must_rewrite || !beside.takes_more();
            // Taken together with the purges, under one lock. A purge that arrives during the write sets it again.
            known.must_rewrite = false;
            let all = is_whole.then(|| known.index.purges());
            (known.index.last_number(), mem::take(&mut known.unrecorded), all)
        };
        let saved = match &all {
            Some(all) => beside.rewrite(all),
            None => beside.journal.append(&added).map_err(|error| error.to_string()),
        };
        match saved {
            Ok(()) => self.recorded.store(number, Release),
            // A failed write may have left part of a line, so the next attempt rewrites the file with all purges.
            Err(_) => self.known_mut().must_rewrite = true,
        }
        saved
    }

    fn known(&self) -> RwLockReadGuard<'_, PurgeCheck> {
        self.known.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn known_mut(&self) -> RwLockWriteGuard<'_, PurgeCheck> {
        self.known.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PurgeRecordFile {
    /// Loads the record into `index`, or empties the store if the record cannot be trusted.
    fn open(store: &Store, journal: PurgeJournal, index: &mut PurgeIndex) -> Self {
        let mut labels = store.labels();
        let believed = match journal.read() {
            JournalState::Purges { label, purges } if labels.all(|own| own == 0 || own == label) => Ok((label, purges)),
            JournalState::Purges { .. } => Err("it belongs to another store".to_owned()),
            JournalState::Nothing if labels.all(|own| own == 0) => Ok((random().max(1), Vec::new())),
            JournalState::Nothing => Err("the file does not exist".to_owned()),
            JournalState::Damaged(why) => Err(why),
        };
        drop(labels);
        let must_empty = match &believed {
            Ok(_) => false,
            Err(why) => !empty(store, &format!("{}: {why}", journal.path().display())),
        };
        let is_new = believed.is_err();
        let (label, purges) = believed.unwrap_or_else(|_| (random().max(1), Vec::new()));
        purges.iter().for_each(|purge| index.apply(purge));
        let mut beside = Self { store: store.clone(), journal, label, must_empty };
        if (is_new || !purges.is_empty())
            && let Err(error) = beside.rewrite(&purges)
        {
            tracing::warn!(%error, "the record of purges cannot be written: the next purge retries");
        }
        beside
    }

    /// Returns whether purges can be appended. Every volume must name this file as its record.
    fn takes_more(&self) -> bool {
        !self.must_empty && self.journal.takes_more() && self.store.labels().all(|label| label == self.label)
    }

    /// Replaces the content of the record with these purges. Blocks.
    fn rewrite(&mut self, purges: &[Purge]) -> Result<(), String> {
        if self.must_empty {
            block_on(self.store.invalidate(Invalidation::All))?;
            self.must_empty = false;
        }
        self.journal.rewrite(self.label, purges).map_err(|error| error.to_string())?;
        // The label is set only now, because it states that there is a record.
        block_on(self.store.set_label(self.label))
    }
}

/// Empties a store whose purges are unknown. Returns whether the removal is durable.
fn empty(store: &Store, why: &str) -> bool {
    tracing::error!(%why, "the record of purges is unusable: the store is emptied");
    let emptied = block_on(store.invalidate(Invalidation::All));
    if let Err(error) = &emptied {
        tracing::error!(%error, "the store cannot be emptied: none of its entries is served");
    }
    emptied.is_ok()
}

/// Waits for an operation of the store, on a thread that may block.
fn block_on<T>(work: impl Future<Output = larder_store::Result<T>>) -> Result<T, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().map_err(|error| error.to_string())?;
    runtime.block_on(work).map_err(|error| error.to_string())
}

/// Returns the URL in a key, or an empty string if the key has none.
fn url_of(key: &[u8]) -> &str {
    KeyOf::parse(key).and_then(|of| of.url()).unwrap_or_default()
}

/// Returns the host in a key, in the form that site purges use.
pub(crate) fn host_of_key(key: &[u8]) -> &str {
    host_of_url(url_of(key))
}
