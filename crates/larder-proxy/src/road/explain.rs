//! Explains to the operator what the cache would do with a request now, and why.
//!
//! No origin is contacted, and no stored response is changed. As with any lookup, an entry found in the store is put in
//! memory. Invariant: the functions that collect the facts and decide the route are the same as for real exchanges.
//! Cost: one lookup for each key that the URL can have.

mod foretelling;
mod outlook;

use std::{fmt::Write as _, sync::Arc};

use http::{HeaderMap, Method, Uri};
use larder_cache::http::{
    answer::look::{self, LocatedResponse},
    fetch::presence,
};
use larder_http::{
    Reuse, StoredHead, VaryRule,
    freshness::Lifetime,
    key::KIND_PRIMARY,
    reuse::Age,
    route::{
        self, AvailableExtent, JudgedResponse, RequestTerms, Route, RouteFacts, StoredState, UnstoredRoute, UplinkState,
    },
    rules::RuledRequest,
    validate,
};

use self::outlook::RequestOutlook;
use crate::{
    ground::{
        cache::{
            Cache,
            entry::{EntryBody, ResourceMarker},
            invalidation,
            lookup::{self, FoundResponse, LookupResult},
        },
        clock,
        target::Origin,
    },
    origins::access::OriginsShared,
    road::admission::ruling_before,
    run::worker::Worker,
    targets::lists::ListVerdict,
};

/// A request that is to be explained. It has no body.
#[derive(Clone, Copy)]
pub(crate) struct ExplainedRequest<'a> {
    pub(crate) method: &'a Method,
    pub(crate) uri: &'a Uri,
    pub(crate) fields: &'a HeaderMap,
}

/// The stored response that a request would find, and how much of its body is available.
struct ForeseenResponse {
    located: LocatedResponse,
    extent: AvailableExtent,
}

impl ForeseenResponse {
    async fn of(cache: &Arc<Cache>, primary: &Arc<[u8]>, asking: RequestTerms<'_>) -> Self {
        let located = look::locate(cache, primary, asking.fields).await;
        let extent = match &located.found {
            Some(found) => presence::extent(cache, primary, found, asking).await,
            None => AvailableExtent::Gone,
        };
        Self { located, extent }
    }

    /// Returns what is stored for a request, in the form that decides its route.
    fn stored(&self, cache: &Cache, asking: RequestTerms<'_>) -> StoredState<&FoundResponse> {
        let LocatedResponse { found, variants } = &self.located;
        if let Some(found) = found {
            let judged = look::judged(cache, asking, found, self.extent, clock::now());
            if variants.is_none() || judged.answers_as_it_is() {
                return StoredState::Response(judged);
            }
        }
        if variants.is_some() { StoredState::OtherVariants } else { StoredState::Nothing }
    }
}

/// Explains how a request would be answered. Returns `None` if its URI has no cache key.
///
/// Stored responses are considered only for GET and HEAD.
pub(crate) async fn explain(worker: &Arc<Worker>, asked: &ExplainedRequest<'_>) -> Option<String> {
    let &ExplainedRequest { method, uri, fields } = asked;
    let mut text = String::new();
    let outlook = RequestOutlook::of(worker, uri).await;
    let origins = &worker.shared.origins;
    let origin = &outlook.origin;
    let line_up = origin.as_ref().map_or(UplinkState::Up, |origin| origins.uplink.line_to(origin));
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    let scheme = uri.scheme_str().unwrap_or("http");
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let ruled = RuledRequest { method, scheme, authority, path, fields };
    let asking = RequestTerms::new(ruled, line_up);
    if let Some(origin) = origin {
        tell_way(&mut text, origins, origin);
    }
    let site = site_of(worker, uri);
    if let Some(site) = site.and_then(|site| worker.shared.config.sites.get(site)) {
        line(&mut text, "site", &site.name);
    }
    let served_host = uri.host().filter(|_| outlook.refusal.is_none());
    for limit in served_host.into_iter().flat_map(|host| worker.shared.delays.for_host(host)) {
        line(&mut text, "limit", limit);
    }
    let of_site = worker.under_policy_of(uri, None, None);
    let keys = invalidation::primaries_of(&of_site.cache, uri)?;
    let is_read = matches!(*method, Method::GET | Method::HEAD);
    for primary in keys.into_iter().filter(|_| is_read) {
        let primary: Arc<[u8]> = primary.into();
        line(&mut text, "key", String::from_utf8_lossy(primary.strip_prefix(&[KIND_PRIMARY]).unwrap_or(&primary)));
        tell_key(&mut text, &of_site.cache, &primary, asking, &outlook).await;
    }
    if let Some(refusal) = &outlook.refusal {
        line(&mut text, "outcome", refusal);
    }
    // The steps come after all lookups, because the lookups put what they find in memory.
    if let Some(trace) = worker.foretell(asked).await {
        line(&mut text, "steps", trace);
    }
    Some(text)
}

