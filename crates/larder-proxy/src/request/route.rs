//! Decides how a GET or HEAD is answered: from the store, by a shared fetch, by forwarding it, or with an error.
//!
//! The decision is a pure function from facts to a route, without I/O. `serve` executes the route and `explain` prints
//! it, so the two cannot disagree.
//!
//! Invariants: a stale response is never served where its directives forbid it (RFC 9111 4.2.4), and a request with
//! `only-if-cached` never reaches an origin (RFC 9111 5.2.1.7).

use http::{HeaderMap, Method, header};
use larder_http::{
    CacheStatus, Reason, Reuse, Settings,
    cache_control::RequestDirectives,
    cache_status::Forward,
    range::{self, ByteRange, RangeRequest},
    reuse::{self, Age},
};

use crate::{cache::entry::CHUNK_BYTES, flight::presence::AvailableExtent, origin::uplink::UplinkState};

/// The facts about a request and the stored response that the decision depends on.
pub(crate) struct RouteFacts<'a> {
    pub(crate) method: &'a Method,
    pub(crate) fields: &'a HeaderMap,
    pub(crate) settings: &'a Settings,
    pub(crate) stored: StoredState,
    /// Whether recent responses for this resource could not be shared between clients.
    pub(crate) is_uncollapsible: bool,
    /// Whether there is a store, which can keep parts of bodies.
    pub(crate) has_store: bool,
    /// Whether the origin can be contacted. If not, the decision on the stored response already takes that into
    /// account.
    pub(crate) line: UplinkState,
}

/// The state of a resource's stored response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoredState {
    /// A response for these selecting fields.
    Response {
        /// The decision of the caching rules.
        decision: Reuse,
        /// The available share of the requested part.
        extent: AvailableExtent,
        /// Whether the stored response's selecting fields include this request's fields of [`larder_http::telling`].
        covers_what_is_told: bool,
    },
    /// The resource varies, and no response is stored for these selecting fields, nor in the preferred language.
    OtherVariants,
    Nothing,
}

/// The way in which a request is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// The stored response answers it.
    Stored { age: Age, reason: Reason },
    /// The stored response answers it, and is validated in the background (RFC 5861 3).
    Meanwhile { age: Age },
    /// Forwarded unchanged. If that fails, the stored response may be served if `stands_in`.
    Pass { forward: CacheStatus, stands_in: bool },
    /// A HEAD that is forwarded. The response also updates or invalidates the stored response (RFC 9111 4.3.5).
    PassHead { forward: CacheStatus, stands_in: bool },
    /// Joins or starts a shared fetch, which validates the stored response if `validates`.
    Fly { forward: CacheStatus, validates: bool, stands_in: bool, is_reload: bool },
    /// Refused: it must be answered from the store, and the stored response cannot answer it.
    Refuse,
    /// Refused: the origin cannot be contacted, and the stored response cannot answer the request.
    Offline,
}

