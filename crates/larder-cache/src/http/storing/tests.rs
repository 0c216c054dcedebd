//! Tests of storing, above a device that can stop responding.

use std::{future::Future, time::Duration};

use http::{
    StatusCode,
    header::{ACCEPT_LANGUAGE, CACHE_CONTROL},
};
use larder_device::{Device, FaultPlan, FaultyDevice};
use larder_http::{
    ReceivedHead, TargetList, Timestamp,
    framing::{BodyMeter, EndMark},
    key,
};
use larder_store::Policy;
use tempfile::TempDir;
use tokio::task::{JoinHandle, yield_now};

use super::{in_memory::may_replace, *};
use crate::{
    Cache,
    http::{
        confirmation::{Confirmation, confirm},
        lookup::{LookupResult, find},
    },
};

#[test]
fn site_is_the_host_whatever_scheme_port_and_path() {
    let site = |scheme, authority, path| site_of(&key::primary_key(scheme, authority, path).unwrap());
    let one = site("http", "a.example", "/");
    for (scheme, authority, path) in
        [("https", "a.example", "/"), ("http", "A.example:81", ""), ("http", "a.example", "/b:c]/d")]
    {
        assert_eq!(site(scheme, authority, path), one, "{scheme} {authority} {path}");
    }
    assert_ne!(site("http", "b.example", "/"), one);
    assert_eq!(site("http", "[::1]:81", "/"), site("http", "[::1]", "/x"));
    assert_ne!(site("http", "[::1]", "/"), site("http", "[::2]", "/"));
}

/// Guards against an older response that requests get after the client of the newer one has received that.
#[tokio::test(start_paused = true)]
async fn newer_response_is_found_while_its_write_hangs() {
    for (older, newer) in ALL_PAIRS {
        let bench = Bench::with_older(older).await;
        let storing = bench.begin_to_replace(newer).await;
        assert_eq!(bench.found().await, ["newer"], "{older:?}, then {newer:?}");
        assert!(!storing.is_finished(), "{older:?}, then {newer:?}: the write hangs");
        bench.respond();
        assert_eq!(storing.await.unwrap(), CommitOutcome::InStore);
        assert_eq!(bench.found().await, ["newer"], "{older:?}, then {newer:?}: from the store");
    }
}

/// Guards against an older response that requests get while the newer one, whose client has it already, waits for the
/// write of another response.
#[tokio::test(start_paused = true)]
async fn newer_response_is_found_while_it_waits_for_its_turn() {
    for (second, third) in ALL_PAIRS {
        let case = format!("{second:?}, then {third:?}");
        let bench = Bench::with_older(Kind::Plain).await;
        let storing = bench.begin_to_replace(second).await;
        let waiting = bench.begin_to_store(third, "newest").await;
        assert_eq!(bench.found().await, ["newest"], "{case}");
        assert!(!storing.is_finished() && !waiting.is_finished(), "{case}: the write hangs");
        bench.respond();
        assert_eq!(storing.await.unwrap(), CommitOutcome::InStore, "{case}");
        assert_eq!(bench.found().await, ["newest"], "{case}: after the first write");
        assert_eq!(waiting.await.unwrap(), CommitOutcome::InStore, "{case}");
        assert_eq!(bench.found().await, ["newest"], "{case}: from the store");
    }
}

/// Guards against a response that is put into memory although a response that was requested later is there.
#[tokio::test(start_paused = true)]
async fn waiting_response_does_not_replace_one_that_was_requested_later() {
    for kind in [Kind::Plain, Kind::Varying] {
        let bench = Bench::with_older(kind).await;
        let storing = bench.begin_to_replace(kind).await;
        let between = bench.storing(kind, "between").await;
        let newest = bench.begin_to_store(kind, "newest").await;
        let between = tokio::spawn(between);
        bench.turn_of_others().await;
        assert_eq!(bench.found().await, ["newest"], "{kind:?}");
        bench.respond();
        for (storing, name) in [(storing, "newer"), (newest, "newest"), (between, "between")] {
            assert_ne!(storing.await.unwrap(), CommitOutcome::InMemory, "{kind:?}: {name}");
            assert_eq!(bench.found().await, ["newest"], "{kind:?}: after {name}");
        }
    }
}

