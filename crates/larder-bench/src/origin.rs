//! The origin of the benchmark: responds for every object, on a thread of its own.
//!
//! Owns: the responses, their fields, the think time, and the counts. Bodies are computed as they are sent, not kept.
//! Invariant: a response carries the number of the request it was made for, by which a client recognizes a hit. Cost:
//! one thread; a 64 KiB piece of a body at a time for each connection.

mod answer;

use answer::{MadeAnswer, answer};
use hyper::{Request, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use larder_workload::{Random, Zipf, mix};
use serde::Serialize;
use std::{
    convert::Infallible,
    io,
    net::{SocketAddr, TcpListener},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};
use tokio::{net::TcpStream, runtime, sync::watch};

/// The behaviour of an origin.
#[derive(Clone, Debug)]
pub struct OriginOptions {
    /// The listening address; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Mean time before it answers, and the deviation of that.
    pub think: (Duration, Duration),
    /// Whether connections end after a number of requests that is Zipf-distributed up to 16, as PolyMix' servers do.
    pub closes_connections: bool,
    /// Share of answers that break off.
    pub abort_share: f64,
}

impl Default for OriginOptions {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            think: (Duration::ZERO, Duration::ZERO),
            closes_connections: false,
            abort_share: 0.0,
        }
    }
}

/// The requests and responses of an origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OriginCounts {
    /// Requests.
    pub requests: u64,
    /// Answers that something was not modified.
    pub not_modified: u64,
    /// Bytes of bodies.
    pub body_bytes: u64,
    /// Answers that it broke off.
    pub aborted: u64,
    /// Connections.
    pub connections: u64,
}

/// A running origin. Dropped, it stops.
pub struct Origin {
    address: SocketAddr,
    shared: Arc<OriginState>,
    stop: watch::Sender<bool>,
    thread: Option<thread::JoinHandle<()>>,
}

/// The state that all connections share.
struct OriginState {
    options: OriginOptions,
    uses: Zipf,
    requests: AtomicU64,
    not_modified: AtomicU64,
    body_bytes: AtomicU64,
    aborted: AtomicU64,
    connections: AtomicU64,
}

impl Origin {
    /// Listens, and serves from now on.
    ///
    /// # Errors
    /// The address is not available, or the system refuses a thread.
    pub fn start(options: OriginOptions) -> io::Result<Self> {
        let listener = TcpListener::bind(options.listen)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let shared = Arc::new(OriginState {
            options,
            uses: Zipf::new(16, 1.0),
            requests: AtomicU64::new(0),
            not_modified: AtomicU64::new(0),
            body_bytes: AtomicU64::new(0),
            aborted: AtomicU64::new(0),
            connections: AtomicU64::new(0),
        });
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = watch::channel(false);
        let serving = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("bench-origin".to_owned())
            .spawn(move || runtime.block_on(serve(listener, serving, stopped)))?;
        Ok(Self { address, shared, stop, thread: Some(thread) })
    }

    /// Returns the listening address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the counts.
    pub fn counts(&self) -> OriginCounts {
        let OriginState { requests, not_modified, body_bytes, aborted, connections, .. } = &*self.shared;
        OriginCounts {
            requests: requests.load(Ordering::Relaxed),
            not_modified: not_modified.load(Ordering::Relaxed),
            body_bytes: body_bytes.load(Ordering::Relaxed),
            aborted: aborted.load(Ordering::Relaxed),
            connections: connections.load(Ordering::Relaxed),
        }
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        if let Some(thread) = self.thread.take() {
            // The thread panics only if a response did, which was reported at that time.
            let _ = thread.join();
        }
    }
}

async fn serve(listener: TcpListener, shared: Arc<OriginState>, mut stopped: watch::Receiver<bool>) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    shared.connections.fetch_add(1, Ordering::Relaxed);
                    tokio::spawn(connection(stream, Arc::clone(&shared)));
                }
                // Out of files, most likely; those that close give some back.
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            },
            _ = stopped.changed() => return,
        }
    }
}

async fn connection(stream: TcpStream, shared: Arc<OriginState>) {
    // Without it small answers would wait for acknowledgements.
    let _ = stream.set_nodelay(true);
    let number = shared.connections.load(Ordering::Relaxed);
    let most = shared.options.closes_connections.then(|| shared.uses.draw(&mut Random::new(mix(number))) + 1);
    let left = AtomicU64::new(most.unwrap_or(u64::MAX));
    let service = service_fn(|request: Request<Incoming>| {
        let (shared, is_last) = (Arc::clone(&shared), left.fetch_sub(1, Ordering::Relaxed) == 1);
        async move { Ok::<_, Infallible>(respond(request, &shared, is_last).await) }
    });
    // A client that goes away is no fault of ours.
    let _ = http1::Builder::new().timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), service).await;
}

async fn respond(
    request: Request<Incoming>,
    shared: &OriginState,
    is_last: bool,
) -> hyper::Response<answer::ObjectBody> {
    shared.requests.fetch_add(1, Ordering::Relaxed);
    let MadeAnswer { mut response, request_number } = answer(&request, shared.options.abort_share);
    answer::discard(request.into_body()).await;
    let (mean, deviation) = shared.options.think;
    if !mean.is_zero() {
        let think = mean.as_secs_f64() + deviation.as_secs_f64() * Random::new(mix(request_number)).normal();
        tokio::time::sleep(Duration::from_secs_f64(think.max(0.0))).await;
    }
    let body = response.body();
    shared.body_bytes.fetch_add(body.len_bytes(), Ordering::Relaxed);
    shared.aborted.fetch_add(u64::from(body.breaks_off()), Ordering::Relaxed);
    if response.status() == hyper::StatusCode::NOT_MODIFIED {
        shared.not_modified.fetch_add(1, Ordering::Relaxed);
    }
    if is_last {
        response.headers_mut().insert(hyper::header::CONNECTION, hyper::header::HeaderValue::from_static("close"));
    }
    response
}

const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
