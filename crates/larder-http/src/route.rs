//! Decides how a GET or HEAD is answered: from the store, by a shared fetch, by forwarding it, or with an error.
//!
//! The decision is a pure function from facts to a route, without I/O. The code that executes a route and the code
//! that explains it call the same function, so the two cannot disagree.
//!
//! Invariants: a stale response is never served where its directives forbid it (RFC 9111 4.2.4), and a request with
//! `only-if-cached` never reaches an origin (RFC 9111 5.2.1.7).

mod terms;

use http::{Method, header};

pub use self::terms::{RequestTerms, UplinkState};
use crate::{
    CacheStatus, Reason, Reuse, Settings,
    cache_status::Forward,
    fields::NameFilter,
    range::{self, ByteRange, RangeRequest},
    reuse::{self, Age},
};

/// The facts that [`decide`] needs in addition to the stored response.
///
/// ```
/// # use http::{HeaderMap, Method};
/// # use larder_http::{Settings, reuse::StaleAllowed, rules::RuledRequest};
/// use larder_http::{cache_status::Forward, route::*};
///
/// # let (method, authority, fields, settings) = (&Method::GET, "a.example", HeaderMap::new(), Settings::default());
/// # let ruled = RuledRequest { method, scheme: "http", authority, path: "/", fields: &fields };
/// let facts = RouteFacts {
///     terms: RequestTerms::new(ruled, UplinkState::Down(StaleAllowed::HoweverOld)),
///     settings: &settings,
///     is_uncollapsible: false,
///     has_store: true,
///     knows_digest: false,
///     do_tags_differ: false,
///     is_never_stored: false,
///     near_bytes: 1 << 20,
/// };
/// assert_eq!(decide_without::<()>(&facts, Forward::UriMiss), UnstoredRoute::Offline);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct RouteFacts<'a> {
    /// The demands of the request on a stored response.
    pub terms: RequestTerms<'a>,
    /// The settings of the request's site.
    pub settings: &'a Settings,
    /// Whether recent responses for this resource could not be shared between clients.
    pub is_uncollapsible: bool,
    /// Whether there is a store, which can keep parts of bodies.
    pub has_store: bool,
    /// Whether the URL or a rule gives the digest of the body. Parts of such a body are not stored, because only the
    /// whole can be checked.
    pub knows_digest: bool,
    /// Whether the validator of this resource often differs between responses. Parts of its body then rarely belong to
    /// one version.
    pub do_tags_differ: bool,
    /// Whether a rule keeps the response out of the cache, so that no other client may wait for it.
    pub is_never_stored: bool,
    /// For a range that starts within this many bytes of a body's beginning, the whole body is fetched.
    pub near_bytes: u64,
}

/// The share of the requested part of a stored body that is available. A long body is stored in chunks, which can be
/// evicted one by one.
///
/// ```
/// # use http::{HeaderMap, Method};
/// # use larder_http::{Reason, Reuse, Settings, reuse::Age, rules::RuledRequest};
/// use larder_http::route::*;
///
/// # let (method, authority, fields, settings) = (&Method::GET, "a.example", HeaderMap::new(), Settings::default());
/// # let ruled = RuledRequest { method, scheme: "http", authority, path: "/", fields: &fields };
/// # let terms = RequestTerms::new(ruled, UplinkState::Up);
/// # let (settings, is_uncollapsible, has_store, knows_digest) = (&settings, false, true, false);
/// # let (do_tags_differ, is_never_stored, near_bytes) = (false, false, 1 << 20);
/// # let facts = RouteFacts { terms, settings, is_uncollapsible, has_store, knows_digest, do_tags_differ,
/// #     is_never_stored, near_bytes };
/// let age = Age { age_secs: 10, ttl_secs: 50 };
/// let decision = Reuse::Fresh { age, reason: Reason::ExplicitLifetime };
/// let route = |extent| {
///     let judged = JudgedResponse { response: "the stored one", decision, extent, covers_what_is_told: true };
///     decide(&facts, StoredState::Response(judged))
/// };
/// assert!(matches!(route(AvailableExtent::Lacking), Route::Stored { .. }));
/// assert!(matches!(route(AvailableExtent::Gone), Route::Unstored(_)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AvailableExtent {
    /// All of the requested part is available.
    Whole,
    /// At least some of the requested part is missing, but can be requested from the origin.
    Lacking,
    /// At least some of the requested part is missing, and cannot be requested from the origin.
    Gone,
}

