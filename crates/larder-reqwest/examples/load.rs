//! A load whose every body is checked: `cargo run -p larder-reqwest --example load -- 60 /tmp/load-cache`.
//!
//! A server on the loopback interface has objects of 1 byte to 4 MiB, which change from time to time and are validated
//! by their ETag. Several tasks request them at random through one cache, for the given number of seconds. Each body
//! must be one of the object's versions, namely the one that its ETag names. The first wrong byte ends the program with
//! an error. It may be killed and started again with the same cache: `tests/real/clients.sh` does that.

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use larder_reqwest::{Cache, CacheMiddleware};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware};
use std::{
    collections::hash_map::RandomState,
    convert::Infallible,
    error::Error,
    hash::BuildHasher,
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};
use tokio::net::TcpListener;

const HOST: &str = "objects.example";
const OBJECT_COUNT: u64 = 500;
const TASK_COUNT: u64 = 16;
/// Requests to the server after which every object has a new version.
const REQUESTS_PER_VERSION: u64 = 1000;

type Failure = Box<dyn Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let secs: u64 = arguments.next().map_or(Ok(10), |secs| secs.parse())?;
    let scratch = tempfile::tempdir()?;
    let directory = arguments.next().map_or_else(|| scratch.path().to_owned(), PathBuf::from);
    let cache = Cache::builder(directory).disk("512MB").memory("32MB").open()?;
    cache.ready().await;
    let asked = Arc::new(AtomicU64::new(0));
    let address = serve(Arc::clone(&asked)).await?;
    // A name, because the server's port is another one in each run, and the cache's keys contain the URL.
    let client = reqwest::Client::builder().no_proxy().resolve(HOST, address).build()?;
    let client = ClientBuilder::new(client).with(CacheMiddleware::new(cache.clone())).build();
    let counts = Arc::new(Counts::new());
    let start = Instant::now();
    let end = start + Duration::from_secs(secs);
    let tasks: Vec<_> =
        (0..TASK_COUNT).map(|task| tokio::spawn(load(client.clone(), task, end, Arc::clone(&counts)))).collect();
    let reporting = tokio::spawn(report(Arc::clone(&counts), Arc::clone(&asked)));
    for task in tasks {
        task.await??;
    }
    reporting.abort();
    println!("{}", counts.line(asked.load(Relaxed)));
    let requests = counts.requests.load(Relaxed);
    let bytes = counts.bytes.load(Relaxed);
    let secs = start.elapsed().as_secs_f64();
    println!(
        "{:.0} requests/s, {:.0} MB/s, every body as its ETag says",
        requests as f64 / secs,
        bytes as f64 / secs / 1e6
    );
    cache.close().await?;
    Ok(())
}

/// The outcomes of all requests.
struct Counts {
    requests: AtomicU64,
    hits: AtomicU64,
    /// Hits of objects that were not requested before in this run: an earlier run has stored them.
    kept: AtomicU64,
    validated: AtomicU64,
    bytes: AtomicU64,
    was_requested: Vec<AtomicBool>,
}

impl Counts {
    fn new() -> Self {
        let [requests, hits, kept, validated, bytes] = [const { AtomicU64::new(0) }; 5];
        let was_requested = (0..OBJECT_COUNT).map(|_| AtomicBool::new(false)).collect();
        Self { requests, hits, kept, validated, bytes, was_requested }
    }

    fn add(&self, status: &str, is_first: bool, len: usize) {
        let is_hit = status.contains("; hit");
        self.requests.fetch_add(1, Relaxed);
        self.hits.fetch_add(is_hit.into(), Relaxed);
        self.kept.fetch_add((is_hit && is_first).into(), Relaxed);
        self.validated.fetch_add(status.contains("fwd-status=304").into(), Relaxed);
        self.bytes.fetch_add(len as u64, Relaxed);
    }

    fn line(&self, asked: u64) -> String {
        let [requests, hits, kept, validated, bytes] =
            [&self.requests, &self.hits, &self.kept, &self.validated, &self.bytes].map(|count| count.load(Relaxed));
        format!(
            "{requests} requests, {bytes} bytes, {hits} hits ({kept} of an earlier run), {validated} validated, \
             {asked} requests to the server"
        )
    }
}

/// Prints the counts every second, for a run that is killed.
async fn report(counts: Arc<Counts>, asked: Arc<AtomicU64>) {
    let mut pauses = tokio::time::interval(Duration::from_secs(1));
    loop {
        pauses.tick().await;
        println!("{}", counts.line(asked.load(Relaxed)));
    }
}

async fn load(client: ClientWithMiddleware, task: u64, end: Instant, counts: Arc<Counts>) -> Result<(), Failure> {
    let hasher = RandomState::new();
    for number in 0_u64.. {
        if Instant::now() >= end {
            break;
        }
        // The lower numbers are requested more often.
        let random = hasher.hash_one((task, number));
        let object = (random % OBJECT_COUNT) * ((random >> 32) % OBJECT_COUNT) / OBJECT_COUNT;
        let is_first = !counts.was_requested[object as usize].swap(true, Relaxed);
        let response = client.get(format!("http://{HOST}/{object}")).send().await?;
        let status = response.headers()["cache-status"].to_str()?.to_owned();
        let tag = response.headers()["etag"].to_str()?.trim_matches('"').to_owned();
        let (named, version) = tag.split_once('-').ok_or("an ETag of another form")?;
        let body = response.bytes().await?;
        let wanted = content(object, version.parse()?);
        if named.parse::<u64>()? != object || body != wanted {
            return Err(format!("object {object}: {} bytes that are not of {tag} ({status})", body.len()).into());
        }
        counts.add(&status, is_first, body.len());
    }
    Ok(())
}

/// Returns the bytes of a version of an object. Most objects are short, one in fifty has up to 4 MiB.
fn content(object: u64, version: u64) -> Bytes {
    let len = match object % 50 {
        7 => (object * 8999) % (4 << 20),
        _ => (object * 131) % 20_000,
    };
    let mut state = object.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ version;
    let words = (0..=len / 8).flat_map(|_| {
        state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        state.to_le_bytes()
    });
    words.take(len as usize + 1).collect()
}

async fn serve(asked: Arc<AtomicU64>) -> Result<SocketAddr, Failure> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let asked = Arc::clone(&asked);
            let service = service_fn(move |request| {
                let response = answer(&request, asked.fetch_add(1, Relaxed));
                async { Ok::<_, Infallible>(response) }
            });
            tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    });
    Ok(address)
}

fn answer(request: &Request<Incoming>, request_number: u64) -> Response<Full<Bytes>> {
    let Some(object) = request.uri().path()[1..].parse().ok().filter(|_| request.method() == Method::GET) else {
        let mut response = Response::new(Full::default());
        *response.status_mut() = StatusCode::NOT_FOUND;
        return response;
    };
    let version = request_number / REQUESTS_PER_VERSION;
    let tag = format!("\"{object}-{version}\"");
    let mut fields = HeaderMap::new();
    // Half of the objects must be validated each time.
    let lifetime = if object % 2 == 0 { "max-age=60" } else { "no-cache" };
    fields.insert(header::CACHE_CONTROL, lifetime.parse().expect("a field's value"));
    fields.insert(header::ETAG, tag.parse().expect("a field's value"));
    let is_known = request.headers().get(header::IF_NONE_MATCH).is_some_and(|known| *known == tag);
    let body = if is_known { Bytes::new() } else { content(object, version) };
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = if is_known { StatusCode::NOT_MODIFIED } else { StatusCode::OK };
    *response.headers_mut() = fields;
    response
}
