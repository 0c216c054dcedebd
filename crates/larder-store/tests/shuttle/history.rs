//! What was done to each key and when, and whether a read agrees with it.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

/// What happened, by one clock that every beginning and every end advances.
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
    /// What it put there; `None` for a removal.
    version: Option<u32>,
    began: u64,
    /// `None` while it is under way.
    ended: Option<u64>,
}

/// A change that is under way.
pub(crate) struct Begun {
    key: u8,
    at: usize,
}

impl History {
    /// A change begins.
    pub(crate) fn begin(&self, key: u8, version: Option<u32>) -> Begun {
        let mut state = self.lock();
        state.now += 1;
        let began = state.now;
        let changes = state.done.entry(key).or_default();
        changes.push(Change { version, began, ended: None });
        Begun { key, at: changes.len() - 1 }
    }

    /// A change was acknowledged.
    pub(crate) fn end(&self, begun: &Begun) {
        let mut state = self.lock();
        state.now += 1;
        let now = state.now;
        state.done.get_mut(&begun.key).expect("it was begun")[begun.at].ended = Some(now);
    }

    /// The time, for [`Self::judge`].
    pub(crate) fn now(&self) -> u64 {
        let mut state = self.lock();
        state.now += 1;
        state.now
    }

    /// Whether a read of `key` that began at `began` may have found this version. Nothing is always right.
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
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