/// The content of the store for a resource. `S` is the caller's type of a stored response.
///
/// ```
/// # use http::{HeaderMap, Method};
/// # use larder_http::{Settings, rules::RuledRequest};
/// use larder_http::{cache_status::Forward, route::*};
///
/// # let (method, authority, fields, settings) = (&Method::GET, "a.example", HeaderMap::new(), Settings::default());
/// # let ruled = RuledRequest { method, scheme: "http", authority, path: "/", fields: &fields };
/// # let terms = RequestTerms::new(ruled, UplinkState::Up);
/// # let (settings, is_uncollapsible, has_store, knows_digest) = (&settings, false, true, false);
/// # let (do_tags_differ, is_never_stored, near_bytes) = (false, false, 1 << 20);
/// # let facts = RouteFacts { terms, settings, is_uncollapsible, has_store, knows_digest, do_tags_differ,
/// #     is_never_stored, near_bytes };
/// // A page in another language is stored. The reason for the request to the origin says so.
/// let route = decide(&facts, StoredState::<()>::OtherVariants);
/// let Route::Unstored(UnstoredRoute::Fly { forward, .. }) = route else { panic!("a fetch") };
/// assert_eq!(forward.to_value("Larder"), "Larder; fwd=vary-miss");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredState<S> {
    /// A response is stored for the request's selecting fields.
    Response(JudgedResponse<S>),
    /// The resource varies, and neither its selecting fields nor its preferred language lead to a stored response.
    OtherVariants,
    /// Nothing is stored for the resource.
    Nothing,
}

/// A stored response, and the decision of the caching rules about it, which [`RequestTerms::judge`] returns.
///
/// ```
/// # use http::{HeaderMap, Method};
/// # use larder_http::{Reason, Reuse, Settings, reuse::Age, rules::RuledRequest};
/// use larder_http::route::*;
///
/// # let (method, authority, fields, settings) = (&Method::GET, "a.example", HeaderMap::new(), Settings::default());
/// # let ruled = RuledRequest { method, scheme: "http", authority, path: "/", fields: &fields };
/// # let terms = RequestTerms::new(ruled, UplinkState::Up);
/// # let (settings, is_uncollapsible, has_store, knows_digest) = (&settings, false, true, false);
/// # let (do_tags_differ, is_never_stored, near_bytes) = (false, false, 1 << 20);
/// # let facts = RouteFacts { terms, settings, is_uncollapsible, has_store, knows_digest, do_tags_differ,
/// #     is_never_stored, near_bytes };
/// let judged = JudgedResponse {
///     response: "the stored one",
///     decision: Reuse::Fresh { age: Age { age_secs: 10, ttl_secs: 50 }, reason: Reason::ExplicitLifetime },
///     extent: AvailableExtent::Whole,
///     covers_what_is_told: true,
/// };
/// let route = decide(&facts, StoredState::Response(judged));
/// assert!(matches!(route, Route::Stored { response: "the stored one", .. }));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JudgedResponse<S> {
    /// The stored response.
    pub response: S,
    /// The decision of the caching rules, which takes into account whether the origin can be contacted.
    pub decision: Reuse,
    /// The share of the requested part that is available.
    pub extent: AvailableExtent,
    /// Whether the stored response was selected by every field of the request that [`crate::telling`] lists.
    pub covers_what_is_told: bool,
}

