//! The work in progress on keys, and the changes that outdate its result.
//!
//! Owns: one [`ActiveKey`] for each key that is being fetched or written. Invariants: a change of a key marks the work
//! that began on it before, and no other work. Marked work commits nothing: a commit that would begin is refused, and
//! one that was running when the mark came looks for it after its last write and removes what it wrote. A task that
//! marked work can wait for these commits ([`MarkedCommits`]), and after that the result of older work is not found.
//! Commits of responses wait for their turn (`order`): they run one after another, and what newer work has written is
//! not replaced by the result of older work.
//!
//! Programs that fetch values which may be removed meanwhile can use it for a store of their own. Cost: a short lock of
//! one shard when work begins and when the last work on a key ends, a load to look for a mark, and a short lock of the
//! key for a commit. A key is hashed once. Memory: 128 KiB, and about 200 bytes for each key with work in progress.

#[cfg(feature = "http")]
mod order;

use foldhash::fast::RandomState;
use larder_device::IgnorePoison;
use std::{
    fmt,
    hash::BuildHasher as _,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{
            AtomicU64, AtomicUsize,
            Ordering::{AcqRel, Acquire, Release},
        },
    },
    task::{Context, Poll, Waker},
};

#[cfg(feature = "http")]
pub(crate) use order::CommitOrder;

/// The keys for which values are being requested or stored.
///
/// Programs that fetch values into a store of their own use this to notice changes of a key meanwhile. Users of
/// [`Cache`](crate::Cache) do not need it.
///
/// ```
/// use larder_cache::ActiveKeys;
/// use std::sync::Arc;
///
/// let keys = Arc::new(ActiveKeys::default());
/// let (one, other) = (keys.begin(&b"one"[..].into()), keys.begin(&b"other"[..].into()));
/// keys.mark(b"one");
/// assert!(one.begin_commit().is_none(), "its key has changed since it began");
/// assert!(other.begin_commit().is_some());
/// ```
pub struct ActiveKeys {
    hasher: RandomState,
    shards: Box<[Shard]>,
}

/// The keys of one shard, in no order. There are many more shards than keys with work, so nearly all shards have one
/// key or none.
type Shard = Mutex<Vec<Arc<ActiveKey>>>;

/// Work that may store a value of a key. Begin it before you request the value, so that a change of the key in the
/// meantime is noticed.
///
/// ```
/// use larder_cache::ActiveKeys;
/// use std::sync::Arc;
///
/// let keys = Arc::new(ActiveKeys::default());
/// let work = keys.begin(&b"a key"[..].into());
/// assert!(work.is_current());
/// keys.mark(b"a key");
/// assert!(!work.is_current());
/// assert!(work.renewed().is_current(), "it begins after the change");
/// ```
pub struct KeyWork {
    keys: Arc<ActiveKeys>,
    of: Arc<ActiveKey>,
    /// The key's number of changes at the moment when the work began.
    began: u64,
    /// Counts the work on the key in the order in which it began.
    number: u64,
}

/// A commit: the write of a value that some work has brought. [`KeyWork::begin_commit`] creates it.
///
/// If it is [outdated](Self::is_outdated) after the write, remove the value before you drop the commit.
///
/// ```
/// use larder_cache::ActiveKeys;
/// use std::{collections::HashMap, sync::Arc};
///
/// let (keys, mut store) = (Arc::new(ActiveKeys::default()), HashMap::new());
/// let work = keys.begin(&b"a key"[..].into());
/// let commit = work.begin_commit().expect("the key has not changed");
/// store.insert("a key", "a value");
/// keys.mark(b"a key"); // as another task does that removes the key
/// if commit.is_outdated() {
///     store.remove("a key");
/// }
/// drop(commit);
/// assert!(store.is_empty());
/// ```
pub struct KeyCommit {
    work: KeyWork,
    /// Whether the commit is no longer counted among those in progress.
    has_ended: bool,
}

/// The commits (writes of values) that were in progress when their key changed. Once they have [ended](Self::ended), no
/// lookup finds what they wrote. Wait for that before you report that a key was removed.
///
/// ```
/// use larder_cache::ActiveKeys;
/// use std::sync::Arc;
///
/// let keys = Arc::new(ActiveKeys::default());
/// let work = keys.begin(&b"a key"[..].into());
/// let commit = work.begin_commit().expect("the key has not changed");
/// let marked = keys.mark(b"a key");
/// assert!(!marked.is_empty());
/// drop(commit);
/// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
/// # runtime.block_on(async {
/// marked.ended().await;
/// # });
/// ```
#[must_use = "the result of older work may still appear while these commits run"]
#[derive(Default)]
pub struct MarkedCommits {
    keys: Vec<Arc<ActiveKey>>,
}

