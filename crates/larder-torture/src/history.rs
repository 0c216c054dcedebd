//! The contract as code: the permitted results of a lookup of one key, given all earlier operations on it.
//!
//! Every change is an interval of logical time, from its call to its acknowledgement. A lookup may find any version
//! that no later change has superseded. A change supersedes a version if it began after the version was acknowledged
//! and, for a lookup, was acknowledged itself, or, for a crash, became durable. Finding nothing is allowed unless the
//! key must be found. It must be if every candidate for the last change of the key is an acknowledged version (before a
//! crash: a durable one) that has not expired and is newer than the last excuse for a loss.
//!
//! The store is run elsewhere, and excuses are decided elsewhere. Invariant: [`History::allows`] and
//! [`History::must_hit`] never reject a result of a store that keeps its promises. Idea: the interval order of
//! linearizability (Herlihy, Wing, TOPLAS 1990), with forgetting added.

use std::collections::HashMap;

/// The entry that a lookup found: the version that the head states, and the length of the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeenEntry {
    /// Number of the version that the head states.
    pub head: u64,
    /// Length of the body in bytes.
    pub body_bytes: u64,
}

/// All changes of one key. They determine what a lookup of the key may return.
#[derive(Clone, Debug, Default)]
pub struct History {
    events: Vec<HistoryEvent>,
    /// Whether entries that were stored before the last crash must still be found after it.
    is_kept: bool,
    /// All versions that were ever begun for the key, by number.
    versions: HashMap<u64, EntryVersion>,
}

/// A version of the key's entry: an insertion makes one, and so does an update of the head.
#[derive(Clone, Debug)]
struct EntryVersion {
    begun: u64,
    body: Body,
    /// Time after which the version must not be found, in seconds since the Unix epoch. 0 means that it never expires.
    expires_at: u32,
}

#[derive(Clone, Debug)]
enum Body {
    Own {
        len_bytes: u64,
    },
    /// The version has only a new head. Its body is that of a version in `before`, or of one begun after `since`.
    OfOneOf {
        before: Vec<u64>,
        since: u64,
        /// Whether every possible body of the version is known to be whole. A body that survived a crash may be cut
        /// short unless the policy promises to keep it.
        is_whole: bool,
    },
}

#[derive(Clone, Copy, Debug)]
struct HistoryEvent {
    change: HistoryChange,
    begun: u64,
    /// Time at which the change was acknowledged, or [`NEVER`].
    ended: u64,
    /// Whether the change may be lost although it was acknowledged, because the device failed before it was durable.
    is_unsure: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HistoryChange {
    Version(u64),
    Removal,
    /// Removes every entry that was begun before this change, as clearing the store does.
    Invalidation,
}

const NEVER: u64 = u64::MAX;

impl History {
    /// Notes that a call to store an entry began at `now`. `version` is the entry's version.
    pub fn begin_insert(&mut self, version: u64, body_bytes: u64, expires_at: u32, now: u64) {
        self.versions
            .insert(version, EntryVersion { begun: now, body: Body::Own { len_bytes: body_bytes }, expires_at });
        self.begin(HistoryChange::Version(version), now);
    }

    /// Notes that a call to replace the head of the present entry began at `now`. `version` is the version of the new
    /// head.
    pub fn begin_head(&mut self, version: u64, expires_at: u32, now: u64) {
        let mut bodies = Vec::new();
        let mut since_all = now;
        let mut are_whole = true;
        for event in self.events.iter().filter(|event| !is_superseded(event, &self.events, now)) {
            let HistoryChange::Version(before) = event.change else { continue };
            are_whole &= event.begun != 0 || self.is_kept;
            match &self.versions[&before].body {
                Body::Own { .. } => bodies.push(before),
                Body::OfOneOf { before, since, is_whole } => {
                    bodies.extend(before);
                    since_all = since_all.min(*since);
                    are_whole &= is_whole;
                }
            }
        }
        self.versions.insert(
            version,
            EntryVersion {
                begun: now,
                body: Body::OfOneOf { before: bodies, since: since_all, is_whole: are_whole },
                expires_at,
            },
        );
        self.begin(HistoryChange::Version(version), now);
    }

