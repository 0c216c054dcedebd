//! Answers a request from memory alone, within the call.
//!
//! Owns: the choice of requests for which that is possible. Invariant: a request that would be refused, rewritten or
//! looked at more closely on its way through `admission` is not answered here. Cost: one lookup in memory, and no
//! future.

use std::sync::Arc;

use http::{Method, Request, Version};
use http_body::Body;
use larder_cache::http::answer::hit::{self, HitRequest};
use larder_http::{
    CacheStatus, Reuse,
    cache_status::Tier,
    route::{RequestTerms, UplinkState},
    rules::RuledRequest,
    telling,
};

use crate::{
    figures::{metrics::WorkerMetrics, outcome::Outcome},
    ground::{
        cache::{
            entry::{CachedEntry, EntryBody},
            lookup,
        },
        clock,
        marks::ResponseMarkers,
        target::{host_of, path_of},
    },
    operators::popular::PopularitySubject,
    origins::fetcher::OriginFetcher,
    road::{
        client::{
            encoded::{EncodedHit, scratch},
            response_body::ResponseBody,
        },
        exchange::ClientExchange,
        served::ServedResponse,
        steps::{Step, Verdict},
        target::{KeyParts, with_key},
    },
    targets::mirrors::MirrorRequest,
};

/// The result of looking for a response in memory.
enum MemoryState {
    Answer(MemoryAnswer),
    /// Memory has no response for the request. The key is the one that was looked up.
    Missing(Arc<[u8]>),
    /// A request of this form needs more than a lookup in memory.
    Unsuited,
}

/// A response that was found in memory.
pub(super) enum MemoryAnswer {
    /// A response with a map of fields. Boxed, because it is rare, and large compared with the other variant.
    Served(ServedResponse),
    /// A hit with an encoded head.
    Encoded(EncodedHit),
}

impl ClientExchange {
    /// Answers a simple request if the whole response is in memory and fresh.
    ///
    /// # Errors
    /// Returns the next step, if memory alone cannot answer the request.
    pub(super) fn look_in_memory(&mut self, request: &Request<impl Body>) -> Result<MemoryAnswer, Step> {
        self.client.permit_stall(self.worker.policy.limits.stall);
        let parts = self.target.key_parts(&self.worker.shared.routes, self.client.scheme(), request);
        let subject = self.subject(request, parts);
        let query = self.log_query(request, parts.map(|(scheme, authority, _)| (scheme, authority)));
        let found = self.find_in_memory(request, parts, true);
        self.account.set_subject(subject);
        self.account.query = query;
        self.leave_memory(request, found)
    }

    /// Does the same as [`Self::look_in_memory`] for a request that was counted already.
    pub(super) fn peek_into_memory(&mut self, request: &Request<impl Body>) -> Result<MemoryAnswer, Step> {
        let parts = self.target.key_parts(&self.worker.shared.routes, self.client.scheme(), request);
        let found = self.find_in_memory(request, parts, false);
        self.leave_memory(request, found)
    }

    /// Ends the step `Memory` with the result of the lookup.
    ///
    /// # Errors
    /// Returns the next step, if memory did not answer the request.
    fn leave_memory(&mut self, request: &Request<impl Body>, found: MemoryState) -> Result<MemoryAnswer, Step> {
        match found {
            MemoryState::Unsuited => self.trace.note(Verdict::Unsuited),
            MemoryState::Missing(key) => {
                self.trace.note(Verdict::Miss);
                self.target.key = Some(key);
            }
            MemoryState::Answer(answer) => {
                self.trace.note(Verdict::Hit);
                return Ok(answer);
            }
        }
        Err(self.after_memory(request))
    }

    /// Returns the step after `Memory` for a request that memory did not answer.
    fn after_memory(&self, request: &Request<impl Body>) -> Step {
        if request.method() == Method::CONNECT {
            Step::Tunnel
        } else if Self::asks_to_switch(request) {
            Step::Switch
        } else if self.target.is_own() {
            Step::Own
        } else {
            Step::Admit
        }
    }

    /// Returns the site or resource whose popularity a request adds to.
    fn subject(&self, request: &Request<impl Sized>, parts: Option<KeyParts<'_>>) -> Option<PopularitySubject> {
        let WorkerMetrics { popular, sites, .. } = &*self.worker.metrics;
        match parts {
            Some((scheme, authority, _)) => Some(popular.see(sites, authority, Some((scheme, path_of(request.uri()))))),
            None if request.method() == Method::CONNECT => {
                Some(popular.see(sites, request.uri().authority()?.as_str(), None))
            }
            None => None,
        }
    }

