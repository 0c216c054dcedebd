//! The place where packs are kept: a folder, or a bucket of an object store.
//!
//! Owns: the choice between the two. Nothing that is read here is trusted.

use std::{collections::HashSet, io, sync::Arc};

use bytes::Bytes;

#[cfg(feature = "tier-s3")]
use super::bucket::PackBucket;
use super::{
    config::TierPlace,
    folder::PackFolder,
    index::{PackName, RecordPlace},
};

/// The place where the packs (files with many entries) of one tier are stored. Cheap to clone.
#[derive(Clone)]
pub(super) enum PackStorage {
    Folder(Arc<PackFolder>),
    #[cfg(feature = "tier-s3")]
    Bucket(Arc<PackBucket>),
}

impl PackStorage {
    /// Returns the storage of the tier with the name `tier`. Reads and writes nothing yet.
    ///
    /// # Errors
    /// The settings of a bucket are invalid, or the program was built without the feature `tier-s3`.
    pub(super) fn new(place: TierPlace<'_>, tier: u64) -> io::Result<Self> {
        match place {
            TierPlace::Folder(folder) => Ok(Self::Folder(Arc::new(PackFolder::new(folder, tier)))),
            #[cfg(feature = "tier-s3")]
            TierPlace::Bucket(bucket) => Ok(Self::Bucket(Arc::new(PackBucket::new(bucket, tier)?))),
            #[cfg(not(feature = "tier-s3"))]
            TierPlace::Bucket(bucket) => {
                let name = bucket.name.as_deref().unwrap_or_default();
                let problem = format!("a bucket needs a larder that is built with the feature tier-s3: {name}");
                Err(io::Error::new(io::ErrorKind::Unsupported, problem))
            }
        }
    }

    /// Stores a pack under its name.
    pub(super) async fn put(&self, name: PackName, bytes: Bytes) -> io::Result<()> {
        match self {
            Self::Folder(folder) => folder.put(name, bytes).await,
            #[cfg(feature = "tier-s3")]
            Self::Bucket(bucket) => bucket.put(name, bytes).await,
        }
    }

    /// Reads the record of an entry from its pack.
    ///
    /// # Errors
    /// `NotFound` if the pack does not exist. Any other kind if the folder or bucket cannot be read.
    pub(super) async fn read(&self, place: RecordPlace) -> io::Result<Bytes> {
        match self {
            Self::Folder(folder) => folder.read(place).await,
            #[cfg(feature = "tier-s3")]
            Self::Bucket(bucket) => bucket.read(place).await,
        }
    }

    /// Removes a pack from the folder or bucket.
    pub(super) async fn remove(&self, name: PackName) -> io::Result<()> {
        match self {
            Self::Folder(folder) => folder.remove(name).await,
            #[cfg(feature = "tier-s3")]
            Self::Bucket(bucket) => bucket.remove(name).await,
        }
    }

    /// Removes packs that the tier does not know, because they were stored just before a kill: those with a number
    /// below `end` that are not among `known`. Other files and objects stay.
    pub(super) async fn remove_others(&self, known: HashSet<PackName>, end: u32) -> io::Result<()> {
        match self {
            Self::Folder(folder) => folder.remove_others(known, end).await,
            #[cfg(feature = "tier-s3")]
            Self::Bucket(bucket) => bucket.remove_others(&known, end).await,
        }
    }
}