    /// Notes that a call to remove the key began at `now`.
    pub fn begin_removal(&mut self, now: u64) {
        self.begin(HistoryChange::Removal, now);
    }

    /// Notes that the change that began at `begun` was acknowledged at `now`.
    pub fn acknowledge(&mut self, begun: u64, now: u64) {
        for event in self.events.iter_mut().filter(|event| event.begun == begun) {
            event.ended = now;
        }
    }

    /// Forgets the change that began at `begun`, because the store refused it and left no trace of it.
    pub fn withdraw(&mut self, begun: u64) {
        self.events.retain(|event| event.begun != begun);
    }

    /// Notes that the store was cleared durably by a call from `begun` to `ended`.
    pub fn invalidate(&mut self, begun: u64, ended: u64) {
        self.events.push(HistoryEvent { change: HistoryChange::Invalidation, begun, ended, is_unsure: false });
    }

    /// Notes that the device failed. Versions that were not acknowledged by `durable` may then be lost, and so may
    /// removals that were not acknowledged at all.
    pub fn doubt(&mut self, durable: u64) {
        let is_doubted = |event: &&mut HistoryEvent| match event.change {
            HistoryChange::Version(_) => event.ended > durable,
            HistoryChange::Removal => event.ended == NEVER,
            HistoryChange::Invalidation => false,
        };
        self.events.iter_mut().filter(is_doubted).for_each(|event| event.is_unsure = true);
    }

    /// Notes that the store ended at `now` without being closed, by a kill or a power loss.
    ///
    /// Changes that were acknowledged by `durable` must be found again, unless newer changes replaced them. `is_kept`
    /// says whether the policy promises to keep durable entries. A removal survives a kill as soon as it is
    /// acknowledged.
    pub fn crash(&mut self, durable: u64, (is_kill, is_kept): (bool, bool), now: u64) {
        let events = std::mem::take(&mut self.events);
        let was_kept = self.is_kept;
        let is_durable = |event: &HistoryEvent| !event.is_unsure && event.ended <= durable;
        let lasting = |event: &&HistoryEvent| {
            event.change != HistoryChange::Invalidation && !is_superseded(event, &events, durable)
        };
        let is_whole = |event: &HistoryEvent| is_durable(event) && (event.begun != 0 || was_kept);
        self.is_kept = is_kept && events.iter().filter(lasting).all(is_whole);
        let is_sure = |later: &HistoryEvent| is_kill && later.change == HistoryChange::Removal && later.ended < NEVER;
        let is_left = |event: &&HistoryEvent| {
            // An invalidation also covers versions that were begun before it and end after the removal.
            let is_removed = event.change != HistoryChange::Invalidation
                && events.iter().any(|later| is_sure(later) && later.begun > event.ended);
            !is_lost_by(event, &events, durable) && !is_removed
        };
        // Any remaining change may be the last one; from now on they are equals.
        self.events = events.iter().filter(is_left).map(|event| merged(*event, now)).collect();
    }

    /// Notes that the device returned wrong data, or none, so any past version may be found again. If
    /// `keeps_invalidations` is set, versions from before the store was cleared must still not be found.
    pub fn excuse_losses(&mut self, keeps_invalidations: bool, now: u64) {
        let is_kept = |event: &&HistoryEvent| keeps_invalidations && event.change == HistoryChange::Invalidation;
        let invalidations: Vec<HistoryEvent> = self.events.iter().filter(is_kept).copied().collect();
        let change = |&version: &u64| HistoryEvent {
            change: HistoryChange::Version(version),
            begun: 0,
            ended: now,
            is_unsure: true,
        };
        self.is_kept = false;
        self.events = self.versions.keys().map(change).chain(invalidations).collect();
        self.events.sort_by_key(|event| match event.change {
            HistoryChange::Version(version) => version,
            HistoryChange::Removal | HistoryChange::Invalidation => NEVER,
        });
    }

