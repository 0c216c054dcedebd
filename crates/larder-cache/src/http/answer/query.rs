//! A request to the cache, and its answer.

use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use larder_http::CacheStatus;

use crate::http::{
    body::{cursor::BodyCursor, parts::PartsReader},
    fetcher::Fetcher,
    http_cache::HttpCache,
};

/// A request that the cache answers. Its resource has a key, and its method is GET or HEAD.
pub struct CacheQuery<'a, F: Fetcher> {
    /// The cache.
    pub http: &'a Arc<HttpCache<F>>,
    /// The request.
    pub asked: &'a Arc<F::Asked>,
}

/// The answer to a request.
pub struct Answer<F: Fetcher> {
    /// The response, with all fields but those that belong to the client's connection.
    pub response: Response<AnswerBody<F>>,
    /// The way in which it was obtained.
    pub kind: AnswerKind,
    /// The content of its field Cache-Status.
    pub status: CacheStatus,
    /// Whether an origin was contacted for it.
    pub is_from_origin: bool,
}

/// The ways in which the cache answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerKind {
    /// From the store.
    Hit,
    /// From memory.
    MemoryHit,
    /// With a 304 to a condition, from a stored response.
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

/// The body of an answer.
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
