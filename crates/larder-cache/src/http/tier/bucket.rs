//! Packs in a bucket of an object store that speaks S3.
//!
//! Owns: the requests. Nothing that the store returns is trusted, also not its length. Cost: one request to store a
//! pack, and one for an entry, of exactly its bytes.

use std::{collections::HashSet, io, time::Duration};

use bytes::{Bytes, BytesMut};
use futures_util::TryStreamExt as _;
use object_store::{
    ClientOptions, Error, GetOptions, GetRange, ObjectStore as _, ObjectStoreExt as _, RetryConfig,
    aws::{AmazonS3, AmazonS3Builder},
    path::Path,
};

use super::config::TierBucket;
use super::{
    index::{PackName, RecordPlace},
    names,
};

/// The packs (files with many entries) of one tier, in a bucket of an object store.
pub(super) struct PackBucket {
    bucket: AmazonS3,
    /// The beginning of the names of this tier's packs.
    prefix: String,
}

impl PackBucket {
    /// Returns the packs of the tier with the name `tier`, in the bucket that `place` describes. Sends no request yet.
    ///
    /// # Errors
    /// The settings or the credentials are invalid.
    pub(super) fn new(place: &TierBucket, tier: u64) -> io::Result<Self> {
        let options = ClientOptions::new().with_timeout(REQUEST_TIMEOUT).with_connect_timeout(CONNECT_TIMEOUT);
        // The tier itself decides when to try again, because a client may be waiting.
        let retry = RetryConfig { max_retries: 0, ..RetryConfig::default() };
        let name = place.name.as_deref().unwrap_or_default();
        let mut builder = AmazonS3Builder::from_env().with_bucket_name(name).with_retry(retry);
        if let Some(endpoint) = &place.endpoint {
            builder = builder.with_endpoint(endpoint);
        }
        if let Some(region) = &place.region {
            builder = builder.with_region(region);
        }
        let is_plain = place.endpoint.as_ref().is_some_and(|endpoint| endpoint.starts_with("http://"));
        let bucket = builder.with_client_options(options.with_allow_http(is_plain)).build().map_err(failed)?;
        let folder = names::folder_of(tier);
        let prefix = if place.prefix.is_empty() { folder } else { format!("{}/{folder}", place.prefix) };
        Ok(Self { bucket, prefix })
    }

    /// Stores a pack under its name.
    pub(super) async fn put(&self, name: PackName, bytes: Bytes) -> io::Result<()> {
        self.bucket.put(&self.path(name), bytes.into()).await.map(drop).map_err(failed)
    }

    /// Reads the record of an entry from its pack.
    ///
    /// # Errors
    /// `NotFound` if the pack does not exist.
    pub(super) async fn read(&self, place: RecordPlace) -> io::Result<Bytes> {
        let start = u64::from(place.offset);
        let len = place.len as usize;
        let range = Some(GetRange::Bounded(start..start + u64::from(place.len)));
        let options = GetOptions { range, ..GetOptions::default() };
        let response = self.bucket.get_opts(&self.path(place.pack), options).await.map_err(failed)?;
        let mut body = response.into_stream();
        let mut bytes = BytesMut::with_capacity(len);
        while let Some(piece) = body.try_next().await.map_err(failed)? {
            // A response may be longer than what it announced.
            if bytes.len() + piece.len() > len {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "the response is longer than the range"));
            }
            bytes.extend_from_slice(&piece);
        }
        Ok(bytes.freeze())
    }

    /// Removes a pack from the bucket.
    pub(super) async fn remove(&self, name: PackName) -> io::Result<()> {
        self.bucket.delete(&self.path(name)).await.map_err(failed)
    }

    /// Removes packs that the tier does not know: those with a number below `end` that are not among `known`.
    pub(super) async fn remove_others(&self, known: &HashSet<PackName>, end: u32) -> io::Result<()> {
        let mut listed = self.bucket.list(Some(&Path::from(self.prefix.as_str())));
        while let Some(object) = listed.try_next().await.map_err(failed)? {
            let name = object.location.filename().and_then(names::parse);
            if name.is_some_and(|name| name.number < end && !known.contains(&name)) {
                self.bucket.delete(&object.location).await.map_err(failed)?;
            }
        }
        Ok(())
    }

    fn path(&self, name: PackName) -> Path {
        Path::from(format!("{}/{}", self.prefix, names::file_of(name)))
    }
}

/// Converts an error of the object store to one of I/O, with all its causes in the text.
fn failed(error: Error) -> io::Error {
    let kind = match error {
        Error::NotFound { .. } => io::ErrorKind::NotFound,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error.to_string())
}

/// Maximum time for one request, even if nobody waits for it any more.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