/// A key with work in progress, which may store a value of the key.
struct ActiveKey {
    key: Arc<[u8]>,
    /// The index of the shard that has the key.
    shard: usize,
    work_count: AtomicUsize,
    /// Number of the last work that began.
    begun_count: AtomicU64,
    /// Number of changes of the key, each of which marks older work as outdated. Changed only while `commits` is
    /// locked.
    change_count: AtomicU64,
    commits: Mutex<RunningCommits>,
}

/// The commits (writes of values) of a key that are in progress.
#[derive(Default)]
struct RunningCommits {
    /// Number of commits in progress whose work is current: the key has not changed since the work began.
    current_count: usize,
    marked_count: usize,
    #[cfg(feature = "http")]
    turns: order::LastTurns,
    /// The tasks that wait until commits have ended.
    wakers: Vec<Waker>,
}

impl ActiveKeys {
    /// Begins work that may store a value of a key.
    pub fn begin(self: &Arc<Self>, key: &Arc<[u8]>) -> KeyWork {
        let index = self.shard_of(key);
        let of = {
            let mut shard = self.shards[index].lock().ignore_poison();
            let present = shard.iter().find(|present| present.key == *key).cloned();
            let of = present.unwrap_or_else(|| {
                let of = Arc::new(ActiveKey::new(key, index));
                shard.push(Arc::clone(&of));
                of
            });
            of.work_count.fetch_add(1, AcqRel);
            of
        };
        let began = of.change_count.load(Acquire);
        let number = of.begun_count.fetch_add(1, AcqRel) + 1;
        KeyWork { keys: Arc::clone(self), of, began, number }
    }

    /// Marks all work on a key as outdated, because the key has changed or is about to change. Returns those commits of
    /// the marked work that are in progress.
    pub fn mark(&self, key: &[u8]) -> MarkedCommits {
        let of = self.shards[self.shard_of(key)].lock().ignore_poison().iter().find(|of| *of.key == *key).cloned();
        let mut marked = MarkedCommits::default();
        of.into_iter().for_each(|of| marked.add(of));
        marked
    }

    /// Returns the number of keys with work in progress.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().ignore_poison().len()).sum()
    }

    /// Returns whether no work is in progress.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn shard_of(&self, key: &[u8]) -> usize {
        self.hasher.hash_one(key) as usize % SHARD_COUNT
    }

    /// Removes a key from its shard if no work on it is in progress.
    fn forget(&self, of: &Arc<ActiveKey>) {
        let mut shard = self.shards[of.shard].lock().ignore_poison();
        // New work may have begun on it meanwhile.
        if of.work_count.load(Acquire) == 0
            && let Some(at) = shard.iter().position(|present| Arc::ptr_eq(present, of))
        {
            shard.swap_remove(at);
        }
    }
}

impl Default for ActiveKeys {
    fn default() -> Self {
        Self { hasher: RandomState::default(), shards: (0..SHARD_COUNT).map(|_| Shard::default()).collect() }
    }
}

impl KeyWork {
    /// Returns whether the key has not changed since the work began.
    pub fn is_current(&self) -> bool {
        self.of.change_count.load(Acquire) == self.began
    }

    /// Returns the key whose value the work may store.
    pub fn key(&self) -> &Arc<[u8]> {
        &self.of.key
    }

    /// Begins to write the value that the work has brought. Returns `None` if the key has changed since the work began.
    ///
    /// Does not wait for other commits of the key, so their writes may end in any order.
    pub fn begin_commit(&self) -> Option<KeyCommit> {
        let mut commits = self.of.commits.lock().ignore_poison();
        self.is_current().then(|| self.commit_now(&mut commits))
    }

    fn commit_now(&self, commits: &mut RunningCommits) -> KeyCommit {
        commits.current_count += 1;
        KeyCommit { work: self.clone(), has_ended: false }
    }

