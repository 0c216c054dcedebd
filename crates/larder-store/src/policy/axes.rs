//! The words that describe policies: what the index keeps in memory, where bytes are stored, when they are written and
//! read, which entries are evicted.
//!
//! These are columns of the policy table, for documents, costs and tests. [`super::EngineRow`] decides what runs, and
//! names the words for each policy.

/// The memory that an index takes per entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum IndexAxis {
    /// Two-choice buckets of 16 packed slots. Each slot has a tag, a position, a length class and hit bits.
    Buckets,
    /// A hash table of all entries with their places and order of use: 272 bits per entry.
    Map,
    /// No index: entries are found by reading the volume.
    Nothing,
    /// A tag and a rank for each way of each set of the disk table.
    SetTags,
    /// Like [`Self::SetTags`], but only for the recently used sets.
    RecentSetTags,
    /// Eight bytes for each entry in the front. A Bloom filter of 3 bits and 1 hit bit for each entry in a set.
    FrontAndFilters,
    /// An entry table (20 bytes per entry) and a cluster table (24 bytes per cluster).
    Objects,
    /// For each way of each set of the index: a tag, a rank, a generation and the entry's position in the log.
    SetPlaces,
    /// Like [`Self::SetPlaces`], but with the positions of recently used entries only. The other positions are in a
    /// file.
    RecentSetPlaces,
}

/// The place of an entry's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LayoutAxis {
    /// Segments, each written once from start to end, reused in a circle.
    Segments,
    /// One file per entry, all in one directory.
    OneDirectory,
    /// One file per entry, in 16 x 256 directories.
    RoundRobinDirectories,
    /// One file per entry, one directory per site.
    SiteDirectories,
    /// One file of slots per length class. An entry takes the first free slot; a long entry gets a file of its own.
    SizeClasses,
    /// One file of 512-byte slots. An entry takes the next free slots behind a pointer that circles through the file.
    Slots,
    /// One file of 4 KiB blocks. A bitmap of several levels finds long free runs, which are written in order.
    MultilevelBitmap,
    /// A table of bins. A key belongs to one bin; bytes that do not fit in the bin go to a ring.
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

/// When bytes are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WriteAxis {
    /// Gathered into units of up to 1 MiB.
    Units,
    /// Like [`Self::Units`], with the entries of a group next to each other.
    UnitsByGroup,
    /// Each entry separately; its commit waits for the device.
    Through,
    /// Each entry separately, with many writes in flight; commits do not wait.
    Asynchronous,
    /// Contiguous entries are collected in a page before it is written.
    Pages,
    /// Like [`Self::Pages`], behind buffers that each collect the entries of one site.
    SitePages,
    /// In packs to the front; later from the front to the sets, several entries at once.
    PacksThenSets,
    /// Collected into whole clusters, by site.
    Clusters,
}

/// The way in which bytes are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReadAxis {
    /// Each entry separately, without delay.
    Direct,
    /// Each entry separately, without delay, with many reads in flight.
    Asynchronous,
    /// In batches that are sorted by position and read when they are full or after a timeout.
    SortedBatches,
    /// The whole group with one read, when its first entry is requested.
    Groups,
    /// The whole set, without delay.
    WholeSet,
    /// The whole cluster. Its other entries go to the memory cache.
    Clusters,
}

/// The choice of entries to drop when there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EvictionAxis {
    /// Evicts the oldest segment. Rewrites its entries that were hit, up to `Tuning::reinsertion_share`.
    Reinsertion,
    /// Evicts the least recently used entries until there is room for the new entry.
    Lru,
    /// Evicts the least recently used entries ahead of need. The pace depends on how full the store is and on the
    /// lengths of the free runs.
    PacedLru,
    /// Overwrites the entry at the new entry's place.
    Overwrite,
    /// Evicts the entry of the set that was written first.
    FirstInSet,
    /// Evicts the least recently used entry of the set.
    LeastRecentInSet,
    /// Evicts the entries of a set that are expected to be used last. Moves entries from the front into a set if they
    /// rank high enough.
    RankInSet,
    /// Evicts the least recently used cluster with all its entries.
    ClusterLru,
    /// Overwrites the oldest segment without reading it. If the index's set is full earlier, evicts its least recently
    /// used entry.
    OverwriteOrLeastRecent,
}