    /// Excludes the other versions that a crash may have left, after a lookup found `seen`.
    pub fn narrow(&mut self, seen: SeenEntry) {
        let found = HistoryChange::Version(seen.head);
        if self.events.iter().any(|event| event.change == found && event.begun == 0) {
            let stays = |event: &HistoryEvent| {
                event.begun != 0 || event.change == found || event.change == HistoryChange::Invalidation
            };
            self.events.retain(stays);
        }
    }

    /// Checks that a lookup that began at `begun` and ends now may find `seen`. `unix_s` is the time of day.
    ///
    /// # Errors
    /// A text that says why it may not.
    pub fn allows(&self, seen: SeenEntry, begun: u64, unix_s: u32) -> Result<(), String> {
        let Some(version) = self.versions.get(&seen.head) else {
            return Err(format!("version {} was never stored", seen.head));
        };
        if version.expires_at != 0 && version.expires_at < unix_s {
            return Err(format!("version {} was of no use after {}", seen.head, version.expires_at));
        }
        if self.bodies(seen).is_empty() {
            return Err(format!("version {} has no body of {} bytes: {version:?}", seen.head, seen.body_bytes));
        }
        let found = HistoryChange::Version(seen.head);
        let Some(event) = self.events.iter().find(|event| event.change == found) else {
            return Err(format!("version {} was replaced or removed before; left are {:?}", seen.head, self.events));
        };
        if is_superseded(event, &self.events, begun) {
            return Err(format!("version {} was replaced or removed before {begun}: {:?}", seen.head, self.events));
        }
        // The time at which the entry was begun counts, not the time of its head.
        let is_hidden = |version: &u64| {
            let begun_at = self.versions[version].begun;
            let mut invalidations = self.events.iter().filter(|event| event.change == HistoryChange::Invalidation);
            invalidations.any(|event| begun_at < event.begun && event.ended <= begun)
        };
        if self.bodies(seen).iter().all(is_hidden) {
            return Err(format!("version {} was invalidated before {begun}: {:?}", seen.head, self.events));
        }
        Ok(())
    }

    /// Returns whether a lookup that began at `begun` and ends now must find an entry.
    ///
    /// Several changes can be the key's last if their calls overlapped. The lookup must find an entry if each of them
    /// stored a version, was acknowledged, never expires, and began after `since`, up to which losses are excused.
    pub fn must_hit(&self, begun: u64, since: u64) -> bool {
        let is_alive = |event: &&HistoryEvent| {
            event.change != HistoryChange::Invalidation && !is_superseded(event, &self.events, begun)
        };
        let mut alive = self.events.iter().filter(is_alive).peekable();
        alive.peek().is_some() && alive.all(|event| self.must_remain(event, begun, since))
    }

    fn must_remain(&self, event: &HistoryEvent, begun: u64, since: u64) -> bool {
        let HistoryChange::Version(version) = event.change else { return false };
        let version = &self.versions[&version];
        // An entry with a new head is as old as its body.
        let oldest = match &version.body {
            Body::Own { .. } => version.begun,
            Body::OfOneOf { before, .. } => {
                before.iter().map(|before| self.versions[before].begun).fold(version.begun, u64::min)
            }
        };
        let is_invalidated =
            self.events.iter().any(|other| other.change == HistoryChange::Invalidation && other.ended > oldest);
        let is_kept = event.begun != 0 || self.is_kept;
        let is_whole = !matches!(version.body, Body::OfOneOf { is_whole: false, .. });
        event.ended <= begun && is_kept && is_whole && oldest > since && version.expires_at == 0 && !is_invalidated
    }

    /// Returns whether `seen` was ever a version of the key, and has not expired at `unix_s`.
    pub fn existed(&self, seen: SeenEntry, unix_s: u32) -> bool {
        let is_of_use = |version: &EntryVersion| version.expires_at == 0 || version.expires_at >= unix_s;
        self.versions.get(&seen.head).is_some_and(is_of_use) && !self.any_bodies(seen).is_empty()
    }

