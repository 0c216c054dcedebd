//! The long and arriving bodies that are being read or received, by representation.
//!
//! Invariant: a body is here from its creation until its last client and its last task have left it. So each byte of a
//! representation is in one object. Cost: a short lock when a response begins and when its object goes.

use larder_device::IgnorePoison;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, Weak},
};

use super::long_body::LongBody;
use crate::http::fetcher::Fetcher;

/// The bodies in use, by the number of their representation. A [`Fetcher`] has one such table, so that all clients of a
/// body share it.
///
/// ```
/// # mod fetcher { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/site/fetcher.rs")); }
/// # fetcher::run(async |site| {
/// use larder_cache::http::{body::table::BodyTable, fetcher::Fetcher};
///
/// let table: &BodyTable<_> = site.fetcher.bodies();
/// assert!(std::ptr::eq(table, site.fetcher.bodies()), "the fetcher has one table");
/// let first = fetcher::get(&site, "/news").await.expect("the origin answers");
/// let second = fetcher::get(&site, "/news").await.expect("the origin answers");
/// for answer in [first, second] {
///     let body = answer.response.made(site.fetcher.marks(), answer.status).into_body();
///     assert_eq!(fetcher::read(body).await.expect("the whole page").len(), 10_000);
/// }
/// // The clients shared one body, for which one fetch was begun.
/// let events = site.fetcher.events.lock().unwrap();
/// assert_eq!(events.iter().filter(|event| *event == "begun").count(), 1);
/// # });
/// ```
pub struct BodyTable<F: Fetcher> {
    bodies: Mutex<HashMap<u64, Weak<LongBody<F>>>>,
}

impl<F: Fetcher> Default for BodyTable<F> {
    fn default() -> Self {
        Self { bodies: Mutex::default() }
    }
}

impl<F: Fetcher> BodyTable<F> {
    /// Returns the body with this representation number. If nobody uses it yet, creates it with `begin`.
    pub(super) fn find_or_begin(&self, representation: u64, begin: impl FnOnce() -> LongBody<F>) -> Arc<LongBody<F>> {
        let mut bodies = self.lock();
        if let Some(found) = bodies.get(&representation).and_then(Weak::upgrade) {
            return found;
        }
        let begun = Arc::new(begin());
        bodies.insert(representation, Arc::downgrade(&begun));
        begun
    }

    /// Removes the body with this representation number. Does nothing if a newer body, which is in use, has replaced
    /// it.
    pub(super) fn remove(&self, representation: u64) {
        let mut bodies = self.lock();
        if bodies.get(&representation).is_some_and(|body| body.strong_count() == 0) {
            bodies.remove(&representation);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Weak<LongBody<F>>>> {
        self.bodies.lock().ignore_poison()
    }
}
