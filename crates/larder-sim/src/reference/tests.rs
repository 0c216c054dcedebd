//! Guards against figures that cannot be compared with other authors'.

use super::{Eviction, NextUses, belady, eviction, eviction_names};
use std::{fs::File, io::Read, path::PathBuf};

/// Returns the misses, and the bytes missed, of `requests`.
fn misses(mut cache: Box<dyn Eviction>, requests: &[(u64, u64)]) -> (u64, u64) {
    let missed = requests.iter().filter(|&&(key, size)| !cache.request(key, size));
    missed.fold((0, 0), |(count, bytes), &(_, size)| (count + 1, bytes + size))
}

fn named(name: &str, size_bytes: u64, requests: &[(u64, u64)]) -> (u64, u64) {
    misses(eviction(name, size_bytes).unwrap(), requests)
}

fn letters(text: &str) -> Vec<(u64, u64)> {
    text.bytes().map(|letter| (u64::from(letter), 1)).collect()
}

/// Returns a real trace stored next to the project, or `None` if it is absent.
fn real_trace(name: &str) -> Option<Vec<u8>> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces").join(name);
    let Ok(file) = File::open(&path) else {
        println!("{} is absent: not compared", path.display());
        return None;
    };
    let mut bytes = Vec::new();
    liblzma::read::XzDecoder::new(file).read_to_end(&mut bytes).unwrap();
    Some(bytes)
}

#[test]
fn hand_worked_sequences_miss_as_on_paper() {
    // A cache of three objects. LRU misses a b c d e b; FIFO also evicts objects that were hit.
    assert_eq!(named("lru", 3, &letters("abcabdaeb")).0, 6);
    assert_eq!(named("fifo", 3, &letters("abcadab")).0, 6);
    // SIEVE passes over a and b, which were hit, and evicts c.
    assert_eq!(named("sieve", 3, &letters("abcabdab")).0, 4);
    // Of ten bytes, the long object requested once is evicted before the short one.
    assert_eq!(named("gdsf", 10, &[(1, 5), (2, 1), (3, 5), (2, 1), (1, 5)]).0, 4);
}

#[test]
fn what_is_longer_than_the_cache_is_never_stored() {
    for name in eviction_names() {
        assert_eq!(named(name, 100, &[(1, 101), (1, 101), (1, 101)]).0, 3, "{name}");
    }
}

/// Guards against evictions that are better because they keep more. With objects that are requested twice in a row, a
/// cache of `n` bytes hits at most as many objects of an earlier round as fit into it.
#[test]
fn no_eviction_exceeds_its_bytes() {
    for name in eviction_names() {
        let mut cache = eviction(name, 100).unwrap();
        for key in 0..1000 {
            cache.request(key, 10);
            cache.request(key, 10);
        }
        // A lookup that misses stores its object, so the hits of one pass from the newest on are those that were kept.
        let hits = (0..1000).rev().filter(|key| cache.request(*key, 10)).count();
        assert!(hits <= 10, "{name} kept {hits} objects of 10 bytes in 100 bytes");
    }
}

#[test]
fn nobody_misses_less_than_who_knows_the_future() {
    let mut state = 7_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    let requests: Vec<_> = (0..20_000).map(|_| ((next() % 1000) * (next() % 1000) / 1000, 1)).collect();
    let keys: Vec<_> = requests.iter().map(|&(key, _)| key).collect();
    let best = misses(belady(100, NextUses::of(&keys)), &requests).0;
    for name in eviction_names() {
        let own = named(name, 100, &requests).0;
        assert!(best < own, "{name}: {own}, the optimum {best}");
    }
}

/// Counts by libCacheSim 0.3.5: misses, bytes missed.
#[test]
fn web_objects_miss_as_with_libcachesim_to_the_last_request() {
    let Some(text) = real_trace("adapt_size-request.trace.xz") else { return };
    let text = String::from_utf8(text).unwrap();
    let requests: Vec<(u64, u64)> = text
        .lines()
        .map(|line| line.split(' ').map(|word| word.parse().unwrap()).collect::<Vec<u64>>())
        .map(|fields| (fields[1], fields[2]))
        .collect();
    let expected = [
        (2_792_620, "lru", 50_488, 351_397_353),
        (2_792_620, "fifo", 51_295, 357_724_766),
        (2_792_620, "sieve", 49_384, 344_563_123),
        (2_792_620, "s3-fifo", 48_160, 347_195_062),
        (27_926_200, "lru", 43_961, 314_826_425),
        (27_926_200, "fifo", 44_969, 320_479_058),
        (27_926_200, "sieve", 41_659, 303_994_452),
        (27_926_200, "s3-fifo", 41_607, 304_403_749),
        (83_778_600, "lru", 39_601, 292_501_011),
        (83_778_600, "fifo", 40_987, 299_144_847),
        (83_778_600, "sieve", 38_724, 288_486_791),
        (83_778_600, "s3-fifo", 38_856, 290_843_565),
    ];
    for (size, name, count, bytes) in expected {
        assert_eq!(named(name, size, &requests), (count, bytes), "{name} with {size} bytes");
    }
    let lhd = named("lhd", 27_926_200, &requests).0;
    assert!(lhd < 41_607, "LHD knows sizes and ages: {lhd} misses, more than S3-FIFO");
}

#[test]
fn pages_without_sizes_miss_as_with_libcachesim_to_the_last_request() {
    let Some(bytes) = real_trace("cache2k-web07.trace.xz") else { return };
    let requests: Vec<(u64, u64)> =
        bytes.chunks_exact(4).map(|word| (u64::from(u32::from_be_bytes(word.try_into().unwrap())), 1)).collect();
    let expected = [
        (300, [("lru", 44_223), ("fifo", 46_430), ("sieve", 41_848), ("s3-fifo", 40_616)]),
        (3000, [("lru", 31_559), ("fifo", 33_377), ("sieve", 30_030), ("s3-fifo", 30_121)]),
    ];
    for (size, rows) in expected {
        for (name, count) in rows {
            assert_eq!(named(name, size, &requests).0, count, "{name} with {size} places");
        }
    }
}