/// Decides how a request is answered.
pub(crate) fn decide(facts: &RouteFacts<'_>) -> Route {
    if facts.line.is_down() {
        return match facts.stored {
            // The whole body must be available, because a gap could not be filled without the origin.
            StoredState::Response {
                decision: Reuse::Fresh { age, reason }, extent: AvailableExtent::Whole, ..
            } => Route::Stored { age, reason },
            StoredState::Response { .. } | StoredState::OtherVariants | StoredState::Nothing => Route::Offline,
        };
    }
    let (validates, stands_in, forward) = match facts.stored {
        StoredState::Nothing => (false, false, CacheStatus::forwarded(Forward::UriMiss)),
        StoredState::OtherVariants => (false, false, CacheStatus::forwarded(Forward::VaryMiss)),
        // The stored head is not validated, because a 304 would confirm a body that no longer exists.
        StoredState::Response { extent: AvailableExtent::Gone, .. } => {
            (false, false, CacheStatus::forwarded(Forward::Miss))
        }
        StoredState::Response { decision, extent, covers_what_is_told } => match decision {
            Reuse::Fresh { age, reason } => return Route::Stored { age, reason },
            Reuse::NotUsable { reason } => {
                let forward = CacheStatus::forwarded(Forward::Request).because(reason);
                return if facts.may_ask() { Route::Pass { forward, stands_in: false } } else { Route::Refuse };
            }
            // A client that sends more selecting fields than the stored request had might get another response, so it
            // waits for the validation.
            Reuse::Stale { may_serve_meanwhile: true, age, .. }
                if extent == AvailableExtent::Whole && !facts.asks_for_itself() && covers_what_is_told =>
            {
                return Route::Meanwhile { age };
            }
            Reuse::Stale { may_serve_on_error: may, reason, .. }
            | Reuse::MustValidate { may_serve_on_error: may, reason, .. } => {
                let is_ours = matches!(reason, Reason::NoCache | Reason::PurgesUnknown);
                let is_asked = matches!(decision, Reuse::MustValidate { .. }) && !is_ours;
                let why = if is_asked { Forward::Request } else { Forward::Stale };
                (true, may && extent == AvailableExtent::Whole, CacheStatus::forwarded(why).because(reason))
            }
        },
    };
    // Checked after the stored response, because `only-if-cached` accepts a fresh one (RFC 9111 5.2.1.7).
    if !facts.may_ask() {
        return Route::Refuse;
    }
    if facts.wants_origin_itself(validates) {
        return match *facts.method {
            Method::HEAD if validates => Route::PassHead { forward, stands_in },
            _ => Route::Pass { forward, stands_in },
        };
    }
    Route::Fly { forward, validates, stands_in, is_reload: reuse::is_reload(facts.fields, facts.settings) }
}

impl StoredState {
    /// Returns the state to use once the body has proved unreadable.
    pub(crate) fn gone(self) -> Self {
        match self {
            Self::Response { decision, covers_what_is_told, .. } => {
                Self::Response { decision, extent: AvailableExtent::Gone, covers_what_is_told }
            }
            Self::OtherVariants | Self::Nothing => self,
        }
    }
}

