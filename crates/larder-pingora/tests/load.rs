//! A load through the example's proxy, with every body checked: misses, hits, ranges, purges, and a restart.

#[path = "../examples/proxy.rs"]
#[expect(dead_code, reason = "the example's main function")]
mod proxy;

use larder_cache::Cache;
use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
};

const OBJECT_COUNT: u64 = 200;
const REQUEST_COUNT: u64 = 4000;
const TASK_COUNT: u64 = 8;

/// The bytes of all objects.
static CONTENTS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| (0..OBJECT_COUNT).map(new_content).collect());

/// Returns the bytes of an object.
fn content(object: u64) -> &'static [u8] {
    &CONTENTS[object as usize]
}

/// Creates the bytes of an object: most are short, one in twenty has up to 3 MiB.
fn new_content(object: u64) -> Vec<u8> {
    let len = if object % 20 == 7 { (object * 16_001) % (3 << 20) + 40_000 } else { (object * 131) % 20_000 };
    let mut state = object.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let words = (0..=len / 8).flat_map(|_| {
        state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        state.to_le_bytes()
    });
    words.take(len as usize + 1).collect()
}

/// Starts an origin. Returns its address and the number of its requests.
async fn origin() -> (SocketAddr, Arc<AtomicU64>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let count = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&count);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let counted = Arc::clone(&counted);
            // A connection that fails is the proxy's to notice.
            tokio::spawn(async move { _ = answer(stream, &counted).await });
        }
    });
    (address, count)
}

async fn answer(stream: TcpStream, count: &AtomicU64) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if stream.read_line(&mut head).await? == 0 {
                return Ok(());
            }
        }
        count.fetch_add(1, Relaxed);
        let object =
            head.split(' ').nth(1).and_then(|path| path[1..].parse().ok()).ok_or(io::ErrorKind::InvalidData)?;
        let body = content(object);
        let head = format!("HTTP/1.1 200 OK\r\nCache-Control: max-age=3600\r\nContent-Length: {}\r\n\r\n", body.len());
        stream.write_all(&[head.as_bytes(), body].concat()).await?;
    }
}

/// Sends a GET with further fields. Returns the status, what the proxy says of its cache, and the body.
async fn get(proxy: SocketAddr, object: u64, fields: &str) -> io::Result<(u16, String, Vec<u8>)> {
    let mut stream = BufReader::new(TcpStream::connect(proxy).await?);
    let request = format!("GET /{object} HTTP/1.1\r\nHost: site.example\r\nConnection: close\r\n{fields}\r\n");
    stream.write_all(request.as_bytes()).await?;
    let (mut head, mut body) = (String::new(), Vec::new());
    while !head.ends_with("\r\n\r\n") && stream.read_line(&mut head).await? > 0 {}
    stream.read_to_end(&mut body).await?;
    let field = |name: &str| {
        let mut lines = head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned())
    };
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or(io::ErrorKind::InvalidData)?;
    if field("content-length").is_some_and(|len| len != body.len().to_string()) {
        return Err(io::Error::other("the body is not as long as it should be"));
    }
    Ok((status, field("x-cache").unwrap_or_default(), body))
}

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
        random = random.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        // The lower numbers are requested more often.
        let object = (random >> 33) % OBJECT_COUNT * ((random >> 17) % OBJECT_COUNT) / OBJECT_COUNT;
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
    let (origin, count) = origin().await;
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
