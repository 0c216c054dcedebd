//! A cache in a temporary directory.

use bytes::Bytes;
use larder_cache::{Cache, CacheBuilder};
use larder_store::{Clock, StoreOptions};
use std::{io, path::Path, time::Duration};
use tempfile::TempDir;

/// A cache in a directory of its own.
pub(crate) struct TestCache {
    pub(crate) cache: Cache,
    directory: TempDir,
}

impl TestCache {
    pub(crate) fn new() -> Self {
        Self::with(|builder| builder)
    }

    pub(crate) fn with(configure: impl FnOnce(CacheBuilder) -> CacheBuilder) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let cache = configure(builder(directory.path())).open().unwrap();
        larder_device::block_on(cache.ready());
        Self { cache, directory }
    }

    /// Creates a cache whose clock advances only when the test moves it.
    pub(crate) fn with_clock() -> (Self, Clock) {
        let clock = Clock::manual(Duration::from_secs(1_700_000_000));
        let own = clock.clone();
        (Self::with(|builder| builder.configure_store(move |options| options.clock = own)), clock)
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Closes the cache and opens it again.
    pub(crate) async fn reopen(self) -> Self {
        self.reopen_after(|| ()).await
    }

    /// Closes the cache, changes its files, and opens it again.
    pub(crate) async fn reopen_after(self, change: impl FnOnce()) -> Self {
        self.cache.close().await.unwrap();
        drop(self.cache);
        change();
        let cache = builder(self.directory.path()).open().unwrap();
        Self { cache, directory: self.directory }
    }
}

/// Returns the builder of a small cache, which waits for the disk of a busy machine longer than a program would.
pub(crate) fn builder(path: &Path) -> CacheBuilder {
    let waits_long = |options: &mut StoreOptions| options.room_wait = Duration::from_secs(60);
    Cache::builder(path).disk("64MB").memory("8MB").configure_store(waits_long)
}

/// Returns `len` bytes that no other seed gives.
pub(crate) fn content(seed: u64, len: usize) -> Bytes {
    let word = |at: usize| (seed ^ (at as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15)).to_le_bytes();
    (0..len.div_ceil(8)).flat_map(word).take(len).collect()
}

pub(crate) async fn fetched(bytes: impl Into<Bytes>) -> io::Result<Bytes> {
    Ok(bytes.into())
}

pub(crate) async fn failed() -> io::Result<Bytes> {
    Err(io::Error::other("the source is away"))
}
