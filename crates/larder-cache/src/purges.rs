//! Makes all that is stored of a site, a prefix, a URL or a tag unusable or stale, without reading any of it.
//!
//! Owns: the purges, in memory and in a file next to the store, and their count. Each stored head, of a value or of a
//! response, keeps the count at the moment its fetch began. Heads are judged when they are found; nothing is removed
//! here.
//!
//! Invariants:
//! - What was requested before a purge is judged by it even if it arrives later, from memory, the store or the origin.
//! - The clock decides only how long a response has been stale.
//! - A count is recorded before a head can carry it.
//! - A record that cannot be read, or that belongs to another store (see [`Store::set_label`]), empties the store: any
//!   of its entries may have been purged.
//!
//! In a fleet, the other nodes read the purges that were made here (`log`), and this node theirs. While it may not know
//! all of them, it is in doubt: what it stored before must be validated before use.
//!
//! Cost: a load and a comparison per lookup; memory and one line of the file per purge, never per entry. Idea:
//! Varnish's bans, with a count in place of their times and an index in place of their list.

mod index;
mod journal;
mod log;
mod record;
mod tag_file;

use larder_device::IgnorePoison;
use std::{
    borrow::Cow,
    cmp, mem,
    path::PathBuf,
    sync::{
        Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard,
        atomic::{
            AtomicU64,
            Ordering::{Acquire, Release},
        },
    },
};

use larder_store::Store;
use tokio::sync::watch;

use self::{
    index::PurgeIndex,
    journal::{PurgeJournal, RecordLine},
    log::PurgeLog,
    record::{PurgeRecordFile, empty},
};
pub use self::{
    index::{Purge, PurgeLimits, PurgeMode, PurgeScope, PurgeVerdict, host_of_url, host_range},
    journal::{parse_purge, purge_line},
    log::{LogPosition, LogSlice},
};
use crate::keys::random;

/// The purges so far, in memory. With a store and a file, they are also recorded, and survive a restart.
///
/// ```
/// use larder_cache::purges::{PurgeLimits, PurgeMode, PurgeScope, PurgeVerdict, Purges};
///
/// let purges = Purges::open(None, None, &[], PurgeLimits::RESPONSES);
/// let (before, _) = purges.counts();
/// purges.begin(vec![PurgeScope::Site("a.example".into())], PurgeMode::Hard, 1_800_000_000_000);
///
/// // A response that was requested before the purge is gone. Other sites, and later responses, are not concerned.
/// let judge = |count, url: &'static str| purges.judge_entry(count, || url, || Box::new(std::iter::empty()));
/// assert_eq!(judge(before, "https://a.example/x"), PurgeVerdict::Gone);
/// assert_eq!(judge(before, "https://b.example/x"), PurgeVerdict::Stands);
/// assert_eq!(judge(purges.latest(), "https://a.example/x"), PurgeVerdict::Stands);
/// ```
pub struct Purges {
    /// Number of the last purge that was made, recorded or not.
    latest: AtomicU64,
    /// Number of the last purge that is recorded.
    recorded: AtomicU64,
    known: RwLock<PurgeCheck>,
    record: Mutex<PurgeRecordPlace>,
    /// The identity of the log of purges made on this node.
    log_id: u64,
    /// Number of the last recorded purge in the log of purges made on this node.
    log_end: watch::Sender<u64>,
    /// Number of the last purge made on this node that the fleet's shared log contains.
    log_sent: watch::Sender<u64>,
}

#[derive(Default)]
struct PurgeCheck {
    index: PurgeIndex,
    log: PurgeLog,
    /// Purge count below which a response must be validated before use, because purges of other nodes may be unknown
    /// here. 0 if all are known.
    doubt: u64,
    /// Lines that are not recorded yet.
    unrecorded: Vec<RecordLine>,
    /// Whether the record must be rewritten as a whole, because appending `unrecorded` does not suffice.
    must_rewrite: bool,
}

