//! GET and HEAD with a cache in between: from what is stored if it may be used, else by a flight.
//!
//! Owns: what follows from the rules' decisions. Does not: make them (`larder_http`). Invariant: nothing
//! stale is served where the stored response forbids it (RFC 9111 4.2.4).

use std::sync::Arc;

use http::{Method, header};
use larder_http::{
    CacheStatus, Reason, Reuse, StoredHead,
    cache_control::RequestDirectives,
    cache_status::Forward,
    range::{self, ByteRange, RangeRequest},
    reuse::{self, Age},
};

use crate::{
    asked::Asked,
    cache::{
        entry::{CHUNK_BYTES, EntryBody},
        lookup::{self, Found, Lookup},
    },
    clock,
    errors::Failure,
    flight::{
        presence::{self, Presence, Ready},
        source::Source,
    },
    outcome::Outcome,
    request::{
        hit::{self, Wanted},
        pass,
        served::Served,
        share::{self, Sharing},
    },
    worker::Worker,
};

/// Answers from what is stored, or from the origin.
///
/// # Errors
/// Nothing stored may be used and the origin cannot be reached.
pub(crate) async fn from_cache(worker: &Arc<Worker>, asked: &Arc<Asked>, key: &Arc<[u8]>) -> Result<Served, Failure> {
    let settings = &worker.shared.config.http;
    // What takes kilobytes for a moment is not part of what waits for the origin: the same below, and in the callers.
    let lookup = Box::pin(lookup::find(&worker.cache, key, &asked.fields)).await;
    let presence = match &lookup {
        Lookup::Found(Found { entry, .. }) if matches!(entry.body, EntryBody::Whole(_)) => Presence::There(None),
        Lookup::Found(found) => {
            Box::pin(presence::look(&worker.flights.means, asked, (&found.entry, &found.key))).await
        }
        Lookup::OtherVariants(_) | Lookup::Nothing => Presence::Gone,
    };
    let lacks = presence.is_lacking();
    let (found, marker, forward) = match lookup {
        Lookup::Found(found) if presence.is_gone() => (None, found.marker, CacheStatus::forwarded(Forward::Miss)),
        Lookup::Found(found) => {
            let decision = reuse::decide(&asked.method, &asked.fields, &found.entry.head, clock::now(), settings);
            match decision {
                Reuse::Fresh { age, reason } => match fresh(worker, asked, (&found, presence), (age, reason)).await {
                    Some(served) => return served,
                    None => (None, found.marker, CacheStatus::forwarded(Forward::Miss)),
                },
                Reuse::NotUsable { reason } => {
                    check_may_ask(worker, asked)?;
                    let status = CacheStatus::forwarded(Forward::Request).because(reason);
                    return pass::pass(worker, asked, None, status).await;
                }
                Reuse::Stale { may_serve_meanwhile: true, age, .. }
                    if !lacks
                        && !asks_for_itself(asked)
                        && found.entry.head.selecting().cover_what_is_told(&asked.fields) =>
                {
                    return meanwhile(worker, asked, key, ((found, presence), age)).await;
                }
                Reuse::Stale { may_serve_on_error: may, reason, .. }
                | Reuse::MustValidate { may_serve_on_error: may, reason, .. } => {
                    let is_asked = matches!(decision, Reuse::MustValidate { .. }) && reason != Reason::NoCache;
                    let why = if is_asked { Forward::Request } else { Forward::Stale };
                    let marker = found.marker.clone();
                    (Some((found, may && !lacks)), marker, CacheStatus::forwarded(why).because(reason))
                }
            }
        }
        Lookup::OtherVariants(marker) => {
            if let Some(found) = Box::pin(lookup::find_by_language(&worker.cache, key, &marker, &asked.fields)).await
                && let Some(served) = if_fresh(worker, asked, &found).await
            {
                return served;
            }
            (None, Some(marker), CacheStatus::forwarded(Forward::VaryMiss))
        }
        Lookup::Nothing => (None, None, CacheStatus::forwarded(Forward::UriMiss)),
    };
    check_may_ask(worker, asked)?;
    let (before, may_serve_on_error) = match found {
        Some((found, may)) => (Some(found), may),
        None => (None, false),
    };
    if wants_origin_itself(worker, asked, key, before.is_some()) {
        let passed = match &before {
            Some(found) if asked.method == Method::HEAD => {
                Box::pin(pass::pass_head(worker, asked, (key, found), forward)).await
            }
            _ => pass::pass(worker, asked, None, forward).await,
        };
        return or_stale(worker, asked, passed, before.filter(|_| may_serve_on_error).as_ref());
    }
    let is_reload = reuse::is_reload(&asked.fields, settings);
    let sharing = Sharing { primary: Arc::clone(key), before, may_serve_on_error, marker, forward, is_reload };
    share::fly(worker, asked, sharing).await
}