    /// Returns the numbers of all versions of the key, past or present, whose body is as long as that of `seen`.
    pub fn any_bodies(&self, seen: SeenEntry) -> Vec<u64> {
        let is_long =
            |version: &EntryVersion| matches!(version.body, Body::Own { len_bytes } if len_bytes == seen.body_bytes);
        self.versions.iter().filter(|(_, version)| is_long(version)).map(|(&number, _)| number).collect()
    }

    /// Returns the numbers of the versions whose body the found entry `seen` can have.
    pub fn bodies(&self, seen: SeenEntry) -> Vec<u64> {
        let is_long = |version: &u64| matches!(self.versions[version].body, Body::Own { len_bytes } if len_bytes == seen.body_bytes);
        match self.versions.get(&seen.head) {
            None => Vec::new(),
            Some(EntryVersion { body: Body::Own { .. }, .. }) => Some(seen.head).into_iter().filter(is_long).collect(),
            Some(EntryVersion { body: Body::OfOneOf { before, since, .. }, .. }) => {
                let later = self.versions.iter().filter(|(_, version)| version.begun > *since);
                let later = later.map(|(number, _)| number);
                before.iter().chain(later).copied().filter(is_long).collect()
            }
        }
    }

    fn begin(&mut self, change: HistoryChange, now: u64) {
        self.events.push(HistoryEvent { change, begun: now, ended: NEVER, is_unsure: false });
    }
}

/// Returns whether another change replaced `event`: one that began after `event` was acknowledged, and was itself
/// acknowledged by `until`.
fn is_superseded(event: &HistoryEvent, events: &[HistoryEvent], until: u64) -> bool {
    event.change != HistoryChange::Invalidation
        && events.iter().any(|later| {
            later.change != HistoryChange::Invalidation && later.begun > event.ended && later.ended <= until
        })
}

/// Returns whether another change, which certainly survives, replaced `event` by `until`. [`is_superseded`] also counts
/// changes that may be lost.
fn is_lost_by(event: &HistoryEvent, events: &[HistoryEvent], until: u64) -> bool {
    let supersedes = |later: &HistoryEvent| {
        later.change != HistoryChange::Invalidation
            && !later.is_unsure
            && later.begun > event.ended
            && later.ended <= until
    };
    event.change != HistoryChange::Invalidation && events.iter().any(supersedes)
}

/// Converts an event from before the crash at `now` to one whose order among the other events is unknown.
fn merged(event: HistoryEvent, now: u64) -> HistoryEvent {
    if event.change == HistoryChange::Invalidation {
        return event;
    }
    HistoryEvent { begun: 0, ended: event.ended.min(now), ..event }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seen(head: u64) -> SeenEntry {
        SeenEntry { head, body_bytes: 10 }
    }

    fn stored(versions: &[(u64, u64)]) -> History {
        let mut history = History::default();
        for &(version, begun) in versions {
            history.begin_insert(version, 10, 0, begun);
            history.acknowledge(begun, begun + 1);
        }
        history
    }

    /// Guards against a correct store accused of losing an entry. Here a version is begun before the store is cleared,
    /// and acknowledged after the key is removed.
    #[test]
    fn version_begun_before_an_invalidation_need_not_be_found_after_a_removal_and_a_kill() {
        let mut history = History::default();
        history.begin_insert(1, 10, 0, 10);
        history.invalidate(20, 21);
        history.begin_removal(30);
        history.acknowledge(30, 31);
        history.acknowledge(10, 40);
        history.crash(50, (true, true), 50);
        assert!(!history.must_hit(60, 0));
        assert!(history.allows(seen(1), 60, 0).is_err());
    }

    #[test]
    fn only_what_was_stored_last_may_be_found() {
        let mut history = stored(&[(1, 10), (2, 20)]);
        assert!(history.allows(seen(2), 30, 0).is_ok());
        assert!(history.allows(seen(1), 30, 0).is_err() && history.allows(seen(3), 30, 0).is_err());
        assert!(history.allows(seen(1), 15, 0).is_ok(), "the lookup began before the second was stored");
        assert!(history.allows(SeenEntry { head: 2, body_bytes: 9 }, 30, 0).is_err());
        history.begin_removal(40);
        assert!(history.allows(seen(2), 50, 0).is_ok(), "the removal is still under way");
        history.acknowledge(40, 41);
        assert!(history.allows(seen(2), 50, 0).is_err());
    }

    #[test]
    fn of_two_that_overlap_either_may_be_found() {
        let mut history = History::default();
        history.begin_insert(1, 10, 0, 10);
        history.begin_insert(2, 10, 0, 11);
        history.acknowledge(11, 12);
        history.acknowledge(10, 13);
        assert!(history.allows(seen(1), 20, 0).is_ok() && history.allows(seen(2), 20, 0).is_ok());
    }

    #[test]
    fn a_crash_brings_back_nothing_older_than_what_was_durable() {
        let mut history = stored(&[(1, 10), (2, 20), (3, 30)]);
        history.crash(25, (true, true), 40);
        assert!(history.allows(seen(1), 50, 0).is_err());
        assert!(history.allows(seen(2), 50, 0).is_ok() && history.allows(seen(3), 50, 0).is_ok());
        history.narrow(seen(2));
        assert!(history.allows(seen(3), 60, 0).is_err(), "once the older was found, the newer is gone");
        history.excuse_losses(true, 70);
        assert!(history.allows(seen(1), 80, 0).is_ok());
        history.begin_insert(4, 10, 0, 90);
        history.acknowledge(90, 91);
        assert!(history.allows(seen(1), 95, 0).is_err(), "the excuse does not cover what is stored later");
    }

    #[test]
    fn last_version_must_be_found_unless_its_loss_is_excused() {
        let mut history = stored(&[(1, 10), (2, 20)]);
        assert!(history.must_hit(30, 0) && !history.must_hit(30, 20), "something happened that excuses a loss");
        assert!(!History::default().must_hit(30, 0));
        history.begin_insert(3, 10, 0, 40);
        assert!(!history.must_hit(50, 0), "it is under way");
        history.acknowledge(40, 41);
        assert!(history.must_hit(50, 0));
        let mut with_removal = history.clone();
        with_removal.begin_removal(60);
        assert!(!with_removal.must_hit(61, 0));
        let mut invalidated = history.clone();
        invalidated.invalidate(60, 61);
        assert!(!invalidated.must_hit(62, 0));
        let after = |durable, is_kept| {
            let mut history = history.clone();
            history.crash(durable, (true, is_kept), 70);
            history.must_hit(80, 0)
        };
        assert!(after(45, true) && !after(45, false) && !after(25, true), "the newest was not durable");
        history.doubt(30);
        history.crash(45, (true, true), 70);
        assert!(!history.must_hit(80, 0) && history.allows(seen(2), 80, 0).is_ok(), "the device failed before");
    }

    #[test]
    fn an_invalidation_hides_what_was_begun_before_it() {
        let mut history = History::default();
        history.begin_insert(1, 10, 0, 10);
        history.invalidate(20, 21);
        history.acknowledge(10, 22);
        assert!(history.allows(seen(1), 30, 0).is_err());
        history.begin_insert(2, 10, 0, 30);
        assert!(history.allows(seen(2), 31, 0).is_ok());
    }

    #[test]
    fn a_head_goes_with_a_body_that_was_there_and_with_no_older_one() {
        let mut history = stored(&[(1, 10), (2, 20)]);
        history.begin_head(3, 0, 30);
        history.begin_insert(4, 10, 0, 31);
        let mut bodies = history.bodies(seen(3));
        bodies.sort_unstable();
        assert_eq!(bodies, [2, 4]);
    }

    #[test]
    fn what_is_of_no_use_any_more_may_not_be_found() {
        let mut history = History::default();
        history.begin_insert(1, 10, 500, 10);
        assert!(history.allows(seen(1), 20, 500).is_ok() && history.allows(seen(1), 20, 501).is_err());
    }
}
