//! A removed value is not found again, neither after a restart nor through a fetch that began earlier.

use crate::{
    fetching::{Gate, is_waiting},
    support::{TestCache, builder, content, fetched},
};
use futures_executor::block_on;
use futures_util::{future::join_all, pin_mut};
use larder_cache::{Cache, Error};
use larder_store::{ErrorKind, Policy};
use std::fs;

async fn remove(cache: &Cache) -> larder_cache::Result<()> {
    cache.remove("key").await
}

async fn remove_tag(cache: &Cache) -> larder_cache::Result<()> {
    cache.remove_tag("tag").await
}

async fn clear(cache: &Cache) -> larder_cache::Result<()> {
    cache.clear().await
}

async fn removed_value_stays_removed(remove: impl AsyncFn(&Cache) -> larder_cache::Result<()>) {
    let mut test = TestCache::new();
    for len in [5, 100_000, 3 << 20] {
        test.cache.entry("key").tag("tag").insert(content(1, len)).await.unwrap();
        assert!(test.cache.get("key").await.unwrap().is_some());
        remove(&test.cache).await.unwrap();
        assert_eq!(test.cache.get("key").await.unwrap(), None);
        test = test.reopen().await;
        assert_eq!(test.cache.get("key").await.unwrap(), None);
        test.cache.entry("key").tag("tag").insert("new").await.unwrap();
        test = test.reopen().await;
        assert_eq!(test.cache.get("key").await.unwrap().unwrap(), "new");
    }
}

#[test]
fn removed_value_stays_removed_after_a_restart() {
    block_on(async {
        removed_value_stays_removed(remove).await;
        removed_value_stays_removed(remove_tag).await;
        removed_value_stays_removed(clear).await;
    });
}

async fn fetch_from_before_is_not_stored(remove: impl AsyncFn(&Cache) -> larder_cache::Result<()>) {
    let test = TestCache::new();
    let gate = Gate::default();
    let old = test.cache.entry("key").tag("tag").get_or_fetch(|| gate.then("old"));
    pin_mut!(old);
    assert!(is_waiting(old.as_mut()));
    remove(&test.cache).await.unwrap();
    // A caller that arrives after the removal must not join the old fetch.
    let new = test.cache.entry("key").tag("tag").get_or_fetch(|| fetched("new")).await;
    assert_eq!(new.unwrap(), "new");
    gate.open();
    assert_eq!(old.await.unwrap(), "old");
    assert_eq!(test.cache.get("key").await.unwrap().unwrap(), "new");
    remove(&test.cache).await.unwrap();
    assert_eq!(test.cache.get("key").await.unwrap(), None);
}

#[test]
fn fetch_that_began_before_a_removal_is_not_stored_after_it() {
    block_on(async {
        fetch_from_before_is_not_stored(remove).await;
        fetch_from_before_is_not_stored(remove_tag).await;
        fetch_from_before_is_not_stored(clear).await;
    });
}

#[test]
fn removal_of_a_tag_leaves_other_values() {
    block_on(async {
        let test = TestCache::new();
        test.cache.entry("both").tag("a").tag("b").insert("1").await.unwrap();
        test.cache.entry("one").tag("a").insert("2").await.unwrap();
        test.cache.insert("none", "3").await.unwrap();
        test.cache.remove_tag("b").await.unwrap();
        let test = test.reopen().await;
        assert_eq!(test.cache.get("both").await.unwrap(), None);
        assert_eq!(test.cache.get("one").await.unwrap().unwrap(), "2");
        assert_eq!(test.cache.get("none").await.unwrap().unwrap(), "3");
    });
}

#[test]
fn cache_whose_list_of_removals_is_lost_or_damaged_begins_empty() {
    block_on(async {
        let mut test = TestCache::new();
        let path = test.path().join("removed-tags");
        // The list is a separate file, so it may be lost while the store is not.
        let damages: [&dyn Fn(); 3] =
            [&|| fs::remove_file(&path).unwrap(), &|| fs::write(&path, "something else").unwrap(), &|| {
                let mut bytes = fs::read(&path).unwrap();
                bytes[20] ^= 1;
                fs::write(&path, bytes).unwrap();
            }];
        for damage in damages {
            test.cache.entry("removed").tag("tag").insert("1").await.unwrap();
            test.cache.remove_tag("tag").await.unwrap();
            test.cache.insert("other", "2").await.unwrap();
            let kept = test.reopen_after(damage).await;
            assert_eq!(kept.cache.get("removed").await.unwrap(), None);
            assert_eq!(kept.cache.get("other").await.unwrap(), None);
            kept.cache.insert("other", "3").await.unwrap();
            test = kept.reopen().await;
            assert_eq!(test.cache.get("other").await.unwrap().unwrap(), "3");
        }
    });
}

