//! The stages of a fetch, with the facts known at each.

use std::sync::Arc;

use http::{HeaderMap, StatusCode};
use larder_http::{StoredHead, span::Span};

use crate::http::{
    body::{long_body::LongBody, open_body::OpenBody},
    entry::{CachedEntry, ResourceMarker},
    fetcher::Fetcher,
};

/// The waiting requests that may use a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience {
    /// Every request that the response matches may use the response.
    Shared,
    /// Only the request that started the fetch may use the response.
    FirstAsker,
}

/// The stage that a fetch has reached, with what it offers to the waiting requests.
pub enum FetchStage<F: Fetcher> {
    /// The head of the response has not arrived yet.
    Waiting,
    /// The head of a shared response has arrived. Every request that matches it may read the body.
    Open(Arc<OpenHead<F>>),
    /// The origin has confirmed the stored response, which got a new head.
    Confirmed(Arc<ConfirmedEntry>),
    /// A part of a response is arriving or stored, and the remainder may be fetched. Or the whole response was already
    /// stored.
    Part(Arc<KeptPart<F>>),
    /// The origin sent an error, which a stale response may replace.
    OriginFailing,
    /// The response is for the first requester alone, who calls
    /// [`Flight::take_private`](super::shared::Flight::take_private).
    Private,
    /// There is no response, for this reason.
    Failed(F::Failure),
}

impl<F: Fetcher> Clone for FetchStage<F> {
    fn clone(&self) -> Self {
        match self {
            Self::Waiting => Self::Waiting,
            Self::Open(open) => Self::Open(Arc::clone(open)),
            Self::Confirmed(confirmed) => Self::Confirmed(Arc::clone(confirmed)),
            Self::Part(kept) => Self::Part(Arc::clone(kept)),
            Self::OriginFailing => Self::OriginFailing,
            Self::Private => Self::Private,
            Self::Failed(failure) => Self::Failed(failure.clone()),
        }
    }
}

impl<F: Fetcher> FetchStage<F> {
    /// Returns which of the waiting requests may use what the stage offers.
    pub fn audience(&self) -> Audience {
        match self {
            Self::Open(open) => open.audience,
            Self::Confirmed(confirmed) => confirmed.audience,
            Self::Part(kept) => kept.audience,
            Self::Private => Audience::FirstAsker,
            Self::Waiting | Self::OriginFailing | Self::Failed(_) => Audience::Shared,
        }
    }
}

/// A stored response that the origin has just confirmed with a 304.
pub struct ConfirmedEntry {
    /// The stored response with its new head.
    pub entry: Arc<CachedEntry>,
    /// The key under which the response is stored.
    pub key: Arc<[u8]>,
    /// The marker that lists the resource's variants, if the 304 changed what the response varies on.
    pub marker: Option<Arc<ResourceMarker>>,
    /// Fields of the 304 that only the first requester gets.
    pub own: HeaderMap,
    /// The waiting requests that may use the response.
    pub audience: Audience,
}

/// A shared response whose head has arrived. The body may still be arriving.
pub struct OpenHead<F: Fetcher> {
    /// The head in the form to store, except for where its body is.
    pub head: Arc<StoredHead>,
    /// Fields of the response that only the first requester gets.
    pub own: HeaderMap,
    /// Length of the whole body in bytes. `None` if the origin did not state it.
    pub total_len: Option<u64>,
    /// The waiting requests that may use the response.
    pub audience: Audience,
    /// The reason why the response will not be stored, if that is already known.
    pub unstored: Option<larder_http::Reason>,
    /// Whether the store has agreed to take the response before its body has arrived.
    pub is_admitted: bool,
    /// The marker that lists the resource's variants, if the response varies.
    pub marker: Option<Arc<ResourceMarker>>,
    /// The body, whole or arriving.
    pub body: OpenBody<F>,
}

/// A response that only the request that started the fetch may use.
pub struct PrivateResponse<F: Fetcher> {
    /// The status of the response.
    pub status: StatusCode,
    /// The fields of the response.
    pub fields: HeaderMap,
    /// The body, as it arrives.
    pub body: F::Body,
    /// The reason why no other request may use the response.
    pub reason: larder_http::Reason,
    /// Whether the response answers exactly the range or condition that the first requester sent, so that it can be
    /// passed on as it is.
    pub is_exact: bool,
}

/// The source of a part of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartSource {
    /// From the cache, where it was stored before.
    Cache,
    /// From a response that the origin, or another node, has just sent.
    Arrived {
        /// The status of that response.
        status: StatusCode,
        /// Whether this node stores the part.
        is_stored: bool,
    },
}

/// A part of a response that a fetch has brought, or a whole response that was stored meanwhile.
pub struct KeptPart<F: Fetcher> {
    /// The entry of the response, with the head of the whole response.
    pub entry: Arc<CachedEntry>,
    /// The key under which the response is stored.
    pub key: Arc<[u8]>,
    /// The marker that lists the resource's variants, if the response varies.
    pub marker: Option<Arc<ResourceMarker>>,
    /// Fields of the arriving response that only the first requester gets.
    pub own: HeaderMap,
    /// The waiting requests that may use the part.
    pub audience: Audience,
    /// The arriving part, if no other bytes can ever be requested. `None` if the remainder can be requested.
    pub alone: Option<Span>,
    /// The source of the part.
    pub source: PartSource,
    /// The body while a part of it arrives. `None` if the response was stored before.
    pub body: Option<Arc<LongBody<F>>>,
}
