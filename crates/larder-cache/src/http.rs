//! The responses of HTTP: the memory cache, the store, the facts remembered about stored responses, and the pauses
//! during which a failing store is not used.
//!
//! | to do | see |
//! |---|---|
//! | answer a request | [`answer`] |
//! | find the response for a request | [`lookup::find`] |
//! | store one, or the head of a confirmed one | [`storing::commit`], [`confirmation::confirm`] |
//! | share one fetch among requests | [`fetch`] |
//! | read and receive long bodies, shared by their clients | [`body`] |
//! | make responses invalid | [`invalidation`], [`crate::purges`] |
//! | keep responses from being evicted | [`pins`] |
//! | keep entries that the store has evicted | [`tier`] |
//!
//! A program that sends its own requests finds and stores responses like this. Programs that also want shared fetches
//! and validation implement [`fetcher::Fetcher`] and call [`answer::CacheQuery::answer`], as `larder-tower` does.
//!
//! ```
//! use http::{HeaderMap, StatusCode};
//! use larder_cache::Cache;
//! use larder_cache::http::{committed_body::CommittedBody, lookup::{self, LookupResult}, storing::{self, StorePlace}};
//! use larder_http::framing::{BodyMeter, EndMark};
//! use larder_http::{BodyPlace, ReceivedHead, Settings, StoredHead, Timestamp, VaryRule};
//! use std::sync::Arc;
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
//! # runtime.block_on(async {
//! # let directory = tempfile::tempdir().unwrap();
//!
//! let cache = Cache::builder(directory.path()).disk("32MB").open()?;
//! let responses = cache.responses(Settings::default());
//! let primary: Arc<[u8]> = responses.http.key_rules.key("https", "a.example", "/").expect("a URL").into();
//! let no_fields = HeaderMap::new();
//! assert!(matches!(lookup::find(&responses, &primary, &no_fields).await, LookupResult::Nothing));
//!
//! // The work begins before the request is sent, so that a purge in the meantime concerns the response.
//! let work = responses.shared.begin(&primary);
//! let now = Timestamp::from_secs(1_800_000_000);
//! let mut fields = HeaderMap::new();
//! fields.insert("cache-control", "max-age=60".parse().unwrap());
//! let received = ReceivedHead { status: StatusCode::OK, fields, request_time: now, response_time: now };
//! let place = BodyPlace::Whole { len: 5 };
//! let head = StoredHead::new(received, place, Default::default(), &responses.http.targets);
//!
//! // The meter proves that the whole body has arrived.
//! let mut meter = BodyMeter::of_len(5);
//! meter.take(5);
//! let body = CommittedBody::Whole(meter.end(EndMark::Length).expect("all 5 bytes"), vec!["hello".into()]);
//! let place = StorePlace::new(&primary, &VaryRule::from_fields(&no_fields), &no_fields, None, &responses.http);
//! assert!(storing::commit(&responses, &place.expect("it does not vary"), &head, body, &work).await);
//!
//! let found = lookup::find(&responses, &primary, &no_fields).await;
//! let LookupResult::Found(found) = found else { panic!("it was stored above") };
//! assert_eq!(found.entry.body_len(), 5);
//! # larder_cache::Result::Ok(())
//! # }).unwrap();
//! ```
//!
//! Requests and origins are the caller's ([`fetcher`]). [`larder_http`] decides what may be stored and used. Invariant:
//! the cache's callers never see a fault of the store.

use std::{ops::Deref, sync::Arc, time::Duration};

use larder_http::{Reuse, Rules, Settings, StoredHead, Timestamp, route::RequestTerms};

use self::{groups::PageGroups, mark::KeyMarks, patience::StorePatience, survivors::CacheSurvivors};

pub mod answer;
pub(crate) mod arrivals;
pub mod body;
pub mod chunks;
pub mod committed_body;
pub mod confirmation;
pub(crate) mod copies;
pub mod entry;
pub mod fetcher;
pub mod http_cache;
pub mod invalidation;
pub mod late_commits;
pub(crate) mod library;
pub mod lookup;
pub(crate) mod purged;
mod sightings;
pub mod storing;
pub(crate) mod tag_changes;
mod tiered;
pub mod work;

// For larder-proxy: fleets, pins, the second tier, limits of memory and time. Other programs have no use for them,
// because `Cache::responses` creates all of this state.
#[doc(hidden)]
pub mod body_budget;
#[doc(hidden)]
pub mod fetch;
#[doc(hidden)]
pub mod groups;
#[doc(hidden)]
pub mod hot;
mod hot_buffer;
#[doc(hidden)]
pub mod key_set;
#[doc(hidden)]
pub mod key_slots;
#[doc(hidden)]
pub mod mark;
#[doc(hidden)]
pub mod neighbors;
#[doc(hidden)]
pub mod patience;
#[doc(hidden)]
pub mod pins;
#[doc(hidden)]
pub mod responses;
#[doc(hidden)]
pub mod survivors;
#[doc(hidden)]
pub mod tier;

