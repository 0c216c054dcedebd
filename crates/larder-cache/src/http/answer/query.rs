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
    /// The way in which the cache got the response, for counters and logs.
    pub kind: AnswerKind,
    /// The content of the response's Cache-Status field.
    pub status: CacheStatus,
    /// Whether an origin was contacted for this answer.
    pub is_from_origin: bool,
}

/// The response of an answer. Its head is either ready to send, or still in its stored form, for a server that encodes
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
    /// A response with all fields that the client gets, except those of its connection.
    Made(Response<AnswerBody<F>>),
    /// A whole response whose head is still in its stored form. Only a request with
    /// [`ClientRequest::takes_plain`](crate::http::fetcher::ClientRequest::takes_plain) gets one.
    Plain(PlainResponse),
}

/// A whole response to a plain GET: the head in its stored form, what the cache adds to it, and the body. A server that
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
    /// Fields that only this client gets, because `private` or `no-cache` names them.
    pub own: HeaderMap,
    /// The value of Age in seconds. `None` if the response gets no Age field.
    pub age_secs: Option<u64>,
    /// The whole body.
    pub body: Bytes,
    head: PlainHead,
}

/// The owner of a plain response's head: a stored entry, or a response that has just arrived.
enum PlainHead {
    Stored(Arc<CachedEntry>),
    Arrived(Arc<StoredHead>),
}

impl PlainResponse {
    /// Returns the head in its stored form.
    #[inline]
    pub fn head(&self) -> &StoredHead {
        match &self.head {
            PlainHead::Stored(entry) => &entry.head,
            PlainHead::Arrived(head) => head,
        }
    }
}

impl<F: Fetcher> AnswerResponse<F> {
    /// Creates the response from a stored entry, whose whole body is `body`.
    pub(super) fn stored(entry: &Arc<CachedEntry>, body: &Bytes, age_secs: u64) -> Self {
        let head = PlainHead::Stored(Arc::clone(entry));
        Self::Plain(PlainResponse { own: HeaderMap::new(), age_secs: Some(age_secs), body: body.clone(), head })
    }

    /// Creates the response from one that has just arrived from the origin. `own` are the fields that only this client
    /// gets.
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
    /// The response came from the store.
    Hit,
    /// The response came from memory.
    MemoryHit,
    /// The response is a 304, because the client already has the stored response.
    ConditionalHit,
    /// The response came from the cache although it is stale, because a rule, a setting or the request permits that.
    StaleHit,
    /// The response, or a part of it, came from the origin.
    Miss,
    /// The response came from the store, after the origin confirmed it.
    RefreshUnmodified,
    /// The response came from the origin, and replaces the stored one.
    RefreshModified,
    /// The response came from the store although it is stale, because the origin failed.
    RefreshFailed,
}

/// The body of an answer. Each variant is read in its own way: bytes in memory are ready, and the others are polled.
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
    /// The response has no body.
    Empty,
    /// The whole body, or one span of it, in memory.
    Whole(Bytes),
    /// A long or arriving body that several clients may read at the same time.
    Cursor(Box<BodyCursor<F>>),
    /// Several parts of a body, sent as one multipart body.
    Parts(Box<PartsReader<F>>),
    /// A body that arrives from the origin for this client alone.
    Origin(F::Body),
}

impl<F: Fetcher> Clone for CacheQuery<'_, F> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<F: Fetcher> Copy for CacheQuery<'_, F> {}
