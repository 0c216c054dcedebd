//! The second tier: where evicted entries go, and the limits.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

/// The settings of the second tier, which takes entries that the store evicts. By default there is no second tier.
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
    /// The folder for the tier's packs (files with many entries), for example on another disk or a network file system.
    /// Each Larder creates a folder of its own in it. Default: none.
    pub folder: Option<PathBuf>,
    /// The bucket for the tier's packs, if there is no folder. Without a folder or a bucket, evicted entries are lost.
    pub bucket: TierBucket,
    /// A file with the secret key that signs the records in the tier. Default: none; the store then derives a key.
    pub secret: Option<PathBuf>,
    /// Maximum number of bytes in the tier. Above it, the oldest packs are removed. Default: 100 GB.
    pub bytes_max: u64,
    /// Whether all evicted entries go to the tier. Otherwise (the default), only those do that are long or were
    /// requested again.
    pub admits_all: bool,
    /// Minimum length in bytes of an entry that goes to the tier although it was not requested again. Default: 256 KiB.
    pub large_bytes: u64,
    /// Maximum time that a request waits for the tier. After that, the origin is contacted. Default: 1 s.
    pub timeout: Duration,
    /// Maximum time that an entry waits until its pack is full. The longer it is, the fewer packs there are. Waiting
    /// entries cannot be found. Default: one minute.
    pub pack_age: Duration,
    /// Maximum number of bytes written to the tier per day. Default: no limit.
    pub write_bytes_per_day: Option<u64>,
    /// Maximum number of packs stored per day. Default: no limit.
    pub puts_per_day: Option<u64>,
}

/// A bucket of an object store with the S3 interface. The credentials come from the environment, from the same
/// variables that AWS's own tools use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TierBucket {
    /// The name of the bucket. Default: none; no bucket is used.
    pub name: Option<String>,
    /// The URL of the object store. Default: AWS in the region.
    pub endpoint: Option<String>,
    /// The region of the bucket. Default: that of the environment, or `us-east-1`.
    pub region: Option<String>,
    /// Prefix of all names in the bucket, without a slash at either end. Default: empty.
    pub prefix: String,
}

/// The place where the tier's packs are stored.
#[derive(Clone, Copy, Debug)]
pub enum TierPlace<'a> {
    /// In this folder.
    Folder(&'a Path),
    /// In this bucket.
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
    /// Returns where packs are stored. `None` if there is no second tier.
    pub fn place(&self) -> Option<TierPlace<'_>> {
        match (&self.folder, &self.bucket.name) {
            (Some(folder), _) => Some(TierPlace::Folder(folder)),
            (None, Some(_)) => Some(TierPlace::Bucket(&self.bucket)),
            (None, None) => None,
        }
    }

    /// Returns the reason why these settings cannot be used. `None` if they can. `has_store` says whether there is a
    /// store.
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
