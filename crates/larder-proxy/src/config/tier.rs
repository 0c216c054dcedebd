//! The second tier: where evicted entries go, and the limits.

use std::{path::PathBuf, time::Duration};

/// The second tier behind the store. By default there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TierConfig {
    /// The place of its packs. Default none: evicted entries are gone.
    pub place: Option<TierPlace>,
    /// Most bytes in the tier. Beyond it, the oldest packs are removed. Default 100 GB.
    pub bytes_max: u64,
    /// Whether all evicted entries go out. Otherwise only those that were requested again, and long ones. Default no.
    pub admits_all: bool,
    /// Length from which an entry goes out although it was not requested again, in bytes. Default 256 KiB.
    pub large_bytes: u64,
    /// Longest time that a request waits for the tier. After that the origin is contacted. Default 1 s.
    pub timeout: Duration,
    /// Longest time that an entry waits until its pack is full. A longer time makes fewer packs. Entries that wait are
    /// not found. Default one minute.
    pub pack_age: Duration,
    /// Most bytes written per day. Default none: no limit.
    pub write_bytes_per_day: Option<u64>,
    /// Most packs stored per day. Default none: no limit.
    pub puts_per_day: Option<u64>,
}

/// A place for packs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TierPlace {
    /// A folder, such as one of another disk or of a network file system. Each Larder makes a folder of its own in it.
    Folder(PathBuf),
}

impl Default for TierConfig {
    fn default() -> Self {
        Self {
            place: None,
            bytes_max: 100_000_000_000,
            admits_all: false,
            large_bytes: 256 << 10,
            timeout: Duration::from_secs(1),
            pack_age: Duration::from_mins(1),
            write_bytes_per_day: None,
            puts_per_day: None,
        }
    }
}

impl TierConfig {
    /// Returns why these settings make no sense, if that is so.
    pub fn fault(&self, has_store: bool) -> Option<&'static str> {
        match self.place {
            None if *self != Self::default() => Some("the second tier has no place for its packs"),
            Some(_) if !has_store => Some("a second tier needs a store"),
            _ => None,
        }
    }
}