/// The way in which a request is answered, with the stored response if it is needed. [`decide`] returns it, and the
/// caller executes it.
///
/// ```
/// use larder_http::{Reason, reuse::Age, route::{Route, UnstoredRoute}};
///
/// fn explain(route: &Route<&str>) -> &'static str {
///     match route {
///         Route::Stored { .. } => "a hit",
///         Route::Meanwhile { .. } => "a stale hit, validated in the background",
///         Route::Unstored(UnstoredRoute::Refuse | UnstoredRoute::Offline) => "504",
///         Route::Unstored(_) => "a request to the origin",
///     }
/// }
///
/// let age = Age { age_secs: 10, ttl_secs: 50 };
/// assert_eq!(explain(&Route::Stored { response: "page", age, reason: Reason::ExplicitLifetime }), "a hit");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route<S> {
    /// The stored response answers the request.
    Stored {
        /// The stored response.
        response: S,
        /// The age of the stored response.
        age: Age,
        /// The reason why the stored response may be served.
        reason: Reason,
    },
    /// The stored response answers the request, and is validated in the background (RFC 5861 3).
    Meanwhile {
        /// The stored response.
        response: S,
        /// The age of the stored response.
        age: Age,
    },
    /// The stored response does not answer the request, or none is stored.
    Unstored(UnstoredRoute<S>),
}

/// The way in which a request is answered if no stored response answers it.
///
/// ```
/// # use http::{HeaderMap, Method};
/// # use larder_http::{Settings, rules::RuledRequest};
/// use larder_http::route::*;
///
/// // A request with `only-if-cached` never reaches the origin.
/// let fields = HeaderMap::from_iter([(http::header::CACHE_CONTROL, "only-if-cached".parse()?)]);
/// # let (method, authority, settings) = (&Method::GET, "a.example", Settings::default());
/// # let ruled = RuledRequest { method, scheme: "http", authority, path: "/", fields: &fields };
/// # let terms = RequestTerms::new(ruled, UplinkState::Up);
/// # let (settings, is_uncollapsible, has_store, knows_digest) = (&settings, false, true, false);
/// # let (do_tags_differ, is_never_stored, near_bytes) = (false, false, 1 << 20);
/// # let facts = RouteFacts { terms, settings, is_uncollapsible, has_store, knows_digest, do_tags_differ,
/// #     is_never_stored, near_bytes };
/// assert_eq!(decide(&facts, StoredState::<()>::Nothing), Route::Unstored(UnstoredRoute::Refuse));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnstoredRoute<S> {
    /// The request is forwarded unchanged. If that fails, the response in `stands_in` may be served.
    Pass {
        /// The reason for which the request goes to the origin.
        forward: CacheStatus,
        /// The stored response that may replace an error.
        stands_in: Option<S>,
    },
    /// A HEAD that is forwarded. Its response also updates or invalidates the stored response (RFC 9111 4.3.5).
    PassHead {
        /// The reason for which the request goes to the origin.
        forward: CacheStatus,
        /// The stored response that the origin's response updates.
        updates: S,
        /// Whether the stored response may be served in place of an error.
        stands_in: bool,
    },
    /// The request joins or starts a shared fetch, which validates the stored response or replaces it.
    Fly {
        /// The reason for which the request goes to the origin.
        forward: CacheStatus,
        /// The stored response to validate.
        validates: Option<S>,
        /// Whether the response in `validates` may be served in place of an error.
        stands_in: bool,
        /// Whether the request demands a response no older than itself.
        is_reload: bool,
    },
    /// Refused with 504: the request says `only-if-cached`, and no stored response can answer it.
    Refuse,
    /// Refused with 504: the origin cannot be contacted, and no stored response can answer the request.
    Offline,
}

