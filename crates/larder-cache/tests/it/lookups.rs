//! Values of any length are found as they were stored.

use crate::support::{TestCache, builder, content, fetched};
use futures_executor::block_on;
use futures_io::AsyncRead;
use larder_cache::{Cache, Error, ValueReader};
use std::{
    future::poll_fn,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

/// Reads to the end through the trait, in pieces that fit no boundary.
async fn read_through(mut reader: ValueReader) -> Vec<u8> {
    let mut read = Vec::new();
    let mut piece = [0; 10_007];
    loop {
        let count = poll_fn(|context| Pin::new(&mut reader).poll_read(context, &mut piece)).await.unwrap();
        read.extend_from_slice(&piece[..count]);
        if count == 0 {
            return read;
        }
    }
}

const LENGTHS: [usize; 6] = [0, 1, 70_000, 1 << 20, (1 << 20) + 1, (5 << 20) + 17];

#[test]
fn values_of_any_length_are_found_before_and_after_a_restart() {
    block_on(async {
        let mut test = TestCache::new();
        for len in LENGTHS {
            test.cache.insert(format!("len {len}"), content(len as u64, len)).await.unwrap();
        }
        for _ in 0..2 {
            for len in LENGTHS {
                let found = test.cache.get(format!("len {len}")).await.unwrap();
                assert!(found.unwrap() == content(len as u64, len), "{len}");
            }
            test = test.reopen().await;
        }
        assert_eq!(test.cache.get("other").await.unwrap(), None);
    });
}

#[test]
fn ranges_and_readers_give_the_bytes_of_the_value() {
    block_on(async {
        let test = TestCache::new();
        for len in LENGTHS {
            let expected = content(7, len);
            test.cache.insert("key", expected.clone()).await.unwrap();
            let value = test.cache.get_value("key").await.unwrap().unwrap();
            assert_eq!(value.len(), len as u64);
            let ends = [0, 1, 65_536, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, (3 << 20) + 5, len];
            for start in ends.into_iter().filter(|start| *start <= len) {
                for end in ends.into_iter().filter(|end| (start..=len).contains(end)) {
                    let bytes = value.read(start as u64..end as u64).await.unwrap();
                    let read = read_through(value.range_reader(start as u64..end as u64)).await;
                    assert!(read == bytes, "{start}..{end} of {len}");
                    assert!(bytes == expected[start..end], "{start}..{end} of {len}");
                }
            }
            assert!(read_through(value.reader()).await == expected, "{len}");
            let mut reader = value.reader();
            let mut pieces = Vec::new();
            while let Some(piece) = reader.next().await.unwrap() {
                pieces.push(piece);
            }
            assert!(pieces.concat() == expected, "{len}");
        }
    });
}

#[test]
fn value_is_visible_once_its_writer_has_finished_and_not_before() {
    block_on(async {
        let test = TestCache::new();
        test.cache.insert("key", "old").await.unwrap();
        let mut writer = test.cache.entry("key").writer().unwrap();
        let expected = content(3, 3 << 20);
        for piece in expected.chunks(100_000) {
            writer.write(piece.to_vec()).await.unwrap();
            assert_eq!(test.cache.get("key").await.unwrap().unwrap(), "old");
        }
        writer.finish().await.unwrap();
        assert!(test.cache.get("key").await.unwrap().unwrap() == expected);
        let mut dropped = test.cache.entry("key").writer().unwrap();
        dropped.write(content(4, 2 << 20)).await.unwrap();
        drop(dropped);
        assert!(test.cache.get("key").await.unwrap().unwrap() == expected);
    });
}

#[test]
fn writer_notices_that_its_key_was_changed_meanwhile() {
    block_on(async {
        let test = TestCache::new();
        for len in [10, 3 << 20] {
            let writer = async || {
                let mut writer = test.cache.entry("key").tag("tag").writer().unwrap();
                writer.write(content(1, len)).await.unwrap();
                writer
            };
            assert!(writer().await.finish_if_unchanged().await.unwrap());
            assert!(test.cache.get("key").await.unwrap().unwrap() == content(1, len));
            let late = writer().await;
            test.cache.insert("key", "newer").await.unwrap();
            assert!(!late.finish_if_unchanged().await.unwrap());
            assert_eq!(test.cache.get("key").await.unwrap().unwrap(), "newer");
            let late = writer().await;
            test.cache.remove("key").await.unwrap();
            assert!(!late.finish_if_unchanged().await.unwrap());
            let late = writer().await;
            test.cache.remove_tag("tag").await.unwrap();
            assert!(!late.finish_if_unchanged().await.unwrap());
            assert_eq!(test.cache.get("key").await.unwrap(), None);
        }
    });
}

#[test]
fn reader_of_a_replaced_value_gives_the_old_bytes_or_an_error() {
    block_on(async {
        let test = TestCache::new();
        let old = content(1, 3 << 20);
        test.cache.insert("key", old.clone()).await.unwrap();
        let value = test.cache.get_value("key").await.unwrap().unwrap();
        test.cache.insert("key", content(2, 3 << 20)).await.unwrap();
        match value.bytes().await {
            Ok(bytes) => assert!(bytes == old),
            Err(error) => assert!(matches!(error, Error::Gone), "{error}"),
        }
    });
}

#[test]
fn many_more_values_than_fit_are_forgotten_and_never_mixed_up() {
    block_on(async {
        let test = TestCache::new();
        for number in 0..4000_u64 {
            test.cache.insert(number.to_le_bytes(), content(number, 40_000)).await.unwrap();
        }
        let mut found_count = 0;
        for number in 0..4000_u64 {
            if let Some(bytes) = test.cache.get(number.to_le_bytes()).await.unwrap() {
                assert!(bytes == content(number, 40_000), "{number}");
                found_count += 1;
            }
        }
        assert!((1000..1700).contains(&found_count), "{found_count} of 64 MB by 40 kB");
    });
}

#[test]
fn second_lookup_is_a_hit_in_memory_and_events_and_counters_agree() {
    block_on(async {
        let event_count = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&event_count);
        let test = TestCache::with(|builder| builder.on_event(move |_| _ = counted.fetch_add(1, Relaxed)));
        test.cache.get_or_fetch("key", || fetched("value")).await.unwrap();
        test.cache.sync().await.unwrap();
        test.cache.get_or_fetch("key", || fetched("other")).await.unwrap();
        let stats = test.cache.stats();
        assert_eq!((stats.misses, stats.fetches, stats.stored, stats.memory_hits), (1, 1, 1, 1));
        assert_eq!(event_count.load(Relaxed), 4);
        let test = test.reopen().await;
        assert_eq!(test.cache.get("key").await.unwrap().unwrap(), "value");
        assert_eq!(test.cache.get("key").await.unwrap().unwrap(), "value");
        assert_eq!((test.cache.stats().disk_hits, test.cache.stats().memory_hits), (1, 1));
    });
}

