//! The words that describe policies: what the index keeps in memory, where bytes are stored, when they are written and
//! read, which entries are evicted.
//!
//! These are columns of the policy table, for documents, costs and tests. [`super::EngineRow`] decides what runs, and
//! names the words for each policy.

/// The data that an index keeps in memory for each entry.
///
/// ```
/// use larder_store::{IndexAxis, Policy};
///
/// let without_index = Policy::all().iter().filter(|policy| policy.index == IndexAxis::Nothing);
/// let names: Vec<&str> = without_index.map(|policy| policy.name).collect();
/// assert_eq!(names, ["hashcache-basic", "hashcache-set"]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum IndexAxis {
    /// A hash table with two buckets of 16 slots for each key. A slot has a tag, a position, a length class and hit
    /// bits.
    Buckets,
    /// A hash table of all entries with their places and order of use: 272 bits per entry.
    Map,
    /// No index: entries are found by reading the volume.
    Nothing,
    /// A tag and a rank for each way (place for an entry) of each set of the disk table.
    SetTags,
    /// Like [`Self::SetTags`], but only for recently used sets.
    RecentSetTags,
    /// Eight bytes for each entry in the front (the log before the sets). For each entry in a set, 3 bits of a Bloom
    /// filter and a hit bit.
    FrontAndFilters,
    /// A table with 20 bytes for each entry, and one with 24 bytes for each cluster.
    Objects,
    /// A tag, a rank, a generation and the position in the log, for each way (place for an entry) of each set of the
    /// index.
    SetPlaces,
    /// Like [`Self::SetPlaces`], but only the positions of recently used entries are in memory. A file has the others.
    RecentSetPlaces,
}

/// The place at which an entry's bytes are stored.
///
/// ```
/// use larder_store::{LayoutAxis, Policy};
///
/// let squid = Policy::named("squid").expect("one of the policies");
/// assert_eq!(squid.layout, LayoutAxis::RoundRobinDirectories);
/// // The path of such a store is a directory; that of `log` is a file or a disk.
/// assert!(squid.layout.keeps_files());
/// assert!(!Policy::default_policy().layout.keeps_files());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LayoutAxis {
    /// Entries are in segments, each written once from start to end. The segments are reused in a circle.
    Segments,
    /// One file per entry, all in one directory.
    OneDirectory,
    /// One file per entry, in 16 x 256 directories.
    RoundRobinDirectories,
    /// One file per entry, in one directory per site.
    SiteDirectories,
    /// Entries are in a file of slots for each length class. An entry takes the first free slot; a long entry gets a
    /// file of its own.
    SizeClasses,
    /// Entries are in one file of 512-byte slots. A pointer circles through the file, and an entry takes the next free
    /// slots behind it.
    Slots,
    /// Entries are in one file of 4 KiB blocks. A bitmap of several levels finds long runs of free blocks, which are
    /// written in order.
    MultilevelBitmap,
    /// A table of bins, places of fixed length. A key belongs to one bin; bytes that do not fit in the bin go to a
    /// ring.
    Bins,
    /// A table of sets of bins. A key can be in any bin of its set; bytes that do not fit in the bin go to a ring.
    Sets,
    /// A small log (the front) before a table of sets. Long entries are in a ring of their own.
    FrontAndSets,
    /// Clusters that are written, read and evicted as a whole.
    Clusters,
}

impl LayoutAxis {
    /// Returns whether entries are kept in files of a directory, instead of in one file or on a device.
    pub fn keeps_files(self) -> bool {
        matches!(self, Self::OneDirectory | Self::RoundRobinDirectories | Self::SiteDirectories | Self::SizeClasses)
    }
}

/// When and in which pieces bytes are written.
///
/// ```
/// use larder_store::{Policy, WriteAxis};
///
/// // Policies whose commits wait until the device has the entry.
/// let through = Policy::all().iter().filter(|policy| policy.writes == WriteAxis::Through);
/// let names: Vec<&str> = through.map(|policy| policy.name).collect();
/// assert_eq!(names, ["simple", "squid", "multiple-dirs", "buddy", "stream", "esp"]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WriteAxis {
    /// Bytes are written in units of up to 1 MiB, each with many entries.
    Units,
    /// Like [`Self::Units`], with the entries of a group next to each other.
    UnitsByGroup,
    /// Each entry is written separately. Its commit waits until the device has it.
    Through,
    /// Like [`Self::Through`], but entries of a group that are longer than a bin wait for each other, so that the
    /// remainders that do not fit in their bins are written together.
    ThroughByGroup,
    /// Each entry is written separately, with many writes in flight. Commits do not wait for the device.
    Asynchronous,
    /// Entries are written in pages. Contiguous entries are collected until their page is full.
    Pages,
    /// Like [`Self::Pages`], but each site's entries are first collected in a buffer.
    SitePages,
    /// Entries are written first to the front (the log before the sets), several in one pack. Later, several entries at
    /// once move from the front to their set.
    PacksThenSets,
    /// Entries are written in whole clusters, each with entries of the same sites.
    Clusters,
}

/// The way in which bytes are read for a lookup.
///
/// ```
/// use larder_store::{Policy, ReadAxis};
///
/// for policy in Policy::all() {
///     let reads_others = matches!(policy.reads, ReadAxis::Groups | ReadAxis::Clusters);
///     assert_eq!(policy.brings_neighbors(), reads_others);
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReadAxis {
    /// A lookup reads its entry separately, without delay.
    Direct,
    /// A lookup reads its entry separately, without delay, with many reads in flight.
    Asynchronous,
    /// Lookups read in batches sorted by position. A batch is read when it is full or its first read has waited long
    /// enough.
    SortedBatches,
    /// A lookup reads the whole group of its entry (the entries that were requested together) with one read.
    Groups,
    /// A lookup reads the whole set of its key, without delay.
    WholeSet,
    /// A lookup reads the whole cluster of its entry. The cluster's other entries go to the memory cache.
    Clusters,
}

/// The choice of entries that are dropped when there is no room.
///
/// ```
/// use larder_store::{EvictionAxis, Policy};
///
/// let eviction_of = |name| Policy::named(name).expect("one of the policies").eviction;
/// assert_eq!(eviction_of("log"), EvictionAxis::Reinsertion);
/// assert_eq!(eviction_of("squid"), EvictionAxis::Lru);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EvictionAxis {
    /// Evicts the oldest segment. Rewrites its entries that were hit, up to `Tuning::reinsertion_share`.
    Reinsertion,
    /// Evicts the least recently used entries until there is room for the new entry.
    Lru,
    /// Evicts the least recently used entries before space is needed. The pace depends on how full the store is and on
    /// how long the free runs are.
    PacedLru,
    /// Overwrites whatever entry is at the place of the new one.
    Overwrite,
    /// Evicts the entry of the set that was written first.
    FirstInSet,
    /// Evicts the least recently used entry of the set.
    LeastRecentInSet,
    /// Evicts those entries of a set that are predicted to be used last. An entry moves from the front (the log before
    /// the sets) to its set if its predicted use is early enough.
    RankInSet,
    /// Evicts the least recently used cluster with all its entries.
    ClusterLru,
    /// Overwrites the oldest segment without reading it. A new entry whose index set is full replaces the set's least
    /// recently used entry.
    OverwriteOrLeastRecent,
}
