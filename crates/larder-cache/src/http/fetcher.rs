//! What the cache needs of its user: the facts about each request, and a way to the origin.

use std::{
    future::Future,
    net::IpAddr,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, StatusCode,
    header::{CONTENT_LENGTH, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, RANGE},
    response,
};
use http_body::Frame;
use larder_http::{
    StoredHead, Timestamp,
    fields::NameFilter,
    framing::{CompletedBody, IncompleteBody},
    route::RequestTerms,
};

use super::{
    ResponseCache,
    answer::marks::ResponseMarks,
    body::{
        continuation::{ContinuationAnswer, MissingRange},
        error::BodyError,
        fill::BodyChecks,
        table::BodyTable,
    },
    chunks::ChunkedBody,
    late_commits::LateCommit,
    lookup::FoundResponse,
    storing::{StoreAdmission, StorePlace},
};
pub use crate::object::{CursorTerms, PromiseRule};

/// The facts about a client's request that the cache needs. The example program `site` of this crate implements this
/// trait for GET requests to one site.
///
/// ```
/// # mod fetcher { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/site/fetcher.rs")); }
/// # use fetcher::PageRequest;
/// use http::{HeaderMap, HeaderValue, Method, header::RANGE};
/// use larder_cache::http::fetcher::ClientRequest;
///
/// let fields = HeaderMap::from_iter([(RANGE, HeaderValue::from_static("bytes=0-99"))]);
/// let request = PageRequest::new("/news", fields);
/// assert_eq!(request.method(), Method::GET);
/// assert!(request.has(&RANGE));
/// ```
pub trait ClientRequest: Send + Sync + 'static {
    /// Returns the terms that the request, and its client's connection, set for using a stored response.
    fn terms(&self) -> RequestTerms<'_>;

    /// Returns the method of the request.
    fn method(&self) -> &Method;

    /// Returns the fields of the request.
    fn fields(&self) -> &HeaderMap;

    /// Returns the key of the requested resource. `None` if the resource cannot be stored.
    fn key(&self) -> Option<&Arc<[u8]>>;

    /// Returns the address of the client.
    fn client(&self) -> IpAddr;

    /// Returns the names of the fields, to rule most lookups out.
    fn names(&self) -> NameFilter {
        NameFilter::ANY
    }

    /// Returns whether the request has a field with this name.
    fn has(&self, name: &HeaderName) -> bool {
        self.names().may_have(name) && self.fields().contains_key(name)
    }

    /// Returns whether the caller can send a whole response whose head is still in its stored form, see
    /// [`AnswerResponse::Plain`](super::answer::AnswerResponse).
    fn takes_plain(&self) -> bool {
        false
    }

    /// Returns whether the request itself names a digest of the body, for example in its URL.
    fn names_digest(&self) -> bool;

    /// Returns whether an operator's rule keeps the response out of the cache.
    fn is_never_stored(&self) -> bool;

    /// Returns whether the origin must permit each client to receive a response that was fetched with another client's
    /// credentials.
    fn checks_access(&self) -> bool;

    /// Returns whether a part of the response can be requested instead of the whole: the request is a plain GET or HEAD
    /// at its origin.
    fn has_parts(&self) -> bool;
}

