//! Opens a cache: its directory, its sizes, and its defaults.

use crate::{
    ByteSize, Cache, CacheEvent, Error, Result,
    cache::{CacheParts, ValueOptions, WriteLocks},
    counters::{Counters, EventSink},
    fetches::Fetches,
    ground::Ground,
    memory::MemoryCache,
    purges::{PurgeLimits, Purges},
    tags::TagKey,
};
use larder_device::Device;
use larder_store::{ErrorKind, Store, StoreOptions};
use std::{
    fmt, fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// Sets the options of a [`Cache`], and opens it. Only the size on disk must be set.
///
/// ```
/// use larder_cache::Cache;
/// use std::time::Duration;
/// # let directory = tempfile::tempdir().unwrap();
///
/// let cache = Cache::builder(directory.path())
///     .disk("64MB")
///     .memory("8MB")
///     .fresh_for(Duration::from_secs(600))
///     .open()?;
/// assert_eq!(cache.value_bytes_max(), 32_000_000);
/// assert!(Cache::builder(directory.path()).disk("64 parsecs").open().is_err());
/// # larder_cache::Result::Ok(())
/// ```
#[must_use = "a builder does nothing until `open` is called"]
pub struct CacheBuilder {
    directory: PathBuf,
    disk: std::result::Result<Option<ByteSize>, String>,
    memory: std::result::Result<ByteSize, String>,
    defaults: ValueOptions,
    sink: Option<EventSink>,
    configure: Option<StoreChange>,
    device: Option<Arc<dyn Device>>,
}

/// A function that changes the store's options before the store is opened.
type StoreChange = Box<dyn FnOnce(&mut StoreOptions)>;

/// Default memory of a cache in bytes.
const MEMORY_DEFAULT_BYTES: u64 = 64 << 20;
/// Minimum size on disk in bytes. The segments of a smaller store would have no room for a value.
const DISK_MIN_BYTES: u64 = 4 << 20;
/// Ratio of the size on disk to the length of the longest value. While a longer value is stored, its end could evict
/// its beginning.
const VALUE_SHARE: u64 = 2;
/// Minimum memory of a cache in bytes. With less, there is no room for values that wait to be written to disk.
const MEMORY_MIN_BYTES: u64 = 4 << 20;
/// Memory in bytes of tables with a fixed size: locks, versions, and the keys that were recently evicted from memory.
const FIXED_BYTES: u64 = 512 << 10;
/// Ratio of the cache's memory to the limit for the store's index.
const INDEX_SHARE: u64 = 2;
/// Ratio of the cache's memory to the limit for bytes that wait to be written to disk.
const DIRTY_SHARE: u64 = 4;

/// The number of bytes of a cache's memory that each of its parts may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MemoryParts {
    index_bytes: u64,
    dirty_bytes: u64,
    values_bytes: u64,
}

impl MemoryParts {
    /// Divides `memory_bytes` among the parts. The sum of the parts and `FIXED_BYTES` is `memory_bytes`.
    fn new(memory_bytes: u64, disk_bytes: u64) -> Self {
        let index_bytes = larder_store::index_bytes_max_default(disk_bytes).min(memory_bytes / INDEX_SHARE);
        let dirty_bytes = (memory_bytes / DIRTY_SHARE).min(32 << 20);
        Self { index_bytes, dirty_bytes, values_bytes: memory_bytes - index_bytes - dirty_bytes - FIXED_BYTES }
    }
}

impl CacheBuilder {
    pub(crate) fn new(directory: &Path) -> Self {
        Self {
            directory: directory.to_owned(),
            disk: Ok(None),
            memory: Ok(ByteSize(MEMORY_DEFAULT_BYTES)),
            defaults: ValueOptions::default(),
            sink: None,
            configure: None,
            device: None,
        }
    }

    /// Sets the size on disk: a number of bytes, or text such as `"10GB"`. At least 4 MiB. A single value may take up
    /// to half of the size.
    ///
    /// The file has its full length at once, but it takes space only as values are stored (it is sparse). If the disk
    /// is full by then, the cache stores no more: [`Cache::insert`] fails, and [`Cache::get_or_fetch`] returns what it
    /// fetches. An existing cache must be opened with the size with which it was created. To change the size, delete
    /// the directory.
    pub fn disk(mut self, size: impl TryInto<ByteSize, Error: fmt::Display>) -> Self {
        self.disk = size.try_into().map(Some).map_err(|error| format!("disk: {error}"));
        self
    }

    /// Sets the memory for everything that the cache keeps: values, the index of the disk (about 8 bytes for each
    /// stored value, at most half of the memory), and values that wait to be written to disk. At least 4 MiB; default
    /// 64 MiB. When the index is full, the values with the fewest hits are evicted.
    ///
    /// To choose the memory, take 16 bytes for each value on disk, and add the size of the values that should be found
    /// in memory. Some memory is not included: values that the program holds, 1 MiB for each [`crate::ValueWriter`] and
    /// [`crate::ValueReader`] in use, and 160 bytes for each removed tag. Usually up to 65,536 removed tags are
    /// remembered, and never more than 262,144.
    pub fn memory(mut self, size: impl TryInto<ByteSize, Error: fmt::Display>) -> Self {
        self.memory = size.try_into().map_err(|error| format!("memory: {error}"));
        self
    }

    /// Sets for how long values are fresh, unless their request sets another time. Default: forever.
    pub fn fresh_for(mut self, time: Duration) -> Self {
        self.defaults.fresh_for = Some(time);
        self
    }