/// Guards against the head of one response before the body of another: a 304 confirms a response that has been replaced
/// since it was found.
#[tokio::test(start_paused = true)]
async fn confirmed_head_does_not_get_to_a_response_that_was_stored_meanwhile() {
    for kind in [Kind::Plain, Kind::Varying] {
        let bench = Bench::with_older(kind).await;
        let LookupResult::Found(found) = bench.find().await else { panic!("it is stored") };
        let storing = bench.storing(kind, "newer").await;
        let work = bench.cache.shared.begin(&bench.key);
        assert_eq!(storing.await, CommitOutcome::InStore, "{kind:?}");
        let head = bench.head(kind, CONFIRMED_AT, "older");
        let place = StorePlace::renewed(&bench.key, &found, &head, &request_fields(), &bench.cache.http);
        confirm(&bench.cache, &request_fields(), &found, Confirmation { place, head, work }).await;
        for from in ["memory", "the store"] {
            let LookupResult::Found(found) = bench.find().await else { panic!("{kind:?}: it is stored") };
            let EntryBody::Whole(body) = &found.entry.body else { panic!("the body is short") };
            let is_confirmed = found.entry.head.response_time() == CONFIRMED_AT;
            assert_eq!((&body[..], is_confirmed), (&b"newer"[..], false), "{kind:?}, from {from}");
            bench.cache.shared.hot.clear();
        }
    }
}

/// Guards against an older response that comes back because two newer ones could not be written in time.
#[tokio::test(start_paused = true)]
async fn older_response_does_not_return_after_a_wait_that_took_too_long() {
    for (second, third) in ALL_PAIRS {
        let case = format!("{second:?}, then {third:?}");
        let bench = Bench::with_older(Kind::Plain).await;
        let storing = bench.begin_to_replace(second).await;
        let waiting = bench.begin_to_store(third, "newest").await;
        assert_eq!(storing.await.unwrap(), CommitOutcome::InMemory, "{case}");
        assert_eq!(bench.found().await, ["newest"], "{case}: after the first write");
        assert_eq!(waiting.await.unwrap(), CommitOutcome::InMemory, "{case}");
        bench.expect_no_older("newest", &case).await;
    }
}

/// Guards against an older response that comes back because the write of the newer one failed. In the policy `log`, a
/// commit fails while the removal of an entry that could not be written is pending; the other writes at once.
#[tokio::test(start_paused = true)]
async fn older_response_does_not_return_after_a_write_that_failed() {
    for policy in ["log", "hashcache-set"] {
        for (older, newer) in ALL_PAIRS {
            let case = format!("{policy}: {older:?}, then {newer:?}");
            let bench = Bench::in_store(policy, older).await;
            let storing = bench.storing(newer, "newer").await;
            bench.fail_writes();
            commit_chunk(&bench.cache, &bench.key, b"another key", vec!["chunk".into()]).await;
            assert!(bench.whole.sync().await.is_err(), "{case}");
            assert_eq!(storing.await, CommitOutcome::InMemory, "{case}");
            bench.expect_no_older("newer", &case).await;
        }
    }
}

/// Guards against an older response that comes back because the newer one was lost after its commit.
#[tokio::test(start_paused = true)]
async fn older_response_does_not_return_after_a_flush_that_failed() {
    for (older, newer) in ALL_PAIRS {
        let bench = Bench::with_older(older).await;
        let storing = bench.storing(newer, "newer").await;
        bench.fail_writes();
        assert_eq!(storing.await, CommitOutcome::InStore, "{older:?}, then {newer:?}");
        assert!(bench.whole.sync().await.is_err(), "{older:?}, then {newer:?}");
        assert!(bench.found().await.is_empty(), "{older:?}, then {newer:?}");
        bench.respond();
        assert!(bench.found().await.is_empty(), "{older:?}, then {newer:?}: after the device has recovered");
    }
}

