//! Tests of storing, above a device that can stop responding.

use std::{future::Future, time::Duration};

use http::{StatusCode, header::ACCEPT_LANGUAGE};
use larder_device::{Device, FaultPlan, FaultyDevice};
use larder_http::{
    ReceivedHead, TargetList, Timestamp,
    framing::{BodyMeter, EndMark},
    key,
};
use tempfile::TempDir;
use tokio::task::{JoinHandle, yield_now};

use super::*;
use crate::{
    Cache,
    http::lookup::{LookupResult, find},
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

/// Guards against an older response that comes back because the newer one, or its marker, could not be written.
#[tokio::test(start_paused = true)]
async fn older_response_does_not_return_after_a_write_that_took_too_long() {
    for (older, newer) in ALL_PAIRS {
        let bench = Bench::with_older(older).await;
        let storing = bench.begin_to_replace(newer).await;
        assert_eq!(storing.await.unwrap(), CommitOutcome::InMemory, "{older:?}, then {newer:?}");
        bench.expect_no_older(&format!("{older:?}, then {newer:?}")).await;
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
        bench.expect_no_older(&format!("{older:?}, then {newer:?}")).await;
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
        let directory = tempfile::tempdir().unwrap();
        let device = Arc::new(FaultyDevice::new(DISK_BYTES, 1, FaultPlan::default()));
        let whole = Cache::builder(directory.path())
            .disk(DISK_BYTES)
            .configure_store(|options| options.background = false)
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

    fn respond(&self) {
        self.device.set_plan(FaultPlan::default());
        while self.device.turn() {}
    }

    /// Stops the device, and begins to store a newer response of this kind. Returns once that waits for the device.
    async fn begin_to_replace(&self, kind: Kind) -> JoinHandle<CommitOutcome> {
        self.stop_responding();
        let storing = tokio::spawn(self.storing(kind, "newer").await);
        for _ in 0..10 {
            yield_now().await;
        }
        storing
    }

    fn place(&self, kind: Kind, before: Option<&Arc<ResourceMarker>>) -> StorePlace {
        StorePlace::new(&self.key, &rule(kind), &request_fields(), before, &self.cache.http).unwrap()
    }

    async fn storing(&self, kind: Kind, body: &'static str) -> impl Future<Output = CommitOutcome> + 'static {
        let before = match find(&self.cache, &self.key, &request_fields()).await {
            LookupResult::Found(found) => found.marker,
            LookupResult::OtherVariants(_) | LookupResult::Nothing => None,
        };
        let place = self.place(kind, before.as_ref());
        let now = Timestamp::from_secs(1_800_000_000);
        let fields = HeaderMap::new();
        let received = ReceivedHead { status: StatusCode::OK, fields, request_time: now, response_time: now };
        let selecting = rule(kind).select(&request_fields(), &self.cache.http).unwrap();
        let len = body.len() as u64;
        let head = StoredHead::new(received, BodyPlace::Whole { len }, selecting, &TargetList::default());
        let mut meter = BodyMeter::of_len(len);
        meter.take(len);
        let body = CommittedBody::Whole(meter.end(EndMark::Length).unwrap(), vec![body.into()]);
        let work = self.cache.shared.begin(&self.key);
        let cache = Arc::clone(&self.cache);
        async move { commit_somewhere(&cache, &place, &head, body, &work).await }
    }

    /// Returns the bodies that a request finds: one or none.
    async fn found(&self) -> Vec<Bytes> {
        match find(&self.cache, &self.key, &request_fields()).await {
            LookupResult::Found(found) => match &found.entry.body {
                EntryBody::Whole(body) => vec![body.clone()],
                EntryBody::Chunks { .. } => panic!("the body is short"),
            },
            LookupResult::OtherVariants(_) | LookupResult::Nothing => Vec::new(),
        }
    }

    /// Checks that the newer response is in memory, and that no older one is found without it.
    async fn expect_no_older(&self, case: &str) {
        assert_eq!(self.found().await, ["newer"], "{case}");
        self.respond();
        tokio::time::advance(PAUSE_MAX).await;
        self.cache.shared.hot.clear();
        let found = self.found().await;
        assert!(found.iter().all(|body| body == "newer"), "{case}: the older response is back");
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

const DISK_BYTES: u64 = 32 << 20;
/// Longer than any pause of a store that has not responded.
const PAUSE_MAX: Duration = Duration::from_mins(5);