#[test]
fn pinned_value_outlives_what_displaces_all_others() {
    block_on(async {
        let test = TestCache::new();
        for key in ["pinned", "other"] {
            test.cache.insert(key, content(1, 3 << 20)).await.unwrap();
        }
        assert!(test.cache.pin("pinned").await.unwrap());
        assert!(!test.cache.pin("absent").await.unwrap());
        for number in 0..2000_u64 {
            test.cache.insert(number.to_le_bytes(), content(number, 100_000)).await.unwrap();
        }
        assert!(test.cache.get("other").await.unwrap().is_none());
        assert!(test.cache.get("pinned").await.unwrap().unwrap() == content(1, 3 << 20));
        test.cache.unpin("pinned").await.unwrap();
        assert_eq!(test.cache.stats().store.pinned_entries, 0);
    });
}

/// Guards against a value that is found and then not readable, because the store moved it in between.
#[test]
fn found_value_is_read_after_the_store_moved_it() {
    block_on(async {
        let test = TestCache::with(|builder| builder.memory("4MiB"));
        // Too long for the memory cache, but not in chunks.
        let pinned = content(1, 1 << 20);
        test.cache.insert("pinned", pinned.clone()).await.unwrap();
        assert!(test.cache.pin("pinned").await.unwrap());
        let found = test.cache.get_value("pinned").await.unwrap().unwrap();
        for number in 0..2000_u64 {
            test.cache.insert(number.to_le_bytes(), content(number, 100_000)).await.unwrap();
        }
        assert!(test.cache.stats().store.reinserted > 0);
        assert!(found.bytes().await.unwrap() == pinned);
        test.cache.insert("pinned", content(2, 1 << 20)).await.unwrap();
        assert!(!matches!(found.bytes().await, Ok(bytes) if bytes != pinned), "never the bytes of another value");
    });
}

