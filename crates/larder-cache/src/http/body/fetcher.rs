//! What a body needs of its user: a way to the origin, and the terms of each request.

use std::{
    future::Future,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::Frame;
use larder_http::{
    StoredHead,
    framing::{CompletedBody, IncompleteBody},
};

use super::{
    continuation::{ContinuationAnswer, MissingRange},
    error::BodyError,
    table::BodyTable,
};
use crate::{
    http::{ResponseCache, chunks::ChunkedBody},
    object::CursorTerms,
};

/// Requests the missing bytes of bodies.
pub trait Fetcher: Send + Sync + Sized + 'static {
    /// A client's request.
    type Asked: Send + Sync + 'static;
    /// The body of an origin's response.
    type Body: IncomingBody;
    /// Keeps the process from ending while it exists.
    type LateCommit: Send + 'static;

    /// Returns the cache.
    fn cache(&self) -> &Arc<ResponseCache>;

    /// Returns the bodies in use.
    fn bodies(&self) -> &BodyTable<Self>;

    /// Returns the key of the requested resource, if it can have one.
    fn key_of(asked: &Self::Asked) -> Option<&Arc<[u8]>>;

    /// Returns whether a digest is known that the requested body must have.
    fn names_digest(asked: &Self::Asked) -> bool;

    /// Returns what a client with this request may do with a body.
    fn terms(&self, asked: &Self::Asked, chunks: &ChunkedBody) -> CursorTerms;

    /// Returns the length of the pieces of a body that several nodes divide.
    fn piece_len(&self, asked: &Self::Asked, chunks: &ChunkedBody) -> Option<u64>;

    /// Requests the missing bytes of a body from `start` on.
    fn ask_rest(
        &self,
        asked: &Self::Asked,
        missing: &MissingRange<'_>,
        start: u64,
    ) -> impl Future<Output = ContinuationAnswer<Self::Body>> + Send;

    /// Returns whether a part of `len` bytes that this response brings is stored here. Another node may store it.
    fn keeps(&self, body: &Self::Body, primary: &[u8], len: u64) -> bool;

    /// Keeps the process from ending before a commit for which no client waits.
    fn begin_late_commit(&self) -> Self::LateCommit;

    /// Takes note of an event.
    fn note(&self, event: BodyEvent<'_, Self::Asked>);
}

/// Something that happened to a body.
#[derive(Clone, Copy, Debug)]
pub enum BodyEvent<'a, A> {
    /// The whole response was stored, unless the store refused it.
    Stored {
        /// The resource's key.
        primary: &'a Arc<[u8]>,
        /// The head.
        head: &'a StoredHead,
    },
    /// The response is not stored, because store or origin are too slow.
    GivenUp,
    /// The body does not have the digest that is named for it.
    Mismatched {
        /// The request of the client that came last.
        asked: &'a A,
        /// The place that names the digest.
        named_by: &'a str,
    },
}

/// The body of an origin's response as it arrives.
pub trait IncomingBody: Send + 'static {
    /// Returns the next bytes, or the trailers after them. `None` is the end of a complete body.
    fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>>;

    /// Returns the proof that the body is complete, once its end was reported.
    ///
    /// # Errors
    /// The body is not complete.
    fn end(&self) -> Result<CompletedBody, IncompleteBody>;

    /// Returns the number of bytes still to come, if it is known.
    fn remaining(&self) -> Option<u64>;
}