impl RouteFacts<'_> {
    /// Returns whether the origin may be contacted at all (RFC 9111 5.2.1.7).
    fn may_ask(&self) -> bool {
        !reuse::is_only_if_cached(self.fields, self.settings)
    }

    /// Returns whether only the origin can answer this request: a HEAD that the cache cannot answer, or preconditions
    /// that only the origin can evaluate.
    fn asks_for_itself(&self) -> bool {
        self.method != Method::GET
            || self.fields.contains_key(header::IF_MATCH)
            || self.fields.contains_key(header::IF_UNMODIFIED_SINCE)
    }

    /// Returns whether the request should be forwarded unchanged instead of fetching the whole response.
    fn wants_origin_itself(&self, is_stored: bool) -> bool {
        let has = |name| self.fields.contains_key(name);
        if self.asks_for_itself() {
            return true;
        }
        if has(header::CACHE_CONTROL) && RequestDirectives::from_fields(self.fields).no_store {
            return true;
        }
        let partial = has(header::RANGE);
        let conditional = has(header::IF_NONE_MATCH) || has(header::IF_MODIFIED_SINCE);
        if (partial || conditional) && !is_stored && self.is_uncollapsible {
            return true;
        }
        partial && !is_stored && !self.has_store && self.is_far()
    }

    /// Returns whether a range starts so far into a body of unknown length that a fetch of the whole body would take
    /// long to reach it.
    fn is_far(&self) -> bool {
        match range::parse(self.fields) {
            RangeRequest::Single(ByteRange::From { first, .. }) => first > CHUNK_BYTES,
            RangeRequest::Single(ByteRange::Suffix { .. }) | RangeRequest::Many(_) => true,
            RangeRequest::Absent => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    const AGE: Age = Age { age_secs: 5, ttl_secs: -1 };
    const FRESH: Reuse = Reuse::Fresh { age: AGE, reason: Reason::ExplicitLifetime };
    const EXPIRED: Reuse = stale(false, true);

    const fn stale(may_serve_meanwhile: bool, may_serve_on_error: bool) -> Reuse {
        let (has_validator, reason) = (true, Reason::Expired);
        Reuse::Stale { age: AGE, may_serve_meanwhile, may_serve_on_error, has_validator, reason }
    }

    const fn asked_for(reason: Reason) -> Reuse {
        Reuse::MustValidate { age: AGE, may_serve_on_error: true, has_validator: true, reason }
    }

    fn stored(decision: Reuse, extent: AvailableExtent) -> StoredState {
        StoredState::Response { decision, extent, covers_what_is_told: true }
    }

    /// Formats a route in short form: its kind, `+` if the stored response is validated, `!` if it may replace an
    /// error, `r` for a reload.
    fn way(facts: &RouteFacts<'_>) -> String {
        let mark = |is: bool, mark| if is { mark } else { "" };
        let why = |status: CacheStatus| {
            let text = status.to_value("Larder").to_str().unwrap().to_owned();
            text.split("fwd=").nth(1).unwrap_or_default().split(';').next().unwrap_or_default().to_owned()
        };
        match decide(facts) {
            Route::Stored { .. } => "stored".to_owned(),
            Route::Meanwhile { .. } => "meanwhile".to_owned(),
            Route::Pass { forward, stands_in } => format!("pass{} {}", mark(stands_in, "!"), why(forward)),
            Route::PassHead { forward, stands_in } => format!("head{} {}", mark(stands_in, "!"), why(forward)),
            Route::Fly { forward, validates, stands_in, is_reload } => {
                let marks = [mark(validates, "+"), mark(stands_in, "!"), mark(is_reload, "r")].concat();
                format!("fly{marks} {}", why(forward))
            }
            Route::Refuse => "refuse".to_owned(),
            Route::Offline => "offline".to_owned(),
        }
    }

    fn fields(lines: &[&str]) -> HeaderMap {
        let lines = lines.iter().map(|line| line.split_once(": ").unwrap());
        lines
            .map(|(name, value)| (name.parse::<HeaderName>().unwrap(), HeaderValue::from_str(value).unwrap()))
            .collect()
    }

    /// Returns the possible stored states, each with the routes of the requests in the test below.
    fn ways_by_stored() -> [(StoredState, [String; 8]); 15] {
        use AvailableExtent::{Gone, Lacking, Whole};
        let miss = |why: &str| {
            let (fly, pass) = (format!("fly {why}"), format!("pass {why}"));
            [&*fly, &*pass, "refuse", &*pass, &*pass, "part", "far", "part"].map(str::to_owned)
        };
        let passed = |mark: &str, why: &str| {
            let (fly, pass, head) =
                (format!("fly+{mark} {why}"), format!("pass{mark} {why}"), format!("head{mark} {why}"));
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
                    let (settings, line) = (&settings, UplinkState::Up);
                    let facts =
                        RouteFacts { method, fields: &fields, settings, stored, is_uncollapsible, has_store, line };
                    let (fly, pass) = (ways[0].clone(), ways[1].clone());
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
                    assert_eq!(way(&facts), expected, "{stored:?} {method} {lines:?} {has_store} {is_uncollapsible}");
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
                let (fields, settings) = (fields(lines), Settings::default());
                let line = UplinkState::Down(larder_http::reuse::StaleAllowed::AsOnError);
                let (method, settings, stored) = (&Method::GET, &settings, known);
                let facts = RouteFacts {
                    method,
                    fields: &fields,
                    settings,
                    stored,
                    is_uncollapsible: true,
                    has_store: true,
                    line,
                };
                assert_eq!(way(&facts), expected, "{known:?} {lines:?}");
            }
        }
    }

    #[test]
    fn what_was_made_for_one_who_tells_less_is_not_served_stale_to_one_who_tells_more() {
        let stored = StoredState::Response {
            decision: stale(true, true),
            extent: AvailableExtent::Whole,
            covers_what_is_told: false,
        };
        let (fields, settings) = (HeaderMap::new(), Settings::default());
        let facts = RouteFacts {
            method: &Method::GET,
            fields: &fields,
            settings: &settings,
            stored,
            is_uncollapsible: false,
            has_store: true,
            line: UplinkState::Up,
        };
        assert_eq!(way(&facts), "fly+! stale");
        assert_eq!(way(&RouteFacts { stored: stored.gone(), ..facts }), "fly miss");
    }
}
