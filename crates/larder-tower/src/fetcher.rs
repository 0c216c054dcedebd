//! The cache's access to the origin, by way of the task of the client whose request began the fetch.
//!
//! Only that task may send requests, because it may have borrowed its [`Origin`](crate::Origin). It sends them until it
//! has its response. Invariants: if the client leaves earlier, the fetch fails, and the requests that wait for it start
//! fetches of their own. A task of the cache receives the body, so clients that leave do not interrupt it.

use crate::{
    asked::{AskFailure, AskedResource, OriginReply},
    origin_body::OriginBody,
};
use http::{HeaderMap, StatusCode};
use larder_cache::{
    Cache,
    http::{
        ResponseCache,
        answer::marks::ResponseMarks,
        body::{
            continuation::{ContinuationAnswer, MissingRange},
            fill::BodyChecks,
            table::BodyTable,
        },
        chunks::ChunkedBody,
        fetcher::{AccessAnswer, CursorTerms, FetchEvent, Fetcher, PromiseRule, Refusal, RequestEdits},
        late_commits::LateCommit,
        lookup::FoundResponse,
        storing::{StoreAdmission, StorePlace},
    },
};
use larder_http::{StoredHead, Timestamp};
use std::{convert::Infallible, sync::Arc};

/// A function that returns the current time.
pub(crate) type TimeSource = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// Implements the cache's [`Fetcher`], which contacts origins and decides what to do with their responses.
pub(crate) struct OriginFetcher {
    pub(crate) cache: Cache,
    pub(crate) responses: Arc<ResponseCache>,
    pub(crate) bodies: BodyTable<Self>,
    pub(crate) marks: ResponseMarks,
    pub(crate) time: TimeSource,
}

impl Fetcher for OriginFetcher {
    type Asked = AskedResource;
    type Body = OriginBody;
    type Failure = AskFailure;
    type Permission = Infallible;
    type Place = ();

    fn cache(&self) -> &Arc<ResponseCache> {
        &self.responses
    }

    fn bodies(&self) -> &BodyTable<Self> {
        &self.bodies
    }

    fn marks(&self) -> &ResponseMarks {
        &self.marks
    }

    fn now(&self) -> Timestamp {
        (self.time)()
    }

    fn ask(&self, asked: &AskedResource, edits: &RequestEdits) -> impl Future<Output = OriginReply> + Send {
        asked.ask(edits)
    }

    async fn ask_rest(&self, _: &AskedResource, _: &MissingRange<'_>, _: u64) -> ContinuationAnswer<OriginBody> {
        ContinuationAnswer::Failed("the client that could ask the origin has its answer".to_owned())
    }

    async fn ask_permission(
        &self,
        _: &AskedResource,
        _: Option<&FoundResponse>,
    ) -> Result<AccessAnswer<Infallible>, AskFailure> {
        Ok(AccessAnswer::Refused)
    }

    fn permits(permission: &Infallible, _: &StoredHead, _: Option<u64>) -> bool {
        match *permission {}
    }

    fn refuse(_: &AskedResource, refusal: Refusal) -> AskFailure {
        match refusal {
            Refusal::OnlyIfCached => AskFailure::OnlyIfCached,
            Refusal::Offline => AskFailure::NoResponse,
            Refusal::Aborted => AskFailure::Abandoned,
        }
    }

    fn is_origin_failure(failure: &AskFailure) -> bool {
        *failure == AskFailure::NoResponse
    }

    /// Returns true, so a request for a range goes to the origin unchanged unless the whole body is stored.
    async fn knows_digest(&self, _: &AskedResource, _: &[u8]) -> bool {
        true
    }

    async fn take_place(&self) -> Result<(), AskFailure> {
        Ok(())
    }

    fn put_confirmed_ruling(&self, _: &AskedResource, _: StatusCode, _: &mut HeaderMap) {}

    async fn checks(&self, _: &AskedResource, _: StatusCode, _: &HeaderMap) -> BodyChecks {
        BodyChecks::default()
    }

    fn terms(&self, _: &AskedResource, _: &ChunkedBody) -> CursorTerms {
        CursorTerms { may_ask: false, promise: PromiseRule::All }
    }

    fn can_refresh(&self) -> bool {
        false
    }

    fn asks_nodes(&self, _: &AskedResource) -> bool {
        false
    }

    fn divides(&self, _: &AskedResource, _: u64) -> bool {
        false
    }

    fn piece_len(&self, _: &AskedResource, _: &ChunkedBody) -> Option<u64> {
        None
    }

    fn admit_copy(&self, _: &OriginBody, _: &StorePlace, _: &StoredHead, _: Option<u64>) -> Option<StoreAdmission> {
        None
    }

    fn keeps(&self, _: &OriginBody, _: &[u8], _: u64) -> bool {
        true
    }

    fn begin_late_commit(&self) -> Option<LateCommit> {
        self.cache.begin_late_commit()
    }

    fn note(&self, _: FetchEvent<'_, AskedResource>) {}
}