/// Decides how a request is answered.
///
/// ```
/// use http::{HeaderMap, Method};
/// use larder_http::{Settings, cache_status::Forward, route::*, rules::RuledRequest};
///
/// let fields = HeaderMap::new();
/// let ruled =
///     RuledRequest { method: &Method::GET, scheme: "http", authority: "a.example", path: "/", fields: &fields };
/// let settings = Settings::default();
/// let facts = RouteFacts {
///     terms: RequestTerms::new(ruled, UplinkState::Up),
///     settings: &settings,
///     is_uncollapsible: false,
///     has_store: true,
///     knows_digest: false,
///     do_tags_differ: false,
///     is_never_stored: false,
///     near_bytes: 1 << 20,
/// };
/// let route = decide(&facts, StoredState::<()>::Nothing);
/// assert!(matches!(route, Route::Unstored(UnstoredRoute::Fly { validates: None, .. })));
/// ```
pub fn decide<S>(facts: &RouteFacts<'_>, stored: StoredState<S>) -> Route<S> {
    match stored {
        StoredState::Nothing => Route::Unstored(decide_without(facts, Forward::UriMiss)),
        StoredState::OtherVariants => Route::Unstored(decide_without(facts, Forward::VaryMiss)),
        // The stored head is not validated, because a 304 would confirm a body that no longer exists.
        StoredState::Response(JudgedResponse { extent: AvailableExtent::Gone, .. }) => {
            Route::Unstored(decide_without(facts, Forward::Miss))
        }
        StoredState::Response(stored) => decide_with(facts, stored),
    }
}

/// Decides how a request is answered without a stored response. `miss` says why there is none.
pub fn decide_without<S>(facts: &RouteFacts<'_>, miss: Forward) -> UnstoredRoute<S> {
    if facts.terms.line.is_down() {
        UnstoredRoute::Offline
    } else {
        go_to_origin(facts, CacheStatus::forwarded(miss), None)
    }
}

/// Decides how a request is answered if a response is stored for it.
fn decide_with<S>(facts: &RouteFacts<'_>, stored: JudgedResponse<S>) -> Route<S> {
    let JudgedResponse { response, decision, extent, covers_what_is_told } = stored;
    let is_whole = extent == AvailableExtent::Whole;
    match (facts.terms.line.is_down(), decision) {
        // While disconnected, the whole body must be available, because a gap could not be filled.
        (true, Reuse::Fresh { age, reason }) if is_whole => Route::Stored { response, age, reason },
        (true, _) => Route::Unstored(UnstoredRoute::Offline),
        // The origin would probably not confirm the missing part.
        (false, Reuse::Fresh { .. }) if extent == AvailableExtent::Lacking && facts.do_tags_differ => {
            Route::Unstored(decide_without(facts, Forward::Partial))
        }
        (false, Reuse::Fresh { age, reason }) => Route::Stored { response, age, reason },
        (false, Reuse::NotUsable { reason }) => {
            // A shared fetch would store its response, which `no-store` forbids.
            let forward = CacheStatus::forwarded(Forward::Request).because(reason);
            // The response to a HEAD shows whether the stored response is outdated, which concerns other clients, too.
            let is_head = *facts.terms.method == Method::HEAD && reason == Reason::RequestNoStore;
            Route::Unstored(match facts.may_ask() {
                true if is_head => UnstoredRoute::PassHead { forward, updates: response, stands_in: false },
                true => UnstoredRoute::Pass { forward, stands_in: None },
                false => UnstoredRoute::Refuse,
            })
        }
        // A client that sends more selecting fields than the stored request had might get another response, so it waits
        // for the validation.
        (false, Reuse::Stale { may_serve_meanwhile: true, age, .. })
            if is_whole && !facts.asks_for_itself() && covers_what_is_told =>
        {
            Route::Meanwhile { response, age }
        }
        (
            false,
            Reuse::Stale { may_serve_on_error, reason, .. } | Reuse::MustValidate { may_serve_on_error, reason, .. },
        ) => {
            let forward = CacheStatus::forwarded(why_validated(&decision, reason)).because(reason);
            let stands_in = may_serve_on_error && is_whole;
            Route::Unstored(go_to_origin(facts, forward, Some(OutdatedResponse { response, stands_in })))
        }
    }
}

/// Returns the reason, for Cache-Status, why a stored response is validated.
fn why_validated(decision: &Reuse, reason: Reason) -> Forward {
    let is_ours = matches!(reason, Reason::NoCache | Reason::PurgesUnknown);
    if matches!(decision, Reuse::MustValidate { .. }) && !is_ours { Forward::Request } else { Forward::Stale }
}

