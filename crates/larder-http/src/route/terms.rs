//! The demands of a request on a stored response.
//!
//! Owns: the decision how one stored response may answer a request. Invariant: every use of a stored or shared response
//! is decided by [`RequestTerms::judge`].

use http::{HeaderMap, HeaderName, Method};

use crate::{
    Reason, Reuse, Rules, Settings, StoredHead, Timestamp,
    cache_control::RequestDirectives,
    fields::NameFilter,
    reuse::{self, StaleAllowed},
    rules::{RuleAgreement, RuledRequest},
};

/// Whether an origin can be contacted for a request.
///
/// ```
/// use larder_http::{reuse::StaleAllowed, route::UplinkState};
///
/// assert!(!UplinkState::Up.is_down());
/// assert!(UplinkState::Down(StaleAllowed::HoweverOld).is_down());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UplinkState {
    /// The origin can be contacted.
    #[default]
    Up,
    /// The origin cannot be contacted. The value says which stale responses may be served meanwhile.
    Down(StaleAllowed),
}

impl UplinkState {
    /// Returns whether the origin cannot be contacted.
    #[inline]
    pub fn is_down(self) -> bool {
        self != Self::Up
    }
}

/// The demands that a request and its client's session make on a stored response.
///
/// ```
/// # use http::{HeaderMap, Method, StatusCode};
/// # use larder_http::{BodyPlace, ReceivedHead, StoredHead, TargetList, Timestamp};
/// use larder_http::{Reuse, Rules, Settings, route::{RequestTerms, UplinkState}, rules::RuledRequest};
///
/// # let fields = HeaderMap::from_iter([(http::header::CACHE_CONTROL, "max-age=60".parse()?)]);
/// # let now = Timestamp::from_secs(1_800_000_000);
/// # let received = ReceivedHead { status: StatusCode::OK, fields, request_time: now, response_time: now };
/// # let body = BodyPlace::Whole { len: 1000 };
/// # let stored = StoredHead::new(received, body, Default::default(), &TargetList::default());
/// // `stored` has `max-age=60`, but this request wants nothing older than ten seconds.
/// let fields = HeaderMap::from_iter([(http::header::CACHE_CONTROL, "max-age=10".parse()?)]);
/// let (method, authority) = (&Method::GET, "a.example");
/// let ruled = RuledRequest { method, scheme: "http", authority, path: "/", fields: &fields };
/// let terms = RequestTerms::new(ruled, UplinkState::Up);
/// let judge = |secs| terms.judge(&stored, &Rules::default(), &Settings::default(), now.plus_secs(secs));
/// assert!(matches!(judge(5), Reuse::Fresh { .. }));
/// assert!(matches!(judge(15), Reuse::MustValidate { .. }));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct RequestTerms<'a> {
    /// The request's method.
    pub method: &'a Method,
    /// The request's fields.
    pub fields: &'a HeaderMap,
    /// The names in `fields`, to rule most lookups out.
    pub names: NameFilter,
    /// The directives for caches in `fields`.
    pub directives: RequestDirectives,
    /// Whether the request's origin can be contacted.
    pub line: UplinkState,
    /// The properties of the request that rules compare.
    pub ruled: RuledRequest<'a>,
    /// The rules of the client's session (`larder exec`), which apply after those of the operator.
    pub session_rules: Option<&'a Rules>,
}

impl<'a> RequestTerms<'a> {
    /// Parses the directives in a request's fields.
    pub fn new(ruled: RuledRequest<'a>, line: UplinkState) -> Self {
        let RuledRequest { method, fields, .. } = ruled;
        let names = NameFilter::of(fields);
        let directives = RequestDirectives::of_named(fields, names);
        Self { method, fields, names, directives, line, ruled, session_rules: None }
    }

    /// Returns whether the request has a field.
    #[inline]
    pub fn has(&self, name: &HeaderName) -> bool {
        self.names.may_have(name) && self.fields.contains_key(name)
    }

    /// Decides how a stored response may answer the request at `now`.
    ///
    /// Every use of a stored or shared response is decided here, so that all of them see the request's directives, the
    /// operator's rules and the uplink's state.
    pub fn judge(&self, stored: &StoredHead, operator: &Rules, settings: &Settings, now: Timestamp) -> Reuse {
        let rules = [Some(operator), self.session_rules];
        match Rules::agree(rules.into_iter().flatten(), &self.ruled, stored) {
            RuleAgreement::Same => self.judge_by_terms(stored, settings, now),
            RuleAgreement::OwnLifetime => {
                let own = stored.for_cookies().map(|own| self.judge_by_terms(&own, settings, now));
                let fresh = own.filter(|decision| matches!(decision, Reuse::Fresh { .. }));
                fresh.unwrap_or(Reuse::NotUsable { reason: Reason::OtherRule })
            }
            RuleAgreement::Replace => Reuse::replaced(stored, now, settings, Reason::OtherRule),
            RuleAgreement::Bypass => Reuse::NotUsable { reason: Reason::OtherRule },
        }
    }

    fn judge_by_terms(&self, stored: &StoredHead, settings: &Settings, now: Timestamp) -> Reuse {
        match self.line {
            UplinkState::Up => reuse::decide_by_directives(self.method, &self.directives, stored, now, settings),
            UplinkState::Down(allowed) => reuse::decide_disconnected(self.method, stored, now, settings, allowed),
        }
    }

    /// Returns whether only a stored response may answer the request (RFC 9111 5.2.1.7).
    pub fn is_only_if_cached(&self, settings: &Settings) -> bool {
        reuse::is_only_if_cached(&self.directives, settings)
    }
}
