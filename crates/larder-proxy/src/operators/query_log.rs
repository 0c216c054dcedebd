//! The last requests of one worker, as the dashboard lists them.
//!
//! Owns: a ring of [`QUERY_COUNT_MAX`] records and the results of their exchanges. `operators::admin::queries` shows
//! them.
//!
//! Invariants: only the worker's thread writes. A result always belongs to the request reported with it, because each
//! slot has the number of its request. Nothing is written to disk.
//!
//! Cost: a request copies its URL into its slot, under a mutex that only a reader of the page contends for. The end of
//! an exchange is three stores: together about 200 instructions. Memory: 25 KiB per worker, and 300 bytes for each of
//! the first [`QUERY_COUNT_MAX`] requests.

use std::{
    net::IpAddr,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use http::{Method, StatusCode};
use larder_device::IgnorePoison;

use crate::figures::outcome::{MissReason, Outcome};

/// The last requests of one worker.
#[derive(Debug)]
pub(crate) struct QueryLog {
    ring: Mutex<QueryRing>,
    ends: Box<[QueryEnd]>,
}

/// The number of a request in its worker's log, which also determines its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueryPlace(u32);

/// Facts about a request that are known when its head has arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueryStart<'a> {
    pub(crate) started: Instant,
    pub(crate) client: IpAddr,
    pub(crate) method: &'a Method,
    pub(crate) scheme: &'a str,
    pub(crate) authority: &'a str,
    /// The path and query. Empty for a tunnel.
    pub(crate) target: &'a str,
}

/// A request in the form in which the log lists it.
#[derive(Clone, Debug)]
pub(crate) struct LoggedQuery {
    pub(crate) started: Instant,
    pub(crate) client: IpAddr,
    pub(crate) method: &'static str,
    pub(crate) url: String,
    pub(crate) state: QueryState,
}

/// The progress of a request in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueryState {
    /// The response has not been sent completely yet.
    Open,
    /// The client left before the response began.
    Abandoned,
    Answered(QueryResult),
}

/// The result of a request whose response has been sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueryResult {
    pub(crate) outcome: Outcome,
    pub(crate) why: Option<MissReason>,
    pub(crate) status: StatusCode,
    pub(crate) sent_bytes: u64,
    pub(crate) took: Duration,
}

impl QueryLog {
    /// Adds a request to the log.
    pub(crate) fn begin(&self, query: &QueryStart<'_>) -> QueryPlace {
        let mut ring = self.ring.lock().ignore_poison();
        let number = ring.next;
        ring.next = number.wrapping_add(1);
        let slot = number as usize % QUERY_COUNT_MAX;
        if ring.records.len() == slot {
            ring.records.push(QueryRecord::new(query));
        }
        self.ends[slot].facts.store(u64::from(number) << 32, Relaxed);
        let record = &mut ring.records[slot];
        record.number = number;
        record.started = query.started;
        record.client = query.client;
        record.method = short_method(query.method);
        // The length identifies the scheme, because there are only `http` and `https`.
        record.is_secure = query.scheme.len() == "https".len();
        let host_len = query.authority.len().min(URL_BYTES_MAX);
        record.url[..host_len].copy_from_slice(&query.authority.as_bytes()[..host_len]);
        let target_len = query.target.len().min(URL_BYTES_MAX - host_len);
        record.url[host_len..][..target_len].copy_from_slice(&query.target.as_bytes()[..target_len]);
        record.url_len = (host_len + target_len) as u8;
        record.is_cut = host_len + target_len < query.authority.len() + query.target.len();
        QueryPlace(number)
    }

    /// Records the result of a request, unless a newer request has its slot.
    pub(crate) fn end(&self, place: QueryPlace, result: &QueryResult) {
        let why = result.why.map_or(0, |why| why.index() as u64 + 1);
        let facts = u64::from(result.status.as_u16()) << 16 | (result.outcome as u64 + ANSWERED) << 8 | why;
        if let Some(end) = self.end_of(place) {
            end.sent_bytes.store(result.sent_bytes, Relaxed);
            end.took.store(result.took.as_secs() << 32 | u64::from(result.took.subsec_nanos()), Relaxed);
            end.facts.store(u64::from(place.0) << 32 | facts, Relaxed);
        }
    }

