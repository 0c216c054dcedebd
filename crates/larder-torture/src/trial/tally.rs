//! The counts of a trial, for its report.

use std::{fmt, ops::AddAssign};

/// Counts of the events in a trial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Operations done.
    pub operations: u64,
    /// Lookups answered.
    pub lookups: u64,
    /// Entries found, all their bytes correct.
    pub hits: u64,
    /// Entries passed on because they were read along with a requested one.
    pub neighbors: u64,
    /// Kills and power losses.
    pub crashes: u64,
    /// Operations that failed, or that the store refused. Allowed when the device fails.
    pub failures: u64,
    /// Stores that could not be opened again. Allowed when the device lied or died.
    pub given_up: u64,
    /// Faults that struck.
    pub faults: u64,
    /// Lookups that had to find something.
    pub required: u64,
    /// Lookups of these that found nothing, in policies that may lose a few entries.
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