/// The place where purges are recorded.
enum PurgeRecordPlace {
    /// Nowhere, and none is needed: no stored response outlives the process.
    NotNeeded,
    /// Nowhere, although a record is needed, because no file was given.
    NoPlace,
    Beside(PurgeRecordFile),
    /// In a file that another process has taken over.
    HandedOver,
}

/// The outcome of a purge, see [`Purges::begin`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PurgeResult {
    /// The number of the purge. 0 if it needed none, because the responses were removed instead.
    pub number: u64,
    /// Whether older purges were merged into wider ones, because there were too many. Responses that only the wider
    /// purges concern are validated before their next use.
    pub is_widened: bool,
}

impl Purges {
    /// Opens the purges of `store`, which are recorded in the file `path`. `peers` are the other nodes of the fleet.
    /// Empties the store if its record cannot be trusted. Blocks until that is done.
    pub fn open(path: Option<PathBuf>, store: Option<&Store>, peers: &[Box<str>], limits: PurgeLimits) -> Self {
        let mut known = PurgeCheck { index: PurgeIndex::new(limits), ..PurgeCheck::default() };
        known.log.set_kept(!peers.is_empty(), 0);
        let mut log_id = random().max(1);
        let mut record = PurgeRecordPlace::NotNeeded;
        match (store, path.map(PurgeJournal::new)) {
            (None, _) => {}
            (Some(store), None) => {
                if store.labels().any(|label| label != 0) {
                    empty(store, "there is no place for it");
                }
                record = PurgeRecordPlace::NoPlace;
            }
            (Some(store), Some(journal)) => {
                let load = |lines| {
                    known.load(lines);
                    known.log.retain_positions(peers);
                    known.lines()
                };
                let beside = PurgeRecordFile::open(store, journal, load);
                log_id = beside.label();
                record = PurgeRecordPlace::Beside(beside);
            }
        }
        let number = known.index.last_number();
        let log_end = watch::Sender::new(known.log.end());
        let log_sent = watch::Sender::new(known.log.sent());
        let latest = AtomicU64::new(number);
        let recorded = AtomicU64::new(number);
        Self { latest, recorded, known: RwLock::new(known), record: Mutex::new(record), log_id, log_end, log_sent }
    }

    /// Changes the list of the other nodes of the fleet, after a reload. The log of purges is kept only while there are
    /// some.
    pub fn set_peers(&self, peers: &[Box<str>]) {
        let mut known = self.known_mut();
        let last_number = known.index.last_number();
        known.must_rewrite |= known.log.set_kept(!peers.is_empty(), last_number);
        known.log.retain_positions(peers);
        if peers.is_empty() {
            known.doubt = 0;
        }
    }

    /// Returns two numbers of purges: those that are recorded, and those that were made.
    pub fn counts(&self) -> (u64, u64) {
        (self.recorded.load(Acquire), self.latest.load(Acquire))
    }

