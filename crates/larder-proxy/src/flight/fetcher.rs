//! Lets the bodies of larder-cache request their missing bytes by the proxy's own requests.

use std::{
    future::Future,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::Frame;
use larder_cache::{
    http::{
        body::{
            error::BodyError,
            fetcher::{BodyEvent, Fetcher, IncomingBody},
            fill::BodyCheck,
        },
        chunks::ChunkedBody,
    },
    object::{CursorTerms, PromiseRule},
};
use larder_http::framing::{CompletedBody, IncompleteBody};

use crate::{
    asked::RequestHead,
    body::{
        continuation::{ContinuationAnswer, MissingRange},
        table::BodyTable,
    },
    cache::Cache,
    digest::DigestCheck,
    flight::{copying, fetch::count_file, source::FetchContext},
    git::AnswerCheck,
    metrics::FileCheck,
    origin::body::OriginBody,
    unfinished::LateCommit,
};

impl Fetcher for FetchContext {
    type Asked = RequestHead;
    type Body = OriginBody;
    type LateCommit = LateCommit;

    fn cache(&self) -> &Arc<Cache> {
        &self.cache
    }

    fn bodies(&self) -> &BodyTable {
        &self.bodies
    }

    fn key_of(asked: &RequestHead) -> Option<&Arc<[u8]>> {
        asked.key.as_ref()
    }

    fn names_digest(asked: &RequestHead) -> bool {
        asked.before.digest.is_some()
    }

    fn terms(&self, asked: &RequestHead, chunks: &ChunkedBody) -> CursorTerms {
        let is_divided = self.divides(asked, chunks);
        // Other nodes can be asked for the pieces of a divided body while origins cannot.
        let is_cut_off = asked.line.is_down() && !is_divided;
        // RFC 9111 5.2.1.7: such a request must not reach the origin, so a gap cannot be filled.
        let is_alone = asked.terms().is_only_if_cached(&self.cache.http);
        let may_ask = !is_cut_off && !is_alone && asked.question.is_none();
        // If a node had to wait until another one has the pieces of others, nodes could wait for each other in a
        // circle. And an origin that ignores ranges would send the whole body for each piece.
        let promise = if is_divided { PromiseRule::First } else { PromiseRule::All };
        CursorTerms { may_ask, promise }
    }

    /// Returns the length of the pieces of a stored body, if the nodes divide it for this request.
    fn piece_len(&self, asked: &RequestHead, chunks: &ChunkedBody) -> Option<u64> {
        let is_divided = self.divides(asked, chunks);
        self.siblings.as_ref().filter(|_| is_divided).map(|siblings| siblings.pieces.len_bytes())
    }

    fn ask_rest(
        &self,
        asked: &RequestHead,
        missing: &MissingRange<'_>,
        start: u64,
    ) -> impl Future<Output = ContinuationAnswer> + Send {
        self.ask_missing(asked, missing, start)
    }

    fn keeps(&self, body: &OriginBody, primary: &[u8], len: u64) -> bool {
        !body.is_from_sibling || copying::admits_part(self, primary, len)
    }

    fn begin_late_commit(&self) -> LateCommit {
        self.unfinished.begin_late_commit()
    }

    fn note(&self, event: BodyEvent<'_, RequestHead>) {
        match event {
            BodyEvent::Stored { primary, head } => count_file(self, primary, head),
            BodyEvent::GivenUp => self.metrics.store_aborts.add(1),
            BodyEvent::Mismatched { asked, named_by } => {
                self.metrics.files[FileCheck::Mismatched as usize].add(1);
                let origin = &asked.origin;
                let path = asked.path();
                tracing::warn!(%origin, path, named_by, "a response is not stored: its body does not have the named digest");
            }
        }
    }
}

impl IncomingBody for OriginBody {
    fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        self.poll_frame(context)
    }

    fn end(&self) -> Result<CompletedBody, IncompleteBody> {
        self.end()
    }

    fn remaining(&self) -> Option<u64> {
        self.remaining()
    }
}

impl BodyCheck for DigestCheck {
    fn push(&mut self, bytes: &[u8]) {
        self.push(bytes);
    }

    fn is_passed(self: Box<Self>) -> bool {
        self.matches()
    }
}

impl BodyCheck for AnswerCheck {
    fn push(&mut self, bytes: &[u8]) {
        self.push(bytes);
    }

    fn is_passed(self: Box<Self>) -> bool {
        self.is_whole()
    }
}
