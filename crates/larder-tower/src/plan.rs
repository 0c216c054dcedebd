//! Decides how a GET or HEAD is answered: from the cache, after a validation, by a fetch, or with a 504.
//!
//! [`decide`] is a pure function. Invariants: a stored response is never served where its directives or the request's
//! forbid it (RFC 9111 4.2.4), and a request with `only-if-cached` never reaches the origin (RFC 9111 5.2.1.7).

use http::{HeaderMap, Method};
use larder_http::{
    CacheStatus, Precondition, Reason, Reuse, Settings, StoredHead, Timestamp,
    cache_control::RequestDirectives,
    cache_status::Forward,
    conditional,
    reuse::{self, Age},
};

/// The way in which a request is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// Serve the stored response.
    Serve { age: Age, status: CacheStatus },
    /// Ask the origin.
    Ask(AskPlan),
    /// The request accepts only a stored response, and none may be used.
    Unsatisfiable,
}

/// A request to the origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AskPlan {
    /// The reason for asking.
    pub(crate) status: CacheStatus,
    /// Whether to validate the stored response, instead of fetching another one.
    pub(crate) validates: bool,
    /// The age of the stored response, if it may replace an error of the origin.
    pub(crate) fallback: Option<Age>,
}

/// The facts about a request that decide.
#[derive(Clone, Copy)]
pub(crate) struct RequestFacts<'a> {
    pub(crate) method: &'a Method,
    pub(crate) fields: &'a HeaderMap,
    pub(crate) now: Timestamp,
    /// The stored response that matches the request.
    pub(crate) stored: Option<&'a StoredHead>,
    /// Whether other variants of the resource are stored.
    pub(crate) has_variants: bool,
    /// Whether another request is validating the stored response.
    pub(crate) is_being_validated: bool,
}

/// Returns how a GET or HEAD is answered.
pub(crate) fn decide(facts: &RequestFacts<'_>, settings: &Settings) -> Plan {
    let directives = RequestDirectives::from_fields(facts.fields);
    match wanted(facts, &directives, settings) {
        Plan::Ask(_) if reuse::is_only_if_cached(&directives, settings) => Plan::Unsatisfiable,
        plan => plan,
    }
}

/// Returns how the request would be answered if it did not say `only-if-cached`.
fn wanted(facts: &RequestFacts<'_>, directives: &RequestDirectives, settings: &Settings) -> Plan {
    let fetch = |why, reason: Option<Reason>, fallback| {
        let status = CacheStatus { detail: reason, ..CacheStatus::forwarded(why) };
        Plan::Ask(AskPlan { status, validates: false, fallback })
    };
    let Some(stored) = facts.stored else {
        return fetch(if facts.has_variants { Forward::VaryMiss } else { Forward::UriMiss }, None, None);
    };
    let (age, why, may_serve_on_error, reason) =
        match reuse::decide_by_directives(facts.method, directives, stored, facts.now, settings) {
            Reuse::Fresh { age, .. } => {
                return match conditional::evaluate(facts.fields, stored) {
                    Precondition::Failed => fetch(Forward::Request, None, None),
                    Precondition::Pass | Precondition::NotModified => {
                        Plan::Serve { age, status: CacheStatus::hit(age.ttl_secs) }
                    }
                };
            }
            Reuse::Stale { age, may_serve_meanwhile: true, .. } if facts.is_being_validated => {
                let status = CacheStatus::hit(age.ttl_secs).because(Reason::StaleWhileRevalidate);
                return Plan::Serve { age, status };
            }
            Reuse::Stale { age, may_serve_on_error, reason, .. } => (age, Forward::Stale, may_serve_on_error, reason),
            Reuse::MustValidate { age, may_serve_on_error, reason, .. } => {
                (age, why_validated(reason), may_serve_on_error, reason)
            }
            Reuse::NotUsable { reason } => return fetch(Forward::Request, Some(reason), None),
        };
    let fallback = may_serve_on_error.then_some(age);
    // A client with preconditions of its own gets the origin's judgment of them.
    if !stored.has_validator() || has_precondition(facts.fields) {
        return fetch(why, Some(reason), fallback);
    }
    Plan::Ask(AskPlan { status: CacheStatus::forwarded(why).because(reason), validates: true, fallback })
}

/// Returns the reason for asking the origin about a response that may still be fresh.
fn why_validated(reason: Reason) -> Forward {
    match reason {
        Reason::NoCache | Reason::PurgesUnknown => Forward::Stale,
        _ => Forward::Request,
    }
}

fn has_precondition(fields: &HeaderMap) -> bool {
    fields.keys().any(|name| name.as_str().starts_with("if-"))
}
