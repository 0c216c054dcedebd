//! One request through a proxy: sent, read to its end, every byte checked.
//!
//! Owns: connections to the proxy, and the outcome of a request. The requests and their times are chosen elsewhere.
//! Invariant: a response counts as good only if status, length, version and every byte are those of the origin. Cost:
//! one connection for each request in flight; idle ones are kept.

use crate::{
    content::{BenchObject, ObjectClass, ObjectVersion},
    fields,
    undo::EndsEarly,
    wire::{HEAD_LIMITS, WireStream},
    workload::{BenchRequest, Kind, basic},
};
use http::{Method, Request, StatusCode, header};
use larder_device::IgnorePoison;
use larder_wire::{BodyDecoder, ResponseHead, push_fields, push_request_line};
use larder_workload::{Random, Zipf};
use std::{
    collections::BTreeSet,
    fmt, io,
    net::SocketAddr,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};
use tokio::net::TcpStream;

/// The address of the measured proxy, and the form of requests to it.
#[derive(Clone, Debug)]
pub struct Target {
    /// The address on which the proxy listens.
    pub address: SocketAddr,
    /// Host and port of the origin, as requests name it.
    pub origin: String,
    /// Whether requests contain the whole URL, as a forward proxy needs it.
    pub is_forward: bool,
}

/// The outcome of a request, from the client's view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FetchOutcome {
    /// The response is right, and the origin made it for this request.
    Miss,
    /// The response is right, and the origin made it for another request, so it came from the cache.
    Hit,
    /// The client or the origin broke off on purpose, as the workload requires.
    BrokenOff,
    /// There was no response, or one that does not fit the request.
    Failed(FetchFault),
    /// The body differs from the origin's.
    Wrong(FetchFault),
    /// The response contains an earlier version of the object, although its lifetime is over.
    Outdated(FetchFault),
    /// The response was made for another request, although it must not be cached or reused.
    Forbidden(FetchFault),
}

/// The reason why a request failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FetchFault {
    /// A description of the kind of failure, by which equal failures are counted together.
    pub(super) what: String,
    /// The part of the message that differs between failures of this kind: a path, a position or the system's error.
    pub(super) place: String,
}

impl FetchFault {
    pub(super) fn new(what: impl Into<String>, place: impl Into<String>) -> Self {
        Self { what: what.into(), place: place.into() }
    }
}

impl fmt::Display for FetchFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.place)
    }
}

/// The outcome of a request, and the number of its body's bytes.
pub(super) struct FetchResult {
    pub(super) outcome: FetchOutcome,
    pub(super) body_bytes: u64,
}

/// A connection to the proxy, and the number of requests that may still be sent on it.
struct BenchConnection {
    stream: WireStream,
    left: u64,
}

impl BenchConnection {
    /// Sends a request, and receives the head of its response.
    async fn ask(&mut self, request: &Request<u64>) -> io::Result<ResponseHead> {
        let mut octets = Vec::new();
        push_request_line(&mut octets, request.method(), request.uri());
        push_fields(&mut octets, request.headers());
        octets.extend_from_slice(b"\r\n");
        octets.resize(octets.len() + *request.body() as usize, b'x');
        self.stream.send(&octets).await?;
        self.stream.response().await
    }
}

/// Sends all requests of a run, and owns the connections to the proxy.
pub(super) struct Clients {
    target: Target,
    idle: Mutex<Vec<BenchConnection>>,
    /// Distribution of the number of requests per connection. `None` means that connections are kept.
    uses: Option<Zipf>,
    random: Mutex<Random>,
    next_number: AtomicU64,
    under_way: Mutex<BTreeSet<u64>>,
    origin_abort_share: f64,
}

impl Clients {
    pub(super) fn new(target: Target, closes_connections: bool, origin_abort_share: f64) -> Self {
        // Numbers begin at the present time, so that they differ from the numbers of earlier runs. Responses to those
        // may still be in the cache.
        let begin = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as u64;
        Self {
            target,
            idle: Mutex::new(Vec::new()),
            uses: closes_connections.then(|| Zipf::new(64, 1.0)),
            random: Mutex::new(Random::new(begin)),
            next_number: AtomicU64::new(begin << 8),
            under_way: Mutex::new(BTreeSet::new()),
            origin_abort_share,
        }
    }

