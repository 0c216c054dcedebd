//! A load on the example `proxy`, with every body checked:
//! `cargo run --example load -- 127.0.0.1:9000 127.0.0.1:8080 60`.
//!
//! It is the origin on the first address, and sends requests to the proxy on the second one, for the given number of
//! seconds. The first wrong byte ends it with an error. The proxy may be killed and started again meanwhile: requests
//! that end with their connection are counted and tried again. `tests/real/clients.sh` does that.

mod objects;

use objects::{OBJECT_COUNT, choose, content, get, origin};
use std::{
    error::Error,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

const TASK_COUNT: u64 = 8;
/// Time until a request is tried again whose connection ended.
const RETRY_PAUSE: Duration = Duration::from_millis(20);

type Failure = Box<dyn Error + Send + Sync>;

/// The outcomes of all requests.
#[derive(Default)]
struct Counts {
    responses: AtomicU64,
    hits: AtomicU64,
    bytes: AtomicU64,
    /// Requests without a complete response.
    ended: AtomicU64,
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [listen, proxy, secs] = &arguments[..] else { return Err("usage: load LISTEN PROXY SECONDS".into()) };
    let (_, asked) = origin(listen).await?;
    let proxy = proxy.parse()?;
    let counts = Arc::new(Counts::default());
    let end = Instant::now() + Duration::from_secs(secs.parse()?);
    let tasks: Vec<_> = (0..TASK_COUNT).map(|task| tokio::spawn(load(proxy, task, end, Arc::clone(&counts)))).collect();
    for task in tasks {
        task.await??;
    }
    let [responses, hits, bytes, ended] =
        [&counts.responses, &counts.hits, &counts.bytes, &counts.ended].map(|count| count.load(Relaxed));
    println!("{responses} responses, {bytes} bytes, every byte right, {hits} hits, {ended} requests without a response");
    println!("{} requests to the origin for {OBJECT_COUNT} objects", asked.load(Relaxed));
    Ok(())
}

async fn load(proxy: SocketAddr, task: u64, end: Instant, counts: Arc<Counts>) -> Result<(), Failure> {
    let mut random = task + 1;
    while Instant::now() < end {
        let object = choose(&mut random);
        let Ok((status, cache, body)) = get(proxy, object, "").await else {
            counts.ended.fetch_add(1, Relaxed);
            tokio::time::sleep(RETRY_PAUSE).await;
            continue;
        };
        if status != 200 || body != content(object) {
            return Err(format!("object {object}: status {status}, {} other bytes ({cache})", body.len()).into());
        }
        counts.responses.fetch_add(1, Relaxed);
        counts.hits.fetch_add((cache == "hit").into(), Relaxed);
        counts.bytes.fetch_add(body.len() as u64, Relaxed);
    }
    Ok(())
}