/// The way to the origin: sends requests for the cache, and decides what the cache cannot know. Implement it to get
/// shared fetches, validation and long bodies from [`CacheQuery::answer`](super::answer::CacheQuery::answer).
///
/// The file `examples/site/fetcher.rs` of this crate has an implementation without a network.
///
/// ```
/// # mod fetcher { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/site/fetcher.rs")); }
/// # fetcher::run(async |site| {
/// // `get` answers a request from the cache, and `site` is an `HttpCache` with a `Fetcher`.
/// assert!(fetcher::get(&site, "/news").await.expect("the origin answers").is_from_origin);
/// fetcher::store(&site, "/weather").await;
/// assert!(!fetcher::get(&site, "/weather").await.expect("it is stored").is_from_origin);
/// # });
/// ```
pub trait Fetcher: Send + Sync + Sized + 'static {
    /// The type of a client's request.
    type Asked: ClientRequest;
    /// The body of an origin's response, as it arrives.
    type Body: IncomingBody;
    /// The reason why there is no response. Each waiting request gets a copy.
    type Failure: Clone + Send + Sync + 'static;
    /// The origin's permission for a client to receive responses that were fetched with another client's credentials.
    type Permission: Send + Sync + 'static;
    /// A reservation of memory for a body while it arrives.
    type Place: Send;

    /// Returns the cache.
    fn cache(&self) -> &Arc<ResponseCache>;

    /// Returns the table of the bodies in use.
    fn bodies(&self) -> &BodyTable<Self>;

    /// Returns what the cache adds to responses, such as its name in Via.
    fn marks(&self) -> &ResponseMarks;

    /// Returns the present time.
    fn now(&self) -> Timestamp;

    /// Sends the client's GET or HEAD with these edits to the origin. The fields of the returned response include the
    /// operator's rulings.
    ///
    /// # Errors
    /// The origin is unreachable or forbidden, or its response is malformed.
    fn ask(
        &self,
        asked: &Self::Asked,
        edits: &RequestEdits,
    ) -> impl Future<Output = Result<(response::Parts, Self::Body), Self::Failure>> + Send;

    /// Requests the missing bytes of a body from `start` on, and returns how the response continues the body.
    fn ask_rest(
        &self,
        asked: &Self::Asked,
        missing: &MissingRange<'_>,
        start: u64,
    ) -> impl Future<Output = ContinuationAnswer<Self::Body>> + Send;

    /// Asks the origin whether the client may receive the stored response `found`, and compares the origin's reply with
    /// that response.
    ///
    /// # Errors
    /// The origin is unreachable.
    fn ask_permission(
        &self,
        asked: &Self::Asked,
        found: Option<&FoundResponse>,
    ) -> impl Future<Output = Result<AccessAnswer<Self::Permission>, Self::Failure>> + Send;

    /// Returns whether a permission covers a response with this head and this body length. The length is `None` if it
    /// is unknown.
    fn permits(permission: &Self::Permission, head: &StoredHead, body_len: Option<u64>) -> bool;

    /// Returns the failure for a request that the cache itself refuses.
    fn refuse(asked: &Self::Asked, refusal: Refusal) -> Self::Failure;

    /// Returns whether a failure is the origin's fault, so that a stale response may be served instead (RFC 9111
    /// 4.2.4).
    fn is_origin_failure(failure: &Self::Failure) -> bool;

    /// Returns whether a digest of the requested resource's body is known. Called only for a request with a range.
    fn knows_digest(&self, asked: &Self::Asked, key: &[u8]) -> impl Future<Output = bool> + Send;

    /// Reserves memory for a body that is about to arrive. Waits briefly if too little memory is free.
    ///
    /// # Errors
    /// Too little memory became free in that time.
    fn take_place(&self) -> impl Future<Output = Result<Self::Place, Self::Failure>> + Send;

    /// Adds the operator's ruling to `fields`, the fields of a 304. `stored` is the status of the response that the 304
    /// confirmed.
    fn put_confirmed_ruling(&self, asked: &Self::Asked, stored: StatusCode, fields: &mut HeaderMap);

    /// Returns the checks that the body of a response with this status and these fields must pass.
    fn checks(
        &self,
        asked: &Self::Asked,
        status: StatusCode,
        fields: &HeaderMap,
    ) -> impl Future<Output = BodyChecks> + Send;

    /// Returns the terms on which a client with this request reads a body: whether it may cause requests, and when its
    /// head may be sent.
    fn terms(&self, asked: &Self::Asked, chunks: &ChunkedBody) -> CursorTerms;

    /// Returns whether several nodes of a fleet divide the body that answers this request. It has `len` bytes.
    fn divides(&self, asked: &Self::Asked, len: u64) -> bool;

    /// Returns whether a stale response can be validated in the background. Otherwise, a stale response is served only
    /// while another request's fetch is validating it.
    fn can_refresh(&self) -> bool;

    /// Returns whether the request may be sent to another node of the fleet. A node sends long bodies in pieces.
    fn asks_nodes(&self, asked: &Self::Asked) -> bool;

    /// Returns the length in bytes of the pieces into which the nodes of a fleet divide the body. `None` if they do not
    /// divide it.
    fn piece_len(&self, asked: &Self::Asked, chunks: &ChunkedBody) -> Option<u64>;

    /// Decides whether this node stores a copy of a response that another node has sent. `len` is the number of bytes
    /// that arrive, if it is known.
    ///
    /// Returns `None` if the response was not sent by another node.
    fn admit_copy(
        &self,
        body: &Self::Body,
        place: &StorePlace,
        head: &StoredHead,
        len: Option<u64>,
    ) -> Option<StoreAdmission>;

    /// Returns whether this node of a fleet stores the `len` bytes of a body that the response brings. If not, another
    /// node does.
    fn keeps(&self, body: &Self::Body, primary: &[u8], len: u64) -> bool;

    /// Returns a guard that keeps the process from ending while a response is stored for which no client waits any
    /// more.
    fn begin_late_commit(&self) -> Option<LateCommit>;

    /// Is told of each event, for counters and logs.
    fn note(&self, event: FetchEvent<'_, Self::Asked>);
}

