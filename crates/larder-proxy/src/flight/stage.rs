//! The stages of a fetch, with the facts known at each.

use std::sync::Arc;

use http::{HeaderMap, StatusCode};
use larder_http::{StoredHead, span::Span};

use crate::{
    body::{long_body::LongBody, open_body::OpenBody},
    cache::entry::{CachedEntry, ResourceMarker},
    errors::Failure,
    origin::body::OriginBody,
};

/// The requests that may use a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Audience {
    /// Every request that the response matches.
    Shared,
    /// The request that started the fetch, and no other.
    FirstAsker,
}

/// The stage of a fetch.
#[derive(Clone)]
pub(crate) enum FetchStage {
    /// The head has not arrived yet.
    Waiting,
    /// The head has arrived. Every request that matches it may read the body.
    Open(Arc<OpenHead>),
    /// The origin confirmed the stored response, which has a new head.
    Confirmed(Arc<ConfirmedEntry>),
    /// The response is stored completely, or a part is stored and the remainder can be fetched.
    Part(Arc<KeptPart>),
    /// The origin responded with an error that a stale response may replace.
    OriginFailing,
    /// The response is for the first requester alone, see `Flight::take_private`.
    Private,
    /// The fetch failed.
    Failed(Failure),
}

impl FetchStage {
    /// Returns the requests that may use what the stage offers.
    pub(crate) fn audience(&self) -> Audience {
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
pub(crate) struct ConfirmedEntry {
    /// The entry with its new head.
    pub(crate) entry: Arc<CachedEntry>,
    /// The key under which it was stored.
    pub(crate) key: Arc<[u8]>,
    /// The marker of its variants, if the confirmation changed what it varies on.
    pub(crate) marker: Option<Arc<ResourceMarker>>,
    /// Fields of the confirmation that are for the first requester alone.
    pub(crate) own: HeaderMap,
    pub(crate) audience: Audience,
}

/// The head of a response whose body is being read.
pub(crate) struct OpenHead {
    /// The head in the form to store, without the body's place.
    pub(crate) head: Arc<StoredHead>,
    /// Additional fields for the first requester alone.
    pub(crate) own: HeaderMap,
    /// Length of the whole body, if the origin stated it.
    pub(crate) total_len: Option<u64>,
    pub(crate) audience: Audience,
    /// Why a storable response will not be stored, if that is already known.
    pub(crate) unstored: Option<larder_http::Reason>,
    /// Whether the store has admitted the response before its body arrived.
    pub(crate) is_admitted: bool,
    /// The marker of its variants, if it varies.
    pub(crate) marker: Option<Arc<ResourceMarker>>,
    pub(crate) body: OpenBody,
}

/// A response for one requester alone.
pub(crate) struct PrivateResponse {
    pub(crate) status: StatusCode,
    pub(crate) fields: HeaderMap,
    pub(crate) body: OriginBody,
    pub(crate) reason: larder_http::Reason,
    /// Whether the response answers exactly the range or condition that the first requester sent.
    pub(crate) is_exact: bool,
}

/// The source of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PartSource {
    /// The cache: the part was stored before.
    Cache,
    /// The origin or another node, which has just sent the part in a response with this status.
    Arrived { status: StatusCode, is_stored: bool },
}

/// A part of a response, which is stored as a rule.
pub(crate) struct KeptPart {
    pub(crate) entry: Arc<CachedEntry>,
    pub(crate) key: Arc<[u8]>,
    /// The marker of its variants, if it varies.
    pub(crate) marker: Option<Arc<ResourceMarker>>,
    /// Fields that arrived with it and are for the first requester alone.
    pub(crate) own: HeaderMap,
    pub(crate) audience: Audience,
    /// The only bytes that will ever be available, if the remainder cannot be requested.
    pub(crate) alone: Option<Span>,
    pub(crate) source: PartSource,
    /// The body, while a part of it arrives.
    pub(crate) body: Option<Arc<LongBody>>,
}
