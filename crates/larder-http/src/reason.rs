//! Why a decision came out as it did: one short token each, for Cache-Status, logs and `explain`.
//!
//! Invariant: every token is a structured-field token (RFC 9651 3.3.4), so it needs no quoting.

/// The rule that settled a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// An explicit lifetime covers it (RFC 9111 4.2.1).
    ExplicitLifetime,
    /// A lifetime that the operator's rule gives covers it.
    RuledLifetime,
    /// A heuristic lifetime covers it (RFC 9111 4.2.2).
    HeuristicLifetime,
    /// The settings give errors of its status a lifetime (RFC 9111 4.2.2).
    NegativeLifetime,
    /// The response is stale and is served during its validation (RFC 5861 3).
    StaleWhileRevalidate,
    /// The response has a validator but no useful lifetime (RFC 9111 4.3).
    ValidatorOnly,
    /// The response has neither a lifetime nor a validator, so a stored copy could never be used.
    NothingToReuse,
    /// The lifetime is over (RFC 9111 4.2).
    Expired,
    /// The lifetime is over, and the response forbids serving it stale (RFC 9111 4.2.4).
    MustRevalidate,
    /// The response is stale, within the request's `max-stale` (RFC 9111 5.2.1.2).
    RequestMaxStale,
    /// The response is older than the request's `max-age` (RFC 9111 5.2.1.1).
    RequestMaxAge,
    /// Less of its lifetime is left than the request's min-fresh asks (RFC 9111 5.2.1.3).
    RequestMinFresh,
    /// The request says no-cache (RFC 9111 5.2.1.4).
    RequestNoCache,
    /// The request says no-store (RFC 9111 5.2.1.5).
    RequestNoStore,
    /// The request says Pragma: no-cache (RFC 9111 5.4).
    RequestPragma,
    /// The response says no-cache (RFC 9111 5.2.2.4).
    NoCache,
    /// The response says no-store (RFC 9111 5.2.2.5).
    NoStore,
    /// The response says private (RFC 9111 5.2.2.7).
    Private,
    /// The response says must-understand and its status is not known here (RFC 9111 5.2.2.3).
    MustUnderstand,
    /// The request carries credentials and the response does not allow sharing (RFC 9111 3.5).
    Authorization,
    /// The response sets a cookie, and does not say that it is for everybody.
    SetCookie,
    /// The response varies on something no request can match (RFC 9111 4.1).
    VaryStar,
    /// The request's selecting fields differ from the stored ones (RFC 9111 4.1).
    VaryMismatch,
    /// The method is not answered from, or stored in, this cache (RFC 9111 3, 4).
    Method,
    /// The status is not final, or not one a lifetime may be guessed for (RFC 9111 3).
    Status,
    /// The response is partial and cannot be made whole (RFC 9111 3.3, 3.4).
    Partial,
    /// A response to POST that does not say that it stands for its own URI (RFC 9110 9.3.3).
    PostWithoutLocation,
    /// The head is larger than a stored head may be.
    HeadTooLarge,
    /// The store cannot keep up, and nobody is to wait for it.
    StoreBehind,
    /// The response is stale, and its origin cannot be reached (RFC 9111 4.2.4).
    Offline,
}

impl Reason {
    /// Every reason, in the order of their numbers.
    pub const ALL: [Self; 30] = [
        Self::ExplicitLifetime,
        Self::RuledLifetime,
        Self::HeuristicLifetime,
        Self::NegativeLifetime,
        Self::StaleWhileRevalidate,
        Self::ValidatorOnly,
        Self::NothingToReuse,
        Self::Expired,
        Self::MustRevalidate,
        Self::RequestMaxStale,
        Self::RequestMaxAge,
        Self::RequestMinFresh,
        Self::RequestNoCache,
        Self::RequestNoStore,
        Self::RequestPragma,
        Self::NoCache,
        Self::NoStore,
        Self::Private,
        Self::MustUnderstand,
        Self::Authorization,
        Self::SetCookie,
        Self::VaryStar,
        Self::VaryMismatch,
        Self::Method,
        Self::Status,
        Self::Partial,
        Self::PostWithoutLocation,
        Self::HeadTooLarge,
        Self::StoreBehind,
        Self::Offline,
    ];

    /// Returns the reason as a short token.
    pub const fn token(self) -> &'static str {
        match self {
            Self::ExplicitLifetime => "lifetime",
            Self::RuledLifetime => "rule",
            Self::HeuristicLifetime => "heuristic",
            Self::NegativeLifetime => "negative",
            Self::StaleWhileRevalidate => "stale-while-revalidate",
            Self::ValidatorOnly => "validator",
            Self::NothingToReuse => "nothing-to-reuse",
            Self::Expired => "expired",
            Self::MustRevalidate => "must-revalidate",
            Self::RequestMaxStale => "request-max-stale",
            Self::RequestMaxAge => "request-max-age",
            Self::RequestMinFresh => "request-min-fresh",
            Self::RequestNoCache => "request-no-cache",
            Self::RequestNoStore => "request-no-store",
            Self::RequestPragma => "request-pragma",
            Self::NoCache => "no-cache",
            Self::NoStore => "no-store",
            Self::Private => "private",
            Self::MustUnderstand => "must-understand",
            Self::Authorization => "authorization",
            Self::SetCookie => "set-cookie",
            Self::VaryStar => "vary-star",
            Self::VaryMismatch => "vary-mismatch",
            Self::Method => "method",
            Self::Status => "status",
            Self::Partial => "partial",
            Self::PostWithoutLocation => "post-without-location",
            Self::HeadTooLarge => "head-too-large",
            Self::StoreBehind => "store-behind",
            Self::Offline => "offline",
        }
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.token())
    }
}
