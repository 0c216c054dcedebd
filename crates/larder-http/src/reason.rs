//! The reasons for decisions. Each has a short token for Cache-Status, logs and `explain`.
//!
//! Invariant: every token is a structured-field token (RFC 9651 3.3.4), so it needs no quoting.

/// The rule that decided how a request or response was handled. [`Reason::token`] is its name in Cache-Status and logs.
///
/// ```
/// use larder_http::{CacheStatus, Reason, cache_status::Forward};
///
/// let status = CacheStatus::forwarded(Forward::Request).because(Reason::RequestNoCache);
/// assert!(status.to_value("Larder").to_str()?.ends_with(Reason::RequestNoCache.token()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The response has an explicit lifetime that is not over (RFC 9111 4.2.1).
    ExplicitLifetime,
    /// An operator's rule gives the response a lifetime that is not over.
    RuledLifetime,
    /// The response has a heuristic lifetime that is not over (RFC 9111 4.2.2).
    HeuristicLifetime,
    /// The settings give errors with this status a lifetime (RFC 9111 4.2.2).
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
    /// The response is not younger than the request's `max-age` (RFC 9111 5.2.1.1).
    RequestMaxAge,
    /// The remaining lifetime is shorter than the request's min-fresh (RFC 9111 5.2.1.3).
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
    /// The response says must-understand, and Larder does not know its status (RFC 9111 5.2.2.3).
    MustUnderstand,
    /// The request carries credentials and the response does not allow sharing (RFC 9111 3.5).
    Authorization,
    /// The response sets a cookie and does not say that it may be shared.
    SetCookie,
    /// The response varies on a property that no request can match (RFC 9111 4.1).
    VaryStar,
    /// The request's selecting fields differ from the stored ones (RFC 9111 4.1).
    VaryMismatch,
    /// The cache neither stores nor answers requests with this method (RFC 9111 3, 4).
    Method,
    /// The status is not final, or permits no heuristic lifetime (RFC 9111 3).
    Status,
    /// The response is partial and cannot be completed (RFC 9111 3.3, 3.4).
    Partial,
    /// The response to a POST does not say that it stands for its own URI (RFC 9110 9.3.3).
    PostWithoutLocation,
    /// The head exceeds the limit for stored heads.
    HeadTooLarge,
    /// The store cannot keep up with writes, so this response was not stored: clients do not wait for the store.
    StoreBehind,
    /// The response is stale, and its origin cannot be reached (RFC 9111 4.2.4).
    Offline,
    /// Another node may have purged the response, and its purges are not known yet.
    PurgesUnknown,
    /// The response is a web page, but an operator's rule says that the file at its URL never changes.
    PageForFile,
    /// The response was stored under one of the operator's rules, but a different rule applies to this request.
    OtherRule,
}

impl Reason {
    /// Every reason, in the order of their numbers.
    pub const ALL: [Self; 33] = [
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
        Self::PurgesUnknown,
        Self::PageForFile,
        Self::OtherRule,
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
            Self::PurgesUnknown => "purges-unknown",
            Self::PageForFile => "page-for-file",
            Self::OtherRule => "other-rule",
        }
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.token())
    }
}