/// Guards against an older response that comes back because the newer one, or its marker, could not be written.
#[tokio::test(start_paused = true)]
async fn older_response_does_not_return_after_a_write_that_took_too_long() {
    for (older, newer) in ALL_PAIRS {
        let bench = Bench::with_older(older).await;
        let storing = bench.begin_to_replace(newer).await;
        assert_eq!(storing.await.unwrap(), CommitOutcome::InMemory, "{older:?}, then {newer:?}");
        bench.expect_no_older("newer", &format!("{older:?}, then {newer:?}")).await;
    }
}

/// Guards against an older response that comes back after the store was not even asked to write the newer one.
#[tokio::test(start_paused = true)]
async fn older_response_does_not_return_after_a_pause_of_the_store() {
    for (older, newer) in ALL_PAIRS {
        let bench = Bench::with_older(older).await;
        bench.stop_responding();
        let unread = bench.cache.shared.store.as_ref().unwrap().get(&bench.key);
        assert!(patience::read(&bench.cache, patience::ReadPatience::Short, unread).await.is_none());
        let storing = bench.begin_to_replace(newer).await;
        assert_eq!(bench.found().await, ["newer"], "{older:?}, then {newer:?}");
        assert_eq!(storing.await.unwrap(), CommitOutcome::InMemory, "{older:?}, then {newer:?}");
        bench.expect_no_older("newer", &format!("{older:?}, then {newer:?}")).await;
    }
}

/// Guards against an older response that only memory has, because the store did not take it, and that requests get
/// while the newer one is being written.
#[tokio::test(start_paused = true)]
async fn older_response_that_only_memory_has_counts_as_replaced() {
    let bench = Bench::with_older(Kind::Plain).await;
    let place = bench.place(Kind::Plain, None);
    larder_device::block_on(remove_stored(&bench.cache, &place.key)).unwrap();
    assert!(may_replace(&bench.cache, bench.cache.shared.store.as_ref().unwrap(), &place));
    bench.cache.shared.hot.clear();
    assert!(!may_replace(&bench.cache, bench.cache.shared.store.as_ref().unwrap(), &place));
}

/// Whether a response varies by language.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Plain,
    Varying,
}

/// The kinds of the older and of the newer response.
const ALL_PAIRS: [(Kind, Kind); 4] = [
    (Kind::Plain, Kind::Plain),
    (Kind::Plain, Kind::Varying),
    (Kind::Varying, Kind::Plain),
    (Kind::Varying, Kind::Varying),
];

/// A cache of the responses of one resource, above a device that can stop responding.
struct Bench {
    device: Arc<FaultyDevice>,
    cache: Arc<ResponseCache>,
    key: Arc<[u8]>,
    whole: Cache,
    _directory: TempDir,
}

impl Bench {
    /// Creates a cache that has a response of this kind on the device and in memory.
    async fn with_older(kind: Kind) -> Self {
        Self::in_store("log", kind).await
    }

    /// Creates a cache as [`with_older`](Self::with_older) does, above a store with this policy.
    async fn in_store(policy: &str, kind: Kind) -> Self {
        let policy = Policy::named(policy).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let device = Arc::new(FaultyDevice::new(DISK_BYTES, 1, FaultPlan::default()));
        let whole = Cache::builder(directory.path())
            .disk(DISK_BYTES)
            .configure_store(move |options| (options.background, options.policy) = (false, policy))
            .device(Arc::clone(&device) as Arc<dyn Device>)
            .open()
            .unwrap();
        let key = key::primary_key("https", "site.example", "/").unwrap().into();
        let cache = whole.responses(Settings::default());
        let bench = Self { device, cache, key, whole, _directory: directory };
        assert_eq!(bench.storing(kind, "older").await.await, CommitOutcome::InStore);
        bench.whole.sync().await.unwrap();
        assert_eq!(bench.found().await, ["older"]);
        bench
    }

    fn stop_responding(&self) {
        self.device.set_plan(FaultPlan { slow_transfers_ppm: 1_000_000, ..FaultPlan::default() });
    }

    fn fail_writes(&self) {
        self.device.set_plan(FaultPlan { write_errors_ppm: 1_000_000, ..FaultPlan::default() });
    }

    fn respond(&self) {
        self.device.set_plan(FaultPlan::default());
        while self.device.turn() {}
    }

