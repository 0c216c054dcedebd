//! A request to the cache, and its answer.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode};
use larder_http::{CacheStatus, StoredHead};

use crate::http::{
    body::{cursor::BodyCursor, parts::PartsReader},
    entry::CachedEntry,
    fetcher::Fetcher,
    http_cache::HttpCache,
};

/// A request that the cache answers. Its resource has a key, and its method is GET or HEAD.
///
/// [`CacheQuery::answer`] looks the response up, and fetches or validates it if necessary.
///
/// ```
/// # mod fetcher { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/site/fetcher.rs")); }
/// # fetcher::run(async |site| {
/// # use fetcher::PageRequest;
/// use http::HeaderMap;
/// use larder_cache::http::answer::CacheQuery;
/// use std::sync::Arc;
///
/// // `site` is an `HttpCache`, and `PageRequest` implements `ClientRequest`.
/// let asked = Arc::new(PageRequest::new("/news", HeaderMap::new()));
/// let answer = CacheQuery { http: &site, asked: &asked }.answer().await.expect("the origin answers");
/// assert!(answer.is_from_origin);
/// # });
/// ```
pub struct CacheQuery<'a, F: Fetcher> {
    /// The cache.
    pub http: &'a Arc<HttpCache<F>>,
    /// The request.
    pub asked: &'a Arc<F::Asked>,
}

/// The answer to a request. [`AnswerResponse::made`] turns it into a response.
///
/// ```
/// # mod fetcher { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/site/fetcher.rs")); }
/// # fetcher::run(async |site| {
/// use larder_cache::http::fetcher::Fetcher;
///
/// // `get` sends a `CacheQuery` and returns its `Answer`.
/// let answer = fetcher::get(&site, "/news").await.expect("the origin answers");
/// let response = answer.response.made(site.fetcher.marks(), answer.status);
/// assert_eq!(response.headers()["cache-status"], "example; fwd=uri-miss; fwd-status=200; stored");
/// # });
/// ```
pub struct Answer<F: Fetcher> {
    /// The response.
    pub response: AnswerResponse<F>,
    /// The way in which the response was obtained.
    pub kind: AnswerKind,
    /// The content of the response's Cache-Status field.
    pub status: CacheStatus,
    /// Whether an origin was contacted for the response.
    pub is_from_origin: bool,
}

/// The response of an answer: with a head that is ready to send, or with the stored head, for a server that encodes
/// heads itself.
///
/// ```
/// # mod fetcher { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/site/fetcher.rs")); }
/// # fetcher::run(async |site| {
/// use larder_cache::http::{answer::AnswerResponse, fetcher::Fetcher};
///
/// fetcher::store(&site, "/news").await;
/// let answer = fetcher::get(&site, "/news").await.expect("it is stored");
/// assert_eq!(answer.response.status(), http::StatusCode::OK);
/// // The request does not take plain responses, so all fields are set.
/// let AnswerResponse::Made(response) = answer.response else { panic!("a plain response") };
/// assert_eq!(response.headers()["etag"], "\"v1\"");
/// # });
/// ```
pub enum AnswerResponse<F: Fetcher> {
    /// A response with all fields but those that belong to the client's connection.
    Made(Response<AnswerBody<F>>),
    /// A whole response whose head is not copied yet, for a request that takes one
    /// ([`ClientRequest::takes_plain`](crate::http::fetcher::ClientRequest::takes_plain)).
    Plain(PlainResponse),
}

/// A whole response to a plain GET: a head as it is stored, what the cache adds to it, and the body. A server that
/// encodes heads itself sends it without a copy of the head.
///
/// ```
/// # mod fetcher { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/site/fetcher.rs")); }
/// # fetcher::run(async |site| {
/// # use fetcher::PageRequest;
/// # use http::HeaderMap;
/// use larder_cache::http::answer::{AnswerResponse, CacheQuery};
/// use larder_http::fields::Fields;
///
/// # fetcher::store(&site, "/news").await;
/// // The page is stored. `plain` makes `ClientRequest::takes_plain` return true.
/// let asked = std::sync::Arc::new(PageRequest::new("/news", HeaderMap::new()).plain());
/// let answer = CacheQuery { http: &site, asked: &asked }.answer().await.expect("it is stored");
/// let AnswerResponse::Plain(plain) = answer.response else { panic!("it is a whole response") };
/// assert_eq!(plain.head().fields().first(&http::header::ETAG), Some(&b"\"v1\""[..]));
/// assert_eq!((plain.age_secs, plain.body.len()), (Some(0), 10_000));
/// # });
/// ```
pub struct PlainResponse {
    /// The fields for this client alone.
    pub own: HeaderMap,
    /// The age in seconds, if the response has one.
    pub age_secs: Option<u64>,
    /// The whole body.
    pub body: Bytes,
    head: PlainHead,
}

