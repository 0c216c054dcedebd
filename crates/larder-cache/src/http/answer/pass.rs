//! Passes a request on to the origin, and its response to the client, without storing it.
//!
//! The response to a HEAD updates the stored response to GET, although it is not stored itself (RFC 9111 4.3.5).

use std::sync::Arc;

use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use larder_device::pinned;
use larder_http::{
    CacheStatus,
    cache_status::{Forward, RequestHandling},
    storable::Exchange,
    validate::{self, HeadVerdict},
};

use super::{
    hit::{self, respond},
    plan::FetchPlan,
    query::{Answer, AnswerBody, AnswerKind, AnswerResponse, CacheQuery},
};
use crate::http::{
    confirmation::{self, Confirmation},
    fetcher::{ClientRequest as _, Fetcher, RequestEdits},
    lookup::{self, FoundResponse},
    storing::{self, StorePlace},
};

/// An origin's response that is passed on to a client.
pub(super) struct PassedResponse<B> {
    pub(super) status: StatusCode,
    pub(super) fields: HeaderMap,
    pub(super) body: B,
}

impl<F: Fetcher> CacheQuery<'_, F> {
    /// Passes a request on to the origin, as planned, because no stored response answers it.
    ///
    /// # Errors
    /// The origin is unreachable, or its response is malformed, and no stale response may be served.
    #[doc(hidden)] // for larder-proxy
    pub async fn pass_planned(self, plan: &FetchPlan<F>) -> Result<Answer<F>, F::Failure> {
        let updates = plan.before.as_ref().filter(|_| *self.asked.method() == Method::HEAD);
        let passed = match updates {
            Some(updates) => pinned(|| self.pass_head(&plan.primary, updates, plan.forward)).await,
            None => self.pass(plan.forward).await,
        };
        self.or_stale(passed, plan.before.as_ref().filter(|_| plan.may_serve_on_error))
    }

    /// Passes a request on that only the origin can answer, although the plan was to use a stored response.
    ///
    /// # Errors
    /// The origin may not be contacted, is unreachable, or its response is malformed.
    pub(super) async fn pass_unplanned(self) -> Result<Answer<F>, F::Failure> {
        self.check_may_ask()?;
        self.pass(CacheStatus::forwarded(Forward::Request)).await
    }

    /// Passes a request on to the origin unchanged. The response is for this client alone.
    pub(super) async fn pass(self, status: CacheStatus) -> Result<Answer<F>, F::Failure> {
        // Boxed, because it is large and rarely needed, and would enlarge every future that may need it.
        let (head, body) = Box::pin(self.http.fetcher.ask(self.asked, &RequestEdits::default())).await?;
        let status = with_origin_status(status, head.status);
        Ok(self.respond(PassedResponse { status: head.status, fields: head.headers, body }, status))
    }

    /// Passes a HEAD on to the origin. Its response confirms or removes the stored response to GET (RFC 9111 4.3.5).
    async fn pass_head(
        self,
        primary: &Arc<[u8]>,
        found: &FoundResponse,
        status: CacheStatus,
    ) -> Result<Answer<F>, F::Failure> {
        let cache = self.cache();
        let work = cache.shared.begin(primary);
        if !lookup::is_unchanged(cache, primary, found) {
            return self.pass(status).await;
        }
        let request_time = self.now();
        let (head, body) = self.http.fetcher.ask(self.asked, &RequestEdits::default()).await?;
        let settings = &cache.http;
        let request_fields = self.asked.fields();
        let answer = Exchange {
            method: self.asked.method(),
            request_fields,
            status: head.status,
            response_fields: &head.headers,
            request_time,
            response_time: self.now(),
        };
        let mut updated = None;
        match validate::judge_head(&found.entry.head, &answer, settings) {
            HeadVerdict::Holds(fresh) => {
                // The stored fields complete those that the response to HEAD lacks.
                let mut fields = fresh.fields().to_map();
                fields.insert(header::CONTENT_LENGTH, HeaderValue::from(fresh.body().len()));
                hit::add(&mut fields, &validate::first_askers_own(&head.headers, &fresh));
                updated = Some(fields);
                let fresh = fresh.after_purges(work.purge_count);
                let place = StorePlace::renewed(primary, found, &fresh, request_fields, settings);
                confirmation::confirm(cache, request_fields, found, Confirmation { place, head: fresh, work }).await;
            }
            HeadVerdict::Changed => drop(storing::remove(cache, &found.key).await),
            HeadVerdict::Silent => {}
        }
        let status = with_origin_status(status, head.status);
        let fields = updated.unwrap_or(head.headers);
        Ok(self.respond(PassedResponse { status: head.status, fields, body }, status))
    }

    /// Creates the answer from the status, the fields and the body of an origin's response.
    pub(super) fn respond(self, passed: PassedResponse<F::Body>, status: CacheStatus) -> Answer<F> {
        let PassedResponse { status: origin_status, fields, body } = passed;
        let fields = self.marks().forwarded_fields(fields, status);
        let response = AnswerResponse::Made(respond(origin_status, fields, AnswerBody::Origin(body)));
        Answer { response, kind: AnswerKind::Miss, status, is_from_origin: true }
    }
}

/// Adds the status of the origin's response to a Cache-Status.
#[inline]
pub fn with_origin_status(mut cache_status: CacheStatus, origin: StatusCode) -> CacheStatus {
    if let RequestHandling::Forwarded { status, .. } = &mut cache_status.handling {
        *status = Some(origin);
    }
    cache_status
}