/// Passes a request on for what can have no key.
///
/// # Errors
/// As [`from_cache`].
pub(crate) async fn from_origin(worker: &Arc<Worker>, asked: &Arc<Asked>) -> Result<Served, Failure> {
    check_may_ask(worker, asked)?;
    pass::pass(worker, asked, None, CacheStatus::forwarded(Forward::Bypass)).await
}

/// Whether the origin may be asked at all (RFC 9111 5.2.1.7).
fn check_may_ask(worker: &Worker, asked: &Asked) -> Result<(), Failure> {
    let is_forbidden = reuse::is_only_if_cached(&asked.fields, &worker.shared.config.http);
    if is_forbidden { Err(Failure::OnlyIfCached) } else { Ok(()) }
}

/// The stale response instead of an error, where it may be served (RFC 9111 4.2.4).
pub(crate) fn or_stale(
    worker: &Arc<Worker>,
    asked: &Arc<Asked>,
    served: Result<Served, Failure>,
    stale: Option<&Found>,
) -> Result<Served, Failure> {
    match (served, stale) {
        (Err(failure), Some(found)) if failure.is_origin_failure() => stale_answer(worker, asked, found).ok_or(failure),
        (Ok(served), Some(found)) if crate::flight::fetch::is_origin_error(served.response.status()) => {
            Ok(stale_answer(worker, asked, found).unwrap_or(served))
        }
        (served, _) => served,
    }
}

/// Answers from a stored response that is stale, because the origin failed.
pub(crate) fn stale_answer(worker: &Arc<Worker>, asked: &Arc<Asked>, found: &Found) -> Option<Served> {
    let age = age_of(worker, &found.entry.head);
    let status = CacheStatus::hit(age.ttl_secs).because(Reason::Expired);
    let wanted = Wanted {
        marks: &worker.shared.marks,
        method: &asked.method,
        fields: &asked.fields,
        age_secs: age.age_secs,
        status,
    };
    let body = Source::of(&worker.flights.means, asked, &found.key, &found.entry).map(Arc::new);
    let answered = hit::answer(&wanted, &found.entry, body)?;
    let origin = Some(asked.origin.host.clone());
    Some(Served { response: answered.response, outcome: Outcome::RefreshFailed, origin })
}

/// How old a stored response is, and what is left of its lifetime.
pub(crate) fn age_of(worker: &Worker, head: &StoredHead) -> Age {
    let freshness = head.freshness();
    let age_millis = freshness.age_millis(clock::now());
    let left = freshness.lifetime_millis(&worker.shared.config.http).saturating_sub(age_millis);
    Age { age_secs: (age_millis / 1000).unsigned_abs(), ttl_secs: left.div_euclid(1000) }
}

/// Answers from a stored response if it may be used as it is.
pub(crate) async fn if_fresh(
    worker: &Arc<Worker>,
    asked: &Arc<Asked>,
    found: &Found,
) -> Option<Result<Served, Failure>> {
    let settings = &worker.shared.config.http;
    match reuse::decide(&asked.method, &asked.fields, &found.entry.head, clock::now(), settings) {
        Reuse::Fresh { age, reason } => {
            let presence = Box::pin(presence::look(&worker.flights.means, asked, (&found.entry, &found.key))).await;
            fresh(worker, asked, (found, presence), (age, reason)).await
        }
        Reuse::Stale { .. } | Reuse::MustValidate { .. } | Reuse::NotUsable { .. } => None,
    }
}

