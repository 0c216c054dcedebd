//! Values of any length are fetched piece by piece, once for all callers.

use crate::{
    fetching::is_waiting,
    support::{TestCache, content, failed, fetched},
};
use bytes::Bytes;
use futures_channel::oneshot;
use futures_executor::block_on;
use futures_util::future::{join, join_all};
use larder_cache::{Error, Result, ValueWriter};
use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

const LONG_BYTES: usize = (5 << 20) + 17;

/// Writes `value` in pieces that divide no chunk.
async fn written(mut writer: ValueWriter, value: &Bytes) -> Result<ValueWriter> {
    for piece in value.chunks(100_001) {
        writer.write(Bytes::copy_from_slice(piece)).await?;
    }
    Ok(writer)
}

#[test]
fn callers_share_one_fetch_of_a_value_of_any_length() {
    for len in [0, 1000, 1 << 20, LONG_BYTES] {
        block_on(async {
            let test = TestCache::new();
            let value = content(7, len);
            let fetch_count = Arc::new(AtomicUsize::new(0));
            let (open, gate) = oneshot::channel::<()>();
            let own = value.clone();
            let counted = Arc::clone(&fetch_count);
            let first = test.cache.get_value_or_fetch("key", async move |writer| {
                counted.fetch_add(1, Relaxed);
                gate.await.map_err(io::Error::other)?;
                written(writer, &own).await.map_err(io::Error::other)
            });
            let other = |_| test.cache.get_value_or_fetch("key", |_| async { Err::<ValueWriter, _>("a second fetch") });
            let mut all = Box::pin(join(first, join_all((0..20).map(other))));
            assert!(is_waiting(all.as_mut()));
            open.send(()).unwrap();
            let (first, others) = all.await;
            for found in others.into_iter().chain([first]) {
                assert!(found.unwrap().bytes().await.unwrap() == value, "{len} bytes");
            }
            assert_eq!((fetch_count.load(Relaxed), test.cache.stats().shared_fetches), (1, 20));
            let test = test.reopen().await;
            let found = test.cache.get_value_or_fetch("key", |_| async { Err::<ValueWriter, _>("a fetch") }).await;
            assert!(found.unwrap().bytes().await.unwrap() == value, "{len} bytes after a restart");
        });
    }
}

#[test]
fn caller_of_get_or_fetch_waits_for_a_value_that_is_written_in_pieces() {
    block_on(async {
        let test = TestCache::new();
        let value = content(7, LONG_BYTES);
        let (open, gate) = oneshot::channel::<()>();
        let own = value.clone();
        let first = test.cache.get_value_or_fetch("key", async move |writer| {
            gate.await.unwrap();
            written(writer, &own).await
        });
        let whole = test.cache.get_or_fetch("key", failed);
        let mut both = Box::pin(join(first, whole));
        assert!(is_waiting(both.as_mut()));
        open.send(()).unwrap();
        let (first, whole) = both.await;
        assert!(first.unwrap().len() == LONG_BYTES as u64 && whole.unwrap() == value);
    });
}

#[test]
fn fetch_that_fails_stores_nothing() {
    block_on(async {
        let test = TestCache::new();
        let value = content(7, LONG_BYTES);
        let own = value.clone();
        let broken = test.cache.get_value_or_fetch("key", async move |writer| {
            written(writer, &own).await.unwrap();
            Err::<ValueWriter, _>("the source broke off")
        });
        assert_eq!(broken.await.unwrap_err().to_string(), "the fetch failed: the source broke off");
        assert!(test.cache.get("key").await.unwrap().is_none());
        let own = value.clone();
        let found = test.cache.get_value_or_fetch("key", async move |writer| written(writer, &own).await).await;
        assert!(found.unwrap().bytes().await.unwrap() == value);
    });
}

