//! What a cache of values may return: the versions of every key, the removals, and the laws that tell them apart.
//!
//! Invariant: a version counts as older than a change only if it is so in every order in which the calls may have taken
//! effect, so a broken law is never the order's fault. Laws 1, 3, 4, 6, 10 and 12 are judged here.

use super::super::{
    chronicle::{Chronicle, Purge, Subject},
    theatre::DIRTY_BYTES,
};
use crate::content;
use std::ops::Range;

/// A value for a key. Its fetch or write may still be in progress.
#[derive(Clone, Debug)]
pub(super) struct Version {
    pub(super) key: u64,
    pub(super) number: u64,
    pub(super) len: u64,
    /// Tags of the value: bit n stands for tag n.
    pub(super) tags: u64,
    pub(super) origin: VersionOrigin,
    /// Tick of the call that led to this version. `began` is the tick at which its fetch or write began, and
    /// `effect_from` the first tick at which it may have taken effect.
    pub(super) asked: u64,
    pub(super) began: u64,
    pub(super) effect_from: u64,
    /// Tick at which the source of the value had delivered all bytes. `None` until then.
    pub(super) complete: Option<u64>,
    /// Tick at which the fetch or write ended, with or without success. `None` until then.
    pub(super) settled: Option<u64>,
    pub(super) is_stored: bool,
    /// Time for which the value is fresh, in milliseconds. `fresh_until_ms` is the time at which it stops being fresh,
    /// known once the value is complete.
    pub(super) fresh_ms: Option<u64>,
    pub(super) fresh_until_ms: Option<u64>,
    pub(super) life: u64,
}

/// The way in which a version comes into the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VersionOrigin {
    /// A writer stores the value unless the key changes while it writes.
    Conditional,
    /// A fetch of the cache stores the value unless the key changes during the fetch.
    Fetched,
    /// A writer stores the value in any case.
    Written,
}

/// A lookup of a key that is in progress.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    pub(super) key: u64,
    pub(super) began: u64,
    pub(super) began_ms: u64,
    /// Whether the lookup must find a value.
    pub(super) is_required: bool,
}

/// The history of all keys. It determines what the cache may return.
pub(super) struct Model {
    pub(super) chronicle: Chronicle,
    pub(super) versions: Vec<Version>,
    /// Number of bytes that were given to the store so far, overheads included.
    pub(super) stored_bytes: u64,
    pub(super) room_bytes: u64,
}

impl Model {
    pub(super) fn new(chronicle: Chronicle, room_bytes: u64) -> Self {
        Self { chronicle, versions: Vec::new(), stored_bytes: 0, room_bytes }
    }

    /// Adds a version, and makes it longer until no other version of its key has its length. Returns its number.
    pub(super) fn begin(&mut self, mut version: Version) -> u64 {
        let number = self.versions.len() as u64;
        while self.versions.iter().any(|other| other.key == version.key && other.len == version.len) {
            version.len += 1;
        }
        version.number = number;
        version.began = self.chronicle.tick();
        version.effect_from = version.began;
        version.life = self.chronicle.life;
        self.versions.push(version);
        number
    }

    pub(super) fn version(&mut self, number: u64) -> &mut Version {
        &mut self.versions[number as usize]
    }

    /// Notes that the source of a version has delivered all its bytes.
    pub(super) fn complete(&mut self, number: u64) {
        let now = self.chronicle.tick();
        let now_ms = self.chronicle.now_ms;
        let version = self.version(number);
        version.complete = Some(now);
        // The cache may take the time a little later than this.
        version.fresh_until_ms = version.fresh_ms.map(|fresh_ms| now_ms + fresh_ms);
        self.stored_bytes += self.version(number).len + ENTRY_BYTES;
    }

    /// Notes that the write or fetch of a version has ended. `is_stored` says whether it was stored.
    pub(super) fn settle(&mut self, number: u64, is_stored: bool) {
        let now = self.chronicle.tick();
        let version = self.version(number);
        version.settled = Some(now);
        version.is_stored |= is_stored;
    }