/// Returns the index of a URI's site, for a request that arrives through a listener without a site of its own.
pub(crate) fn site_of(worker: &Worker, uri: &Uri) -> Option<usize> {
    uri.authority().and_then(|authority| worker.shared.routes.site(authority.as_str(), uri.path(), None))
}

/// Describes how an origin is reached: whether a list blocks its host, and through which parent.
fn tell_way(text: &mut String, origins: &OriginsShared, origin: &Origin) {
    let lists = origins.lists.as_ref().filter(|_| !origin.trusted);
    match lists.map_or(ListVerdict::Not, |lists| lists.listed(&origin.host)) {
        ListVerdict::Not => {}
        ListVerdict::Blocked => line(text, "list", "403, because a block list names the host"),
        ListVerdict::NotAllowed => line(text, "list", "403, because no allow list names the host (default_deny)"),
        ListVerdict::Allowed => line(text, "list", "served, because an allow list names the host"),
    }
    for parent in origins.parents_of(origin) {
        line(text, "parent", parent);
    }
}

/// Describes the stored response under one key of a URI, and the route of a request that finds it.
async fn tell_key(
    text: &mut String,
    cache: &Arc<Cache>,
    primary: &Arc<[u8]>,
    asking: RequestTerms<'_>,
    outlook: &RequestOutlook,
) {
    let seen = ForeseenResponse::of(cache, primary, asking).await;
    let stored = seen.stored(cache, asking);
    let LocatedResponse { found, variants: marker } = &seen.located;
    let before = ruling_before([Some(&cache.shared.rules), asking.session_rules], &asking.ruled);
    let is_never_stored = before.is_some_and(|ruling| ruling.is_never_stored);
    let route = route::decide(&RouteFacts { is_never_stored, ..look::facts(cache, asking, primary) }, stored);
    let other = other_answer(&route, outlook);
    let goes = match other {
        Some(_) => "",
        None if asking.line.is_down() => ": a request gets 504",
        None => ": a request goes to the origin",
    };
    match (stored.response(), marker) {
        (Some(found), _) => tell_found(text, cache, found),
        (None, Some(marker)) => {
            line(text, "stored", format_args!("other variants only{goes}"));
            tell_rules(text, marker);
        }
        (None, None) => line(text, "stored", format_args!("nothing{goes}")),
    }
    tell_marks(text, cache, primary, found.is_none()).await;
    match (other, stored) {
        // A refusal is printed once, after all keys.
        _ if outlook.refusal.is_some() => {}
        (Some(answer), _) => line(text, "outcome", answer),
        (None, StoredState::Response(judged)) => tell_route(text, &judged, route),
        (None, StoredState::OtherVariants | StoredState::Nothing) => tell_refusal(text, route),
    }
    if let (None, Some(tunnel)) = (other, &outlook.tunnel) {
        line(text, "CONNECT", format_args!("gets {tunnel}"));
    }
}

