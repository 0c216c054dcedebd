//! The purges made on this node, kept for the other nodes of its fleet, and the positions in the logs of those nodes.
//!
//! Owns: the entries in memory, and their limit. `journal` keeps them on disk, the caller sends and reads them.
//!
//! Invariants: the log contains every purge made here after [`PurgeLog::start`], with the number that it has in this
//! node's own checks. It contains no purges read from other nodes. Each node reads the logs of all others, so no purge
//! is sent twice or comes back.
//!
//! Cost: memory per purge, up to a limit, above which the oldest purges are dropped. A node whose position was dropped
//! must validate everything that it stored before. The idea is that of Kafka's consumers and their offsets.

use std::collections::VecDeque;

use super::index::Purge;

/// The position that this node has reached in the log of another node, or in a log that all nodes share. Everything up
/// to the position has been applied here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogPosition {
    /// The other node's name, or the address of the shared log.
    pub peer: Box<str>,
    /// The identity of the log. It differs from a former one if the other node has lost its store. For a shared log, it
    /// is the digest of the entry at the position.
    pub log: u64,
    /// Number of the last purge in that log that was applied on this node.
    pub number: u64,
    /// For a shared log: the number of the last purge made on this node that it contains. 0 for the log of another
    /// node.
    pub sent: u64,
}

/// A part of a log of purges, as one node sends it to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSlice {
    /// The identity of the log that the part belongs to.
    pub log: u64,
    /// Whether the reader must start over, because its position is not in the log. The purges since that position are
    /// unavailable to it.
    pub is_reset: bool,
    /// The purges, in ascending order of their numbers. Purges with the same number are never separated.
    pub purges: Vec<Purge>,
    /// The position to which the reader has come once it has applied `purges`.
    pub position: u64,
    /// Number of the last purge in the log that is recorded, so that the log can be read up to it.
    pub end: u64,
    /// For a shared log: the number of the last purge up to `position` that the reading node itself made. Otherwise 0.
    pub sent: u64,
}

/// The log of the purges made on this node, for other nodes of the fleet to read.
#[derive(Default)]
pub(super) struct PurgeLog {
    /// Whether other nodes read the log. If there are none, it stays empty.
    is_kept: bool,
    start: u64,
    entries: VecDeque<Purge>,
    bytes: usize,
    positions: Vec<LogPosition>,
}

impl PurgeLog {
    /// Adds a purge at the end of the log, if the log is kept.
    pub(super) fn append(&mut self, purge: &Purge) {
        assert!(purge.number >= self.end(), "numbers only grow");
        if !self.is_kept {
            self.start = purge.number;
            return;
        }
        self.bytes += weight(purge);
        self.entries.push_back(purge.clone());
        self.trim(COUNT_MAX, BYTES_MAX);
    }

    /// Restores the log from the purges in a record, which may be in any order. It begins after the number `start`.
    pub(super) fn restore(&mut self, start: u64, mut purges: Vec<Purge>) {
        purges.retain(|purge| purge.number > start);
        purges.sort_by_key(|purge| purge.number);
        self.start = start;
        purges.iter().for_each(|purge| self.append(purge));
    }

    /// Starts or stops keeping purges. A log that is started begins after `last_number`, without the earlier purges.
    ///
    /// Returns whether this is a change.
    pub(super) fn set_kept(&mut self, is_kept: bool, last_number: u64) -> bool {
        let is_change = self.is_kept != is_kept;
        if is_change {
            *self =
                Self { is_kept, start: last_number, positions: std::mem::take(&mut self.positions), ..Self::default() };
        }
        is_change
    }

    /// Replaces the position in the log of another node.
    pub(super) fn set_position(&mut self, position: LogPosition) {
        self.positions.retain(|known| known.peer != position.peer);
        self.positions.push(position);
    }

    /// Forgets the positions in the logs of nodes that are not among `peers`.
    pub(super) fn retain_positions(&mut self, peers: &[Box<str>]) {
        self.positions.retain(|position| peers.contains(&position.peer));
    }

    pub(super) fn positions(&self) -> &[LogPosition] {
        &self.positions
    }