/// Answers from a stale response at once, and validates it behind (RFC 5861 3).
async fn meanwhile(
    worker: &Arc<Worker>,
    asked: &Arc<Asked>,
    key: &Arc<[u8]>,
    ((found, presence), age): ((Found, Presence), Age),
) -> Result<Served, Failure> {
    let served = fresh(worker, asked, (&found, presence), (age, Reason::StaleWhileRevalidate)).await;
    let (marker, forward) = (found.marker.clone(), CacheStatus::forwarded(Forward::Stale));
    let primary = Arc::clone(key);
    let before = Some(found);
    let sharing = Sharing { primary, before, may_serve_on_error: true, marker, forward, is_reload: false };
    match served {
        Some(served) => {
            share::refresh(worker, asked, &sharing);
            served
        }
        None => {
            let sharing = Sharing { before: None, may_serve_on_error: false, ..sharing };
            Box::pin(share::fly(worker, asked, sharing)).await
        }
    }
}

/// Answers from what is stored. `None`: it turns out that its body cannot be had.
async fn fresh(
    worker: &Arc<Worker>,
    asked: &Arc<Asked>,
    (found, presence): (&Found, Presence),
    (age, reason): (Age, Reason),
) -> Option<Result<Served, Failure>> {
    let Ready { body, continued } = presence.ready().await?;
    let stale = matches!(reason, Reason::RequestMaxStale | Reason::StaleWhileRevalidate);
    let status = continued.map_or(CacheStatus::hit(age.ttl_secs), share::completed);
    let status = if stale { status.because(reason) } else { status };
    let wanted = Wanted {
        marks: &worker.shared.marks,
        method: &asked.method,
        fields: &asked.fields,
        age_secs: age.age_secs,
        status,
    };
    let Some(answered) = hit::answer(&wanted, &found.entry, body) else {
        // Its preconditions are for the origin to judge (RFC 9111 4.3.2).
        return Some(match check_may_ask(worker, asked) {
            Ok(()) => pass::pass(worker, asked, None, CacheStatus::forwarded(Forward::Request)).await,
            Err(failure) => Err(failure),
        });
    };
    let outcome = match (answered.conditional, stale, found.from_memory) {
        _ if continued.is_some() => Outcome::Miss,
        (true, _, _) => Outcome::ConditionalHit,
        (_, true, _) => Outcome::StaleHit,
        (_, _, true) => Outcome::MemoryHit,
        (_, _, false) => Outcome::Hit,
    };
    let origin = continued.map(|_| asked.origin.host.clone());
    Some(Ok(Served { response: answered.response, outcome, origin }))
}

/// Whether only the origin's answer to this very request will do: a HEAD that the cache cannot answer, or
/// preconditions that are the origin's to judge.
fn asks_for_itself(asked: &Asked) -> bool {
    asked.method != Method::GET
        || asked.fields.contains_key(header::IF_MATCH)
        || asked.fields.contains_key(header::IF_UNMODIFIED_SINCE)
}

/// Whether a request is better passed on as it is than made into a fetch of the whole.
fn wants_origin_itself(worker: &Worker, asked: &Asked, key: &[u8], found: bool) -> bool {
    let fields = &asked.fields;
    if asks_for_itself(asked) {
        return true;
    }
    let no_store = fields.contains_key(header::CACHE_CONTROL) && RequestDirectives::from_fields(fields).no_store;
    if no_store {
        return true;
    }
    let partial = fields.contains_key(header::RANGE);
    let conditional = fields.contains_key(header::IF_NONE_MATCH) || fields.contains_key(header::IF_MODIFIED_SINCE);
    if (partial || conditional) && !found && worker.cache.shared.lonely.contains(key) {
        return true;
    }
    partial && !found && worker.cache.shared.store.is_none() && is_far(asked)
}

/// Whether a range begins so far into a body of which nothing is known that the client would wait long for
/// a fetch of the whole to get there.
fn is_far(asked: &Asked) -> bool {
    match range::parse(&asked.fields) {
        RangeRequest::Single(ByteRange::From { first, .. }) => first > CHUNK_BYTES,
        RangeRequest::Single(ByteRange::Suffix { .. }) | RangeRequest::Many(_) => true,
        RangeRequest::Absent => false,
    }
}
