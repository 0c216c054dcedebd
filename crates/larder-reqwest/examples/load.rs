//! A load whose every body is checked: `cargo run -p larder-reqwest --example load -- 20000`.
//!
//! A server on the loopback interface has objects of 1 byte to 4 MiB, which change from time to time and are validated
//! by their ETag. Several tasks request them at random through one cache. Each body must be one of the object's
//! versions, namely the one that its ETag names.

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
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Instant,
};
use tokio::net::TcpListener;

const OBJECT_COUNT: u64 = 500;
const TASK_COUNT: u64 = 16;
/// Requests to the server after which every object has a new version.
const REQUESTS_PER_VERSION: u64 = 1000;

type Failure = Box<dyn Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let request_count: u64 = std::env::args().nth(1).map_or(Ok(20_000), |count| count.parse())?;
    let directory = tempfile::tempdir()?;
    let cache = Cache::builder(directory.path()).disk("512MB").memory("32MB").open()?;
    let asked = Arc::new(AtomicU64::new(0));
    let address = serve(Arc::clone(&asked)).await?;
    let client = reqwest::Client::builder().no_proxy().build()?;
    let client = ClientBuilder::new(client).with(CacheMiddleware::new(cache.clone())).build();
    let start = Instant::now();
    let tasks: Vec<_> = (0..TASK_COUNT)
        .map(|task| tokio::spawn(load(client.clone(), address, task, request_count / TASK_COUNT)))
        .collect();
    let mut counts = Counts::default();
    for task in tasks {
        counts.add(&task.await??);
    }
    let secs = start.elapsed().as_secs_f64();
    let Counts { requests, hits, validated, bytes } = counts;
    println!("{requests} requests, {bytes} bytes, every body as its ETag says");
    println!("{hits} hits, {validated} validated, {} requests to the server", asked.load(Relaxed));
    println!("{:.0} requests/s, {:.0} MB/s", requests as f64 / secs, bytes as f64 / secs / 1e6);
    cache.close().await?;
    Ok(())
}

/// The outcomes of a task's requests.
#[derive(Default)]
struct Counts {
    requests: u64,
    hits: u64,
    validated: u64,
    bytes: u64,
}

impl Counts {
    fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.hits += other.hits;
        self.validated += other.validated;
        self.bytes += other.bytes;
    }
}

async fn load(client: ClientWithMiddleware, address: SocketAddr, task: u64, count: u64) -> Result<Counts, Failure> {
    let mut counts = Counts::default();
    let hasher = RandomState::new();
    for number in 0..count {
        // The lower numbers are requested more often.
        let random = hasher.hash_one((task, number));
        let object = (random % OBJECT_COUNT) * (random >> 32) % OBJECT_COUNT;
        let response = client.get(format!("http://{address}/{object}")).send().await?;
        let status = response.headers()["cache-status"].to_str()?.to_owned();
        let tag = response.headers()["etag"].to_str()?.trim_matches('"').to_owned();
        let (named, version) = tag.split_once('-').ok_or("an ETag of another form")?;
        let body = response.bytes().await?;
        let wanted = content(object, version.parse()?);
        if named.parse::<u64>()? != object || body != wanted {
            return Err(format!("object {object}: {} bytes that are not of {tag} ({status})", body.len()).into());
        }
        counts.requests += 1;
        counts.bytes += body.len() as u64;
        counts.hits += u64::from(status.contains("; hit"));
        counts.validated += u64::from(status.contains("fwd-status=304"));
    }
    Ok(counts)
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