    /// Adds the version that the cache fetches because of lookup `look`. Breaks law 6 if a running fetch should be
    /// shared, and law 10 if a stored value must be found. Returns the version's number.
    pub(super) fn begin_fetch(&mut self, version: Version, look: &Look) -> u64 {
        let key = version.key;
        if self.is_still_required(look) {
            self.chronicle.break_law(format!("law 10: key {key} is fetched although it must be stored"));
        }
        let running = self.versions.iter().find(|other| {
            let asked = other.asked.min(look.began);
            other.key == key
                && other.origin == VersionOrigin::Fetched
                && other.complete.is_none()
                && other.settled.is_none()
                && !self.chronicle.purges.iter().any(|purge| purge.detaches(key) && !purge.is_before(asked))
                && !self.versions.iter().any(|newer| newer.detaches(key) && newer.settled >= Some(asked))
        });
        if let Some(running) = running {
            let number = running.number;
            self.chronicle.break_law(format!("law 6: key {key} is fetched although fetch {number} is running"));
        }
        self.begin(version)
    }

    pub(super) fn begin_look(&mut self, key: u64) -> Look {
        let began = self.chronicle.tick();
        Look { key, began, began_ms: self.chronicle.now_ms, is_required: self.is_required(key) }
    }

    /// Ends the present life of the cache, with a power loss if `is_power_cut`, and begins the next.
    pub(super) fn restart(&mut self, is_power_cut: bool) {
        self.chronicle.restart(is_power_cut);
        let Chronicle { now, durable, .. } = self.chronicle;
        // Writes and fetches ended with the process, and what was stored last may be lost.
        self.versions.iter_mut().for_each(|version| _ = version.settled.get_or_insert(now));
        let is_durable = |version: &Version| version.settled.is_some_and(|settled| settled < durable);
        // A replacement that is lost takes the version before it along: a damaged record hides older ones.
        let loose = self.versions.iter().filter(|version| !is_durable(version)).map(|version| version.key);
        let loose: Vec<u64> = loose.collect();
        self.versions.iter_mut().for_each(|version| version.is_stored &= !loose.contains(&version.key));
    }

    /// Checks that lookup `look` may return `bytes`, which are `range` of a value of `len` bytes: laws 1 (right bytes),
    /// 3 (complete) and 4 (neither removed nor replaced).
    pub(super) fn judge(&mut self, look: &Look, len: u64, range: Range<u64>, bytes: &[u8]) -> Result<(), String> {
        self.chronicle.tick();
        let key = look.key;
        let Some(seen) = self.versions.iter().find(|version| version.key == key && version.len == len) else {
            return Err(format!("law 1: key {key} has {len} bytes, as no version of it"));
        };
        let number = seen.number;
        if !content::is_body(key, number, range.clone(), bytes) {
            return Err(format!("law 1: key {key}: {range:?} of version {number} has other bytes"));
        }
        if seen.complete.is_none() {
            return Err(format!("law 3: key {key}: version {number} was never complete"));
        }
        if let Some(purge) =
            self.chronicle.purges.iter().find(|purge| purge.is_before(look.began) && purge.covers(seen))
        {
            let subject = purge.subject;
            return Err(format!("law 4: key {key}: version {number} is older than the removal of {subject:?}"));
        }
        if let Some(newer) = self.replacement(look, seen) {
            return Err(format!("law 4: key {key}: version {number} although {newer} had replaced it"));
        }
        Ok(())
    }

    /// Checks that the version with length `len`, which a lookup of fresh values returned, was fresh (law 12).
    pub(super) fn judge_freshness(&self, look: &Look, len: u64) -> Result<(), String> {
        let key = look.key;
        let seen = self.versions.iter().find(|version| version.key == key && version.len == len);
        match seen.and_then(|seen| seen.fresh_until_ms.map(|until_ms| (seen, until_ms))) {
            // A write takes the time when it is finished, which may be later than the model's by its waits.
            Some((seen, until_ms)) if seen.settled.is_some() && until_ms + CLOCK_SLACK_MS < look.began_ms => {
                Err(format!("law 12: key {key}: version {} is no longer fresh", seen.number))
            }
            _ => Ok(()),
        }
    }

    /// Checks that lookup `look` may find nothing (law 10: what was stored is found).
    pub(super) fn judge_miss(&mut self, look: &Look) -> Result<(), String> {
        let key = look.key;
        if self.is_still_required(look) {
            return Err(format!("law 10: key {key} is not found although it was stored"));
        }
        Ok(())
    }

    /// Returns whether a version was begun in the present life of the cache.
    pub(super) fn is_present(&self, version: &Version) -> bool {
        version.life == self.chronicle.life
    }