/// The cache of HTTP responses, as one worker uses it for the requests to one site.
/// [`Cache::responses`](crate::Cache::responses) creates it.
///
/// ```
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
/// # let directory = tempfile::tempdir().unwrap();
/// # runtime.block_on(async {
/// use larder_cache::{Cache, http::storing::{StorePlace, StoreAdmission, admission}};
/// use larder_http::Settings;
/// # use larder_http::{BodyPlace, ReceivedHead, StoredHead, Timestamp, VaryRule};
///
/// let cache = Cache::builder(directory.path()).disk("32MB").open()?;
/// // The caches of two sites with settings of their own have the same responses.
/// let (site, other) = (cache.responses(Settings::default()), cache.responses(Settings::private()));
/// assert!(std::sync::Arc::ptr_eq(&site.shared.works, &other.shared.works));
/// assert_eq!(site.shared.entry_bytes_max, cache.value_bytes_max());
/// # larder_cache::Result::Ok(())
/// # }).unwrap();
/// ```
pub struct ResponseCache {
    /// The parts that all workers and sites share.
    pub shared: Arc<CacheShared>,
    /// The function that is called for each event.
    pub events: StoreEventSink,
    /// The settings of the site.
    pub http: Arc<Settings>,
    /// The recent page views. Responses of one page view form a group, whose entries the store keeps together.
    pub groups: Arc<PageGroups>,
    /// Time for which a client may make no progress before it is dropped.
    pub stall: Duration,
}

impl ResponseCache {
    /// Decides how a stored response may answer a request at `now`.
    pub fn judge(&self, terms: &RequestTerms<'_>, stored: &StoredHead, now: Timestamp) -> Reuse {
        terms.judge(stored, &self.shared.rules, &self.http, now)
    }

    /// Reports an event to the function in `events`.
    pub(crate) fn note(&self, event: StoreEvent) {
        (self.events)(event);
    }
}

/// Something that happened when a request used the store, for the caller's counters.
///
/// ```
/// use larder_cache::http::{StoreEvent, StoreEventSink};
/// use std::{sync::{Arc, atomic::{AtomicU64, Ordering::Relaxed}}, time::Duration};
///
/// let failures = Arc::new(AtomicU64::new(0));
/// let counted = Arc::clone(&failures);
/// let sink: StoreEventSink = Arc::new(move |event| match event {
///     StoreEvent::Failed | StoreEvent::TooSlow => drop(counted.fetch_add(1, Relaxed)),
///     StoreEvent::Bypassed | StoreEvent::Read(_) => {}
/// });
/// sink(StoreEvent::Read(Duration::from_millis(2)));
/// sink(StoreEvent::Failed);
/// assert_eq!(failures.load(Relaxed), 1);
/// ```
#[derive(Clone, Copy, Debug)]
pub enum StoreEvent {
    /// The store failed. The request continued without it.
    Failed,
    /// An operation was abandoned because it took too long.
    TooSlow,
    /// An operation was skipped because the store was not responding.
    Bypassed,
    /// A read had to wait for the disk, for this long.
    Read(Duration),
}

/// A function that is called for each event of a cache.
///
/// ```
/// use larder_cache::http::{StoreEvent, StoreEventSink};
/// use std::sync::{Arc, mpsc};
///
/// let (sender, events) = mpsc::channel();
/// let sink: StoreEventSink = Arc::new(move |event| sender.send(event).expect("the receiver exists"));
/// sink(StoreEvent::TooSlow);
/// assert!(matches!(events.try_recv(), Ok(StoreEvent::TooSlow)));
/// ```
pub type StoreEventSink = Arc<dyn Fn(StoreEvent) + Send + Sync>;

/// The parts of the cache that all workers share under one configuration. Call [`CacheShared::begin`] before each
/// fetch, so that a removal during the fetch is noticed.
///
/// ```
/// # mod fetcher { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/site/fetcher.rs")); }
/// # fetcher::run(async |site| {
/// use larder_cache::http::{fetcher::Fetcher, invalidation};
///
/// let responses = site.fetcher.cache();
/// let key = fetcher::store(&site, "/news").await;
/// let work = responses.shared.begin(&key);
/// assert!(responses.shared.is_current(&work, || None));
/// assert!(invalidation::remove_resources(responses, &[key.to_vec()]).await.is_ok());
/// assert!(!responses.shared.is_current(&work, || None), "its response must not be stored");
/// # });
/// ```
pub struct CacheShared {
    /// Whether the store responds, and for how long to wait for it.
    pub patience: StorePatience,
    /// The operator's rules for responses.
    pub rules: Rules,
    /// Tells which origins can respond for a URL.
    pub key_marks: Arc<dyn KeyMarks>,
    /// Maximum length of a body that is stored, in bytes.
    pub entry_bytes_max: u64,
    /// The state that outlives a change of these settings.
    pub survivors: Arc<CacheSurvivors>,
}

impl Deref for CacheShared {
    type Target = CacheSurvivors;

    fn deref(&self) -> &CacheSurvivors {
        &self.survivors
    }
}
