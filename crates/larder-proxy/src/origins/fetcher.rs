//! Requests responses for the cache: from other nodes of the fleet, and from origins.
//!
//! Owns: what the cache cannot know about a request, and the events of its fetches. `asking` follows redirects,
//! `sibling` asks other nodes, `access` asks
//! origins for permission, and `copying` decides which of their responses are stored here, too.

mod access;
mod asking;
mod copying;
mod sibling;

use self::access::Permission;
use std::{
    future::Future,
    net::IpAddr,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode, header::CONTENT_ENCODING, response};
use http_body::Frame;
use larder_cache::http::{
    answer::marks::ResponseMarks,
    body::{
        error::BodyError,
        fill::{BodyCheck, BodyChecks},
    },
    chunks::ChunkedBody,
    fetcher::{
        AccessAnswer, ClientRequest, CursorTerms, FetchEvent, Fetcher, IncomingBody, PromiseRule, Refusal, RequestEdits,
    },
    late_commits::LateCommit,
};
use larder_http::{
    Ruling, StoredHead, Timestamp,
    fields::NameFilter,
    framing::{CompletedBody, IncompleteBody},
    route::RequestTerms,
};

use crate::{
    figures::metrics::{FileCheck, WorkerMetrics},
    ground::{
        cache::{
            Cache,
            body::{
                continuation::{ContinuationAnswer, MissingRange},
                table::BodyTable,
            },
            lookup::FoundResponse,
            storing::{StoreAdmission, StorePlace},
        },
        clock,
        digest::{DigestCheck, NamedDigest},
        errors::Failure,
        exchange_budget::{ExchangeBudget, ExchangePlace},
        marks::ResponseMarkers,
        overload::Shortage,
        unfinished::UnfinishedWork,
    },
    origins::{access::OriginRouter, body::OriginBody},
    targets::{
        asked::RequestHead,
        git::AnswerCheck,
        listings::{self, ListingTable},
        siblings::Siblings,
    },
};

/// Fetches responses for one worker's cache, from other nodes and from origins.
pub(crate) struct OriginFetcher {
    pub(crate) cache: Arc<Cache>,
    pub(crate) metrics: Arc<WorkerMetrics>,
    /// The memory reserved for connections and exchanges.
    pub(crate) places: Arc<ExchangeBudget>,
    /// Finds the listings of packages, which contain the digests of files.
    pub(crate) listings: Arc<ListingTable>,
    pub(crate) origins: Arc<OriginRouter>,
    pub(crate) marks: Arc<ResponseMarkers>,
    /// The bodies in use that are long or still arriving, which requests share.
    pub(crate) bodies: Arc<BodyTable>,
    /// The other nodes of the fleet, which are asked before origins. `None` without a fleet that shares entries.
    pub(crate) siblings: Option<Arc<Siblings>>,
    /// Counts the work that must finish before the proxy stops.
    pub(crate) unfinished: Arc<UnfinishedWork>,
}

impl ClientRequest for RequestHead {
    fn terms(&self) -> RequestTerms<'_> {
        self.terms()
    }

    fn method(&self) -> &Method {
        &self.method
    }

    fn fields(&self) -> &HeaderMap {
        &self.fields
    }

    fn key(&self) -> Option<&Arc<[u8]>> {
        self.key.as_ref()
    }

    fn client(&self) -> IpAddr {
        self.client
    }

    fn names(&self) -> NameFilter {
        self.names
    }

    fn takes_plain(&self) -> bool {
        self.takes_lines
    }

    fn is_never_stored(&self) -> bool {
        self.before.is_never_stored
    }

    fn checks_access(&self) -> bool {
        self.before.checks_authorization
    }

    fn names_digest(&self) -> bool {
        self.before.digest.is_some()
    }

    fn has_parts(&self) -> bool {
        self.question.is_none()
    }
}

impl Fetcher for OriginFetcher {
    type Asked = RequestHead;
    type Body = OriginBody;
    type Failure = Failure;
    type Permission = Permission;
    type Place = ExchangePlace;

    fn cache(&self) -> &Arc<Cache> {
        &self.cache
    }

    fn bodies(&self) -> &BodyTable {
        &self.bodies
    }

    fn marks(&self) -> &ResponseMarks {
        &self.marks.response
    }

    fn now(&self) -> Timestamp {
        clock::now()
    }

    fn ask(
        &self,
        asked: &RequestHead,
        edits: &RequestEdits,
    ) -> impl Future<Output = Result<(response::Parts, OriginBody), Failure>> + Send {
        self.ask_any(asked, edits)
    }

    fn ask_rest(
        &self,
        asked: &RequestHead,
        missing: &MissingRange<'_>,
        start: u64,
    ) -> impl Future<Output = ContinuationAnswer> + Send {
        self.ask_missing(asked, missing, start)
    }

    fn ask_permission(
        &self,
        asked: &RequestHead,
        found: Option<&FoundResponse>,
    ) -> impl Future<Output = Result<AccessAnswer<Permission>, Failure>> + Send {
        self.ask_access(asked, found)
    }

    fn permits(permission: &Permission, head: &StoredHead, body_len: Option<u64>) -> bool {
        permission.covers(head, body_len)
    }

    fn refuse(asked: &RequestHead, refusal: Refusal) -> Failure {
        match refusal {
            Refusal::OnlyIfCached => Failure::OnlyIfCached,
            Refusal::Offline => asked.offline(),
            Refusal::Aborted => {
                Failure::Broken { host: asked.origin.to_string(), why: "the fetch was cancelled".into() }
            }
        }
    }