#[test]
fn wrong_options_and_keys_are_refused_with_what_would_do() {
    let directory = tempfile::tempdir().unwrap();
    let refused = |builder: larder_cache::CacheBuilder| builder.open().unwrap_err().to_string();
    assert_eq!(refused(Cache::builder(directory.path())), "disk: a cache needs a size on disk, such as 10GB");
    let problem = refused(Cache::builder(directory.path()).disk("10XB"));
    assert!(problem.starts_with("disk: unknown unit in size: `10XB`: a size is a number and a unit"), "{problem}");
    let problem = refused(builder(directory.path()).memory("1MB"));
    assert_eq!(problem, "memory: 1000000 bytes are too few: at least 4194304 (4MiB)");
    let problem = refused(Cache::builder(directory.path()).disk("1MB".to_owned()));
    assert_eq!(problem, "disk: 1000000 bytes are too few: at least 4194304 (4MiB)");
    assert!(Cache::builder(directory.path()).disk("4MiB").open().is_ok());
    assert!(refused(Cache::builder("/dev/null/cache").disk("64MB")).contains("/dev/null/cache cannot be used"));
    block_on(async {
        let test = TestCache::new();
        let long = vec![0; 16_367];
        assert!(matches!(test.cache.get(&long).await, Err(Error::Invalid(_))));
        assert!(matches!(test.cache.insert(&long, "value").await, Err(Error::Invalid(_))));
        assert!(test.cache.insert(&long[1..], content(1, 2 << 20)).await.is_ok());
        assert!(test.cache.get(&long[1..]).await.unwrap().is_some());
        let request = (0..257).fold(test.cache.entry("key"), |request, tag| request.tag(&tag.to_string()));
        assert!(matches!(request.insert("value").await, Err(Error::Invalid(_))));
    });
}

#[test]
fn directory_belongs_to_one_cache_until_that_is_closed() {
    block_on(async {
        let test = TestCache::new();
        assert!(matches!(builder(test.path()).open(), Err(Error::Store(_))));
        test.cache.insert("key", content(7, 3 << 20)).await.unwrap();
        let found = test.cache.get_value("key").await.unwrap().unwrap();
        test.cache.close().await.unwrap();
        // The clone and the value do not hold the directory.
        let other = builder(test.path()).open().unwrap();
        assert!(other.get("key").await.unwrap().unwrap() == content(7, 3 << 20));
        assert!(matches!(test.cache.insert("key", "new").await, Err(Error::Store(_))));
        assert!(matches!(found.bytes().await, Err(Error::Store(_) | Error::Gone)));
        assert_eq!(test.cache.get_or_fetch("key", || fetched("fetched")).await.unwrap(), "fetched");
        test.cache.close().await.unwrap();
    });
}

#[cfg(feature = "serde")]
#[test]
fn value_of_another_type_is_fetched_anew() {
    block_on(async {
        let test = TestCache::new();
        let cache = &test.cache;
        cache.insert_as("key", &vec![1_u32, 2, 3]).await.unwrap();
        assert_eq!(cache.get_as::<Vec<u32>>("key").await.unwrap(), Some(vec![1, 2, 3]));
        let hits = cache.stats().memory_hits;
        assert_eq!(cache.get_as::<String>("key").await.unwrap(), None);
        assert_eq!((cache.stats().memory_hits, cache.stats().misses), (hits, 1), "it counts as a miss");
        let fetch = || async { Ok::<_, std::io::Error>("text".to_owned()) };
        assert_eq!(cache.get_or_fetch_as::<String, _, _, _>("key", fetch).await.unwrap(), "text");
        assert_eq!(cache.get_as::<String>("key").await.unwrap().as_deref(), Some("text"));
    });
}

#[cfg(feature = "serde")]
#[test]
fn fetched_value_that_serde_cannot_write_is_an_encode_error() {
    block_on(async {
        let test = TestCache::new();
        // Keys of JSON's maps are strings.
        let fetch = || async { Ok::<_, std::io::Error>(std::collections::HashMap::from([((1_u8, 2_u8), 3_u8)])) };
        let fetched = test.cache.get_or_fetch_as("key", fetch).await;
        assert!(matches!(fetched, Err(larder_cache::Error::Encode(_))), "{fetched:?}");
        let failed = || async { Err::<u8, _>(std::io::Error::other("the source is away")) };
        let failed = test.cache.get_or_fetch_as("key", failed).await;
        assert!(matches!(failed, Err(larder_cache::Error::Fetch(_))), "{failed:?}");
    });
}
