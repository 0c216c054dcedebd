//! Groups that are being gathered: the records of a page wait in memory for the others of it.
//!
//! Owns: the records of each group, and the decision when a group is complete. Where they go then is up to the engine.
//! Invariants: all waiting records are counted, and each group is listed by the time of its last record. Cost: the
//! records in memory, for up to [`VIEW_MAX`] and the window. Source: HashCache (NSDI 2009), which buffers each group.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// Maximum time between the first and the last record of a group. It is long enough to store all entries of a page view
/// of up to ten seconds together.
const VIEW_MAX: Duration = Duration::from_secs(12);

/// Groups of records `R`, each identified by `K`.
pub(crate) struct WaitingGroups<K, R> {
    /// Maximum time that a group waits for another record after its last one.
    window: Duration,
    group_bytes_max: u64,
    /// Maximum number of bytes of all groups together.
    bytes_max: u64,
    bytes: u64,
    groups: BTreeMap<K, GatheredGroup<R>>,
    /// The groups, ordered by the time of their last record.
    by_idleness: BTreeSet<(Duration, K)>,
}

/// The waiting records of one group.
pub(crate) struct GatheredGroup<R> {
    pub(crate) first_at: Duration,
    pub(crate) last_at: Duration,
    pub(crate) len_bytes: u64,
    pub(crate) records: Vec<R>,
}

impl<K: Copy + Ord, R> WaitingGroups<K, R> {
    /// Creates an empty set of groups. One group takes at most `group_bytes_max` bytes, all groups together at most
    /// `bytes_max`.
    pub(crate) fn new(window: Duration, group_bytes_max: u64, bytes_max: u64) -> Self {
        Self { window, group_bytes_max, bytes_max, bytes: 0, groups: BTreeMap::new(), by_idleness: BTreeSet::new() }
    }

    pub(crate) fn window(&self) -> Duration {
        self.window
    }

    /// Returns the number of bytes of all waiting records.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the group `id`; `None` if it has no waiting record.
    pub(crate) fn group(&self, id: K) -> Option<&GatheredGroup<R>> {
        self.groups.get(&id)
    }

    /// Returns all waiting records, each with its group.
    pub(crate) fn records(&self) -> impl Iterator<Item = (K, &R)> {
        self.groups.iter().flat_map(|(id, group)| group.records.iter().map(|record| (*id, record)))
    }

    /// Returns whether the group `id` cannot take another record of `len_bytes`, because the group would become too
    /// long or is too old.
    pub(crate) fn is_over(&self, id: K, len_bytes: u64, now: Duration) -> bool {
        let is_over = |group: &GatheredGroup<R>| {
            group.len_bytes + len_bytes > self.group_bytes_max || now >= group.first_at + VIEW_MAX
        };
        self.groups.get(&id).is_some_and(is_over)
    }

    /// Returns whether a group must be removed before another record of `len_bytes` can be added.
    pub(crate) fn is_full(&self, len_bytes: u64) -> bool {
        self.bytes + len_bytes > self.bytes_max
    }

    /// Adds a record to the group `id`.
    pub(crate) fn put(&mut self, id: K, record: R, len_bytes: u64, now: Duration) {
        let empty = || GatheredGroup { first_at: now, last_at: now, len_bytes: 0, records: Vec::new() };
        let group = self.groups.entry(id).or_insert_with(empty);
        self.bytes += len_bytes;
        group.len_bytes += len_bytes;
        group.records.push(record);
        self.note_arrival(id, now);
    }

    /// Restarts the waiting time of the group `id`, because an entry of the group arrived.
    pub(crate) fn note_arrival(&mut self, id: K, now: Duration) {
        let Some(group) = self.groups.get_mut(&id) else { return };
        self.by_idleness.remove(&(group.last_at, id));
        self.by_idleness.insert((now, id));
        group.last_at = now;
    }

    /// Removes the group `id` and returns it.
    pub(crate) fn take(&mut self, id: K) -> Option<GatheredGroup<R>> {
        let group = self.groups.remove(&id)?;
        self.by_idleness.remove(&(group.last_at, id));
        self.bytes -= group.len_bytes;
        Some(group)
    }

    /// Returns the group that has waited longest for another record. Returns `last` only if there is no other group.
    pub(crate) fn most_idle(&self, last: Option<K>) -> Option<K> {
        let mut by_idleness = self.by_idleness.iter().map(|(_, id)| *id);
        by_idleness.find(|id| Some(*id) != last).or(last.filter(|id| self.groups.contains_key(id)))
    }

    /// Returns a group that has waited long enough; `None` if there is none.
    pub(crate) fn complete(&self, now: Duration) -> Option<K> {
        self.by_idleness.first().filter(|(last_at, _)| now >= *last_at + self.window).map(|(_, id)| *id)
    }

    /// Returns the groups for which `is_one` is true.
    pub(crate) fn ids(&self, is_one: impl Fn(&GatheredGroup<R>) -> bool) -> Vec<K> {
        self.groups.iter().filter(|(_, group)| is_one(group)).map(|(id, _)| *id).collect()
    }

    /// Checks that every record is counted. `len_bytes_of` returns the length of a record.
    pub(crate) fn check(&self, len_bytes_of: impl Fn(&R) -> u64) {
        let bytes: u64 = self.records().map(|(_, record)| len_bytes_of(record)).sum();
        assert_eq!(bytes, self.bytes, "bytes of waiting records are counted");
        let is_ordered = |(id, group): (&K, &GatheredGroup<R>)| self.by_idleness.contains(&(group.last_at, *id));
        assert!(self.groups.iter().all(is_ordered) && self.groups.len() == self.by_idleness.len());
    }
}