    /// Returns what all purges so far mean for a response or value that was requested after `purge_count` of them.
    ///
    /// A value has the empty URL. `url` and `tags` are called only if purges were made since.
    pub fn judge_entry<'a>(
        &self,
        purge_count: u64,
        url: impl FnOnce() -> &'a str,
        tags: impl FnOnce() -> Box<dyn Iterator<Item = Cow<'a, str>> + 'a>,
    ) -> PurgeVerdict {
        let known = self.known();
        let verdict = match purge_count.cmp(&known.index.last_number()) {
            // The entry's count includes purges that were never recorded, so it is unknown which purges it precedes.
            cmp::Ordering::Greater => return PurgeVerdict::Gone,
            // There was no purge since.
            cmp::Ordering::Equal => PurgeVerdict::Stands,
            cmp::Ordering::Less => known.index.judge(url(), tags, purge_count),
        };
        if purge_count < known.doubt { verdict.and(PurgeVerdict::Unconfirmed) } else { verdict }
    }

    /// Returns whether a purge after the first `seen_count` may concern a stored response with this URL. A purge of any
    /// tag may, because the response's tags are not given.
    pub fn may_concern(&self, url: &str, seen_count: u64) -> bool {
        self.known().index.may_concern(url, seen_count)
    }

    /// Returns the time of the last purge that may concern a response with this URL, in milliseconds since the Unix
    /// epoch. A purge of any tag may. `None` if there was none.
    pub fn last_at_ms(&self, url: &str) -> Option<i64> {
        self.known().index.last_at_ms(url)
    }

    /// Returns the number of tags for which purges are kept.
    pub(crate) fn tag_count(&self) -> usize {
        self.known().index.tag_count()
    }

    /// Forgets the purges of tags whose number is at most `up_to`. The caller must have removed everything that these
    /// purges concern.
    pub(crate) fn forget_tags(&self, up_to: u64) {
        let mut known = self.known_mut();
        known.index.forget_tags(up_to);
        known.must_rewrite = true;
    }

    /// Returns the number of the last purge that was made, recorded or not.
    pub fn latest(&self) -> u64 {
        self.latest.load(Acquire)
    }

    /// Purges the responses of `scopes`. The purge takes effect for every lookup at once. Blocks until the purge is
    /// recorded.
    ///
    /// # Errors
    /// The purge could not be recorded; the text tells the operator why. It stays in effect until the process ends, and
    /// recording is retried.
    pub fn purge(&self, scopes: Vec<PurgeScope>, mode: PurgeMode, at_ms: i64) -> Result<PurgeResult, String> {
        let result = self.begin(scopes, mode, at_ms);
        self.save()?;
        assert!(self.recorded.load(Acquire) >= result.number, "what was saved is on record");
        Ok(result)
    }

    /// Purges the responses of `scopes`. The purge takes effect for every lookup at once, but is not recorded before
    /// [`Self::save`] is called.
    pub fn begin(&self, scopes: Vec<PurgeScope>, mode: PurgeMode, at_ms: i64) -> PurgeResult {
        let mut known = self.known_mut();
        let number = known.index.last_number() + 1;
        for scope in scopes {
            let purge = Purge { number, mode, at_ms, scope };
            known.index.apply(&purge);
            known.log.append(&purge);
            known.unrecorded.push(RecordLine::Made(purge));
        }
        let is_widened = known.note_added();
        self.latest.store(number, Release);
        PurgeResult { number, is_widened }
    }

    /// Applies a part of the log of another node, or of a shared log, and stores the position after it. Blocks until
    /// both are recorded.
    ///
    /// If the log no longer has this node's position, purges may have been missed. Everything stored so far must then
    /// be validated before use, unless this node never read the log before and the log never had a purge.
    ///
    /// # Errors
    /// The same as for [`Self::purge`].
    pub fn follow(&self, peer: &str, slice: LogSlice, now_ms: i64) -> Result<(), String> {
        let LogSlice { log, is_reset, purges, position, sent, .. } = slice;
        let mut known = self.known_mut();
        let number = known.index.last_number() + 1;
        let is_read = known.log.positions().iter().any(|position| &*position.peer == peer);
        let is_lost = is_reset && (is_read || position > 0);
        let demand =
            is_lost.then_some(Purge { number, mode: PurgeMode::Validate, at_ms: now_ms, scope: PurgeScope::All });
        // Only for a soft purge the other node's clock counts, because it decides since when a response is stale.
        let at_here = |purge: &Purge| if purge.mode == PurgeMode::Soft { purge.at_ms.min(now_ms) } else { now_ms };
        let purges = purges.into_iter().map(|purge| Purge { number, at_ms: at_here(&purge), ..purge });
        if is_lost {
            tracing::warn!(
                log = peer,
                "purges of another node may be missing: what was stored before is validated before use"
            );
        }
        for purge in demand.into_iter().chain(purges) {
            known.index.apply(&purge);
            known.unrecorded.push(RecordLine::Judged(purge));
        }
        if known.index.last_number() == number {
            known.note_added();
            self.latest.store(number, Release);
        }
        let position = LogPosition { peer: peer.into(), log, number: position, sent };
        if !known.log.positions().contains(&position) {
            known.log.set_position(position.clone());
            known.unrecorded.push(RecordLine::Position(position));
        }
        drop(known);
        self.save()
    }

    /// Returns how far this node has followed the log of the node `peer`.
    pub fn position(&self, peer: &str) -> Option<LogPosition> {
        self.known().log.positions().iter().find(|position| &*position.peer == peer).cloned()
    }

    /// Returns the purges made on this node after `position` in the log `log`, for another node.
    pub fn slice(&self, log: u64, position: u64) -> LogSlice {
        // A crash may give the number of an unrecorded purge to another one.
        let recorded = self.recorded.load(Acquire);
        let known = self.known();
        // A position in another log is invalid in this one.
        let position = if log == self.log_id { position } else { u64::MAX };
        known.log.slice(self.log_id, position, recorded)
    }

    /// Returns the identity of the log of purges made on this node.
    pub fn log_id(&self) -> u64 {
        self.log_id
    }

    /// Returns a receiver of the number of the last recorded purge in the log of purges made on this node.
    pub fn log_end(&self) -> watch::Receiver<u64> {
        self.log_end.subscribe()
    }

    /// Returns the number after which the log of purges made on this node begins: older purges are not in it.
    pub fn log_start(&self) -> u64 {
        self.known().log.start()
    }

    /// Returns a receiver of the number of the last purge made on this node that the fleet's shared log contains.
    pub fn log_sent(&self) -> watch::Receiver<u64> {
        self.log_sent.subscribe()
    }

    /// Requires that everything stored so far is validated before use, until [`Self::trust`] is called. Blocks until
    /// the requirement is recorded.
    ///
    /// Called while purges of other nodes may be unknown here.
    ///
    /// # Errors
    /// The requirement could not be recorded; the text tells the operator why. It applies nevertheless, also to
    /// everything that is stored until it is recorded.
    pub fn doubt(&self) -> Result<(), String> {
        let mut known = self.known_mut();
        let number = known.index.last_number() + 1;
        known.index.note_number(number);
        known.doubt = number;
        known.unrecorded.push(RecordLine::Number(number));
        self.latest.store(number, Release);
        drop(known);
        self.save()
    }

    /// Ends the requirement of [`Self::doubt`] that everything be validated, because all purges of other nodes are
    /// known.
    pub fn trust(&self) {
        self.known_mut().doubt = 0;
    }

    /// Returns whether everything stored before the last call of [`Self::doubt`] must be validated before use.
    pub fn is_in_doubt(&self) -> bool {
        self.known().doubt > 0
    }

    /// Returns whether purges are waiting to be recorded, so that [`Self::save`] must be called.
    pub fn are_unsaved(&self) -> bool {
        let known = self.known();
        known.must_rewrite || !known.unrecorded.is_empty()
    }

    /// Records all purges that are not recorded yet. Blocks until they are durable.
    ///
    /// # Errors
    /// The purges could not be recorded; the text tells the operator why.
    pub fn save(&self) -> Result<(), String> {
        // Tasks that wait for this lock find their purges recorded by the task before them, so one sync serves all.
        let mut record = self.record.lock().ignore_poison();
        let beside = match &mut *record {
            PurgeRecordPlace::NotNeeded => {
                let mut known = self.known_mut();
                known.unrecorded = Vec::new();
                let number = known.index.last_number();
                drop(known);
                self.note_recorded(number);
                return Ok(());
            }
            PurgeRecordPlace::NoPlace => {
                self.known_mut().unrecorded = Vec::new();
                return Err("there is no place next to the store for the record of purges".to_owned());
            }
            PurgeRecordPlace::HandedOver => {
                self.known_mut().unrecorded = Vec::new();
                return Err("another process has taken over this one's store and purges".to_owned());
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
            let all = is_whole.then(|| known.lines());
            (known.index.last_number(), mem::take(&mut known.unrecorded), all)
        };
        let saved = match &all {
            Some(all) => beside.rewrite(all),
            None => beside.append(&added),
        };
        match saved {
            Ok(()) => self.note_recorded(number),
            // A failed write may have left part of a line, so the next attempt rewrites the file with all purges.
            Err(_) => self.known_mut().must_rewrite = true,
        }
        saved
    }

    /// Creates the record although there may be no purge yet. The first purge then need not write the record's label to
    /// the store. Blocks until the record is durable.
    ///
    /// From then on, the store cannot be used without its record.
    pub(crate) fn begin_record(&self) {
        // [`Purges::open`] has begun a record with purges.
        if matches!(&*self.record.lock().ignore_poison(), PurgeRecordPlace::Beside(beside) if beside.takes_more()) {
            return;
        }
        self.known_mut().must_rewrite = true;
        if let Err(error) = self.save() {
            tracing::warn!(%error, "the record of removals cannot be written: the next removal retries");
        }
    }

    /// Leaves the record to another process, after a write in progress has ended. Later purges in this process cannot
    /// be recorded.
    pub fn hand_over(&self) {
        *self.record.lock().ignore_poison() = PurgeRecordPlace::HandedOver;
    }

    fn note_recorded(&self, number: u64) {
        self.recorded.store(number, Release);
        let (end, sent) = {
            let known = self.known();
            (known.log.end_within(number), known.log.sent())
        };
        self.log_end.send_if_modified(|known| mem::replace(known, end) != end);
        self.log_sent.send_if_modified(|known| mem::replace(known, sent) != sent);
    }

    fn known(&self) -> RwLockReadGuard<'_, PurgeCheck> {
        self.known.read().ignore_poison()
    }

    fn known_mut(&self) -> RwLockWriteGuard<'_, PurgeCheck> {
        self.known.write().ignore_poison()
    }
}