    /// Sets for how long values may be used after they are no longer fresh, see [`crate::EntryRequest::stale_for`].
    /// Default: not at all.
    pub fn stale_for(mut self, time: Duration) -> Self {
        self.defaults.stale_for = time;
        self
    }

    /// Sets a function that is called for each event, for metrics and logs. Lookups and writes wait for it, so it
    /// should return quickly, and must not call the cache.
    pub fn on_event(mut self, sink: impl Fn(CacheEvent<'_>) + Send + Sync + 'static) -> Self {
        self.sink = Some(Box::new(sink));
        self
    }

    /// Changes options of the underlying store just before it is opened: its eviction policy, its I/O, its clock. Leave
    /// the path and the size as they are.
    ///
    /// By default, a lookup that finds nothing waits until the part of the index that may have its key is loaded. A
    /// server that fetches missing values can set `waits_for_index` to false: until that part is loaded, lookups of
    /// values from earlier runs then find nothing.
    ///
    /// ```
    /// use larder_cache::{Cache, larder_store::Policy};
    /// # let directory = tempfile::tempdir().unwrap();
    /// let tiny = Policy::named("tiny").expect("one of `Policy::all`");
    /// let cache = Cache::builder(directory.path())
    ///     .disk("64MB")
    ///     .configure_store(|options| {
    ///         options.policy = tiny;
    ///         options.mean_entry_bytes = 200;
    ///     })
    ///     .open()?;
    /// # larder_cache::Result::Ok(())
    /// ```
    pub fn configure_store(mut self, configure: impl FnOnce(&mut StoreOptions) + 'static) -> Self {
        self.configure = Some(Box::new(configure));
        self
    }

    /// Stores values on a device instead of in a file. For larder-torture, which makes devices fail.
    #[doc(hidden)]
    pub fn device(mut self, device: Arc<dyn Device>) -> Self {
        self.device = Some(device);
        self
    }

    /// Opens the cache, or creates it. Blocks for a few disk reads. The index of earlier runs is loaded in the
    /// background. A lookup that finds nothing waits until the part that may have its key is loaded.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a wrong size. [`Error::Store`] if the directory cannot be used, if its files are not a
    /// cache's or have another size or format, or with [`ErrorKind::InUse`] if the cache is open already, in
    /// another process or in this one. No file is changed in these cases.
    pub fn open(self) -> Result<Cache> {
        let help = crate::SizeError::HELP;
        let disk = self.disk.map_err(|problem| Error::Invalid(format!("{problem}: {help}")))?;
        let disk = disk.ok_or_else(|| Error::Invalid("disk: a cache needs a size on disk, such as 10GB".to_owned()))?;
        if disk.0 < DISK_MIN_BYTES {
            let problem = format!("disk: {} bytes are too few: at least {DISK_MIN_BYTES} (4MiB)", disk.0);
            return Err(Error::Invalid(problem));
        }
        let memory = self.memory.map_err(|problem| Error::Invalid(format!("{problem}: {help}")))?;
        if memory.0 < MEMORY_MIN_BYTES {
            let problem = format!("memory: {} bytes are too few: at least {MEMORY_MIN_BYTES} (4MiB)", memory.0);
            return Err(Error::Invalid(problem));
        }
        let parts = MemoryParts::new(memory.0, disk.0);
        fs::create_dir_all(&self.directory).map_err(|error| unusable(&self.directory, error))?;
        let mut options = StoreOptions::new(self.directory.join("store.larder"), disk.0);
        options.is_sparse = true;
        options.index_bytes_max = parts.index_bytes;
        options.dirty_bytes_max = parts.dirty_bytes;
        options.waits_for_index = true;
        if let Some(configure) = self.configure {
            configure(&mut options);
        }
        let clock = options.clock.clone();
        let store = match self.device {
            Some(device) => Store::open_on(device, &options)?,
            None => Store::open(options)?,
        };
        // Its name is from a time when it had removed tags only.
        let record = self.directory.join("removed-tags");
        let purges = Purges::open(Some(record), Some(&store), &[], PurgeLimits::VALUES);
        purges.begin_record();
        let tag_key = TagKey::of_store(&store);
        Ok(Cache::from_parts(CacheParts {
            store,
            memory: MemoryCache::new(parts.values_bytes),
            fetches: Arc::new(Fetches::new(parts.dirty_bytes)),
            ground: Ground::default(),
            purges: Arc::new(purges),
            tag_key,
            begun: Arc::default(),
            counters: Counters::new(self.sink),
            clock,
            defaults: self.defaults,
            value_bytes_max: disk.0 / VALUE_SHARE,
            writes: WriteLocks::default(),
            works: Arc::default(),
            #[cfg(feature = "http")]
            responses: std::sync::OnceLock::new(),
        }))
    }
}

fn unusable(path: &Path, error: std::io::Error) -> Error {
    let place = format!("{} cannot be used for a cache", path.display());
    Error::Store(larder_store::Error::io(ErrorKind::Unavailable, place, error))
}

impl fmt::Debug for CacheBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CacheBuilder")
            .field("directory", &self.directory)
            .field("disk", &self.disk)
            .field("memory", &self.memory)
            .field("defaults", &self.defaults)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_within_the_memory() {
        for memory_bytes in [MEMORY_MIN_BYTES, 64 << 20, 1 << 30] {
            for disk_bytes in [32 << 20, 10 << 30, 1 << 40] {
                let MemoryParts { index_bytes, dirty_bytes, values_bytes } = MemoryParts::new(memory_bytes, disk_bytes);
                assert_eq!(index_bytes + dirty_bytes + values_bytes + FIXED_BYTES, memory_bytes);
            }
        }
    }
}
