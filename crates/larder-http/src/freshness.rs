//! Computes how long a response is fresh and how old it is (RFC 9111 4.2, 5.1, 5.3).
//!
//! The response's fields are reduced once to [`Freshness`], a few plain numbers, so a hit needs only additions and
//! comparisons. All arithmetic is in milliseconds and saturates. An age is rounded once, at the end: rounding both
//! operands of a difference could lose a second.

use std::time::Duration;

use http::{StatusCode, header::SET_COOKIE};

use crate::{Reason, Settings, Timestamp, date::as_http_date, facts::Facts};

/// The lifetime that a response states, or the facts from which one is guessed. The strongest source is used (RFC 9111
/// 4.2.1).
///
/// ```
/// # use http::{HeaderMap, StatusCode};
/// # use larder_http::{BodyPlace, ReceivedHead, StoredHead, TargetList, Timestamp};
/// use larder_http::freshness::Lifetime;
///
/// # let now = Timestamp::from_secs(1_800_000_000);
/// # let lifetime = |value: &'static str| {
/// #     let fields = HeaderMap::from_iter([(http::header::CACHE_CONTROL, value.parse().unwrap())]);
/// #     let received = ReceivedHead { status: StatusCode::OK, fields, request_time: now, response_time: now };
/// #     let body = BodyPlace::Whole { len: 0 };
/// #     StoredHead::new(received, body, Default::default(), &TargetList::default()).freshness().lifetime
/// # };
/// // `lifetime` is that of a response with this Cache-Control.
/// assert_eq!(lifetime("max-age=60"), Lifetime::Explicit { millis: 60_000 });
/// assert_eq!(lifetime("max-age=60, s-maxage=10"), Lifetime::Explicit { millis: 10_000 });
/// assert_eq!(lifetime("max-age=soon"), Lifetime::Explicit { millis: 0 });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifetime {
    /// The response states a lifetime: `s-maxage`, `max-age`, or `Expires` minus `Date`.
    Explicit {
        /// The lifetime in milliseconds. Zero if it is malformed, or if Expires is before Date.
        millis: i64,
    },
    /// The response states no lifetime, but its status or `public` permits a heuristic lifetime (RFC 9111 4.2.2).
    Heuristic {
        /// Time from Last-Modified to Date. Zero if it is unknown, so that the heuristic lifetime is zero.
        unmodified_millis: i64,
    },
    /// The response states no lifetime, and no heuristic applies.
    Absent,
}

/// The freshness of a stored response: its lifetime, its age and its restrictions.
///
/// ```
/// # use http::{HeaderMap, StatusCode};
/// # use larder_http::{BodyPlace, ReceivedHead, Settings, StoredHead, TargetList};
/// # let mut fields = HeaderMap::new();
/// # fields.insert("cache-control", "max-age=60".parse()?);
/// # let now = larder_http::Timestamp::from_secs(1_800_000_000);
/// # let received = ReceivedHead { status: StatusCode::OK, fields, request_time: now, response_time: now };
/// # let body = BodyPlace::Whole { len: 1000 };
/// # let stored = StoredHead::new(received, body, Default::default(), &TargetList::default());
/// // `stored` was received at `now`, with `max-age=60`.
/// let freshness = stored.freshness();
/// assert_eq!(freshness.age_millis(now.plus_secs(20)), 20_000);
/// assert_eq!(freshness.left_millis(now.plus_secs(20), &Settings::default()), 40_000);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Freshness {
    /// The lifetime and its source.
    pub lifetime: Lifetime,
    /// The response's status. For errors, the settings may define a lifetime by status.
    pub status: StatusCode,
    /// `corrected_initial_age` (RFC 9111 4.2.3): how old the response was when it was received.
    pub initial_age_millis: i64,
    /// When the response was received.
    pub response_time: Timestamp,
    /// When the response was generated: its Date, or the time of receipt if it has none.
    pub date: Timestamp,
    /// Last-Modified, if valid.
    pub(crate) last_modified: Option<Timestamp>,
    /// Whether the response must be validated before every use (RFC 9111 5.2.2.4).
    pub no_cache: bool,
    /// Whether the only reason to validate the response before use is that other nodes may have purged it, and their
    /// purges are not known yet.
    pub(crate) is_unconfirmed: bool,
    /// Whether an operator's rule tells the cache to ignore a client's demand for validation, such as `no-cache`.
    pub ignores_client: bool,
    /// Whether a client's reload (`no-cache`) is obeyed even though a rule ignores the client's other directives.
    pub(crate) obeys_reload: bool,
    /// Whether the body was checked against its digest when it was stored.
    pub is_verified: bool,
    /// Whether the origin must permit each client before the client receives the response.
    pub checks_authorization: bool,
    /// Whether an operator's rule set the lifetime.
    pub(crate) is_ruled: bool,
    /// Whether requests with a Cookie are exempt from the lifetime that an operator's rule set.
    pub(crate) excludes_cookies: bool,
    /// Identifies the applied rule if it has conditions on the request; 0 for a rule without conditions, or none.
    pub(crate) conditions: u64,
    /// The longest lifetime that the redirects to this response allow.
    pub(crate) lifetime_millis_max: i64,
    /// Whether the response must be validated before use once it is stale (RFC 9111 4.2.4).
    pub(crate) forbids_stale: bool,
    /// Whether the response may have been made for one client, so that no lifetime is guessed for it.
    ///
    /// Such a response states no lifetime, and either sets a cookie, or answers a request with a cookie and does not
    /// say `public`.
    pub(crate) is_personal: bool,
    /// When a soft purge made the response stale, if one did.
    pub(crate) purged_at: Option<Timestamp>,
    /// `stale-while-revalidate` in seconds (RFC 5861 3).
    pub stale_while_revalidate_secs: Option<u32>,
    /// `stale-if-error` in seconds (RFC 5861 4).
    pub stale_if_error_secs: Option<u32>,
}