    /// Sends a request, and reads and checks its response.
    pub(super) async fn fetch(&self, asked: &BenchRequest) -> FetchResult {
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        // The list entry is removed when this value is dropped, even if the future is dropped before its end.
        let _listed = ListedRequest::new(&self.under_way, number);
        let fetched = tokio::time::timeout(TIME_MAX, self.exchange(asked, number)).await;
        let fetched = fetched.unwrap_or_else(|_| {
            failed(format!("no complete response within {} s", TIME_MAX.as_secs()), asked.object.path())
        });
        // If the origin breaks off a response, the proxy may return nothing, a part of it, or an error.
        let FetchResult { outcome, body_bytes } = fetched;
        let is_wanted = matches!(outcome, FetchOutcome::Failed(_)) && self.breaks_off(number);
        FetchResult { outcome: if is_wanted { FetchOutcome::BrokenOff } else { outcome }, body_bytes }
    }

    /// Sends requests until the proxy responds, because it may need a moment to start.
    ///
    /// # Errors
    /// The proxy did not respond in time. The error is that of the last request.
    pub(super) async fn probe(&self, early: &EndsEarly) -> Result<(), FetchFault> {
        let begun = Instant::now();
        let number = unix_time();
        let asked = basic(BenchObject { class: ObjectClass::Fixed(PROBE_BYTES), number });
        loop {
            let left = PROBE_TIME_MAX.saturating_sub(begun.elapsed());
            let silent = || failed(format!("no response within {} s", PROBE_TIME_MAX.as_secs()), asked.object.path());
            match tokio::time::timeout(left, self.fetch(&asked)).await.unwrap_or_else(|_| silent()).outcome {
                FetchOutcome::Failed(fault) if begun.elapsed() + PROBE_PAUSE > PROBE_TIME_MAX || early.is_asked() => {
                    return Err(fault);
                }
                FetchOutcome::Failed(_) => tokio::time::sleep(PROBE_PAUSE).await,
                // A response that is wrong also shows that the proxy has started. The run itself counts wrong
                // responses.
                _ => return Ok(()),
            }
        }
    }

    async fn exchange(&self, asked: &BenchRequest, number: u64) -> FetchResult {
        let now_s = unix_time();
        let oldest = self.under_way.lock().ignore_poison().first().copied().unwrap_or(number);
        let mut may_repeat = true;
        loop {
            let (mut connection, is_kept) = match self.connection().await {
                Ok(connection) => connection,
                Err(error) => return failed(format!("cannot connect to {}", self.target.address), error.to_string()),
            };
            connection.left -= 1;
            let is_last = connection.left == 0;
            let request = self.request(asked, number, now_s, is_last);
            match connection.ask(&request).await {
                Ok(head) => return self.read(asked, (number, oldest), head, connection).await,
                // The proxy may close a kept connection just before it is used. Then the request is repeated once on
                // another connection.
                Err(_) if is_kept && may_repeat && !self.breaks_off(number) => may_repeat = false,
                Err(error) => return failed(format!("no response: {error}"), asked.object.path()),
            }
        }
    }

    async fn connection(&self) -> io::Result<(BenchConnection, bool)> {
        let kept = self.idle.lock().ignore_poison().pop();
        if let Some(connection) = kept {
            return Ok((connection, true));
        }
        let stream = TcpStream::connect(self.target.address).await?;
        stream.set_nodelay(true)?;
        let left = self.uses.as_ref().map_or(u64::MAX, |uses| uses.draw(&mut self.random.lock().ignore_poison()) + 1);
        Ok((BenchConnection { stream: WireStream::new(stream), left }, false))
    }

    /// Creates a request. Its body is a number: the count of arbitrary bytes that are sent.
    fn request(&self, asked: &BenchRequest, number: u64, now_s: u64, is_last: bool) -> Request<u64> {
        let Target { origin, is_forward, .. } = &self.target;
        let path = asked.object.path();
        let uri = if *is_forward { format!("http://{origin}{path}") } else { path };
        let mut request = Request::builder().uri(uri).header(header::HOST, origin).header(fields::REQUEST, number);
        if is_last {
            request = request.header(header::CONNECTION, "close");
        }
        let mut body_bytes: u64 = 0;
        request = match asked.kind {
            Kind::Basic => request,
            Kind::Head => request.method(Method::HEAD),
            Kind::Reload => request.header(header::CACHE_CONTROL, "no-cache"),
            Kind::ImsOld => request.header(header::IF_MODIFIED_SINCE, http_date(0)),
            Kind::ImsNew => {
                let since_s = asked.object.nature().version_at(now_s).since_s;
                request.header(header::IF_MODIFIED_SINCE, http_date(since_s))
            }
            Kind::Post(len_bytes) => {
                body_bytes = len_bytes;
                request.method(Method::POST).header(header::CONTENT_LENGTH, len_bytes)
            }
        };
        if let Some((first, len)) = asked.range {
            request = request.header(header::RANGE, format!("bytes={first}-{}", first + len - 1));
        }
        request.body(body_bytes).expect("paths, dates and numbers make a request")
    }