/// A stored response that the origin must validate, and whether it may be served in place of an error.
struct OutdatedResponse<S> {
    response: S,
    stands_in: bool,
}

/// Decides how a request goes to the origin, or refuses it if the request says `only-if-cached`.
fn go_to_origin<S>(
    facts: &RouteFacts<'_>,
    forward: CacheStatus,
    outdated: Option<OutdatedResponse<S>>,
) -> UnstoredRoute<S> {
    let wants_origin_itself = facts.wants_origin_itself(outdated.is_some());
    match outdated {
        // Checked after the stored response, because `only-if-cached` accepts a fresh one (RFC 9111 5.2.1.7).
        _ if !facts.may_ask() => UnstoredRoute::Refuse,
        Some(OutdatedResponse { response, stands_in }) if wants_origin_itself => {
            if *facts.terms.method == Method::HEAD {
                UnstoredRoute::PassHead { forward, updates: response, stands_in }
            } else {
                UnstoredRoute::Pass { forward, stands_in: stands_in.then_some(response) }
            }
        }
        None if wants_origin_itself => UnstoredRoute::Pass { forward, stands_in: None },
        outdated => {
            let stands_in = outdated.as_ref().is_some_and(|outdated| outdated.stands_in);
            let validates = outdated.map(|outdated| outdated.response);
            let is_reload = reuse::is_reload(&facts.terms.directives, facts.settings);
            UnstoredRoute::Fly { forward, validates, stands_in, is_reload }
        }
    }
}

impl<S> StoredState<S> {
    /// Returns the same state, with the stored response borrowed.
    pub fn as_ref(&self) -> StoredState<&S> {
        match self {
            Self::Response(JudgedResponse { response, decision, extent, covers_what_is_told }) => {
                let decision = *decision;
                let extent = *extent;
                let covers_what_is_told = *covers_what_is_told;
                StoredState::Response(JudgedResponse { response, decision, extent, covers_what_is_told })
            }
            Self::OtherVariants => StoredState::OtherVariants,
            Self::Nothing => StoredState::Nothing,
        }
    }

    /// Returns whether no stored body can answer the request, not even in part.
    pub fn is_absent(&self) -> bool {
        match self {
            Self::Response(stored) => stored.extent == AvailableExtent::Gone,
            Self::OtherVariants | Self::Nothing => true,
        }
    }

    /// Returns the stored response.
    pub fn response(&self) -> Option<&S> {
        match self {
            Self::Response(stored) => Some(&stored.response),
            Self::OtherVariants | Self::Nothing => None,
        }
    }
}

impl<S> JudgedResponse<S> {
    /// Returns whether the stored response answers the request without validation.
    pub fn answers_as_it_is(&self) -> bool {
        matches!(self.decision, Reuse::Fresh { .. }) && self.extent != AvailableExtent::Gone
    }
}

impl RouteFacts<'_> {
    /// Returns whether the request permits contact with the origin: it does not say `only-if-cached` (RFC 9111
    /// 5.2.1.7).
    fn may_ask(&self) -> bool {
        !self.terms.is_only_if_cached(self.settings)
    }

    /// Returns whether the request always goes to the origin: it is not a GET, or its preconditions are for the origin
    /// to evaluate.
    fn asks_for_itself(&self) -> bool {
        let terms = &self.terms;
        let has_condition = || terms.has(&header::IF_MATCH) || terms.has(&header::IF_UNMODIFIED_SINCE);
        terms.method != Method::GET || terms.names.may_have_any(ORIGINS_CONDITIONS) && has_condition()
    }

    /// Returns whether the request should be forwarded unchanged instead of fetching the whole response.
    fn wants_origin_itself(&self, is_stored: bool) -> bool {
        let has = |name| self.terms.has(&name);
        let is_partial = || has(header::RANGE);
        let is_conditional = || has(header::IF_NONE_MATCH) || has(header::IF_MODIFIED_SINCE);
        if self.asks_for_itself() || self.terms.directives.no_store {
            return true;
        }
        if is_stored {
            return false;
        }
        // A part cannot be checked against a digest, so it is not stored.
        let passes_parts = self.do_tags_differ || self.knows_digest || (!self.has_store && self.is_far());
        self.is_never_stored
            || (self.is_uncollapsible && (is_partial() || is_conditional()))
            || (passes_parts && is_partial())
    }

    /// Returns whether a range starts so far into a body of unknown length that a fetch of the whole body would take
    /// long to reach it.
    fn is_far(&self) -> bool {
        match range::parse(self.terms.fields) {
            RangeRequest::Single(ByteRange::From { first, .. }) => first > self.near_bytes,
            RangeRequest::Single(ByteRange::Suffix { .. }) | RangeRequest::Many(_) => true,
            RangeRequest::Absent => false,
        }
    }
}