    /// Returns the number of the last purge made on this node that a shared log contains, or 0.
    pub(super) fn sent(&self) -> u64 {
        self.positions.iter().map(|position| position.sent).max().unwrap_or(0)
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = &Purge> {
        self.entries.iter()
    }

    /// Returns the number after which the log begins: older purges are not in it.
    pub(super) fn start(&self) -> u64 {
        self.start
    }

    /// Returns the number of the last purge in the log. If the log is empty, returns the number after which it begins.
    pub(super) fn end(&self) -> u64 {
        self.entries.back().map_or(self.start, |purge| purge.number)
    }

    /// Returns the number of the last purge in the log that is at most `number`. If there is none, returns the number
    /// after which the log begins.
    pub(super) fn end_within(&self, number: u64) -> u64 {
        let count = self.entries.partition_point(|purge| purge.number <= number);
        count.checked_sub(1).map_or(self.start, |last| self.entries[last].number)
    }

    /// Returns the purges after `position` whose number is at most `recorded`. `log` is the identity of this log.
    pub(super) fn slice(&self, log: u64, position: u64, recorded: u64) -> LogSlice {
        let end = self.end_within(recorded);
        if position < self.start || position > end {
            return LogSlice { log, is_reset: true, purges: Vec::new(), position: end, end, sent: 0 };
        }
        let mut purges = Vec::<Purge>::new();
        let mut bytes = 0;
        let first = self.entries.partition_point(|purge| purge.number <= position);
        for purge in self.entries.range(first..).take_while(|purge| purge.number <= end) {
            let is_next = purges.last().is_none_or(|last| last.number < purge.number);
            if is_next && bytes > SLICE_BYTES {
                break;
            }
            bytes += weight(purge);
            purges.push(purge.clone());
        }
        let position = purges.last().map_or(end, |last| last.number);
        LogSlice { log, is_reset: false, purges, position, end, sent: 0 }
    }

    /// Drops the oldest purges until the log is within the limits. Drops purges with the same number together.
    fn trim(&mut self, count_max: usize, bytes_max: usize) {
        while self.entries.len() > count_max || self.bytes > bytes_max || self.is_cut() {
            let Some(purge) = self.entries.pop_front() else { return };
            self.bytes -= weight(&purge);
            self.start = purge.number;
        }
    }

    /// Returns whether purges with the same number as the first one in the log were dropped.
    fn is_cut(&self) -> bool {
        self.entries.front().is_some_and(|purge| purge.number <= self.start)
    }
}

fn weight(purge: &Purge) -> usize {
    purge.scope.name().len() + ENTRY_BYTES
}

/// Maximum number of purges in the log.
pub(super) const COUNT_MAX: usize = 65_536;
const BYTES_MAX: usize = 16 << 20;
/// Bytes that one purge takes in memory, or as text, in addition to its name.
const ENTRY_BYTES: usize = 64;
/// Size in bytes after which a part of the log ends. Purges with the same number may exceed it.
const SLICE_BYTES: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::purges::{PurgeMode, PurgeScope};

    fn purge(number: u64) -> Purge {
        let scope = PurgeScope::Tag(format!("t{number}").into());
        Purge { number, mode: PurgeMode::Hard, at_ms: 0, scope }
    }

    fn log(numbers: &[u64]) -> PurgeLog {
        let mut log = PurgeLog::default();
        log.set_kept(true, 0);
        numbers.iter().for_each(|number| log.append(&purge(*number)));
        log
    }

    fn numbers(slice: &LogSlice) -> Vec<u64> {
        slice.purges.iter().map(|purge| purge.number).collect()
    }

    #[test]
    fn reader_gets_all_that_is_after_its_position_and_recorded() {
        let log = log(&[2, 2, 5, 9]);
        for (position, recorded, expected, end) in [
            (0, 9, &[2, 2, 5, 9][..], 9),
            (2, 9, &[5, 9], 9),
            (4, 9, &[5, 9], 9),
            (9, 9, &[], 9),
            (0, 8, &[2, 2, 5], 5),
            (0, 1, &[], 0),
        ] {
            let slice = log.slice(7, position, recorded);
            assert_eq!((numbers(&slice), slice.end, slice.is_reset), (expected.to_vec(), end, false));
            assert_eq!(slice.position, end, "{position}");
        }
        // A position from before the log was restarted.
        assert!(log.slice(7, 10, 9).is_reset && log.slice(7, 6, 5).is_reset);
    }

    /// Guards against separating the purges of one command: a reader that stopped between them would treat the others
    /// as applied.
    #[test]
    fn purges_with_one_number_are_sent_and_dropped_together() {
        let mut log = PurgeLog::default();
        log.set_kept(true, 0);
        for number in 1..=3 {
            (0..5_000).for_each(|_| log.append(&purge(number)));
        }
        let first = log.slice(7, 0, 3);
        assert_eq!((first.purges.len(), first.position, first.end), (5_000, 1, 3));
        assert_eq!(log.slice(7, 1, 3).position, 2);
        log.trim(11_000, BYTES_MAX);
        assert_eq!((log.start(), log.entries().count()), (1, 10_000));
        assert!(log.slice(7, 0, 3).is_reset && !log.slice(7, 1, 3).is_reset);
        log.trim(100, BYTES_MAX);
        assert_eq!((log.start(), log.end(), log.entries().count(), log.bytes), (3, 3, 0, 0));
    }

    #[test]
    fn log_that_nobody_reads_stays_empty_and_begins_where_it_was_turned_on() {
        let mut log = PurgeLog::default();
        (1..100).for_each(|number| log.append(&purge(number)));
        assert_eq!((log.entries().count(), log.end()), (0, 99));
        assert!(log.set_kept(true, 120) && !log.set_kept(true, 130));
        log.append(&purge(121));
        assert!(log.slice(7, 119, 121).is_reset && !log.slice(7, 120, 121).is_reset);
    }
}