/// Facts about a response that its fields do not contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Receipt {
    /// The response's status.
    pub status: StatusCode,
    /// The received Age in seconds (RFC 9111 5.1): the value of the first Age field, or 0 if it is invalid.
    pub age_secs: u32,
    /// When the request was sent.
    pub request_time: Timestamp,
    /// The time at which the head was received.
    pub response_time: Timestamp,
    /// Whether the request had a Cookie that selects no variant.
    pub answered_cookie: bool,
}

impl Freshness {
    /// Reads a response's directives and dates.
    pub(crate) fn new(receipt: &Receipt, facts: &Facts<'_>) -> Self {
        let received = receipt.response_time;
        let directives = &facts.directives;
        // A response without Date counts as created on receipt (RFC 9110 6.6.1).
        let date = facts.date(received).unwrap_or_else(|| as_http_date(received));
        let last_modified = facts.last_modified(received);
        let initial_age_millis = initial_age(receipt, date);
        let lifetime = match directives.fresh_after_receipt {
            Some(secs) => Lifetime::Explicit { millis: (i64::from(secs) * 1000).saturating_add(initial_age_millis) },
            None => lifetime(receipt, facts, date, last_modified),
        };
        let sets_cookie = facts.sets_cookie && !directives.withheld.contains(&SET_COOKIE);
        Self {
            lifetime,
            ignores_client: directives.ignores_client,
            obeys_reload: directives.obeys_reload,
            is_verified: directives.is_verified,
            checks_authorization: directives.checks_authorization,
            is_ruled: directives.fresh_after_receipt.is_some(),
            excludes_cookies: directives.excludes_cookies,
            conditions: directives.conditions,
            lifetime_millis_max: directives
                .fresh_within
                .map_or(i64::MAX, |secs| (i64::from(secs) * 1000).saturating_add(initial_age_millis)),
            status: receipt.status,
            initial_age_millis,
            response_time: received,
            date,
            last_modified,
            no_cache: directives.no_cache,
            is_unconfirmed: false,
            forbids_stale: directives.forbids_stale(),
            purged_at: None,
            is_personal: sets_cookie || (receipt.answered_cookie && !directives.public),
            stale_while_revalidate_secs: directives.stale_while_revalidate,
            stale_if_error_secs: directives.stale_if_error,
        }
    }

    /// Returns why every use of the response requires validation. `None` if not every use does.
    pub(crate) fn no_cache_reason(&self) -> Option<Reason> {
        match self.is_unconfirmed {
            true => Some(Reason::PurgesUnknown),
            false => self.no_cache.then_some(Reason::NoCache),
        }
    }

    /// Returns `current_age` (RFC 9111 4.2.3). If the clock was set back after the receipt, the time since then counts
    /// as zero.
    pub fn age_millis(&self, now: Timestamp) -> i64 {
        self.initial_age_millis.saturating_add(now.millis_since(self.response_time).max(0))
    }

    /// Returns `freshness_lifetime` (RFC 9111 4.2.1, 4.2.2).
    pub fn lifetime_millis(&self, settings: &Settings) -> i64 {
        self.own_lifetime_millis(settings).min(self.lifetime_millis_max)
    }

    /// Returns the remaining lifetime at `now`. It is zero or negative once the response is stale.
    pub fn left_millis(&self, now: Timestamp, settings: &Settings) -> i64 {
        let left = self.lifetime_millis(settings).saturating_sub(self.age_millis(now));
        // After a soft purge the response stays stale, even if the clock is set back.
        if self.purged_at.is_some() { left.min(0) } else { left }
    }

    /// Returns the time of a soft purge, if there was one.
    pub fn purged_at(&self) -> Option<Timestamp> {
        self.purged_at
    }