#[test]
fn list_of_removals_does_not_grow_without_bound() {
    block_on(async {
        let test = TestCache::new();
        test.cache.entry("key").tag("tag 7").insert("value").await.unwrap();
        test.cache.entry("other").tag("another").insert("value").await.unwrap();
        let tags: Vec<_> = (0..10).map(|number| format!("tag {number}")).collect();
        for _ in 0..80 {
            let removals = (0..500).map(|number| test.cache.remove_tag(&tags[number % 10]));
            join_all(removals).await.into_iter().for_each(|removed| removed.unwrap());
        }
        let len = fs::metadata(test.path().join("removed-tags")).unwrap().len();
        assert!(len < 1_100_000, "{len}");
        let test = test.reopen().await;
        assert_eq!(test.cache.get("key").await.unwrap(), None);
        assert_eq!(test.cache.get("other").await.unwrap().unwrap(), "value");
    });
}

/// Guards against values that are lost because unrelated tags were removed, and removed values that come back.
#[test]
fn hundred_thousand_removed_tags_lose_no_other_value() {
    block_on(async {
        let mut test = TestCache::new();
        for number in 0..300 {
            test.cache.insert(format!("plain {number}"), "value").await.unwrap();
            test.cache.entry(format!("tagged {number}")).tag("kept").insert("value").await.unwrap();
            test.cache.entry(format!("removed {number}")).tag("first").insert("value").await.unwrap();
        }
        test.cache.remove_tag("first").await.unwrap();
        let gate = Gate::default();
        let fetch = test.cache.entry("fetched").tag("tag 7").get_or_fetch(|| gate.then("value"));
        pin_mut!(fetch);
        assert!(is_waiting(fetch.as_mut()));
        for first in (0..100_000).step_by(1000) {
            let tags: Vec<_> = (first..first + 1000).map(|number| format!("tag {number}")).collect();
            let removals = join_all(tags.iter().map(|tag| test.cache.remove_tag(tag))).await;
            removals.into_iter().for_each(|removed| removed.unwrap());
        }
        gate.open();
        fetch.await.unwrap();
        assert_eq!(test.cache.get("fetched").await.unwrap(), None, "its tag was removed during the fetch");
        for _ in 0..2 {
            for number in 0..300 {
                for kind in ["plain", "tagged"] {
                    assert!(test.cache.get(format!("{kind} {number}")).await.unwrap().is_some(), "{kind} {number}");
                }
                assert_eq!(test.cache.get(format!("removed {number}")).await.unwrap(), None, "{number}");
            }
            test = test.reopen().await;
        }
        let len_bytes = fs::metadata(test.path().join("removed-tags")).unwrap().len();
        assert!(len_bytes < 9 << 20, "80 bytes for each tag: {len_bytes}");
    });
}

#[test]
fn cache_that_is_open_already_is_in_use() {
    for name in ["log", "tiny", "ucfs"] {
        let directory = tempfile::tempdir().unwrap();
        let policy = Policy::named(name).unwrap();
        let open = || builder(directory.path()).configure_store(move |options| options.policy = policy).open();
        let first = open().unwrap();
        let kind = match open() {
            Err(Error::Store(error)) => error.kind(),
            other => panic!("{name}: {other:?}"),
        };
        assert_eq!(kind, ErrorKind::InUse, "{name}");
        block_on(first.close()).unwrap();
        drop(first);
        open().unwrap();
    }
}

#[test]
fn cache_of_another_size_is_refused_and_loses_nothing() {
    block_on(async {
        let test = TestCache::new();
        test.cache.insert("key", "value").await.unwrap();
        test.cache.close().await.unwrap();
        assert!(builder(test.path()).disk("128MB").open().is_err());
        let test = test.reopen().await;
        assert_eq!(test.cache.get("key").await.unwrap().unwrap(), "value");
    });
}