/// Returns the answer to a request on this route if it does not depend on the cache, but for example on a block list.
fn other_answer<'a>(route: &Route<&FoundResponse>, outlook: &'a RequestOutlook) -> Option<&'a str> {
    let is_stored = matches!(route, Route::Stored { .. } | Route::Meanwhile { .. });
    let is_for_origin = matches!(
        route,
        Route::Unstored(UnstoredRoute::Fly { .. } | UnstoredRoute::Pass { .. } | UnstoredRoute::PassHead { .. })
    );
    let refusal = outlook.refusal.as_deref();
    let at_origin = outlook.origin_refusal.as_deref().filter(|_| is_for_origin);
    refusal.or(outlook.tunnel.as_deref().filter(|_| !is_stored)).or(at_origin)
}

/// Prints whether the response of a key was purged or is pinned.
async fn tell_marks(text: &mut String, cache: &Arc<Cache>, primary: &Arc<[u8]>, is_missing: bool) {
    if is_missing && lookup::is_purged(cache, primary).await {
        line(text, "purged", "the stored response was purged and is not served");
    }
    if cache.shared.pins.name(primary) {
        let is_pinned = cache.shared.store.as_ref().is_some_and(|store| store.is_pinned(primary));
        line(
            text,
            "pinned",
            if is_pinned { "yes: never evicted" } else { "once it is stored, if pins have room for it (pin_share)" },
        );
    }
}

/// Prints the refusal of a request that has no stored response and may not contact its origin.
fn tell_refusal(text: &mut String, route: Route<&FoundResponse>) {
    match route {
        Route::Unstored(UnstoredRoute::Refuse) => {
            line(text, "outcome", "504, because only a stored response may be served (only-if-cached)");
        }
        Route::Unstored(UnstoredRoute::Offline) => {
            line(text, "outcome", "504, because the origin cannot be contacted (offline)");
        }
        _ => {}
    }
}

/// Prints the route of a request with a stored response, and the reason for it.
fn tell_route(text: &mut String, judged: &JudgedResponse<&FoundResponse>, route: Route<&FoundResponse>) {
    let decision = judged.decision;
    let extent = judged.extent;
    let reason = match decision {
        Reuse::Fresh { reason, .. }
        | Reuse::Stale { reason, .. }
        | Reuse::MustValidate { reason, .. }
        | Reuse::NotUsable { reason } => reason,
    };
    let answer = match route {
        Route::Stored { .. } if extent == AvailableExtent::Lacking => {
            "from the cache; the origin supplies the missing part of the body"
        }
        Route::Stored { .. } => "from the cache",
        Route::Meanwhile { .. } => "from the cache, and validated in the background",
        Route::Unstored(route) => way_to_origin(route, judged),
    };
    line(text, "outcome", format_args!("{answer} ({})", reason.token()));
    if let Route::Unstored(UnstoredRoute::Fly { validates: Some(found), stands_in, .. }) = route {
        line(text, "on error", if stands_in { "the stored response" } else { "the error" });
        for (name, value) in validate::request_fields(&found.entry.head) {
            line(text, "sends", format_args!("{name}: {}", String::from_utf8_lossy(value.as_bytes())));
        }
    }
}

/// Describes how a request is answered if its stored response is not sufficient.
fn way_to_origin(route: UnstoredRoute<&FoundResponse>, judged: &JudgedResponse<&FoundResponse>) -> &'static str {
    let is_usable = !matches!(judged.decision, Reuse::NotUsable { .. });
    match (route, judged.extent) {
        (UnstoredRoute::Refuse, _) => "504, because only a stored response may be served",
        (UnstoredRoute::Offline, AvailableExtent::Whole) => {
            "504, because the origin cannot be contacted and the stored response must not be used"
        }
        (UnstoredRoute::Offline, _) => "504, because the origin cannot be contacted and part of the body is missing",
        (UnstoredRoute::Fly { .. }, AvailableExtent::Gone) => "fetched again, because part of its body is missing",
        (UnstoredRoute::Fly { validates: Some(found), .. }, _) if found.entry.head.has_validator() => "validated first",
        (UnstoredRoute::Fly { .. }, _) => "fetched again",
        (UnstoredRoute::Pass { .. } | UnstoredRoute::PassHead { .. }, _) if is_usable => {
            "from the origin, as the request demands"
        }
        (UnstoredRoute::Pass { .. } | UnstoredRoute::PassHead { .. }, _) => {
            "from the origin; the stored response does not apply"
        }
    }
}