    /// Looks for the response to a request in memory. With `is_counted`, the response counts the request.
    fn find_in_memory(
        &self,
        request: &Request<impl Body>,
        parts: Option<KeyParts<'_>>,
        is_counted: bool,
    ) -> MemoryState {
        let simple = parts.filter(|(_, authority, _)| self.is_simple(request, authority));
        let Some(parts @ (scheme, authority, _)) = simple else { return MemoryState::Unsuited };
        let path = path_of(request.uri());
        let ruled = RuledRequest { method: request.method(), scheme, authority, path, fields: request.headers() };
        let found = with_key(&self.worker.cache.http.key_rules, parts, path, |key| {
            match self.fresh_in_memory(ruled, key, self.may_encode(request), is_counted) {
                Some(answer) => MemoryState::Answer(answer),
                None => MemoryState::Missing(Arc::from(key)),
            }
        });
        found.unwrap_or(MemoryState::Unsuited)
    }

    fn fresh_in_memory(
        &self,
        ruled: RuledRequest<'_>,
        key: &[u8],
        may_encode: bool,
        is_counted: bool,
    ) -> Option<MemoryAnswer> {
        let cache = &self.worker.cache;
        let found = lookup::find_hot(cache, key, ruled.fields, is_counted)?;
        let entry = &found.entry;
        if !matches!(entry.body, EntryBody::Whole(_)) || entry.head.freshness().checks_authorization {
            return None;
        }
        // The state of the uplink does not matter to a fresh response.
        let terms = RequestTerms {
            session_rules: self.client.session.as_ref().map(|session| &*session.rules),
            ..RequestTerms::new(ruled, UplinkState::Up)
        };
        let Reuse::Fresh { age, .. } = cache.judge(&terms, &entry.head, clock::now()) else { return None };
        let status = CacheStatus::hit(age.ttl_secs).from_tier(Tier::Memory);
        let RequestTerms { method, fields, names, .. } = terms;
        let marks = &self.worker.shared.marks;
        let wanted = HitRequest { marks: &marks.response, method, fields, names, age_secs: age.age_secs, status };
        if may_encode
            && self.target.mirror().is_none_or(|_| MirrorRequest::leaves(entry.head.fields()))
            && let Some(encoded) = encoded(marks, &wanted, entry)
        {
            found.report(cache, key);
            return Some(MemoryAnswer::Encoded(encoded));
        }
        let answered = hit::answer::<OriginFetcher>(&wanted, entry, None)?;
        found.report(cache, key);
        let outcome = if answered.is_conditional { Outcome::ConditionalHit } else { Outcome::MemoryHit };
        let response = answered.response.map(ResponseBody::from);
        Some(MemoryAnswer::Served(ServedResponse { response: Box::new(response), outcome, origin: None, why: None }))
    }

    /// Returns whether a hit may be sent with an encoded head.
    ///
    /// The client must use HTTP/1.1, and nothing may log the response's fields or change them. Changes by a mirror are
    /// checked elsewhere.
    pub(super) fn may_encode(&self, request: &Request<impl Sized>) -> bool {
        request.version() == Version::HTTP_11
            && self.worker.shared.access_log.is_none()
            && self.target.wish.is_none()
            && self.target.sibling().is_none()
            && !self.target.is_build_cache()
            && !self.client.says_goodbye()
    }

    /// Returns whether a request can be answered by a response in memory without further checks.
    fn is_simple(&self, request: &Request<impl Body>, authority: &str) -> bool {
        let Self { client, worker, target, .. } = self;
        let shared = &worker.shared;
        let is_by_node = target.sibling().is_some();
        let mirrored = target.mirror();
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD) && request.body().is_end_stream();
        let passwords = shared.passwords.as_ref().filter(|_| !client.is_admitted() && !is_by_node);
        let lists = shared.origins.lists.as_ref().filter(|_| mirrored.is_none());
        // A user can be named only by a trusted proxy or another node. The lookup in memory does not distinguish users.
        let may_name_user = is_by_node || !shared.config.fleet.trusted_proxies.is_empty();
        is_read
            && !(may_name_user && telling::has_identity(request.headers()))
            && !self.is_denied()
            && self.is_up_to_date()
            && passwords.is_none_or(|passwords| passwords.knows(request.headers()))
            && !mirrored.is_some_and(MirrorRequest::changes_documents)
            && !target.is_own()
            && !lists.is_some_and(|lists| lists.block(host_of(authority)))
    }
}

/// Answers a plain GET over HTTP/1.1 with the encoded lines of a response in memory.
///
/// Returns `None` if the request or the response needs another form.
fn encoded(marks: &ResponseMarkers, wanted: &HitRequest<'_>, entry: &CachedEntry) -> Option<EncodedHit> {
    let EntryBody::Whole(body) = &entry.body else { return None };
    if !hit::is_plain(wanted, &entry.head, body.len()) {
        return None;
    }
    let mut head = scratch();
    marks.push_head_lines(&entry.head, &mut head);
    marks.push_times(Some(wanted.age_secs), wanted.status, &mut head);
    Some(EncodedHit { head, status: entry.head.status(), body: body.clone() })
}
