//! Answers a request from memory alone, within the call.
//!
//! Owns: the choice of requests for which that is possible. Invariant: a request that would be refused, rewritten or
//! looked at more closely on its way through `admission` is not answered here. Cost: one lookup in memory, and no
//! future.

use std::ops::ControlFlow;

use http::{HeaderMap, Method, Request};
use http_body::Body as _;
use larder_http::{CacheStatus, Reuse, cache_status::Tier, rules::RuledRequest, telling};

use crate::{
    asked::RequestTerms,
    cache::{entry::EntryBody, lookup, mark::OriginMark},
    client::{encoded::EncodedResponse, peer::Client},
    mirrors::MirrorRequest,
    origin::{
        target::{host_of, path_of},
        uplink::UplinkState,
    },
    outcome::Outcome,
    received_body::IncomingBody,
    request::{
        hit::{self, HitRequest},
        nodes,
        served::ServedResponse,
        target::{Target, TargetKind},
    },
    worker::Worker,
};

/// A response from memory.
pub(super) enum MemoryAnswer {
    Served(ServedResponse),
    /// A hit whose head is encoded already.
    Encoded(EncodedResponse),
}

/// Answers from memory if the whole response is in memory and fresh, and the request is simple. Otherwise continues
/// with the key of a simple request. `may_encode` says that nothing else looks at the response's fields.
pub(super) fn answer(
    client: &Client,
    worker: &Worker,
    (target, request): (&Target, &Request<IncomingBody>),
    name: Option<(&str, &str, OriginMark<'_>)>,
    may_encode: bool,
) -> ControlFlow<MemoryAnswer, Option<Vec<u8>>> {
    let simple = name.filter(|(_, authority, _)| is_simple(client, worker, (target, request), authority));
    let Some((scheme, authority, mark)) = simple else { return ControlFlow::Continue(None) };
    let path = path_of(request.uri());
    let ruled = RuledRequest { method: request.method(), scheme, authority, path, fields: request.headers() };
    let Ok(key) = worker.cache.http.key_rules.key(scheme, authority, path) else { return ControlFlow::Continue(None) };
    let key = mark.on(key);
    match from_memory(client, worker, ruled, &key, |fields| {
        may_encode && (target.mirror().is_none() || MirrorRequest::leaves(fields))
    }) {
        Some(answer) => ControlFlow::Break(answer),
        None => ControlFlow::Continue(Some(key)),
    }
}

fn from_memory(
    client: &Client,
    worker: &Worker,
    ruled: RuledRequest<'_>,
    key: &[u8],
    may_encode: impl FnOnce(&HeaderMap) -> bool,
) -> Option<MemoryAnswer> {
    let cache = &worker.cache;
    let (entry, variant) = lookup::find_hot(cache, key, ruled.fields).filter(|(entry, _)| {
        matches!(entry.body, EntryBody::Whole(_)) && !entry.head.freshness().checks_authorization
    })?;
    // The uplink's state is not known yet, and does not matter to a response that is fresh anyway.
    let terms = RequestTerms {
        session_rules: client.session.as_ref().map(|session| &*session.rules),
        ..RequestTerms::new(ruled, UplinkState::Up)
    };
    let Reuse::Fresh { age, .. } = terms.judge(&entry.head, cache) else { return None };
    let status = CacheStatus::hit(age.ttl_secs).from_tier(Tier::Memory);
    let RequestTerms { method, fields, .. } = terms;
    let wanted = HitRequest { marks: &worker.shared.marks, method, fields, age_secs: age.age_secs, status };
    let note = || lookup::note_memory_hit(cache, &entry, variant.as_deref().unwrap_or(key));
    if may_encode(entry.head.fields())
        && let Some(response) = hit::encoded(&wanted, &entry)
    {
        note();
        return Some(MemoryAnswer::Encoded(response));
    }
    let answered = hit::answer(&wanted, &entry, None)?;
    note();
    let outcome = if answered.conditional { Outcome::ConditionalHit } else { Outcome::MemoryHit };
    Some(MemoryAnswer::Served(ServedResponse { response: answered.response, outcome, origin: None, why: None }))
}

/// Returns whether nothing but the response in memory decides about a request.
fn is_simple(
    client: &Client,
    worker: &Worker,
    (target, request): (&Target, &Request<IncomingBody>),
    authority: &str,
) -> bool {
    let shared = &worker.shared;
    let peer = target.sibling();
    let mirrored = target.mirror();
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD) && request.body().is_end_stream();
    let passwords = shared.passwords.as_ref().filter(|_| !client.is_admitted() && peer.is_none());
    let lists = shared.origins.lists.as_ref().filter(|_| mirrored.is_none());
    // Only a trusted proxy or another node can name a user. The lookup in memory does not compare users.
    let may_name_user = peer.is_some() || !shared.config.fleet.trusted_proxies.is_empty();
    is_read
        && !(may_name_user && telling::has_identity(request.headers()))
        && !client.is_denied(worker, target)
        && nodes::is_up_to_date(worker, peer)
        && passwords.is_none_or(|passwords| passwords.knows(request.headers()))
        && !mirrored.is_some_and(MirrorRequest::changes_documents)
        && !matches!(target.kind, TargetKind::Registry(..))
        && !lists.is_some_and(|lists| lists.block(host_of(authority)))
}
