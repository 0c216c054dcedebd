//! The storage by itself: a restart, a purge during a fetch, expiry, updates and tags.

use bytes::Bytes;
use larder_cache::Cache;
use larder_pingora::LarderStorage;
use pingora_cache::{
    CacheKey, CacheMeta,
    storage::{PurgeOutcome, PurgeTarget, PurgeType, Storage},
    trace::Span,
};
use pingora_http::ResponseHeader;
use std::{
    path::Path,
    time::{Duration, SystemTime},
};

fn open(directory: &Path) -> (&'static LarderStorage, Cache) {
    let cache = Cache::builder(directory).disk("64MB").memory("16MB").open().unwrap();
    let storage = LarderStorage::new(cache.clone()).with_tags(|key, _| vec![key.primary_key_str().unwrap().to_owned()]);
    (Box::leak(Box::new(storage)), cache)
}

fn meta(version: &str) -> CacheMeta {
    let mut head = ResponseHeader::build(200, None).unwrap();
    head.insert_header("x-version", version).unwrap();
    let now = SystemTime::now();
    CacheMeta::new(now + Duration::from_secs(3600), now, 0, 0, head)
}

async fn store(storage: &'static LarderStorage, key: &CacheKey, version: &str, body: &[u8]) {
    let trace = Span::inactive().handle();
    let mut writer = storage.get_miss_handler(key, &meta(version), &trace).await.unwrap();
    for piece in body.chunks(10_000) {
        writer.write_body(Bytes::copy_from_slice(piece), false).await.unwrap();
    }
    writer.finish().await.unwrap();
}

/// Returns the stored version, whether it is fresh, and the body.
async fn find(storage: &'static LarderStorage, key: &CacheKey) -> Option<(String, bool, Vec<u8>)> {
    let trace = Span::inactive().handle();
    let (meta, mut hit) = storage.lookup(key, &trace).await.unwrap()?;
    let mut body = Vec::new();
    while let Some(bytes) = hit.read_body().await.unwrap() {
        body.extend_from_slice(&bytes);
    }
    let version = meta.headers()["x-version"].to_str().unwrap().to_owned();
    Some((version, meta.is_fresh(SystemTime::now()), body))
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 251) as u8).collect()
}

#[tokio::test]
async fn responses_of_every_length_survive_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let copy = tempfile::tempdir().unwrap();
    let lengths = [0, 1, 32 << 10, (32 << 10) + 1, (1 << 20) + 5, 5 << 20];
    let key = |len: usize| CacheKey::new(format!("length {len}"), "");
    let (storage, cache) = open(directory.path());
    for len in lengths {
        store(storage, &key(len), "1", &pattern(len)).await;
    }
    check(storage, &lengths).await;
    cache.close().await.unwrap();
    // The storage lives as long as the process and keeps its files locked, so the next run opens copies of them.
    for file in std::fs::read_dir(directory.path()).unwrap() {
        let path = file.unwrap().path();
        std::fs::copy(&path, copy.path().join(path.file_name().unwrap())).unwrap();
    }
    let (storage, cache) = open(copy.path());
    cache.ready().await;
    check(storage, &lengths).await;
}

/// Checks that the responses of these lengths are found.
async fn check(storage: &'static LarderStorage, lengths: &[usize]) {
    for &len in lengths {
        let key = CacheKey::new(format!("length {len}"), "");
        assert_eq!(find(storage, &key).await, Some(("1".to_owned(), true, pattern(len))), "{len} bytes");
    }
}

#[tokio::test]
async fn response_that_is_purged_while_it_is_fetched_is_not_stored() {
    let directory = tempfile::tempdir().unwrap();
    let (storage, _cache) = open(directory.path());
    let key = CacheKey::new("a", "");
    let trace = Span::inactive().handle();
    let mut writer = storage.get_miss_handler(&key, &meta("1"), &trace).await.unwrap();
    let compact = key.to_compact();
    let outcome = storage.purge(PurgeTarget::Active(&compact), PurgeType::Invalidation, &trace).await.unwrap();
    assert_eq!(outcome, PurgeOutcome::NotFound);
    writer.write_body(Bytes::from_static(b"old"), true).await.unwrap();
    writer.finish().await.unwrap();
    assert_eq!(find(storage, &key).await, None);
    store(storage, &key, "2", b"new").await;
    assert_eq!(find(storage, &key).await, Some(("2".to_owned(), true, b"new".to_vec())));
    let outcome = storage.purge(PurgeTarget::Active(&compact), PurgeType::Invalidation, &trace).await.unwrap();
    assert_eq!(outcome, PurgeOutcome::Purged(None));
    assert_eq!(find(storage, &key).await, None);
}

#[tokio::test]
async fn write_that_is_dropped_leaves_the_older_response() {
    let directory = tempfile::tempdir().unwrap();
    let (storage, _cache) = open(directory.path());
    let key = CacheKey::new("a", "");
    store(storage, &key, "1", b"old").await;
    let mut writer = storage.get_miss_handler(&key, &meta("2"), &Span::inactive().handle()).await.unwrap();
    writer.write_body(pattern(100_000).into(), false).await.unwrap();
    drop(writer);
    assert_eq!(find(storage, &key).await, Some(("1".to_owned(), true, b"old".to_vec())));
}

#[tokio::test]
async fn expired_response_is_stale_until_it_is_updated() {
    let directory = tempfile::tempdir().unwrap();
    let (storage, cache) = open(directory.path());
    let trace = Span::inactive().handle();
    for len in [10, 100_000] {
        let key = CacheKey::new(format!("length {len}"), "");
        store(storage, &key, "1", &pattern(len)).await;
        let compact = key.to_compact();
        let outcome = storage.expire(PurgeTarget::Active(&compact), &trace).await.unwrap();
        assert_eq!(outcome, PurgeOutcome::Expired);
        assert_eq!(find(storage, &key).await, Some(("1".to_owned(), false, pattern(len))));
        assert!(storage.update_meta(&key, &meta("2"), &trace).await.unwrap());
        assert_eq!(find(storage, &key).await, Some(("2".to_owned(), true, pattern(len))));
        // The tags outlast both changes.
        cache.remove_tag(&format!("length {len}")).await.unwrap();
        assert_eq!(find(storage, &key).await, None);
    }
}

#[tokio::test]
async fn variants_are_entries_of_their_own() {
    let directory = tempfile::tempdir().unwrap();
    let (storage, _cache) = open(directory.path());
    let plain = CacheKey::new("a", "");
    let mut variant = CacheKey::new("a", "");
    variant.set_variance_key([7; 16]);
    store(storage, &plain, "1", b"plain").await;
    store(storage, &variant, "2", b"variant").await;
    assert_eq!(find(storage, &plain).await.unwrap().2, b"plain");
    assert_eq!(find(storage, &variant).await.unwrap().2, b"variant");
}
