//! The origin of the benchmark: responds to requests for any object, on a thread of its own.
//!
//! Owns: the responses, their fields, the think time, and the counts. Bodies are computed while they are sent, and not
//! stored. Invariant: a response carries the number of the request it was made for, by which a client recognizes a hit.
//! Cost: one thread; a 64 KiB piece of a body at a time for each connection.

mod answer;

use crate::wire::WireStream;
use answer::{MadeAnswer, answer};
use http::{
    Response, StatusCode, Version,
    header::{CONNECTION, CONTENT_LENGTH, DATE, HeaderValue},
};
use larder_wire::{RequestHead, push_fields, push_status_line};
use larder_workload::{Random, Zipf, mix};
use serde::Serialize;
use std::{
    io,
    net::{SocketAddr, TcpListener},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, SystemTime},
};
use tokio::{net::TcpStream, runtime, sync::watch};

/// The settings of an origin.
#[derive(Clone, Debug)]
pub struct OriginOptions {
    /// The address to listen on. Port 0 selects any free port.
    pub listen: SocketAddr,
    /// Mean and standard deviation of the time that the origin waits before it responds.
    pub think: (Duration, Duration),
    /// Whether connections are closed after a number of requests. That number is at most 16 and Zipf-distributed, as
    /// with PolyMix's servers.
    pub closes_connections: bool,
    /// Share of responses that the origin breaks off, from 0 to 1.
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

/// Counts of an origin since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OriginCounts {
    /// Number of requests received.
    pub requests: u64,
    /// Number of responses with status 304, which say that an object was not modified.
    pub not_modified: u64,
    /// Bytes of bodies sent.
    pub body_bytes: u64,
    /// Number of responses that the origin broke off on purpose.
    pub aborted: u64,
    /// Number of accepted connections.
    pub connections: u64,
}

/// A running origin. Dropping it stops the origin.
pub struct Origin {
    address: SocketAddr,
    shared: Arc<OriginState>,
    stop: watch::Sender<bool>,
    thread: Option<thread::JoinHandle<()>>,
}

/// The state that all connections of an origin share.
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
    /// Starts an origin: opens its listener, and serves on a thread of its own.
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

    /// Returns the address on which the origin listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the counts since the start.
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
            // The thread ends with an error only if it panicked. The panic was already reported.
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
                // The process is probably out of descriptors. Connections that end free some.
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            },
            _ = stopped.changed() => return,
        }
    }
}

async fn connection(stream: TcpStream, shared: Arc<OriginState>) {
    // Without this option, a small response would wait until the client acknowledged the last one.
    let _ = stream.set_nodelay(true);
    let number = shared.connections.load(Ordering::Relaxed);
    let most = shared.options.closes_connections.then(|| shared.uses.draw(&mut Random::new(mix(number))) + 1);
    let mut left = most.unwrap_or(u64::MAX);
    let mut stream = WireStream::new(stream);
    // An error means that the client closed the connection, which it may do at any time.
    while left > 0 && matches!(exchange(&mut stream, &shared, left == 1).await, Ok(true)) {
        left -= 1;
    }
}

/// Receives a request and answers it. Returns whether another request may follow on the connection.
async fn exchange(stream: &mut WireStream, shared: &OriginState, is_last: bool) -> io::Result<bool> {
    let Some(mut request) = stream.request().await? else { return Ok(false) };
    while stream.piece(&mut request.body).await?.is_some() {}
    let mut response = respond(&request, shared).await;
    let closes = is_last || !request.persists();
    let has_no_body = response.status() == StatusCode::NOT_MODIFIED || request.method == http::Method::HEAD;
    let length = HeaderValue::from(response.body().len_bytes());
    let fields = response.headers_mut();
    let now = httpdate::fmt_http_date(SystemTime::now());
    fields.insert(DATE, HeaderValue::from_str(&now).expect("a date is a field value"));
    if closes {
        fields.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    if !has_no_body {
        fields.insert(CONTENT_LENGTH, length);
    }
    let mut octets = Vec::new();
    push_status_line(&mut octets, Version::HTTP_11, response.status());
    push_fields(&mut octets, response.headers());
    octets.extend_from_slice(b"\r\n");
    if has_no_body {
        stream.send(&octets).await?;
        return Ok(!closes);
    }
    let body = response.body_mut();
    loop {
        // The head and the first piece of the body are sent together, so that a small response needs one packet.
        let is_over = !body.fill_next(&mut octets);
        stream.send(&octets).await?;
        if is_over {
            return Ok(!closes && !body.breaks_off());
        }
        octets.clear();
    }
}

async fn respond(request: &RequestHead, shared: &OriginState) -> Response<answer::ObjectBody> {
    shared.requests.fetch_add(1, Ordering::Relaxed);
    let MadeAnswer { response, request_number } = answer(request, shared.options.abort_share);
    let (mean, deviation) = shared.options.think;
    if !mean.is_zero() {
        let think = mean.as_secs_f64() + deviation.as_secs_f64() * Random::new(mix(request_number)).normal();
        tokio::time::sleep(Duration::from_secs_f64(think.max(0.0))).await;
    }
    let body = response.body();
    shared.body_bytes.fetch_add(body.len_bytes(), Ordering::Relaxed);
    shared.aborted.fetch_add(u64::from(body.breaks_off()), Ordering::Relaxed);
    if response.status() == StatusCode::NOT_MODIFIED {
        shared.not_modified.fetch_add(1, Ordering::Relaxed);
    }
    response
}

const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