impl PurgeCheck {
    /// Applies the lines of a record that was read.
    fn load(&mut self, lines: Vec<RecordLine>) {
        let mut start = 0;
        let mut logged = Vec::new();
        for line in lines {
            match line {
                RecordLine::Made(purge) => {
                    self.index.apply(&purge);
                    logged.push(purge);
                }
                RecordLine::Judged(purge) => self.index.apply(&purge),
                RecordLine::Logged(purge) => logged.push(purge),
                RecordLine::LogStart(number) => start = number,
                RecordLine::Number(number) => self.index.note_number(number),
                RecordLine::Position(position) => self.log.set_position(position),
            }
        }
        self.log.restore(start, logged);
        self.note_added();
    }

    /// Returns the lines with which the record is rewritten as a whole.
    fn lines(&self) -> Vec<RecordLine> {
        let mut lines: Vec<RecordLine> = self.index.purges().into_iter().map(RecordLine::Judged).collect();
        lines.push(RecordLine::Number(self.index.last_number()));
        lines.push(RecordLine::LogStart(self.log.start()));
        lines.extend(self.log.entries().cloned().map(RecordLine::Logged));
        lines.extend(self.log.positions().iter().cloned().map(RecordLine::Position));
        lines
    }

    /// Merges older purges into wider ones if there are too many. Returns whether it did.
    fn note_added(&mut self) -> bool {
        let is_widened = self.index.widen_if_full();
        self.must_rewrite |= is_widened;
        if is_widened {
            tracing::warn!(
                "more than {} purges: what was stored before the older ones is validated before use, or missed",
                self.index.limits.count
            );
        }
        is_widened
    }
}

#[cfg(test)]
mod tests {
    use larder_store::StoreOptions;

    use super::*;

    /// Guards against a purge that is acknowledged, although the process that now has the store never learns of it.
    #[test]
    fn record_that_was_handed_over_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(StoreOptions::new(folder.path().join("store"), 64 << 20)).unwrap();
        let path = folder.path().join("purges");
        let open = || Purges::open(Some(path.clone()), Some(&store), &[], PurgeLimits::RESPONSES);
        let purge =
            |purges: &Purges, tag: &str| purges.purge(vec![PurgeScope::Tag(tag.into())], PurgeMode::Hard, 7).map(drop);
        let old = open();
        purge(&old, "a").unwrap();
        old.hand_over();
        let new = open();
        let why = purge(&old, "b").unwrap_err();
        assert!(why.contains("another process"), "{why}");
        assert_eq!((old.latest(), new.latest()), (2, 1));
        purge(&new, "c").unwrap();
        assert!(old.save().is_err());
        assert_eq!(open().latest(), 2);
    }
}