    /// Stops the device, and begins to store a newer response of this kind. Returns once that waits for the device.
    async fn begin_to_replace(&self, kind: Kind) -> JoinHandle<CommitOutcome> {
        self.stop_responding();
        self.begin_to_store(kind, "newer").await
    }

    /// Begins to store a response. Returns once that waits.
    async fn begin_to_store(&self, kind: Kind, body: &'static str) -> JoinHandle<CommitOutcome> {
        let storing = tokio::spawn(self.storing(kind, body).await);
        self.turn_of_others().await;
        storing
    }

    /// Lets the other tasks run until they wait.
    async fn turn_of_others(&self) {
        for _ in 0..10 {
            yield_now().await;
        }
    }

    fn place(&self, kind: Kind, before: Option<&Arc<ResourceMarker>>) -> StorePlace {
        StorePlace::new(&self.key, &rule(kind), &request_fields(), before, &self.cache.http).unwrap()
    }

    /// Returns the head of a response with this body that was received at `time`.
    fn head(&self, kind: Kind, time: Timestamp, body: &str) -> StoredHead {
        let fields = HeaderMap::from_iter([(CACHE_CONTROL, http::HeaderValue::from_static("max-age=600"))]);
        let received = ReceivedHead { status: StatusCode::OK, fields, request_time: time, response_time: time };
        let selecting = rule(kind).select(&request_fields(), &self.cache.http).unwrap();
        StoredHead::new(received, BodyPlace::Whole { len: body.len() as u64 }, selecting, &TargetList::default())
    }

    async fn storing(&self, kind: Kind, body: &'static str) -> impl Future<Output = CommitOutcome> + 'static {
        let before = match find(&self.cache, &self.key, &request_fields()).await {
            LookupResult::Found(found) => found.marker,
            LookupResult::OtherVariants(_) | LookupResult::Nothing => None,
        };
        let place = self.place(kind, before.as_ref());
        let len = body.len() as u64;
        let head = self.head(kind, RECEIVED_AT, body);
        let mut meter = BodyMeter::of_len(len);
        meter.take(len);
        let body = CommittedBody::Whole(meter.end(EndMark::Length).unwrap(), vec![body.into()]);
        let work = self.cache.shared.begin(&self.key);
        let cache = Arc::clone(&self.cache);
        async move { commit_somewhere(&cache, &place, &head, body, &work).await }
    }

    async fn find(&self) -> LookupResult {
        find(&self.cache, &self.key, &request_fields()).await
    }

    /// Returns the bodies that a request finds: one or none.
    async fn found(&self) -> Vec<Bytes> {
        match self.find().await {
            LookupResult::Found(found) => match &found.entry.body {
                EntryBody::Whole(body) => vec![body.clone()],
                EntryBody::Chunks { .. } => panic!("the body is short"),
            },
            LookupResult::OtherVariants(_) | LookupResult::Nothing => Vec::new(),
        }
    }

    /// Checks that the newest response is in memory, and that the first one is not found without it.
    async fn expect_no_older(&self, newest: &str, case: &str) {
        assert_eq!(self.found().await, [newest], "{case}");
        self.respond();
        tokio::time::advance(PAUSE_MAX).await;
        self.cache.shared.hot.clear();
        let found = self.found().await;
        assert!(found.iter().all(|body| body != "older"), "{case}: the older response is back");
    }
}

fn rule(kind: Kind) -> VaryRule {
    match kind {
        Kind::Plain => VaryRule::Fields([].into()),
        Kind::Varying => VaryRule::Fields([ACCEPT_LANGUAGE].into()),
    }
}

fn request_fields() -> HeaderMap {
    HeaderMap::from_iter([(ACCEPT_LANGUAGE, http::HeaderValue::from_static("de"))])
}

const RECEIVED_AT: Timestamp = Timestamp::from_secs(1_800_000_000);
const CONFIRMED_AT: Timestamp = Timestamp::from_secs(1_800_000_060);
const DISK_BYTES: u64 = 32 << 20;
/// Longer than any pause of a store that has not responded.
const PAUSE_MAX: Duration = Duration::from_mins(5);