/// The owner of a plain response's head.
enum PlainHead {
    Stored(Arc<CachedEntry>),
    Arrived(Arc<StoredHead>),
}

impl PlainResponse {
    /// Returns the stored head.
    #[inline]
    pub fn head(&self) -> &StoredHead {
        match &self.head {
            PlainHead::Stored(entry) => &entry.head,
            PlainHead::Arrived(head) => head,
        }
    }
}

impl<F: Fetcher> AnswerResponse<F> {
    /// Creates the response for a stored entry, whose whole body is `body`.
    pub(super) fn stored(entry: &Arc<CachedEntry>, body: &Bytes, age_secs: u64) -> Self {
        let head = PlainHead::Stored(Arc::clone(entry));
        Self::Plain(PlainResponse { own: HeaderMap::new(), age_secs: Some(age_secs), body: body.clone(), head })
    }

    /// Creates a response that has just arrived. `own` are its fields for this client alone.
    pub(super) fn arrived(head: &Arc<StoredHead>, own: HeaderMap, body: &Bytes, age_secs: Option<u64>) -> Self {
        Self::Plain(PlainResponse { own, age_secs, body: body.clone(), head: PlainHead::Arrived(Arc::clone(head)) })
    }

    /// Returns the status of the response.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Made(response) => response.status(),
            Self::Plain(plain) => plain.head().status(),
        }
    }
}

/// The way in which the cache answered, for counters and logs.
///
/// ```
/// # mod fetcher { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/site/fetcher.rs")); }
/// # fetcher::run(async |site| {
/// use larder_cache::http::answer::AnswerKind;
///
/// fetcher::store(&site, "/news").await;
/// let (hit, miss) = (fetcher::get(&site, "/news").await, fetcher::get(&site, "/weather").await);
/// assert!(matches!(hit.expect("stored").kind, AnswerKind::Hit | AnswerKind::MemoryHit));
/// assert_eq!(miss.expect("fetched").kind, AnswerKind::Miss);
/// # });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerKind {
    /// From the store.
    Hit,
    /// From memory.
    MemoryHit,
    /// With a 304, because the client already has the stored response.
    ConditionalHit,
    /// From the store although stale, as the rules and settings allow.
    StaleHit,
    /// From the origin.
    Miss,
    /// From the store, after the origin confirmed it.
    RefreshUnmodified,
    /// From the origin, which replaced a stored response.
    RefreshModified,
    /// From the store although stale, because the origin failed.
    RefreshFailed,
}

/// The body of an answer. Each kind is read in its own way, because bytes in memory need no waiting.
///
/// ```
/// # mod fetcher { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/site/fetcher.rs")); }
/// # fetcher::run(async |site| {
/// use larder_cache::http::{answer::AnswerBody, fetcher::Fetcher};
/// use std::future::poll_fn;
///
/// let answer = fetcher::get(&site, "/news").await.expect("the origin answers");
/// let body = answer.response.made(site.fetcher.marks(), answer.status).into_body();
/// // The page arrives from its origin, and every client that requests it now reads it as it arrives.
/// let AnswerBody::Cursor(mut cursor) = body else { panic!("it does not arrive") };
/// let first = poll_fn(|context| cursor.poll_data(context)).await.expect("it is not empty").expect("it arrives");
/// assert!(first.starts_with(b"the page /news"));
/// # });
/// ```
pub enum AnswerBody<F: Fetcher> {
    /// No bytes.
    Empty,
    /// Bytes in memory.
    Whole(Bytes),
    /// A long or arriving body, shared with other clients.
    Cursor(Box<BodyCursor<F>>),
    /// Several parts of a body.
    Parts(Box<PartsReader<F>>),
    /// A body from an origin, for this client only.
    Origin(Box<F::Body>),
}

impl<F: Fetcher> Clone for CacheQuery<'_, F> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<F: Fetcher> Copy for CacheQuery<'_, F> {}