/// Returns whether any variant of `uri` is stored.
pub(crate) async fn is_stored(worker: &Arc<Worker>, uri: &Uri) -> bool {
    let worker = worker.under_policy_of(uri, None, None);
    for primary in invalidation::primaries_of(&worker.cache, uri).unwrap_or_default() {
        let primary: Arc<[u8]> = primary.into();
        if !matches!(lookup::find(&worker.cache, &primary, &HeaderMap::new()).await, LookupResult::Nothing) {
            return true;
        }
    }
    false
}

fn tell_found(text: &mut String, cache: &Cache, found: &FoundResponse) {
    let head = &found.entry.head;
    let place = if found.from_memory { "in memory" } else { "on the disk" };
    let form = match found.entry.body {
        EntryBody::Whole(_) => "",
        EntryBody::Chunks { .. } => " in chunks",
    };
    let len_bytes = found.entry.body_len();
    let bytes = if len_bytes == 1 { "byte" } else { "bytes" };
    line(text, "stored", format_args!("{place}: status {}, {len_bytes} {bytes}{form}", head.status()));
    if let Some(marker) = &found.marker {
        tell_rules(text, marker);
    }
    for (name, value) in head.selecting().iter() {
        let value = value.map_or_else(|| "(none)".into(), |value| String::from_utf8_lossy(value));
        line(text, "variant", format_args!("{name}: {value}"));
    }
    if let Some(ruling) = head.ruling() {
        line(text, "rule", &ruling.name);
        if let Some(chain) = ruling.chain {
            line(
                text,
                "redirects",
                format_args!(" were followed; the response stays fresh for {} s", chain.fresh_secs),
            );
        }
    }
    if head.freshness().checks_authorization {
        line(text, "clients", "get it only after the origin has accepted their credentials, for each request");
    }
    tell_age(text, cache, head);
}

fn tell_age(text: &mut String, cache: &Cache, head: &StoredHead) {
    let freshness = head.freshness();
    let settings = &cache.http;
    let Age { age_secs, ttl_secs } = look::age_of(cache, head, clock::now());
    let source = match freshness.lifetime {
        Lifetime::Absent => "none",
        Lifetime::Explicit { .. } | Lifetime::Heuristic { .. } => freshness.lifetime_reason(settings).token(),
    };
    if let Some(moment) = freshness.purged_at() {
        let secs = clock::now().millis_since(moment).max(0) / 1000;
        line(text, "purged", format_args!("softly {secs} s ago, and stale since then"));
    }
    let lifetime_secs = freshness.lifetime_millis(settings) / 1000;
    line(text, "age", format_args!("{age_secs} s of {lifetime_secs} s ({source}), {ttl_secs} s left"));
}

fn tell_rules(text: &mut String, marker: &ResourceMarker) {
    for rule in marker.rules.rules() {
        let VaryRule::Fields(names) = rule else { continue };
        let names: Vec<&str> = names.iter().map(http::HeaderName::as_str).collect();
        line(text, "varies", names.join(", "));
    }
}

/// Appends a line to the explanation: its label and the facts.
pub(super) fn line(text: &mut String, what: &str, told: impl std::fmt::Display) {
    writeln!(text, "{what:<9}{told}").expect("writing to a string cannot fail");
}