    /// Reads and checks a response. Returns the connection to the pool if it can be reused. `numbers` are the number of
    /// the request, and that of the oldest request that was in flight when it was sent.
    async fn read(
        &self,
        asked: &BenchRequest,
        numbers: (u64, u64),
        head: ResponseHead,
        mut connection: BenchConnection,
    ) -> FetchResult {
        let path = || asked.object.path();
        let method = if asked.kind == Kind::Head { Method::HEAD } else { Method::GET };
        let expected = match ExpectedBody::of(asked, &head) {
            Ok(expected) => expected,
            Err(outcome) => {
                self.discard(&head, &method, connection).await;
                return FetchResult { outcome, body_bytes: 0 };
            }
        };
        let (number, oldest) = numbers;
        let answered = fields::number(&head.fields, &fields::ANSWERED);
        let is_hit = answered != Some(number);
        let is_shared = answered.is_some_and(|answered| answered >= oldest);
        let mut body = match BodyDecoder::of_response(&head, &method, HEAD_LIMITS) {
            Ok(body) => body,
            Err(fault) => return failed(format!("no response: {fault}"), path()),
        };
        let mut at = 0;
        loop {
            let data = match connection.stream.piece(&mut body).await {
                Ok(Some(data)) => data,
                Ok(None) => break,
                // The proxy may answer this request from the broken-off response to another request. Then the body ends
                // at the same position.
                Err(_) if answered.is_some_and(|answered| self.breaks_off(answered)) => {
                    return FetchResult { outcome: FetchOutcome::BrokenOff, body_bytes: at };
                }
                Err(error) => {
                    let place = format!("{} after {at} bytes: {error}", path());
                    return FetchResult {
                        outcome: FetchOutcome::Failed(FetchFault::new("the response broke off", place)),
                        body_bytes: at,
                    };
                }
            };
            if let Some(place) = expected.first_wrong(at, &data) {
                let fault = FetchFault::new("bytes differ from the origin's", format!("{} at byte {place}", path()));
                return FetchResult { outcome: FetchOutcome::Wrong(fault), body_bytes: at };
            }
            at += data.len() as u64;
            if asked.goes_away && at < expected.len_bytes {
                return FetchResult { outcome: FetchOutcome::BrokenOff, body_bytes: at };
            }
        }
        if at != expected.len_bytes {
            let place = format!("{} has {at} bytes instead of {}", path(), expected.len_bytes);
            return FetchResult {
                outcome: FetchOutcome::Wrong(FetchFault::new("another length", place)),
                body_bytes: at,
            };
        }
        self.keep(&head, &body, connection);
        let outcome = match (is_hit, forbids_hit(asked, is_shared)) {
            (true, Some(why)) => FetchOutcome::Forbidden(FetchFault::new(why, path())),
            _ if expected.is_outdated => {
                FetchOutcome::Outdated(FetchFault::new("an outdated version of the object", path()))
            }
            (true, None) => FetchOutcome::Hit,
            (false, _) => FetchOutcome::Miss,
        };
        FetchResult { outcome, body_bytes: at }
    }

    /// Reads the body of an error and keeps its connection, as browsers and libraries do. A client that connects again
    /// after each refusal would cost the proxy more than the refusal.
    async fn discard(&self, head: &ResponseHead, method: &Method, mut connection: BenchConnection) {
        let Ok(mut body) = BodyDecoder::of_response(head, method, HEAD_LIMITS) else { return };
        let mut left = DISCARDED_BYTES_MAX;
        while let Ok(Some(data)) = connection.stream.piece(&mut body).await {
            left = left.saturating_sub(data.len());
            if left == 0 {
                return;
            }
        }
        self.keep(head, &body, connection);
    }

    /// Returns a connection to the pool, if it can be used again after this response.
    fn keep(&self, head: &ResponseHead, body: &BodyDecoder, connection: BenchConnection) {
        if connection.left > 0 && head.persists() && body.has_ended() {
            self.idle.lock().ignore_poison().push(connection);
        }
    }

    fn breaks_off(&self, number: u64) -> bool {
        fields::breaks_off(number, self.origin_abort_share)
    }
}

/// The body that a response must have.
struct ExpectedBody {
    object: BenchObject,
    version: u64,
    first: u64,
    len_bytes: u64,
    is_outdated: bool,
}

