//! Counters of events in a cache, and events for the caller's own metrics and logs.

use crate::Error;
use larder_store::Stats;
use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

/// Something that happened to a key, as [`CacheBuilder::on_event`](crate::CacheBuilder::on_event) reports it.
///
/// ```
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
/// # let directory = tempfile::tempdir()?;
/// use larder_cache::{Cache, CacheEvent};
/// use std::sync::{Arc, Mutex};
///
/// let missed = Arc::new(Mutex::new(Vec::new()));
/// let keys = Arc::clone(&missed);
/// let cache = Cache::builder(directory.path()).disk("32MB").on_event(move |event| {
///     if let CacheEvent::Miss { key } = event {
///         keys.lock().unwrap().push(key.to_vec());
///     }
/// });
/// let cache = cache.open()?;
/// # runtime.block_on(async {
/// assert!(cache.get("a key").await?.is_none());
/// # larder_cache::Result::Ok(())
/// # })?;
/// assert_eq!(*missed.lock().unwrap(), [b"a key"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum CacheEvent<'a> {
    /// A lookup found its value in memory.
    MemoryHit {
        /// The key of the value.
        key: &'a [u8],
    },
    /// A lookup found its value on disk.
    DiskHit {
        /// The key of the value.
        key: &'a [u8],
    },
    /// A lookup found no value, or none that may be used.
    Miss {
        /// The requested key.
        key: &'a [u8],
    },
    /// A caller got a stale value, because a new one was being fetched or its fetch had failed.
    StaleHit {
        /// The key of the value.
        key: &'a [u8],
    },
    /// A fetch has brought a value.
    Fetched {
        /// The key of the value.
        key: &'a [u8],
        /// Length of the value in bytes.
        len_bytes: u64,
    },
    /// A fetch has failed.
    FetchFailed {
        /// The key that was fetched.
        key: &'a [u8],
    },
    /// A value was stored.
    Stored {
        /// The key of the value.
        key: &'a [u8],
        /// Length of the value in bytes.
        len_bytes: u64,
    },
    /// A fetched value was not stored: the policy expects too few hits of it, or its key or one of its tags was removed
    /// or replaced during the fetch.
    NotAdmitted {
        /// The key of the value.
        key: &'a [u8],
    },
    /// The store failed, so a lookup found no value or a value was not stored.
    StoreFailed {
        /// The key of the value.
        key: &'a [u8],
        /// The error of the store.
        error: &'a Error,
    },
}

/// Counters and gauges of a cache since it was opened.
///
/// The hit ratio is `(memory_hits + disk_hits) / (memory_hits + disk_hits + misses)`. A caller that waits for another
/// caller's fetch counts as a miss. [`CacheStats::store`] counts entries of the underlying store. A value longer than 1
/// MiB has one entry for each MiB and one more. Values that were removed by tag count until their place is needed.
///
/// ```
/// use larder_cache::{Cache, CacheEvent};
/// use std::sync::{Arc, Mutex};
/// # futures_executor::block_on(async {
/// # let directory = tempfile::tempdir().unwrap();
///
/// let missed = Arc::new(Mutex::new(Vec::new()));
/// let log = Arc::clone(&missed);
/// let cache = Cache::builder(directory.path()).disk("32MB").on_event(move |event| {
///     if let CacheEvent::Miss { key } = event {
///         log.lock().unwrap().push(key.to_vec());
///     }
/// });
/// let cache = cache.open()?;
/// cache.get("unknown").await?;
/// assert_eq!(cache.stats().misses, 1);
/// assert_eq!(*missed.lock().unwrap(), [b"unknown"]);
/// # larder_cache::Result::Ok(())
/// # }).unwrap();
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct CacheStats {
    /// Number of lookups that found their value in memory.
    pub memory_hits: u64,
    /// Number of lookups that found their value on disk.
    pub disk_hits: u64,
    /// Number of lookups that found no value, or none that may be used.
    pub misses: u64,
    /// Number of callers that got a stale value, because a new one was being fetched or its fetch had failed.
    pub stale_hits: u64,
    /// Number of fetches that brought a value.
    pub fetches: u64,
    /// Number of fetches that failed.
    pub fetch_failures: u64,
    /// Number of callers that waited for another caller's fetch.
    pub shared_fetches: u64,
    /// Number of values that were stored.
    pub stored: u64,
    /// Number of fetched values that were not stored, see [`CacheEvent::NotAdmitted`].
    pub not_admitted: u64,
    /// Number of failures of the store.
    pub store_failures: u64,
    /// Number of values in memory at present.
    pub memory_values: u64,
    /// Number of bytes that the values in memory take at present.
    pub memory_bytes: u64,
    /// Counters and gauges of the underlying store.
    pub store: Stats,
}

/// The function that [`CacheBuilder::on_event`](crate::CacheBuilder::on_event) sets.
pub(crate) type EventSink = Box<dyn Fn(CacheEvent<'_>) + Send + Sync>;

/// Counts events, and passes them on to the function of the builder.
#[derive(Default)]
pub(crate) struct Counters {
    memory_hits: AtomicU64,
    disk_hits: AtomicU64,
    misses: AtomicU64,
    stale_hits: AtomicU64,
    fetches: AtomicU64,
    fetch_failures: AtomicU64,
    pub(crate) shared_fetches: AtomicU64,
    stored: AtomicU64,
    not_admitted: AtomicU64,
    store_failures: AtomicU64,
    sink: Option<EventSink>,
}

impl Counters {
    pub(crate) fn new(sink: Option<EventSink>) -> Self {
        Self { sink, ..Self::default() }
    }

    pub(crate) fn note(&self, event: CacheEvent<'_>) {
        let counter = match event {
            CacheEvent::MemoryHit { .. } => &self.memory_hits,
            CacheEvent::DiskHit { .. } => &self.disk_hits,
            CacheEvent::Miss { .. } => &self.misses,
            CacheEvent::StaleHit { .. } => &self.stale_hits,
            CacheEvent::Fetched { .. } => &self.fetches,
            CacheEvent::FetchFailed { .. } => &self.fetch_failures,
            CacheEvent::Stored { .. } => &self.stored,
            CacheEvent::NotAdmitted { .. } => &self.not_admitted,
            CacheEvent::StoreFailed { .. } => &self.store_failures,
        };
        counter.fetch_add(1, Relaxed);
        if let Some(sink) = &self.sink {
            sink(event);
        }
    }

    /// Returns the counters. The fields about memory and the store are left 0 for the caller to set.
    pub(crate) fn stats(&self) -> CacheStats {
        CacheStats {
            memory_hits: self.memory_hits.load(Relaxed),
            disk_hits: self.disk_hits.load(Relaxed),
            misses: self.misses.load(Relaxed),
            stale_hits: self.stale_hits.load(Relaxed),
            fetches: self.fetches.load(Relaxed),
            fetch_failures: self.fetch_failures.load(Relaxed),
            shared_fetches: self.shared_fetches.load(Relaxed),
            stored: self.stored.load(Relaxed),
            not_admitted: self.not_admitted.load(Relaxed),
            store_failures: self.store_failures.load(Relaxed),
            ..CacheStats::default()
        }
    }
}

impl fmt::Debug for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.stats().fmt(f)
    }
}
