//! Operations in flight: the call to the store, and its expected outcome.

use super::{Operation, SITE_COUNT, Trial};
use crate::content;
use bytes::Bytes;
use larder_store::{Hints, LayoutAxis, Reader, Result, Store};
use std::{fmt, future::Future, ops::Range, pin::Pin, time::Duration};

/// An operation that has been started on the store and is not done yet.
pub(crate) struct Task {
    pub(crate) work: ModelWork,
    pub(crate) future: Pin<Box<dyn Future<Output = TaskOutcome>>>,
}

/// The change of the model when a task is done.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ModelWork {
    Change {
        key: u64,
        begun: u64,
    },
    Head {
        key: u64,
        begun: u64,
    },
    Look {
        key: u64,
        begun: u64,
        unix_s: u32,
    },
    Sync {
        begun: u64,
    },
    /// Notes that operations have become durable: those acknowledged by `flushed` against kills, those acknowledged by
    /// `synced` against power losses. This happens once the device has no work left.
    Wait {
        flushed: u64,
        synced: u64,
    },
}

/// The result that the store returned for an operation.
#[derive(Debug)]
pub(crate) enum TaskOutcome {
    Done(Result<()>),
    Updated(Result<bool>),
    Found(Result<Option<FoundEntry>>),
    Maintained,
}

/// The entry that a lookup found.
#[derive(Debug)]
pub(crate) struct FoundEntry {
    pub(crate) head: Bytes,
    pub(crate) body_bytes: u64,
    /// The part of the body that was read, or `None` if the body was damaged.
    pub(crate) read: Option<Part>,
}

/// Some bytes of a body, and where they are in it.
pub(crate) struct Part {
    pub(crate) range: Range<u64>,
    pub(crate) bytes: Bytes,
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.range)
    }
}

/// Time after which maintenance has written a committed entry. [`SYNCED_AFTER`] is the time after which it has also
/// synced it.
const FLUSHED_AFTER: Duration = Duration::from_millis(600);
const SYNCED_AFTER: Duration = Duration::from_secs(6);
const SHORT_LIFE_S: u32 = 60;

impl Trial {
    /// Starts an operation of the store. Returns `None` if no store is open or the operation is done at once.
    pub(super) fn start(&mut self, operation: Operation) -> Option<Task> {
        let store = self.store.clone()?;
        match operation {
            Operation::Insert { key, body_bytes, short_lived } => {
                self.start_insert(&store, key, body_bytes, short_lived)
            }
            Operation::Abandon { key } => {
                let version = self.new_version();
                let writer = store.insert(&content::key_bytes(key), content::head(key, version), hints(key));
                if let Ok(mut writer) = writer {
                    drop(writer.write(content::body(key, version, 1000)));
                }
                None
            }
            Operation::Read { key } => {
                let future = Box::pin(async move { TaskOutcome::Found(read_whole(&store, key).await) });
                Some(Task { work: self.look(key), future })
            }
            Operation::ReadPart { key, part } => {
                let future = Box::pin(async move { TaskOutcome::Found(read_part(&store, key, part).await) });
                Some(Task { work: self.look(key), future })
            }
            Operation::Remove { key } => {
                let begun = self.tick();
                self.history(key).begin_removal(begun);
                let future = async move { TaskOutcome::Done(store.remove(&content::key_bytes(key)).await) };
                Some(Task { work: ModelWork::Change { key, begun }, future: Box::pin(future) })
            }
            Operation::UpdateHead { key } => Some(self.start_head(store, key)),
            Operation::Sync => {
                let work = ModelWork::Sync { begun: self.tick() };
                Some(Task { work, future: Box::pin(async move { TaskOutcome::Done(store.sync().await) }) })
            }
            Operation::Wait { milliseconds } => Some(self.start_wait(store, Duration::from_millis(milliseconds))),
            Operation::Clear | Operation::StepClock { .. } | Operation::Reopen | Operation::Crash { .. } => None,
        }
    }

    fn look(&mut self, key: u64) -> ModelWork {
        ModelWork::Look { key, begun: self.tick(), unix_s: self.unix_s() }
    }

    fn start_insert(&mut self, store: &Store, key: u64, body_bytes: u64, short_lived: bool) -> Option<Task> {
        let version = self.new_version();
        let begun = self.tick();
        let expires_at = if short_lived { self.unix_s() + SHORT_LIFE_S } else { 0 };
        let hints = Hints { expires_at, ..hints(key) };
        let mut writer = store.insert(&content::key_bytes(key), content::head(key, version), hints).ok()?;
        let body = content::body(key, version, body_bytes);
        let cut = (version % (body_bytes + 1)) as usize;
        for part in [body.slice(..cut), body.slice(cut..)] {
            writer.write(part).ok()?;
        }
        self.history(key).begin_insert(version, body_bytes, expires_at, begun);
        let future = Box::pin(async move { TaskOutcome::Done(writer.commit().await) });
        Some(Task { work: ModelWork::Change { key, begun }, future })
    }

    fn start_head(&mut self, store: Store, key: u64) -> Task {
        let version = self.new_version();
        let begun = self.tick();
        self.history(key).begin_head(version, 0, begun);
        let future = Box::pin(async move {
            let name = content::key_bytes(key);
            let head = content::head(key, version);
            TaskOutcome::Updated(store.update_head(&name, head, hints(key)).await)
        });
        Task { work: ModelWork::Head { key, begun }, future }
    }

    fn start_wait(&mut self, store: Store, time: Duration) -> Task {
        let begun = self.tick();
        let is_idle = self.device.waiting_count() == 0;
        // Clusters are written when they are full, or for a sync.
        let is_flushed = time >= FLUSHED_AFTER && self.options.policy.layout != LayoutAxis::Clusters;
        let flushed = if is_flushed { begun } else { 0 };
        // A sync that becomes due covers everything written before this wait began.
        let synced = if time >= SYNCED_AFTER && is_idle { self.durable.kill } else { 0 };
        self.pass_time(time);
        let future = Box::pin(async move {
            store.maintain().await;
            TaskOutcome::Maintained
        });
        Task { work: ModelWork::Wait { flushed, synced }, future }
    }

    fn new_version(&mut self) -> u64 {
        self.next_version += 1;
        self.next_version - 1
    }
}

/// Returns the hints for an entry of key number `key`. Keys are assigned to sites in turn, and four in a row form a
/// group.
fn hints(key: u64) -> Hints {
    Hints { site: 1 + key % SITE_COUNT, group: 1 + key / 4, ..Hints::default() }
}

async fn read_whole(store: &Store, key: u64) -> Result<Option<FoundEntry>> {
    let Some(reader) = store.get(&content::key_bytes(key)).await? else { return Ok(None) };
    let range = 0..reader.len();
    found(reader, range).await.map(Some)
}

async fn read_part(store: &Store, key: u64, part: u64) -> Result<Option<FoundEntry>> {
    let Some(reader) = store.front(&content::key_bytes(key)).await? else { return Ok(None) };
    let from = part % (reader.len() + 1);
    let to = from + (part >> 20) % (reader.len() - from + 1);
    found(reader, from..to).await.map(Some)
}

async fn found(reader: Reader, range: Range<u64>) -> Result<FoundEntry> {
    let read = reader.read(range.clone()).await?.map(|bytes| Part { range, bytes });
    Ok(FoundEntry { head: reader.head(), body_bytes: reader.len(), read })
}
