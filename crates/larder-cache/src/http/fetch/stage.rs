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
    /// Every request that the response matches.
    Shared,
    /// The request that started the fetch, and no other.
    FirstAsker,
}

/// The stage of a fetch.
pub enum FetchStage<F: Fetcher> {
    /// The head has not arrived yet.
    Waiting,
    /// The head has arrived. Every request that matches it may read the body.
    Open(Arc<OpenHead<F>>),
    /// The origin confirmed the stored response, which has a new head.
    Confirmed(Arc<ConfirmedEntry>),
    /// The response is stored completely, or a part is stored and the remainder can be fetched.
    Part(Arc<KeptPart<F>>),
    /// The origin responded with an error that a stale response may replace.
    OriginFailing,
    /// The response is for the first requester alone. [`Flight::take_private`](super::shared::Flight::take_private)
    /// returns it.
    Private,
    /// The fetch failed.
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
    /// Returns the requests that may use what the stage offers.
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

/// A stored response that the origin has confirmed.
pub struct ConfirmedEntry {
    /// The entry with its new head.
    pub entry: Arc<CachedEntry>,
    /// The key under which the response is stored.
    pub key: Arc<[u8]>,
    /// The marker of the resource's variants, if the confirmation changed what the response varies on.
    pub marker: Option<Arc<ResourceMarker>>,
    /// Fields of the confirmation that are for the first requester alone.
    pub own: HeaderMap,
    /// The requests that may use the response.
    pub audience: Audience,
}

/// The head of a response whose body is being read.
pub struct OpenHead<F: Fetcher> {
    /// The head in the form to store, without the body's place.
    pub head: Arc<StoredHead>,
    /// Additional fields for the first requester alone.
    pub own: HeaderMap,
    /// Length of the whole body, if the origin stated it.
    pub total_len: Option<u64>,
    /// The requests that may use the response.
    pub audience: Audience,
    /// Why a storable response will not be stored, if that is already known.
    pub unstored: Option<larder_http::Reason>,
    /// Whether the store has admitted the response before its body arrived.
    pub is_admitted: bool,
    /// The marker of the resource's variants, if the response varies.
    pub marker: Option<Arc<ResourceMarker>>,
    /// The body.
    pub body: OpenBody<F>,
}

/// A response for one requester alone.
pub struct PrivateResponse<F: Fetcher> {
    /// The status.
    pub status: StatusCode,
    /// The fields.
    pub fields: HeaderMap,
    /// The body, as it arrives.
    pub body: F::Body,
    /// Why no other requester may use the response.
    pub reason: larder_http::Reason,
    /// Whether the response answers exactly the range or condition that the first requester sent.
    pub is_exact: bool,
}

/// The source of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartSource {
    /// The cache: the part was stored before.
    Cache,
    /// The origin or another node, which has just sent the part in a response with this status.
    Arrived {
        /// The status of the response.
        status: StatusCode,
        /// Whether the part is stored here.
        is_stored: bool,
    },
}

/// A part of a response, which is usually stored.
pub struct KeptPart<F: Fetcher> {
    /// The entry of the response.
    pub entry: Arc<CachedEntry>,
    /// The key under which the response is stored.
    pub key: Arc<[u8]>,
    /// The marker of the resource's variants, if the response varies.
    pub marker: Option<Arc<ResourceMarker>>,
    /// Fields that arrived with the part and are for the first requester alone.
    pub own: HeaderMap,
    /// The requests that may use the part.
    pub audience: Audience,
    /// The only bytes that will ever be available, if the remainder cannot be requested.
    pub alone: Option<Span>,
    /// The source of the part.
    pub source: PartSource,
    /// The body, while a part of it arrives.
    pub body: Option<Arc<LongBody<F>>>,
}
