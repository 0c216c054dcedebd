//! A load through the example's proxy, with every body checked: misses, hits, ranges and purges.

#[path = "../examples/load/objects.rs"]
mod objects;
#[path = "../examples/proxy.rs"]
#[expect(dead_code, reason = "the example's main function")]
mod proxy;

use larder_cache::Cache;
use objects::{OBJECT_COUNT, choose, content, get, origin};
use std::{net::SocketAddr, sync::atomic::Ordering::Relaxed, time::Duration};
use tokio::net::TcpStream;

const REQUEST_COUNT: u64 = 4000;
const TASK_COUNT: u64 = 8;

/// Starts the example's proxy, and waits until it answers.
async fn start_proxy(origin: SocketAddr, directory: &std::path::Path) -> (SocketAddr, Cache) {
    // pingora cannot say which port it got.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (server, cache) = proxy::server(&free.to_string(), origin, directory).unwrap();
    std::thread::spawn(move || -> () { server.run_forever() });
    let mut pauses = tokio::time::interval(Duration::from_millis(100));
    for _ in 0..600 {
        if TcpStream::connect(free).await.is_ok() {
            return (free, cache);
        }
        pauses.tick().await;
    }
    panic!("the proxy does not listen");
}

async fn load(proxy: SocketAddr, task: u64) -> u64 {
    let mut hits = 0;
    let mut random = task + 1;
    for _ in 0..REQUEST_COUNT / TASK_COUNT {
        let object = choose(&mut random);
        let (status, cache, body) = get(proxy, object, "").await.unwrap();
        assert_eq!(status, 200, "object {object}");
        assert!(body == content(object), "object {object}: {} other bytes ({cache})", body.len());
        hits += u64::from(cache == "hit");
    }
    hits
}

#[tokio::test(flavor = "multi_thread")]
async fn every_body_is_right_under_load_with_ranges_and_purges() {
    let directory = tempfile::tempdir().unwrap();
    let (origin, count) = origin("127.0.0.1:0").await.unwrap();
    let (proxy, cache) = start_proxy(origin, directory.path()).await;
    let tasks: Vec<_> = (0..TASK_COUNT).map(|task| tokio::spawn(load(proxy, task))).collect();
    let mut hits = 0;
    for task in tasks {
        hits += task.await.unwrap();
    }
    let asked = count.load(Relaxed);
    println!("{REQUEST_COUNT} requests, every body right, {hits} hits, {asked} requests to the origin");
    assert!(hits > REQUEST_COUNT / 2 && asked <= OBJECT_COUNT, "{hits} hits, {asked} requests to the origin");
    check_ranges(proxy).await;
    assert_eq!(count.load(Relaxed), asked, "ranges come from the cache");
    cache.clear().await.unwrap();
    let (_, state, body) = get(proxy, 27, "").await.unwrap();
    assert!(state == "miss" && body == content(27), "{state}");
}

/// Requests parts of a short object and of a long one, both stored.
async fn check_ranges(proxy: SocketAddr) {
    for object in [5, 27] {
        let whole = content(object);
        get(proxy, object, "").await.unwrap();
        for range in [0..10, 100..600, whole.len() - 7..whole.len()] {
            let fields = format!("Range: bytes={}-{}\r\n", range.start, range.end - 1);
            let (status, cache, body) = get(proxy, object, &fields).await.unwrap();
            assert_eq!((status, cache.as_str()), (206, "hit"), "object {object}, {range:?}");
            assert!(body == whole[range.clone()], "object {object}, {range:?}");
        }
    }
}
