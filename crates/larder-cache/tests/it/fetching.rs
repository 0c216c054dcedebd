//! One fetch serves all callers that request a key, even if it fails or its caller is dropped.

use crate::support::{TestCache, failed, fetched};
use bytes::Bytes;
use futures_executor::block_on;
use futures_util::{FutureExt, future::join_all, pin_mut};
use larder_cache::Error;
use std::{
    future::{Future, poll_fn},
    io,
    panic::AssertUnwindSafe,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

/// A fetch that does not end until it is released.
#[derive(Clone, Default)]
pub(crate) struct Gate {
    state: Arc<Mutex<GateState>>,
}

#[derive(Default)]
struct GateState {
    is_open: bool,
    waiting: Vec<Waker>,
}

impl Gate {
    pub(crate) fn then(&self, value: &'static str) -> impl Future<Output = io::Result<Bytes>> + Send + 'static {
        let gate = self.clone();
        async move {
            let opened = |context: &mut Context<'_>| {
                let mut state = gate.state.lock().unwrap();
                state.waiting.push(context.waker().clone());
                if state.is_open { Poll::Ready(()) } else { Poll::Pending }
            };
            poll_fn(opened).await;
            fetched(value).await
        }
    }

    pub(crate) fn open(&self) {
        let mut state = self.state.lock().unwrap();
        state.is_open = true;
        std::mem::take(&mut state.waiting).into_iter().for_each(Waker::wake);
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
                    let fetch = || async move {
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

/// Drops a thousand callers of a fetch before it ends. Guards against a source whose answer takes longer than any
/// caller waits, so that it is asked again and again, and nothing is ever stored.
async fn fetch_outlives_a_thousand_callers(ended: impl AsyncFn(&TestCache)) {
    let test = TestCache::new();
    let gate = Gate::default();
    let begun_count = AtomicUsize::new(0);
    for _ in 0..1000 {
        let mut caller = Box::pin(test.cache.get_or_fetch("key", || {
            begun_count.fetch_add(1, Relaxed);
            gate.then("value")
        }));
        assert!(is_waiting(caller.as_mut()));
    }
    gate.open();
    ended(&test).await;
    assert_eq!((begun_count.load(Relaxed), test.cache.stats().fetches), (1, 1));
    for _ in 0..10 {
        assert_eq!(test.cache.get_or_fetch("key", failed).await.unwrap(), "value");
    }
    assert_eq!(test.cache.get("key").await.unwrap().unwrap(), "value", "and it is stored");
    assert_eq!(test.cache.stats().fetches, 1);
}

#[test]
fn fetch_outlives_its_callers_without_a_runtime() {
    block_on(fetch_outlives_a_thousand_callers(async |test: &TestCache| {
        // A caller that waits for it.
        assert_eq!(test.cache.get_or_fetch("key", failed).await.unwrap(), "value");
    }));
}

#[test]
fn fetch_outlives_its_callers_on_the_one_thread_of_a_runtime() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(fetch_outlives_a_thousand_callers(async |test: &TestCache| {
        let is_fetched = async {
            while test.cache.stats().fetches == 0 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), is_fetched).await.unwrap();
    }));
}

/// Guards against callers that wait forever for a fetch that nothing drives.
#[test]
fn another_caller_fetches_when_the_runtime_of_a_fetch_ends() {
    let test = TestCache::new();
    let gate = Gate::default();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let mut first = Box::pin(test.cache.get_or_fetch("key", || gate.then("first")));
    {
        let _context = runtime.enter();
        assert!(is_waiting(first.as_mut()));
    }
    let mut second = Box::pin(test.cache.get_or_fetch("key", || fetched("second")));
    assert!(is_waiting(second.as_mut()));
    drop(runtime);
    assert_eq!(block_on(second).unwrap(), "second");
    assert!(matches!(block_on(first), Err(Error::Fetch(_))));
}

#[test]
fn panic_of_a_fetch_reaches_its_caller_and_another_one_fetches() {
    block_on(async {
        let test = TestCache::new();
        let gate = Gate::default();
        let panics = gate.then("first").map(|_| -> io::Result<Bytes> { panic!("a panic that is due") });
        let mut first = Box::pin(AssertUnwindSafe(test.cache.get_or_fetch("key", || panics)).catch_unwind());
        assert!(is_waiting(first.as_mut()));
        let mut second = Box::pin(test.cache.get_or_fetch("key", || fetched("second")));
        assert!(is_waiting(second.as_mut()));
        gate.open();
        let panic = first.await.unwrap_err();
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"a panic that is due"));
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

/// Guards against a fetched value that is not found later, although nobody changed its key.
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

/// Guards against an old value that replaces a newer one.
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