    /// Returns this freshness with the purge state of `other`: its soft purge, and whether purges that may concern it
    /// are unknown.
    pub(crate) fn purged_like(self, other: &Self) -> Self {
        let purged = other.purged_at.map_or(self, |moment| self.stale_since(moment));
        Self { no_cache: purged.no_cache || other.is_unconfirmed, is_unconfirmed: other.is_unconfirmed, ..purged }
    }

    /// Returns this freshness with a lifetime that ends at `moment`.
    pub(crate) fn stale_since(self, moment: Timestamp) -> Self {
        let at_purge = self.age_millis(moment);
        Self { purged_at: Some(moment), lifetime_millis_max: self.lifetime_millis_max.min(at_purge), ..self }
    }

    fn own_lifetime_millis(&self, settings: &Settings) -> i64 {
        match self.lifetime {
            Lifetime::Explicit { millis } => millis,
            Lifetime::Heuristic { unmodified_millis } => {
                if let Some(lifetime) = settings.negative_lifetime(self.status) {
                    return millis(lifetime);
                }
                if self.forbids_guess(settings) {
                    return 0;
                }
                let guess = (unmodified_millis as f64 * settings.heuristic_fraction) as i64;
                guess.clamp(0, millis(settings.longest_guess(self.status)))
            }
            Lifetime::Absent => 0,
        }
    }

    /// Returns whether a stale response must be validated before use (RFC 9111 4.2.4).
    ///
    /// It must if the response demands it. It also must if the response may have been made for one client, because only
    /// the origin knows whether it suits another.
    pub(crate) fn forbids_stale(&self, settings: &Settings) -> bool {
        self.forbids_stale || self.forbids_guess(settings)
    }

    /// Returns whether the response may have been made for one client without saying so. A guessed lifetime would show
    /// it to other clients.
    pub(crate) fn forbids_guess(&self, settings: &Settings) -> bool {
        let is_guessed = !matches!(self.lifetime, Lifetime::Explicit { .. });
        is_guessed && self.is_personal && !settings.heuristic_with_cookies
    }

    /// Returns the source of [`Freshness::lifetime_millis`].
    pub fn lifetime_reason(&self, settings: &Settings) -> Reason {
        match self.lifetime {
            Lifetime::Heuristic { .. } if settings.negative_lifetime(self.status).is_some() => Reason::NegativeLifetime,
            Lifetime::Heuristic { .. } => Reason::HeuristicLifetime,
            Lifetime::Explicit { .. } if self.is_ruled => Reason::RuledLifetime,
            Lifetime::Explicit { .. } | Lifetime::Absent => Reason::ExplicitLifetime,
        }
    }
}

/// Converts a duration to milliseconds. Saturates.
pub(crate) fn millis(duration: Duration) -> i64 {
    duration.as_millis().try_into().unwrap_or(i64::MAX)
}

/// Returns whether a response with this status may get a heuristic lifetime without `public` (RFC 9110 15.1, RFC 7725
/// 3). A 206 is not among them, because it is stored as a part of a 200.
pub(crate) fn permits_heuristics(status: StatusCode) -> bool {
    matches!(status.as_u16(), 200 | 203 | 204 | 300 | 301 | 308 | 404 | 405 | 410 | 414 | 451 | 501)
}

fn lifetime(receipt: &Receipt, facts: &Facts<'_>, date: Timestamp, last_modified: Option<Timestamp>) -> Lifetime {
    let directives = &facts.directives;
    if let Some(secs) = directives.s_maxage.or(directives.max_age) {
        return Lifetime::Explicit { millis: i64::from(secs) * 1000 };
    }
    if facts.has_expires() && !directives.targeted {
        // A repeated or invalid Expires means already expired (RFC 9111 5.3). Expires is compared with Date, not with
        // our clock, so an origin whose clock is wrong still states the intended lifetime.
        let expires = facts.expires(receipt.response_time);
        return Lifetime::Explicit { millis: expires.map_or(0, |expires| expires.millis_since(date).max(0)) };
    }
    if !directives.public && !permits_heuristics(receipt.status) {
        return Lifetime::Absent;
    }
    let unmodified_millis = last_modified.map_or(0, |modified| date.millis_since(modified).max(0));
    Lifetime::Heuristic { unmodified_millis }
}

/// Returns `apparent_age` (RFC 9111 4.2.3) in whole seconds, the precision of Date.
///
/// A difference of one second does not count, because Date is truncated to seconds. A lifetime of one second would
/// otherwise be over on arrival.
fn apparent_age(received: Timestamp, date: Timestamp) -> i64 {
    let secs = received.as_secs().saturating_sub(date.as_secs());
    if secs > 1 { secs.saturating_mul(1000) } else { 0 }
}

fn initial_age(receipt: &Receipt, date: Timestamp) -> i64 {
    let received = receipt.response_time;
    let apparent = apparent_age(received, date);
    let delay = received.millis_since(receipt.request_time).max(0);
    apparent.max((i64::from(receipt.age_secs) * 1000).saturating_add(delay))
}