/// The origin's decision whether a client may receive a stored response, see [`Fetcher::ask_permission`]. `P` is the
/// [`Fetcher::Permission`].
///
/// ```
/// use larder_cache::http::fetcher::AccessAnswer;
/// use http::StatusCode;
///
/// /// Interprets the status of a HEAD with the client's credentials, which was sent only to learn the decision.
/// fn decision(status: StatusCode) -> AccessAnswer<StatusCode> {
///     match status {
///         StatusCode::OK => AccessAnswer::Granted(status),
///         StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => AccessAnswer::Refused,
///         _ => AccessAnswer::Differs,
///     }
/// }
///
/// assert!(matches!(decision(StatusCode::FORBIDDEN), AccessAnswer::Refused));
/// ```
pub enum AccessAnswer<P> {
    /// The client may receive the responses that this permission covers.
    Granted(P),
    /// The origin would send this client a different response, not the stored one.
    Differs,
    /// The origin refuses access, so the client must not receive the stored response.
    Refused,
}

/// The reason why the cache refuses a request. [`Fetcher::refuse`] turns it into the failure that the client gets.
///
/// ```
/// # mod fetcher { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/site/fetcher.rs")); }
/// # fetcher::run(async |site| {
/// # use fetcher::PageRequest;
/// use http::{HeaderMap, HeaderValue, header::CACHE_CONTROL};
/// use larder_cache::http::{answer::CacheQuery, fetcher::Refusal};
///
/// // Nothing is stored, and the request forbids a fetch.
/// let fields = HeaderMap::from_iter([(CACHE_CONTROL, HeaderValue::from_static("only-if-cached"))]);
/// let asked = std::sync::Arc::new(PageRequest::new("/news", fields));
/// let answer = CacheQuery { http: &site, asked: &asked }.answer().await;
/// assert_eq!(answer.err(), Some(Refusal::OnlyIfCached));
/// # });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The request accepts only a stored response (`only-if-cached`), and none answers it.
    OnlyIfCached,
    /// No stored response answers the request, and the origin cannot be contacted.
    Offline,
    /// The fetch was aborted before its response arrived.
    Aborted,
}

/// The changes to a client's request on its way to the origin. A [`Fetcher`] applies them to each request that it
/// sends.
///
/// ```
/// use http::{HeaderMap, HeaderValue, header::{ACCEPT, IF_NONE_MATCH, RANGE}};
/// use larder_cache::http::fetcher::RequestEdits;
///
/// // The client wants a part. The cache validates the whole response.
/// let tag = HeaderValue::from_static("\"v1\"");
/// let edits = RequestEdits { whole: true, added: vec![(IF_NONE_MATCH, tag)], ..RequestEdits::default() };
/// let mut fields = HeaderMap::from_iter([RANGE, ACCEPT].map(|name| (name, HeaderValue::from_static("x"))));
/// let removed: Vec<_> = fields.keys().filter(|name| edits.remove(name)).cloned().collect();
/// removed.iter().for_each(|name| drop(fields.remove(name)));
/// fields.extend(edits.added);
/// assert!(!fields.contains_key(RANGE) && fields.contains_key(ACCEPT));
/// assert_eq!(fields[IF_NONE_MATCH], "\"v1\"");
/// ```
#[derive(Clone, Default)]
pub struct RequestEdits {
    /// Whether the client's own preconditions and ranges are left out, because the cache wants the whole response.
    pub whole: bool,
    /// Fields that the cache adds: preconditions, or a range.
    pub added: Vec<(HeaderName, HeaderValue)>,
    /// The mark of the only URL at which these edits apply, if redirects led to it (see
    /// [`larder_http::redirects::mark_of`]). `None` if they apply everywhere.
    pub only_at: Option<u64>,
}