impl ExpectedBody {
    /// Derives the expected body from the head of the response.
    ///
    /// # Errors
    /// The outcome of the request, if the head does not fit it.
    fn of(asked: &BenchRequest, head: &ResponseHead) -> Result<Self, FetchOutcome> {
        let status = head.status;
        let headers = &head.fields;
        let refused = |what: String| FetchOutcome::Failed(FetchFault::new(what, asked.object.path()));
        let nature = asked.object.nature();
        let bodiless = Self { object: asked.object, version: 0, first: 0, len_bytes: 0, is_outdated: false };
        match (status, asked.kind) {
            (StatusCode::OK, Kind::Head)
                if fields::number(headers, &header::CONTENT_LENGTH).is_some_and(|len| len != nature.len_bytes) =>
            {
                return Err(FetchOutcome::Wrong(FetchFault::new(
                    "another length",
                    format!("{} by HEAD", asked.object.path()),
                )));
            }
            (StatusCode::NOT_MODIFIED, Kind::ImsNew) | (StatusCode::OK, Kind::Head | Kind::Post(_)) => {
                return Ok(bodiless);
            }
            (StatusCode::OK, _) | (StatusCode::PARTIAL_CONTENT, Kind::Basic) => {}
            _ => return Err(refused(format!("status {status}"))),
        }
        let Some(version) = fields::number(headers, &fields::VERSION) else {
            return Err(refused("a response that the origin did not send".to_owned()));
        };
        let (first, len_bytes) = match (status, asked.range) {
            (StatusCode::PARTIAL_CONTENT, Some((first, len))) => {
                let shown = format!("bytes {first}-{}/{}", first + len - 1, nature.len_bytes);
                if headers.get(header::CONTENT_RANGE).is_none_or(|value| value != shown.as_str()) {
                    return Err(refused("another range than requested".to_owned()));
                }
                (first, len)
            }
            (StatusCode::PARTIAL_CONTENT, None) => {
                return Err(refused("a part instead of the whole".to_owned()));
            }
            _ => (0, nature.len_bytes),
        };
        let ObjectVersion { number, since_s, .. } = nature.version_at(unix_time());
        let is_outdated = version < number && nature.is_storable && unix_time() > since_s + OUTDATED_AFTER_S;
        Ok(Self { object: asked.object, version, first, len_bytes, is_outdated })
    }

    /// Returns the position in the body of the first wrong byte of `data`. `at` bytes of the body came before `data`.
    fn first_wrong(&self, at: u64, data: &[u8]) -> Option<u64> {
        let room = usize::try_from(self.len_bytes - at).unwrap_or(usize::MAX).min(data.len());
        let nature = self.object.nature();
        let wrong = nature.first_wrong(self.version, self.first + at, &data[..room]);
        wrong.map(|place| place as u64).or((room < data.len()).then_some(room as u64)).map(|place| at + place)
    }
}

/// Returns the reason why the response to this request must not come from a cache. `None` if it may.
///
/// `is_shared` says that the response was made for a simultaneous request. Several requests may share such a response,
/// even if they require the origin's response (RFC 9111 4).
fn forbids_hit(asked: &BenchRequest, is_shared: bool) -> Option<&'static str> {
    match asked.kind {
        Kind::Post(_) => Some("a response to POST from a cache"),
        _ if !asked.object.nature().is_storable => Some("a response with no-store, from a cache"),
        Kind::Reload if !is_shared => Some("a stored response to a request with no-cache"),
        Kind::Basic | Kind::Head | Kind::ImsOld | Kind::ImsNew | Kind::Reload => None,
    }
}

/// Keeps the number of a request in the list of requests in flight. Dropping this removes it.
struct ListedRequest<'a>(&'a Mutex<BTreeSet<u64>>, u64);

impl<'a> ListedRequest<'a> {
    fn new(list: &'a Mutex<BTreeSet<u64>>, number: u64) -> Self {
        list.lock().ignore_poison().insert(number);
        Self(list, number)
    }
}

impl Drop for ListedRequest<'_> {
    fn drop(&mut self) {
        self.0.lock().ignore_poison().remove(&self.1);
    }
}

fn failed(what: String, place: String) -> FetchResult {
    FetchResult { outcome: FetchOutcome::Failed(FetchFault::new(what, place)), body_bytes: 0 }
}

fn http_date(unix_s: u64) -> String {
    httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(unix_s))
}

fn unix_time() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Maximum bytes of an error's body that are read so that the connection can be kept.
const DISCARDED_BYTES_MAX: usize = 64 << 10;
/// Length of the object that a probe requests, in bytes. The origin never breaks off such a response.
const PROBE_BYTES: u64 = 1;
const PROBE_TIME_MAX: Duration = Duration::from_secs(10);
const PROBE_PAUSE: Duration = Duration::from_millis(200);
/// Time limit of a request. It has failed if it takes longer.
const TIME_MAX: Duration = Duration::from_secs(60);
/// Seconds after an object's modification at which its previous version begins to count as outdated. Clocks count whole
/// seconds, and a response may be in flight when the object changes.
const OUTDATED_AFTER_S: u64 = 3;
