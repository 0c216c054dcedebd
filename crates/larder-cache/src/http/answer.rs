//! Answers GET and HEAD: from memory, from the store, by a shared fetch, or by the origin's own response.
//!
//! [`larder_http::route`] decides, and the modules here execute the decision. A request is looked up
//! ([`CacheQuery::look`]), then fetched or passed on as that has planned; [`CacheQuery::answer`] does both. The caller
//! sends the [`Answer`] to its client.

pub mod hit;
pub mod look;
pub mod marks;
pub mod pass;
pub mod plan;
mod reading;
mod share;

use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use larder_http::CacheStatus;

use self::look::CacheAnswer;
use super::{
    body::{cursor::BodyCursor, parts::PartsReader},
    fetch::table::FlightTable,
    fetcher::Fetcher,
};

/// A cache of responses, as one worker uses it.
pub struct HttpCache<F: Fetcher> {
    /// The flights in progress.
    pub flights: Arc<FlightTable<F>>,
    /// The way to the origins.
    pub fetcher: Arc<F>,
    /// The longest body that is stored, in bytes.
    pub entry_bytes_max: u64,
}

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
    /// How it was obtained.
    pub kind: AnswerKind,
    /// What its field Cache-Status says.
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

impl<F: Fetcher> CacheQuery<'_, F> {
    /// Answers the request.
    ///
    /// # Errors
    /// No stored response may be used, and the origin has none.
    pub async fn answer(self) -> Result<Answer<F>, F::Failure> {
        match self.look().await.answer {
            CacheAnswer::Answered(answer) => answer,
            CacheAnswer::Fetch(plan) => self.fetch(plan).await,
            CacheAnswer::Pass(plan) => self.pass_planned(&plan).await,
        }
    }
}
