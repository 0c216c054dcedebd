//! The counts of a trial, for its report.

use std::{fmt, ops::AddAssign};

/// Counts of the events in a trial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Number of operations that were done.
    pub operations: u64,
    /// Number of lookups that returned.
    pub lookups: u64,
    /// Number of lookups that found an entry whose bytes were all right.
    pub hits: u64,
    /// Number of entries that the store passed on because they were read together with a requested one.
    pub neighbors: u64,
    /// Number of kills and power losses.
    pub crashes: u64,
    /// Number of operations that failed, which they may if the device fails or room is short.
    pub failures: u64,
    /// Number of times that the store could not be opened again, which is allowed if the device lied or failed.
    pub given_up: u64,
    /// Number of faults that struck an operation of the device.
    pub faults: u64,
    /// Number of lookups that had to find an entry.
    pub required: u64,
    /// Number of lookups that had to find an entry and found none, with policies that may lose a few.
    pub missed: u64,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.operations += other.operations;
        self.lookups += other.lookups;
        self.hits += other.hits;
        self.neighbors += other.neighbors;
        self.crashes += other.crashes;
        self.failures += other.failures;
        self.given_up += other.given_up;
        self.faults += other.faults;
        self.required += other.required;
        self.missed += other.missed;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { operations, lookups, hits, neighbors, crashes, failures, given_up, faults, required, missed } = self;
        write!(
            f,
            "{operations} operations, {lookups} lookups, {hits} hits, {neighbors} neighbors, \
             {required} required hits, {missed} of them missed, {crashes} crashes, {faults} faults, \
             {failures} refused, {given_up} stores given up"
        )
    }
}