    /// Records that the client left before the response began.
    pub(crate) fn abandon(&self, place: QueryPlace) {
        if let Some(end) = self.end_of(place) {
            end.facts.store(u64::from(place.0) << 32 | ABANDONED << 8, Relaxed);
        }
    }

    /// Returns the logged requests, unsorted. Without `with_queries`, a URL's query is replaced by `?`.
    pub(crate) fn all(&self, with_queries: bool) -> Vec<LoggedQuery> {
        let ring = self.ring.lock().ignore_poison();
        let logged = ring.records.iter().map(|record| LoggedQuery {
            started: record.started,
            client: record.client,
            method: record.method,
            url: record.shown_url(with_queries),
            state: self.state_of(record.number),
        });
        logged.collect()
    }

    /// Removes all requests from the log.
    pub(crate) fn clear(&self) {
        let mut ring = self.ring.lock().ignore_poison();
        // Old numbers are never used again, so exchanges that are still in progress find no slot.
        ring.next = (ring.next | (QUERY_COUNT_MAX as u32 - 1)).wrapping_add(1);
        ring.records = Vec::new();
    }

    /// Returns the memory of the log in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let records = self.ring.lock().ignore_poison().records.capacity();
        records * size_of::<QueryRecord>() + size_of_val(&*self.ends)
    }

    /// Returns the slot with the result of a request, or `None` if a newer request has taken the slot.
    fn end_of(&self, place: QueryPlace) -> Option<&QueryEnd> {
        let end = &self.ends[place.slot()];
        ((end.facts.load(Relaxed) >> 32) as u32 == place.0).then_some(end)
    }

    fn state_of(&self, number: u32) -> QueryState {
        let end = &self.ends[QueryPlace(number).slot()];
        let facts = end.facts.load(Relaxed);
        let code = facts >> 8 & 0xff;
        let status = StatusCode::from_u16((facts >> 16) as u16);
        match (code, status) {
            _ if (facts >> 32) as u32 != number => QueryState::Open,
            (ABANDONED, _) => QueryState::Abandoned,
            (ANSWERED.., Ok(status)) => QueryState::Answered(QueryResult {
                outcome: Outcome::ALL[(code - ANSWERED) as usize],
                why: ((facts & 0xff) as usize).checked_sub(1).map(|index| MissReason::ALL[index]),
                status,
                sent_bytes: end.sent_bytes.load(Relaxed),
                took: duration_of(end.took.load(Relaxed)),
            }),
            _ => QueryState::Open,
        }
    }
}

impl Default for QueryLog {
    fn default() -> Self {
        let ends = (0..QUERY_COUNT_MAX).map(|_| QueryEnd::default()).collect();
        Self { ring: Mutex::default(), ends }
    }
}

impl QueryPlace {
    fn slot(self) -> usize {
        self.0 as usize % QUERY_COUNT_MAX
    }
}

/// Returns the method's name, or `OTHER` for an unusual method.
fn short_method(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::CONNECT => "CONNECT",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        _ => "OTHER",
    }
}

fn duration_of(took: u64) -> Duration {
    Duration::new(took >> 32, took as u32)
}

#[derive(Debug, Default)]
struct QueryRing {
    /// The number that the next request gets.
    next: u32,
    records: Vec<QueryRecord>,
}

#[derive(Debug)]
struct QueryRecord {
    number: u32,
    started: Instant,
    client: IpAddr,
    method: &'static str,
    is_secure: bool,
    /// Whether the URL was cut because it is longer than the record.
    is_cut: bool,
    url_len: u8,
    /// The authority and target, without the scheme.
    url: [u8; URL_BYTES_MAX],
}

impl QueryRecord {
    /// Creates a record whose URL is still empty.
    fn new(query: &QueryStart<'_>) -> Self {
        let QueryStart { started, client, .. } = *query;
        let url = [0; URL_BYTES_MAX];
        Self { number: 0, started, client, method: "GET", is_secure: false, is_cut: false, url_len: 0, url }
    }