    /// Counts a commit as ended, and wakes the tasks that wait for it.
    fn end_commit(&self, mut commits: MutexGuard<'_, RunningCommits>) {
        *commits.count_of(self) -= 1;
        let wakers = if commits.marked_count == 0 { std::mem::take(&mut commits.wakers) } else { Vec::new() };
        drop(commits);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Marks all other work on the key as outdated. Returns `false`, and does nothing, if this work itself is outdated.
    pub fn outdate_others(&mut self) -> bool {
        let mut commits = self.of.commits.lock().ignore_poison();
        let is_current = self.is_current();
        if is_current {
            self.began = self.of.mark(&mut commits);
        }
        is_current
    }

    /// Returns this work as if it began now: earlier changes of the key no longer matter.
    #[must_use]
    pub fn renewed(mut self) -> Self {
        self.began = self.of.change_count.load(Acquire);
        self
    }
}

impl Clone for KeyWork {
    fn clone(&self) -> Self {
        self.of.work_count.fetch_add(1, AcqRel);
        Self { keys: Arc::clone(&self.keys), of: Arc::clone(&self.of), began: self.began, number: self.number }
    }
}

impl Drop for KeyWork {
    fn drop(&mut self) {
        if self.of.work_count.fetch_sub(1, AcqRel) == 1 {
            self.keys.forget(&self.of);
        }
    }
}

impl KeyCommit {
    /// Returns whether the key has changed since the work began. What the commit has written must then be removed.
    pub fn is_outdated(&self) -> bool {
        !self.work.is_current()
    }
}

impl Clone for KeyCommit {
    /// Returns another handle of the same commit, for a write that may last longer. The commit ends when the last
    /// handle is dropped.
    fn clone(&self) -> Self {
        let mut commits = self.work.of.commits.lock().ignore_poison();
        *commits.count_of(&self.work) += 1;
        Self { work: self.work.clone(), has_ended: false }
    }
}

impl Drop for KeyCommit {
    fn drop(&mut self) {
        if !self.has_ended {
            self.work.end_commit(self.work.of.commits.lock().ignore_poison());
        }
    }
}

impl MarkedCommits {
    /// Adds the commits that another change has marked.
    pub fn append(&mut self, mut other: Self) {
        self.keys.append(&mut other.keys);
    }

    /// Returns whether there are no commits to wait for.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Waits until all these commits have ended. After that, no lookup finds what they wrote.
    pub async fn ended(mut self) {
        std::future::poll_fn(|context| self.poll_ended(context)).await;
    }

    fn poll_ended(&mut self, context: &Context<'_>) -> Poll<()> {
        self.keys.retain(|of| !of.has_ended(context));
        if self.keys.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Marks all work on a key as outdated, and adds the key if commits of it are in progress.
    fn add(&mut self, of: Arc<ActiveKey>) {
        let mut commits = of.commits.lock().ignore_poison();
        of.mark(&mut commits);
        let is_committed = commits.marked_count > 0;
        drop(commits);
        if is_committed {
            self.keys.push(of);
        }
    }
}

impl ActiveKey {
    fn new(key: &Arc<[u8]>, shard: usize) -> Self {
        Self {
            key: Arc::clone(key),
            shard,
            work_count: AtomicUsize::new(0),
            begun_count: AtomicU64::new(0),
            change_count: AtomicU64::new(0),
            commits: Mutex::default(),
        }
    }

    /// Marks all work so far as outdated. Returns the new number of changes.
    fn mark(&self, commits: &mut RunningCommits) -> u64 {
        commits.marked_count += std::mem::take(&mut commits.current_count);
        #[cfg(feature = "http")]
        commits.turns.forget();
        let change_count = self.change_count.load(Acquire) + 1;
        self.change_count.store(change_count, Release);
        change_count
    }

    /// Returns whether no outdated commit is in progress. If one is, the task is woken when the last one ends.
    fn has_ended(&self, context: &Context<'_>) -> bool {
        let mut commits = self.commits.lock().ignore_poison();
        let has_ended = commits.marked_count == 0;
        if !has_ended {
            commits.wake_later(context);
        }
        has_ended
    }
}

impl RunningCommits {
    /// Wakes the task when commits have ended.
    fn wake_later(&mut self, context: &Context<'_>) {
        if !self.wakers.iter().any(|waker| waker.will_wake(context.waker())) {
            self.wakers.push(context.waker().clone());
        }
    }

    /// Returns the counter of the commits to which a commit of `work` belongs: of current or of outdated work.
    fn count_of(&mut self, work: &KeyWork) -> &mut usize {
        if work.is_current() { &mut self.current_count } else { &mut self.marked_count }
    }
}

impl fmt::Debug for ActiveKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ActiveKeys").field("len", &self.len()).finish_non_exhaustive()
    }
}

impl fmt::Debug for KeyWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyWork").field("is_current", &self.is_current()).finish_non_exhaustive()
    }
}

impl fmt::Debug for KeyCommit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyCommit").field("is_outdated", &self.is_outdated()).finish_non_exhaustive()
    }
}

impl fmt::Debug for MarkedCommits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MarkedCommits").field("key_count", &self.keys.len()).finish_non_exhaustive()
    }
}

/// Number of shards. A lookup compares all keys of a shard, so there should be about as many shards as keys with work
/// in progress.
const SHARD_COUNT: usize = 4096;

#[cfg(test)]
mod tests;
