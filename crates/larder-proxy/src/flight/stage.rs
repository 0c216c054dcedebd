//! The stages of a fetch, with the facts known at each.

use std::sync::Arc;

use http::{HeaderMap, StatusCode};
use larder_http::{StoredHead, span::Span};

use crate::{
    cache::{
        chunks::PlacedBytes,
        entry::{CachedEntry, ResourceMarker},
    },
    errors::Failure,
    origin::body::OriginBody,
};

/// The stage that a fetch has reached.
#[derive(Clone)]
pub(crate) enum FetchStage {
    /// No head yet.
    Waiting,
    /// The head is there, and its body may be read by everybody it matches.
    Open(Arc<OpenHead>),
    /// The origin confirmed the stored response, which has a new head.
    Confirmed(Arc<ConfirmedEntry>),
    /// Stored in full, or in part with a remainder that can be fetched.
    Part(Arc<KeptPart>),
    /// The origin continues a stored body, with this status, see [`crate::flight::rest`].
    Continued(StatusCode),
    /// The origin responded with an error that a stale response may replace.
    OriginFailing,
    /// The response is for the first asker alone, see `Flight::take_private`.
    Private,
    /// There is no response.
    Failed(Failure),
}

/// A stored response that the origin has confirmed.
pub(crate) struct ConfirmedEntry {
    /// The entry with its new head.
    pub(crate) entry: Arc<CachedEntry>,
    /// The key it was stored under.
    pub(crate) key: Arc<[u8]>,
    /// The marker of its variants, if it varies on more than was known.
    pub(crate) marker: Option<Arc<ResourceMarker>>,
    /// Fields of the confirmation that are for the first asker alone.
    pub(crate) own: HeaderMap,
}

/// The head of a response that is being read.
pub(crate) struct OpenHead {
    /// The head as it will be stored, but for the body's place.
    pub(crate) head: StoredHead,
    /// Additional fields for the first requester alone.
    pub(crate) own: HeaderMap,
    /// Length of the whole body, if the origin said.
    pub(crate) total_len: Option<u64>,
    /// Whether others than the first asker may have it.
    pub(crate) shareable: bool,
    /// The reason why a storable response is not stored, if that is known already.
    pub(crate) unstored: Option<larder_http::Reason>,
    /// Set if the store has admitted the response before its body came.
    pub(crate) is_admitted: bool,
    /// The marker of its variants, if it varies.
    pub(crate) marker: Option<Arc<ResourceMarker>>,
}

/// A response for one asker alone.
pub(crate) struct PrivateResponse {
    pub(crate) status: StatusCode,
    pub(crate) fields: HeaderMap,
    pub(crate) body: OriginBody,
    pub(crate) reason: larder_http::Reason,
    /// Set if the response answers exactly the range or condition that the first requester sent.
    pub(crate) is_exact: bool,
}

/// The stored part of a response, and its place.
pub(crate) struct KeptPart {
    pub(crate) entry: Arc<CachedEntry>,
    pub(crate) key: Arc<[u8]>,
    /// The marker of its variants, if it varies.
    pub(crate) marker: Option<Arc<ResourceMarker>>,
    /// Fields that came with it and are for the first asker alone.
    pub(crate) own: HeaderMap,
    /// The only bytes that will ever be available, if the remainder cannot be requested.
    pub(crate) alone: Option<Span>,
    /// Set if the part has just arrived from the origin, and was not stored before.
    pub(crate) from_origin: bool,
    /// The part that has just come.
    pub(crate) arrived: Option<PlacedBytes>,
}