    fn shown_url(&self, with_queries: bool) -> String {
        let text = String::from_utf8_lossy(&self.url[..usize::from(self.url_len)]);
        let query_at = text.find('?').filter(|_| !with_queries);
        let text = query_at.map_or(&*text, |at| &text[..=at]);
        let scheme = match (self.method, self.is_secure) {
            ("CONNECT", _) => "",
            (_, true) => "https://",
            (_, false) => "http://",
        };
        format!("{scheme}{text}{}", if self.is_cut && query_at.is_none() { "..." } else { "" })
    }
}

/// The result of a request, written without a lock.
#[derive(Debug, Default)]
struct QueryEnd {
    /// One word with four parts: the request's number, its status, a code for its state or outcome, and the reason of a
    /// miss.
    facts: AtomicU64,
    sent_bytes: AtomicU64,
    /// Duration: the seconds in the upper 32 bits, the nanoseconds in the lower 32.
    took: AtomicU64,
}

/// Number of requests that each worker remembers. A power of two, so that request numbers can wrap around.
pub(crate) const QUERY_COUNT_MAX: usize = 1024;
/// Maximum bytes of a URL's authority and target that are kept.
const URL_BYTES_MAX: usize = 208;
/// Code in [`QueryEnd::facts`] for an abandoned request. Outcomes begin at [`ANSWERED`].
const ABANDONED: u64 = 1;
const ANSWERED: u64 = 2;

const _: () = assert!(QUERY_COUNT_MAX.is_power_of_two() && URL_BYTES_MAX <= u8::MAX as usize);

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn begin(log: &QueryLog, target: &str) -> QueryPlace {
        log.begin(&QueryStart {
            started: Instant::now(),
            client: Ipv4Addr::LOCALHOST.into(),
            method: &Method::GET,
            scheme: "http",
            authority: "a.example",
            target,
        })
    }

    const RESULT: QueryResult = QueryResult {
        outcome: Outcome::Miss,
        why: Some(MissReason::ALL[0]),
        status: StatusCode::NOT_FOUND,
        sent_bytes: 7,
        took: Duration::from_millis(3),
    };

    fn state_of(log: &QueryLog, target: &str) -> Option<QueryState> {
        let url = format!("http://a.example{target}");
        log.all(true).into_iter().find(|query| query.url == url).map(|query| query.state)
    }

    #[test]
    fn request_is_open_until_its_result_is_recorded() {
        let log = QueryLog::default();
        let place = begin(&log, "/first");
        let left = begin(&log, "/left");
        assert_eq!(state_of(&log, "/first"), Some(QueryState::Open));
        log.end(place, &RESULT);
        log.abandon(left);
        assert_eq!(state_of(&log, "/first"), Some(QueryState::Answered(RESULT)));
        assert_eq!(state_of(&log, "/left"), Some(QueryState::Abandoned));
    }

    #[test]
    fn late_result_does_not_become_the_result_of_another_request() {
        let log = QueryLog::default();
        let late = begin(&log, "/old");
        for number in 0..QUERY_COUNT_MAX {
            begin(&log, &format!("/{number}"));
        }
        assert_eq!((log.all(true).len(), state_of(&log, "/old")), (QUERY_COUNT_MAX, None));
        log.end(late, &RESULT);
        assert!(log.all(true).iter().all(|query| query.state == QueryState::Open));
        let late = begin(&log, "/cleared");
        log.clear();
        begin(&log, "/after");
        log.end(late, &RESULT);
        assert_eq!((log.all(true).len(), state_of(&log, "/after")), (1, Some(QueryState::Open)));
    }

    #[test]
    fn long_url_is_cut_and_memory_has_a_bound() {
        let log = QueryLog::default();
        for _ in 0..2 * QUERY_COUNT_MAX {
            begin(&log, &format!("/{}", "ü".repeat(500)));
        }
        assert!(log.all(true)[0].url.ends_with("..."));
        let private = QueryLog::default();
        begin(&private, &format!("/a?{}", "x".repeat(500)));
        assert_eq!(private.all(false)[0].url, "http://a.example/a?");
        assert!(log.bytes() <= QUERY_COUNT_MAX * 320, "{}", log.bytes());
    }
}