/// The preconditions that only the origin evaluates.
const ORIGINS_CONDITIONS: NameFilter = NameFilter::of_names(&["if-match", "if-unmodified-since"]);

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderName, HeaderValue};

    use super::*;
    use crate::{reuse::StaleAllowed, rules::RuledRequest};

    const AGE: Age = Age { age_secs: 5, ttl_secs: -1 };
    const FRESH: Reuse = Reuse::Fresh { age: AGE, reason: Reason::ExplicitLifetime };
    const EXPIRED: Reuse = stale(false, true);

    const fn stale(may_serve_meanwhile: bool, may_serve_on_error: bool) -> Reuse {
        let has_validator = true;
        let reason = Reason::Expired;
        Reuse::Stale { age: AGE, may_serve_meanwhile, may_serve_on_error, has_validator, reason }
    }

    const fn asked_for(reason: Reason) -> Reuse {
        Reuse::MustValidate { age: AGE, may_serve_on_error: true, has_validator: true, reason }
    }

    fn terms<'a>(method: &'a Method, fields: &'a HeaderMap, line: UplinkState) -> RequestTerms<'a> {
        RequestTerms::new(RuledRequest { method, scheme: "http", authority: "a", path: "/", fields }, line)
    }

    fn stored(decision: Reuse, extent: AvailableExtent) -> StoredState<()> {
        StoredState::Response(JudgedResponse { response: (), decision, extent, covers_what_is_told: true })
    }

    fn facts_of<'a>(
        terms: RequestTerms<'a>,
        settings: &'a Settings,
        is_uncollapsible: bool,
        has_store: bool,
    ) -> RouteFacts<'a> {
        RouteFacts {
            terms,
            settings,
            is_uncollapsible,
            has_store,
            knows_digest: false,
            do_tags_differ: false,
            is_never_stored: false,
            near_bytes: 1 << 20,
        }
    }

    /// Formats a route in short form: its kind, then `+` if the stored response is validated, `!` if it may replace an
    /// error, `r` for a reload.
    fn way(facts: &RouteFacts<'_>, stored: StoredState<()>) -> String {
        let mark = |is: bool, mark| if is { mark } else { "" };
        let why = |status: CacheStatus| {
            let text = status.to_value("Larder").to_str().unwrap().to_owned();
            text.split("fwd=").nth(1).unwrap_or_default().split(';').next().unwrap_or_default().to_owned()
        };
        let unstored = match decide(facts, stored) {
            Route::Stored { .. } => return "stored".to_owned(),
            Route::Meanwhile { .. } => return "meanwhile".to_owned(),
            Route::Unstored(unstored) => unstored,
        };
        match unstored {
            UnstoredRoute::Pass { forward, stands_in } => {
                format!("pass{} {}", mark(stands_in.is_some(), "!"), why(forward))
            }
            UnstoredRoute::PassHead { forward, stands_in, updates: () } => {
                format!("head{} {}", mark(stands_in, "!"), why(forward))
            }
            UnstoredRoute::Fly { forward, validates, stands_in, is_reload } => {
                let marks = [mark(validates.is_some(), "+"), mark(stands_in, "!"), mark(is_reload, "r")].concat();
                format!("fly{marks} {}", why(forward))
            }
            UnstoredRoute::Refuse => "refuse".to_owned(),
            UnstoredRoute::Offline => "offline".to_owned(),
        }
    }

    fn fields(lines: &[&str]) -> HeaderMap {
        let lines = lines.iter().map(|line| line.split_once(": ").unwrap());
        lines
            .map(|(name, value)| (name.parse::<HeaderName>().unwrap(), HeaderValue::from_str(value).unwrap()))
            .collect()
    }

    /// Returns the possible stored states, each with the expected routes of the requests in
    /// `every_request_goes_its_way_whatever_is_stored`.
    fn ways_by_stored() -> [(StoredState<()>, [String; 8]); 15] {
        use AvailableExtent::{Gone, Lacking, Whole};
        let miss = |why: &str| {
            let fly = format!("fly {why}");
            let pass = format!("pass {why}");
            [&*fly, &*pass, "refuse", &*pass, &*pass, "part", "far", "part"].map(str::to_owned)
        };
        let passed = |mark: &str, why: &str| {
            let fly = format!("fly+{mark} {why}");
            let pass = format!("pass{mark} {why}");
            let head = format!("head{mark} {why}");
            [&*fly, &*head, "refuse", &*pass, &*pass, &*fly, &*fly, &*fly].map(str::to_owned)
        };
        let always = |way: &str| [(); 8].map(|()| way.to_owned());
        let unusable = Reuse::NotUsable { reason: Reason::Method };
        let mut meanwhile = passed("!", "stale");
        for number in [0, 2, 3, 5, 6, 7] {
            meanwhile[number] = "meanwhile".to_owned();
        }
        let mut not_usable = always("pass request");
        not_usable[2] = "refuse".to_owned();
        [
            (StoredState::Nothing, miss("uri-miss")),
            (StoredState::OtherVariants, miss("vary-miss")),
            (stored(FRESH, Gone), miss("miss")),
            (stored(EXPIRED, Gone), miss("miss")),
            (stored(FRESH, Whole), always("stored")),
            (stored(FRESH, Lacking), always("stored")),
            (stored(unusable, Whole), not_usable),
            (stored(EXPIRED, Whole), passed("!", "stale")),
            (stored(EXPIRED, Lacking), passed("", "stale")),
            (stored(stale(false, false), Whole), passed("", "stale")),
            (stored(stale(true, true), Whole), meanwhile),
            (stored(stale(true, true), Lacking), passed("", "stale")),
            (stored(asked_for(Reason::NoCache), Whole), passed("!", "stale")),
            (stored(asked_for(Reason::PurgesUnknown), Whole), passed("!", "stale")),
            (stored(asked_for(Reason::RequestMaxAge), Whole), passed("!", "request")),
        ]
    }

    /// Lists, for each stored state, the routes of several requests: GET, HEAD, `only-if-cached`, `no-store`, If-Match,
    /// a range, a far range, a condition. Each is listed with a store, without a store, and for a resource whose
    /// responses could not be shared.
    #[test]
    fn every_request_goes_its_way_whatever_is_stored() {
        let requests: [(Method, &[&str]); 8] = [
            (Method::GET, &[]),
            (Method::HEAD, &[]),
            (Method::GET, &["cache-control: only-if-cached"]),
            (Method::GET, &["cache-control: no-store"]),
            (Method::GET, &["if-match: \"a\""]),
            (Method::GET, &["range: bytes=0-9"]),
            (Method::GET, &["range: bytes=9000000-"]),
            (Method::GET, &["if-none-match: \"a\""]),
        ];
        let settings = Settings::default();
        let mut case_count = 0;
        for (stored, ways) in ways_by_stored() {
            for ((method, lines), way_expected) in requests.iter().zip(&ways) {
                for (has_store, is_uncollapsible) in [(true, false), (false, false), (true, true)] {
                    let fields = fields(lines);
                    let terms = terms(method, &fields, UplinkState::Up);
                    let facts = facts_of(terms, &settings, is_uncollapsible, has_store);
                    let fly = ways[0].clone();
                    let pass = ways[1].clone();
                    let expected = match way_expected.as_str() {
                        "part" => {
                            if is_uncollapsible {
                                pass
                            } else {
                                fly
                            }
                        }
                        "far" => {
                            if is_uncollapsible || !has_store {
                                pass
                            } else {
                                fly
                            }
                        }
                        way => way.to_owned(),
                    };
                    assert_eq!(
                        way(&facts, stored),
                        expected,
                        "{stored:?} {method} {lines:?} {has_store} {is_uncollapsible}"
                    );
                    case_count += 1;
                }
            }
        }
        assert!(case_count >= 200, "{case_count}");
    }

    /// A request must not reach an origin that may not be contacted, and must not get a body that cannot be completed.
    #[test]
    fn while_origins_cannot_be_asked_only_what_is_stored_whole_answers() {
        use AvailableExtent::{Gone, Lacking, Whole};
        let asked = [&[][..], &["cache-control: no-store"], &["if-match: \"a\""], &["cache-control: only-if-cached"]];
        for (known, expected) in ways_by_stored().iter().map(|(known, _)| (*known, "offline")).chain([
            (stored(FRESH, Whole), "stored"),
            (stored(FRESH, Lacking), "offline"),
            (stored(FRESH, Gone), "offline"),
        ]) {
            if known == stored(FRESH, Whole) && expected == "offline" {
                continue;
            }
            for lines in asked {
                let fields = fields(lines);
                let settings = Settings::default();
                let line = UplinkState::Down(StaleAllowed::AsOnError);
                let terms = terms(&Method::GET, &fields, line);
                let facts = facts_of(terms, &settings, true, true);
                assert_eq!(way(&facts, known), expected, "{known:?} {lines:?}");
            }
        }
    }

    #[test]
    fn ranges_are_forwarded_while_parts_do_not_fit_together_and_whole_responses_are_shared() {
        use AvailableExtent::{Lacking, Whole};
        for (lines, unstored) in [(&["range: bytes=0-9"][..], "pass"), (&[], "fly")] {
            let fields = fields(lines);
            let settings = Settings::default();
            let terms = terms(&Method::GET, &fields, UplinkState::Up);
            let facts = RouteFacts { do_tags_differ: true, ..facts_of(terms, &settings, false, true) };
            let ways = [StoredState::Nothing, stored(FRESH, Lacking), stored(FRESH, Whole), stored(EXPIRED, Whole)];
            let ways = ways.map(|stored| way(&facts, stored));
            let expected = [format!("{unstored} uri-miss"), format!("{unstored} partial")];
            assert_eq!(ways[..2], expected, "{lines:?}");
            assert_eq!(ways[2..], ["stored", "fly+! stale"], "{lines:?}");
        }
    }

    #[test]
    fn what_was_made_for_one_who_tells_less_is_not_served_stale_to_one_who_tells_more() {
        let judged = JudgedResponse {
            response: (),
            decision: stale(true, true),
            extent: AvailableExtent::Whole,
            covers_what_is_told: false,
        };
        let fields = HeaderMap::new();
        let settings = Settings::default();
        let terms = terms(&Method::GET, &fields, UplinkState::Up);
        let facts = facts_of(terms, &settings, false, true);
        assert_eq!(way(&facts, StoredState::Response(judged)), "fly+! stale");
        let gone = JudgedResponse { extent: AvailableExtent::Gone, ..judged };
        assert_eq!(way(&facts, StoredState::Response(gone)), "fly miss");
    }

    /// Guards against a part of a file, stored although only the whole file can be checked against its digest.
    #[test]
    fn range_of_a_file_with_a_known_digest_is_passed_through_until_the_file_is_stored() {
        let fields = fields(&["range: bytes=0-9"]);
        let settings = Settings::default();
        let terms = terms(&Method::GET, &fields, UplinkState::Up);
        let facts = RouteFacts { knows_digest: true, ..facts_of(terms, &settings, false, true) };
        assert_eq!(way(&facts, StoredState::Nothing), "pass uri-miss");
        assert_eq!(way(&facts, stored(FRESH, AvailableExtent::Gone)), "pass miss");
        assert_eq!(way(&facts, stored(FRESH, AvailableExtent::Whole)), "stored");
    }
}
