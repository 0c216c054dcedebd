//! One fetch serves all callers that request a key, even if it fails or its caller is dropped.

use crate::support::{TestCache, failed, fetched};
use bytes::Bytes;
use futures_executor::block_on;
use futures_util::{FutureExt, future::join_all, pin_mut};
use larder_cache::Error;
use std::{
    cell::{Cell, RefCell},
    future::{Future, poll_fn},
    io,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    task::{Context, Poll, Waker},
};

/// A fetch that does not end until it is released.
#[derive(Default)]
pub(crate) struct Gate {
    is_open: Cell<bool>,
    waiting: RefCell<Vec<Waker>>,
}

impl Gate {
    pub(crate) async fn then(&self, value: &'static str) -> io::Result<Bytes> {
        let opened = |context: &mut Context<'_>| {
            self.waiting.borrow_mut().push(context.waker().clone());
            if self.is_open.get() { Poll::Ready(()) } else { Poll::Pending }
        };
        poll_fn(opened).await;
        fetched(value).await
    }

    pub(crate) fn open(&self) {
        self.is_open.set(true);
        self.waiting.take().into_iter().for_each(Waker::wake);
    }
}

/// Polls a future until it neither ends nor wakes itself.
pub(crate) fn is_waiting(future: impl Future) -> bool {
    pin_mut!(future);
    future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending()
}

#[test]
fn hundred_callers_share_one_fetch() {
    block_on(async {
        let test = TestCache::new();
        let gate = Gate::default();
        let fetch_count = AtomicUsize::new(0);
        let call = |_| {
            test.cache.get_or_fetch("key", || {
                fetch_count.fetch_add(1, Relaxed);
                gate.then("value")
            })
        };
        let all = join_all((0..100).map(call));
        pin_mut!(all);
        assert!(is_waiting(all.as_mut()));
        gate.open();
        for value in all.await {
            assert_eq!(value.unwrap(), "value");
        }
        assert_eq!(fetch_count.load(Relaxed), 1);
        assert_eq!(test.cache.stats().shared_fetches, 99);
    });
}

#[test]
fn threads_of_a_runtime_share_one_fetch() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).build().unwrap();
    let test = TestCache::new();
    static FETCH_COUNT: AtomicUsize = AtomicUsize::new(0);
    for round in 0..200_u32 {
        let tasks: Vec<_> = (0..16)
            .map(|_| {
                let cache = test.cache.clone();
                runtime.spawn(async move {
                    let fetch = || async {
                        FETCH_COUNT.fetch_add(1, Relaxed);
                        Ok::<_, io::Error>(round.to_string())
                    };
                    cache.get_or_fetch(format!("key {round}"), fetch).await
                })
            })
            .collect();
        for task in tasks {
            assert_eq!(block_on(task).unwrap().unwrap(), round.to_string());
        }
    }
    assert_eq!(FETCH_COUNT.load(Relaxed), 200);
}

#[test]
fn error_of_a_fetch_reaches_all_callers_and_is_not_kept() {
    block_on(async {
        let test = TestCache::new();
        let calls = join_all((0..10).map(|_| test.cache.get_or_fetch("key", failed))).await;
        for outcome in calls {
            let error = outcome.unwrap_err();
            assert!(matches!(error, Error::Fetch(_)));
            assert_eq!(error.to_string(), "the fetch failed: the source is away");
        }
        assert_eq!(test.cache.get_or_fetch("key", || fetched("value")).await.unwrap(), "value");
    });
}

#[test]
fn another_caller_fetches_when_the_first_is_dropped() {
    block_on(async {
        let test = TestCache::new();
        let gate = Gate::default();
        let mut first = Box::pin(test.cache.get_or_fetch("key", || gate.then("first")));
        assert!(is_waiting(first.as_mut()));
        let second = test.cache.get_or_fetch("key", || fetched("second"));
        pin_mut!(second);
        assert!(is_waiting(second.as_mut()));
        drop(first);
        assert_eq!(second.await.unwrap(), "second");
    });
}

#[test]
fn fetch_goes_on_without_a_store() {
    block_on(async {
        let test = TestCache::new();
        test.cache.close().await.unwrap();
        assert_eq!(test.cache.get_or_fetch("key", || fetched("value")).await.unwrap(), "value");
        assert!(test.cache.stats().store_failures > 0);
        assert!(matches!(test.cache.get("key").await, Err(Error::Store(_))));
    });
}

#[test]
fn value_that_is_inserted_during_a_fetch_is_kept() {
    block_on(async {
        let test = TestCache::new();
        let gate = Gate::default();
        let fetch = test.cache.get_or_fetch("key", || gate.then("fetched"));
        pin_mut!(fetch);
        assert!(is_waiting(fetch.as_mut()));
        test.cache.insert("key", "inserted").await.unwrap();
        gate.open();
        assert_eq!(fetch.await.unwrap(), "fetched");
        assert_eq!(test.cache.get("key").await.unwrap().unwrap(), "inserted");
        assert_eq!(test.cache.get_or_fetch("key", failed).now_or_never().unwrap().unwrap(), "inserted");
    });
}

/// At stake: a fetched value that is not found later, although nobody changed its key.
#[test]
fn fetches_beside_twenty_thousand_writes_of_other_keys_are_all_stored() {
    block_on(async {
        let test = TestCache::new();
        let gate = Gate::default();
        let keys: Vec<String> = (0..200).map(|number| format!("fetched {number}")).collect();
        let fetches = join_all(keys.iter().map(|key| test.cache.get_or_fetch(key, || gate.then("value"))));
        pin_mut!(fetches);
        assert!(is_waiting(fetches.as_mut()));
        let mut writer = test.cache.entry("written").writer().unwrap();
        writer.write("value").await.unwrap();
        for number in 0..20_000 {
            test.cache.insert(format!("other {number}"), "x").await.unwrap();
        }
        gate.open();
        fetches.await.into_iter().for_each(|value| assert_eq!(value.unwrap(), "value"));
        assert!(writer.finish_if_unchanged().await.unwrap());
        let mut stored_count = 0;
        for key in keys.iter().map(String::as_str).chain(["written"]) {
            stored_count += usize::from(test.cache.get(key).await.unwrap().is_some());
        }
        assert_eq!(stored_count, 201);
    });
}

/// At stake: an old value that replaces a newer one.
#[test]
fn fetch_whose_key_was_written_meanwhile_is_not_stored() {
    block_on(async {
        let test = TestCache::new();
        let gate = Gate::default();
        let old = test.cache.get_or_fetch("key", || gate.then("old"));
        pin_mut!(old);
        assert!(is_waiting(old.as_mut()));
        test.cache.insert("key", "new").await.unwrap();
        gate.open();
        assert_eq!(old.await.unwrap(), "old");
        assert_eq!(test.cache.get("key").await.unwrap().unwrap(), "new");
    });
}
