//! Records the changes of each key and their times, and judges whether a read agrees with them.

use larder_device::IgnorePoison;
use std::{collections::HashMap, sync::Mutex};

/// All changes, timed by one clock that advances at every start and end.
#[derive(Default)]
pub(crate) struct History(Mutex<State>);

#[derive(Default)]
struct State {
    now: u64,
    done: HashMap<u8, Vec<Change>>,
}

/// A commit or removal.
#[derive(Clone, Copy, Debug)]
struct Change {
    /// The version stored; `None` for a removal.
    version: Option<u32>,
    began: u64,
    /// `None` while the change is in progress.
    ended: Option<u64>,
}

/// A change in progress.
pub(crate) struct Begun {
    key: u8,
    at: usize,
}

impl History {
    /// Records the start of a change.
    pub(crate) fn begin(&self, key: u8, version: Option<u32>) -> Begun {
        let mut state = self.lock();
        state.now += 1;
        let began = state.now;
        let changes = state.done.entry(key).or_default();
        changes.push(Change { version, began, ended: None });
        Begun { key, at: changes.len() - 1 }
    }

    /// Records that a change was acknowledged.
    pub(crate) fn end(&self, begun: &Begun) {
        let mut state = self.lock();
        state.now += 1;
        let now = state.now;
        state.done.get_mut(&begun.key).expect("it was begun")[begun.at].ended = Some(now);
    }

    /// Returns the time, for [`Self::judge`].
    pub(crate) fn now(&self) -> u64 {
        let mut state = self.lock();
        state.now += 1;
        state.now
    }

    /// Checks that a read of `key` which began at `began` may have found this version. Finding nothing is always
    /// allowed.
    pub(crate) fn judge(&self, key: u8, began: u64, version: u32) {
        let state = self.lock();
        let changes = state.done.get(&key).map_or(&[][..], Vec::as_slice);
        let written = changes.iter().find(|change| change.version == Some(version));
        let written = written.unwrap_or_else(|| panic!("key {key}: version {version} was never committed"));
        let replaced = changes.iter().find(|change| {
            written.ended.is_some_and(|ended| change.began > ended) && change.ended.is_some_and(|ended| ended < began)
        });
        assert!(replaced.is_none(), "key {key}, read at {began}: found {written:?}, which {replaced:?} had replaced");
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().ignore_poison()
    }
}