    /// Returns whether the cache must have a value for `key`: one was stored, and cannot have expired or been removed
    /// or evicted since.
    pub(super) fn is_required(&self, key: u64) -> bool {
        let stored = |version: &&Version| version.key == key && version.is_stored;
        let Some(last) = self.versions.iter().filter(stored).max_by_key(|version| version.settled) else {
            return false;
        };
        let is_safe = |version: &Version| {
            let is_fresh = version.fresh_ms.is_none();
            let is_removed = |purge: &Purge| purge.matches(version) && !purge.is_before(version.asked);
            is_fresh && !self.chronicle.purges.iter().any(is_removed)
        };
        let may_count = |version: &&Version| version.key == key && version.settled.is_none_or(|at| at >= last.asked);
        self.chronicle.is_harmless && self.has_room() && self.versions.iter().filter(may_count).all(is_safe)
    }

    /// Returns whether `look` must find a value, considering what has happened since it began.
    fn is_still_required(&self, look: &Look) -> bool {
        let touches = |purge: &Purge| purge.detaches(look.key) && !purge.is_before(look.began);
        look.is_required && self.is_required(look.key) && !self.chronicle.purges.iter().any(touches)
    }

    /// Returns whether so few bytes were stored that the store has no reason to evict.
    pub(super) fn has_room(&self) -> bool {
        self.stored_bytes < self.room_bytes
    }

    /// Returns whether the writes in progress have more bytes than may wait for the device. The store then refuses a
    /// write, because no maintenance thread makes room meanwhile.
    pub(super) fn is_crowded(&self) -> bool {
        let open = self.versions.iter().filter(|version| version.settled.is_none());
        let Some(since) = open.map(|version| version.asked).min() else { return false };
        let overlapping = self.versions.iter().filter(|version| version.settled.is_none_or(|at| at >= since));
        overlapping.map(|version| version.len + ENTRY_BYTES).sum::<u64>() > DIRTY_BYTES
    }

    /// Returns whether the cache may refuse to store fetched version `number`: the key or one of its tags changed
    /// during the fetch, or the store has a reason to fail.
    pub(super) fn may_refuse(&self, number: u64) -> bool {
        let version = &self.versions[number as usize];
        let is_purged =
            self.chronicle.purges.iter().any(|purge| purge.matches(version) && !purge.is_before(version.asked));
        let overlaps = |other: &&Version| {
            other.number != number
                && other.key == version.key
                && other.settled.is_none_or(|settled| settled > version.asked)
        };
        let is_excused = !self.chronicle.is_harmless || !self.has_room();
        is_purged || is_excused || self.versions.iter().any(|other| overlaps(&other))
    }

    /// Returns the number of a newer written version that `look` must return instead of `seen`, if there is one.
    fn replacement(&self, look: &Look, seen: &Version) -> Option<u64> {
        let replaces = |newer: &&Version| {
            let is_older = match seen.origin {
                VersionOrigin::Written => seen.settled.is_some_and(|settled| settled < newer.effect_from),
                VersionOrigin::Conditional | VersionOrigin::Fetched => seen.began < newer.effect_from,
            };
            newer.key == seen.key
                && newer.is_stored
                && newer.settled.is_some_and(|settled| settled < look.began)
                && newer.life == self.chronicle.life
                && newer.fresh_ms.is_none()
                && !self.chronicle.purges.iter().any(|purge| purge.matches(newer) && !purge.is_before(newer.asked))
                && is_older
        };
        if self.chronicle.has_lied { None } else { self.versions.iter().find(replaces).map(|newer| newer.number) }
    }
}

impl Version {
    /// Returns whether a writer has stored this version for `key`. New calls for the key then start a fetch of their
    /// own, even while an older one is running.
    fn detaches(&self, key: u64) -> bool {
        self.key == key && self.origin != VersionOrigin::Fetched && self.is_stored
    }
}

impl Purge {
    fn matches(&self, version: &Version) -> bool {
        self.concerns(version.key, version.tags)
    }

    /// Returns whether the removal removes `version`: the version is older in every order in which the calls can have
    /// taken effect.
    fn covers(&self, version: &Version) -> bool {
        let is_by_key = matches!(self.subject, Subject::Key(_));
        let is_older = match version.origin {
            VersionOrigin::Written if is_by_key => version.settled.is_some_and(|settled| settled < self.called),
            _ => version.began < self.called,
        };
        self.matches(version) && is_older
    }
}

/// Upper bound of the bytes that an entry takes on the device in addition to its own, in this model.
const ENTRY_BYTES: u64 = 8 << 10;
/// Maximum time in milliseconds from the arrival of a write's last byte to the end of the write.
const CLOCK_SLACK_MS: u64 = 20_000;
