//! Values are fresh, then stale, then gone. Setting the clock back extends no lifetime.

use crate::{
    fetching::{Gate, is_waiting},
    support::{TestCache, failed, fetched},
};
use futures_executor::block_on;
use futures_util::pin_mut;
use larder_cache::{EntryRequest, Error};
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);

fn short_lived(test: &TestCache) -> EntryRequest {
    test.cache.entry("key").fresh_for(MINUTE).stale_for(MINUTE)
}

#[test]
fn value_is_found_while_it_is_fresh() {
    block_on(async {
        let (test, clock) = TestCache::with_clock();
        short_lived(&test).insert("value").await.unwrap();
        clock.advance(MINUTE);
        assert_eq!(test.cache.get("key").await.unwrap().unwrap(), "value");
        clock.advance(Duration::from_millis(1));
        assert_eq!(test.cache.get("key").await.unwrap(), None);
        let value = test.cache.get_value("key").await.unwrap().unwrap();
        assert!(!value.is_fresh());
        assert_eq!(value.age(), MINUTE + Duration::from_millis(1));
        clock.advance(MINUTE);
        assert!(test.cache.get_value("key").await.unwrap().is_none());
    });
}

#[test]
fn stale_value_is_used_when_the_fetch_fails_and_no_longer_than_allowed() {
    block_on(async {
        let (test, clock) = TestCache::with_clock();
        short_lived(&test).insert("old").await.unwrap();
        clock.advance(MINUTE + Duration::from_secs(1));
        assert_eq!(short_lived(&test).get_or_fetch(failed).await.unwrap(), "old");
        assert_eq!(test.cache.stats().stale_hits, 1);
        clock.advance(MINUTE);
        assert!(matches!(short_lived(&test).get_or_fetch(failed).await, Err(Error::Fetch(_))));
    });
}

#[test]
fn others_get_the_stale_value_at_once_while_one_caller_fetches() {
    block_on(async {
        let (test, clock) = TestCache::with_clock();
        short_lived(&test).insert("old").await.unwrap();
        clock.advance(MINUTE + Duration::from_secs(1));
        let gate = Gate::default();
        let first = short_lived(&test).get_or_fetch(|| gate.then("new"));
        pin_mut!(first);
        assert!(is_waiting(first.as_mut()));
        for _ in 0..10 {
            assert_eq!(short_lived(&test).get_or_fetch(failed).await.unwrap(), "old");
        }
        gate.open();
        assert_eq!(first.await.unwrap(), "new");
        assert_eq!(short_lived(&test).get_or_fetch(failed).await.unwrap(), "new");
    });
}

#[test]
fn clock_that_is_set_back_makes_no_value_live_longer() {
    block_on(async {
        let (test, clock) = TestCache::with_clock();
        short_lived(&test).insert("old").await.unwrap();
        clock.step(-3600);
        assert_eq!(short_lived(&test).get_or_fetch(|| fetched("new")).await.unwrap(), "new");
        test.cache.sync().await.unwrap();
        clock.step(3600);
        assert!(test.cache.get_value("key").await.unwrap().is_none());
    });
}

#[test]
fn lifetimes_of_the_builder_apply_to_values_without_their_own() {
    block_on(async {
        let clock = larder_store::Clock::manual(Duration::from_secs(1_700_000_000));
        let own = clock.clone();
        let test =
            TestCache::with(|builder| builder.fresh_for(MINUTE).configure_store(move |options| options.clock = own));
        test.cache.insert("default", "1").await.unwrap();
        test.cache.entry("own").fresh_for(10 * MINUTE).insert("2").await.unwrap();
        clock.advance(2 * MINUTE);
        assert_eq!(test.cache.get("default").await.unwrap(), None);
        assert_eq!(test.cache.get("own").await.unwrap().unwrap(), "2");
    });
}
