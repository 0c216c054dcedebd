//! The second tier: where evicted entries go, and the limits.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

/// The settings of the second tier behind the store. By default there is none.
///
/// ```
/// use larder_cache::http::tier::TierConfig;
///
/// let config = TierConfig { folder: Some("/mnt/large".into()), bytes_max: 1 << 40, ..TierConfig::default() };
/// assert_eq!(config.fault(true), None);
/// assert!(config.fault(false).is_some(), "a second tier needs a store");
/// assert!(TierConfig::default().place().is_none());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TierConfig {
    /// The folder for the tier's packs, such as one on another disk or a network file system. Each Larder makes a
    /// folder of its own in it. Default none.
    pub folder: Option<PathBuf>,
    /// The bucket for the tier's packs, if there is no folder. Without both, evicted entries are lost.
    pub bucket: TierBucket,
    /// A file with the secret that signs the records in the tier. Default none: a secret of the store signs them.
    pub secret: Option<PathBuf>,
    /// Most bytes in the tier. If there are more, the oldest packs are removed. Default 100 GB.
    pub bytes_max: u64,
    /// Whether all evicted entries go to the tier. If not (the default), only long ones do, and those that were
    /// requested again.
    pub admits_all: bool,
    /// Shortest entry, in bytes, that goes to the tier although it was not requested again. Default 256 KiB.
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

/// A bucket of an object store that speaks S3. The credentials come from the environment, in the variables that AWS's
/// own tools use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TierBucket {
    /// The bucket's name. Default none: no bucket is used.
    pub name: Option<String>,
    /// The URL of the object store. Default: that of AWS in the region.
    pub endpoint: Option<String>,
    /// The region. Default: that of the environment, or `us-east-1`.
    pub region: Option<String>,
    /// Prefix of all names in the bucket, without slashes at its ends. Default empty.
    pub prefix: String,
}

/// The place for packs.
#[derive(Clone, Copy, Debug)]
pub enum TierPlace<'a> {
    /// A folder.
    Folder(&'a Path),
    /// A bucket.
    Bucket(&'a TierBucket),
}

impl Default for TierConfig {
    fn default() -> Self {
        Self {
            folder: None,
            bucket: TierBucket::default(),
            secret: None,
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
    /// Returns the place for packs, if there is one.
    pub fn place(&self) -> Option<TierPlace<'_>> {
        match (&self.folder, &self.bucket.name) {
            (Some(folder), _) => Some(TierPlace::Folder(folder)),
            (None, Some(_)) => Some(TierPlace::Bucket(&self.bucket)),
            (None, None) => None,
        }
    }

    /// Returns why these settings cannot be used. `None` if they can.
    pub fn fault(&self, has_store: bool) -> Option<&'static str> {
        match self.place() {
            None if *self != Self::default() => Some("the second tier has no place for its packs"),
            Some(TierPlace::Folder(_)) if self.bucket != TierBucket::default() => {
                Some("the second tier has a folder, and settings of a bucket")
            }
            Some(TierPlace::Bucket(_)) if cfg!(not(feature = "tier-s3")) => {
                Some("this larder has no buckets: it was built without the feature tier-s3")
            }
            Some(_) if !has_store => Some("a second tier needs a store"),
            _ => None,
        }
    }
}