#[test]
fn fetch_in_pieces_goes_on_without_its_caller() {
    block_on(async {
        let test = TestCache::new();
        let value = content(7, LONG_BYTES);
        let own = value.clone();
        let (open, gate) = oneshot::channel::<()>();
        let mut dropped = Box::pin(test.cache.get_value_or_fetch("key", async move |writer| {
            let writer = written(writer, &own).await?;
            gate.await.unwrap();
            Result::Ok(writer)
        }));
        assert!(is_waiting(dropped.as_mut()));
        drop(dropped);
        assert!(test.cache.get("key").await.unwrap().is_none());
        open.send(()).unwrap();
        let found = test.cache.get_value_or_fetch("key", |_| async { Err::<ValueWriter, _>("a second fetch") }).await;
        assert!(found.unwrap().bytes().await.unwrap() == value);
    });
}

/// Guards against a value under another value's key.
#[test]
fn writer_of_another_value_is_refused() {
    block_on(async {
        let test = TestCache::new();
        let other = test.cache.entry("other").writer().unwrap();
        let found = test.cache.get_value_or_fetch("key", |_| async { Result::Ok(other) }).await;
        assert!(matches!(found, Err(Error::Fetch(_))));
        assert!(test.cache.get("other").await.unwrap().is_none());
    });
}

#[test]
fn stale_value_of_any_length_is_used_if_the_fetch_fails() {
    block_on(async {
        let (test, clock) = TestCache::with_clock();
        let value = content(7, LONG_BYTES);
        let second = Duration::from_secs(1);
        let entry = || test.cache.entry("key").fresh_for(second).stale_for(10 * second);
        let own = value.clone();
        entry().get_value_or_fetch(async move |writer| written(writer, &own).await).await.unwrap();
        clock.advance(2 * second);
        let stale = entry().get_value_or_fetch(|_| async { Err::<ValueWriter, _>("away") }).await.unwrap();
        assert!(!stale.is_fresh() && stale.bytes().await.unwrap() == value);
        clock.advance(20 * second);
        let gone = entry().get_value_or_fetch(|_| async { Err::<ValueWriter, _>("away") }).await;
        assert!(matches!(gone, Err(Error::Fetch(_))));
    });
}

#[test]
fn value_that_is_removed_during_its_fetch_is_returned_and_not_stored() {
    for len in [1000, LONG_BYTES] {
        block_on(async {
            let test = TestCache::new();
            let value = content(7, len);
            let own = value.clone();
            let cache = test.cache.clone();
            let found = test.cache.get_value_or_fetch("key", async move |writer| {
                cache.remove("key").await?;
                written(writer, &own).await
            });
            assert!(found.await.unwrap().bytes().await.unwrap() == value);
            assert!(test.cache.get("key").await.unwrap().is_none());
        });
    }
}

/// Guards against a value that is said to be stored, and evicts its own beginning.
#[test]
fn value_may_take_half_of_the_disk_and_no_longer_one_is_stored() {
    block_on(async {
        let test = TestCache::new();
        let longest = content(7, 32_000_000);
        let too_long = content(7, 32_000_001);
        for number in 0..100 {
            test.cache.insert(format!("other {number}"), content(number, 1 << 20)).await.unwrap();
        }
        test.cache.insert("key", longest.clone()).await.unwrap();
        let stored = test.cache.stats().stored;
        assert!(matches!(test.cache.insert("key", too_long.clone()).await, Err(Error::Invalid(_))));
        assert!(test.cache.get("key").await.unwrap().unwrap() == longest);
        let bytes = test.cache.get_or_fetch("long", || fetched(too_long.clone())).await.unwrap();
        assert!(bytes == too_long && test.cache.get("long").await.unwrap().is_none());
        let streamed =
            test.cache.get_value_or_fetch("long", async move |writer| written(writer, &too_long).await).await;
        let problem = streamed.unwrap_err().to_string();
        assert!(problem.contains("more than 32000000 bytes is not stored"), "{problem}");
        assert_eq!(test.cache.stats().stored, stored);
    });
}