impl RequestEdits {
    /// Returns whether this field of the client's request is left out.
    ///
    /// A request for a whole response has neither ranges nor conditions of the client. It also has no body, because a
    /// body has no meaning with GET and HEAD (RFC 9110 9.3.1).
    pub fn remove(&self, name: &HeaderName) -> bool {
        self.whole
            && matches!(
                *name,
                IF_MATCH | IF_NONE_MATCH | IF_MODIFIED_SINCE | IF_UNMODIFIED_SINCE | IF_RANGE | RANGE | CONTENT_LENGTH
            )
    }
}

/// Something that happened to a fetch or a body, for counters and logs. `A` is the [`Fetcher::Asked`].
///
/// ```
/// # mod fetcher { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/site/fetcher.rs")); }
/// # fetcher::run(async |site| {
/// // The fetcher of `site` notes the events that it is told.
/// fetcher::store(&site, "/news").await;
/// assert_eq!(*site.fetcher.events.lock().unwrap(), ["begun", "stored"]);
/// # });
/// ```
#[derive(Clone, Copy, Debug)]
pub enum FetchEvent<'a, A> {
    /// A fetch began that other requests can join.
    Begun,
    /// A request joined a fetch that another request had begun.
    Joined,
    /// A response was stored, or is about to be: the store may still refuse it.
    Stored {
        /// The key of the resource.
        primary: &'a Arc<[u8]>,
        /// The stored head.
        head: &'a StoredHead,
    },
    /// A response is not stored, because the store or the origin is too slow.
    GivenUp,
    /// A body does not have the digest that `named_by` names.
    Mismatched {
        /// The request of the client that attached to the body last.
        asked: &'a A,
        /// The source of the digest, for example the URL or a listing.
        named_by: &'a str,
    },
}

/// The body of an origin's response as it arrives. Wrap the body type of an HTTP library in it, with a [`BodyMeter`]
/// that counts its bytes: only the meter creates the proof that the body is complete.
///
/// [`BodyMeter`]: larder_http::framing::BodyMeter
///
/// ```
/// # mod fetcher { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/site/fetcher.rs")); }
/// # use fetcher::PageBody;
/// use larder_cache::http::fetcher::IncomingBody;
/// use std::task::{Context, Poll, Waker};
///
/// // `PageBody` has its bytes at once, as one piece.
/// let mut body = PageBody::new("hello".into());
/// assert!(body.end().is_err(), "nothing has arrived");
/// let mut context = Context::from_waker(Waker::noop());
/// assert!(matches!(body.poll_frame(&mut context), Poll::Ready(Some(Ok(frame))) if frame.is_data()));
/// assert_eq!(body.end().expect("all has arrived").len(), 5);
/// ```
pub trait IncomingBody: Send + 'static {
    /// Returns the next bytes, or the trailers after the last bytes. `None` is the end of the body.
    fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>>;

    /// Returns the proof that the body is complete. Called after [`IncomingBody::poll_frame`] has reported the end.
    ///
    /// # Errors
    /// The body is not complete.
    fn end(&self) -> Result<CompletedBody, IncompleteBody>;

    /// Returns whether clients get the body as a complete one even if it ends without the proof of
    /// [`IncomingBody::end`]. Such a body is never stored.
    fn may_end_quietly(&self) -> bool;

    /// Returns the number of bytes still to come. `None` if it is unknown.
    fn remaining(&self) -> Option<u64>;

    /// Returns whether the whole body is already here, because it arrived together with the head.
    fn has_arrived(&self) -> bool;

    /// Takes the whole body, and the proof that it is complete, if it arrived together with the head.
    fn take_arrived(&mut self) -> Option<(Bytes, CompletedBody)>;
}