    fn is_origin_failure(failure: &Failure) -> bool {
        failure.is_origin_failure()
    }

    fn knows_digest(&self, asked: &RequestHead, key: &[u8]) -> impl Future<Output = bool> + Send {
        listings::knows_digest(self, asked, key)
    }

    async fn take_place(&self) -> Result<ExchangePlace, Failure> {
        self.places.take_for_fetch().await.ok_or(Failure::Overloaded(Shortage::Memory))
    }

    fn put_confirmed_ruling(&self, asked: &RequestHead, stored: StatusCode, fields: &mut HeaderMap) {
        asked.put_confirmed_ruling(&self.cache.shared.rules, stored, fields);
    }

    async fn checks(&self, asked: &RequestHead, status: StatusCode, fields: &HeaderMap) -> BodyChecks {
        if let Some(question) = &asked.question {
            return BodyChecks { content: Some(Box::new(question.check())), ..BodyChecks::default() };
        }
        if status != StatusCode::OK {
            return BodyChecks::default();
        }
        let named = match &asked.before.digest {
            // The known digest is that of the unencoded body.
            _ if fields.contains_key(CONTENT_ENCODING) => None,
            Some(named) => Some(named.clone()),
            None if Ruling::of(fields).is_some_and(|ruling| ruling.immutable) => {
                Box::pin(listings::known_digest(self, asked)).await
            }
            None => None,
        };
        let check = |named: NamedDigest| -> Box<dyn BodyCheck> { Box::new(named.check()) };
        let repr = NamedDigest::of_representation(fields).map(check);
        BodyChecks { named: named.map(check), repr, content: None }
    }

    fn terms(&self, asked: &RequestHead, chunks: &ChunkedBody) -> CursorTerms {
        let is_divided = self.divides_stored(asked, chunks);
        // Pieces of a divided body can still come from other nodes while origins cannot be contacted.
        let is_cut_off = asked.line.is_down() && !is_divided;
        // The request has `only-if-cached`, so it must not reach the origin and a gap cannot be filled (RFC 9111
        // 5.2.1.7).
        let is_alone = asked.terms().is_only_if_cached(&self.cache.http);
        let may_ask = !is_cut_off && !is_alone && asked.question.is_none();
        // If a node waited for pieces of other nodes before it answers, nodes could wait for each other in a circle.
        // And an origin that ignores ranges would send the whole body for each piece.
        let promise = if is_divided { PromiseRule::First } else { PromiseRule::All };
        CursorTerms { may_ask, promise }
    }

    fn divides(&self, asked: &RequestHead, len: u64) -> bool {
        self.may_divide(asked, len)
    }

    fn can_refresh(&self) -> bool {
        true
    }

    fn asks_nodes(&self, asked: &RequestHead) -> bool {
        self.siblings.is_some() && !asked.is_by_sibling
    }

    /// Returns the length of the pieces into which the nodes divide a stored body. `None` if they do not divide it.
    fn piece_len(&self, asked: &RequestHead, chunks: &ChunkedBody) -> Option<u64> {
        let is_divided = self.divides_stored(asked, chunks);
        self.siblings.as_ref().filter(|_| is_divided).map(|siblings| siblings.pieces.len_bytes())
    }

    fn admit_copy(
        &self,
        body: &OriginBody,
        place: &StorePlace,
        head: &StoredHead,
        len: Option<u64>,
    ) -> Option<StoreAdmission> {
        // Another node stores the response for all nodes. Here, only a popular one is stored.
        body.is_from_sibling().then(|| copying::admission(self, place, head, len))
    }

    fn keeps(&self, body: &OriginBody, primary: &[u8], len: u64) -> bool {
        !body.is_from_sibling() || copying::admits_part(self, primary, len)
    }

    fn begin_late_commit(&self) -> Option<LateCommit> {
        Some(self.unfinished.late_commits.begin())
    }

    fn note(&self, event: FetchEvent<'_, RequestHead>) {
        match event {
            FetchEvent::Begun => self.metrics.flights.add(1),
            FetchEvent::Joined => self.metrics.collapsed_requests.add(1),
            FetchEvent::Stored { primary, head } => self.count_file(primary, head),
            FetchEvent::GivenUp => self.metrics.store_aborts.add(1),
            FetchEvent::Mismatched { asked, named_by } => {
                self.metrics.files[FileCheck::Mismatched as usize].add(1);
                let origin = &asked.origin;
                let path = asked.path();
                tracing::warn!(%origin, path, named_by, "a response is not stored: its body does not have the named digest");
            }
        }
    }
}

impl OriginFetcher {
    /// Counts a stored file that never changes, by whether its digest was verified.
    ///
    /// For a listing, remembers the request fields by which it is found again.
    pub(crate) fn count_file(&self, primary: &Arc<[u8]>, head: &StoredHead) {
        let Some(ruling) = head.ruling() else { return };
        if head.selecting().iter().next().is_some() {
            self.listings.note(primary, head.selecting());
        }
        if ruling.immutable && head.status() == StatusCode::OK {
            let check = if ruling.is_verified { FileCheck::Verified } else { FileCheck::Unverified };
            self.metrics.files[check as usize].add(1);
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

    fn may_end_quietly(&self) -> bool {
        false
    }

    fn has_arrived(&self) -> bool {
        self.has_arrived()
    }

    fn take_arrived(&mut self) -> Option<(Bytes, CompletedBody)> {
        self.take_arrived()
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
