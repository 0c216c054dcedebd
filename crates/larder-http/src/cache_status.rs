//! The Cache-Status field (RFC 9211): what this cache did with a request, in one line.
//!
//! Cost: one allocation; numbers are written without the formatting machinery.

use std::cell::RefCell;

use http::{HeaderValue, StatusCode};

use crate::{
    Reason,
    decimal::{push_i64, push_u64},
};

/// The default name of this cache in Cache-Status.
pub const CACHE_NAME: &str = "Larder";

/// Why a request went to the origin (RFC 9211 2.2).
///
/// ```
/// use larder_http::{CacheStatus, cache_status::Forward};
///
/// assert_eq!(CacheStatus::forwarded(Forward::UriMiss).to_value("Larder"), "Larder; fwd=uri-miss");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Forward {
    /// The cache was configured not to handle this request.
    Bypass,
    /// The cache never answers requests with this method, such as POST.
    Method,
    /// No response is stored for the URI of the request.
    UriMiss,
    /// Responses are stored for the URI, but none for the selecting fields of the request.
    VaryMiss,
    /// No usable response is stored, and the exact reason is unknown.
    Miss,
    /// The request demanded a fetch, for example by `no-cache`.
    Request,
    /// The stored response is stale.
    Stale,
    /// The stored response is incomplete.
    Partial,
}

/// The way in which a request was handled. [`CacheStatus::hit`] and [`CacheStatus::forwarded`] create the usual ones;
/// set the fields of `Forwarded` once the response is known.
///
/// ```
/// use larder_http::{CacheStatus, cache_status::{Forward, RequestHandling}};
///
/// let status = Some(http::StatusCode::OK);
/// let handling = RequestHandling::Forwarded { why: Forward::Stale, status, stored: true, collapsed: false };
/// let member = CacheStatus { handling, detail: None, tier: None };
/// assert_eq!(member.to_value("Larder"), "Larder; fwd=stale; fwd-status=200; stored");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestHandling {
    /// Answered from the cache.
    Hit {
        /// Seconds of lifetime left; negative once the response is stale.
        ttl_secs: i64,
    },
    /// Sent to the origin.
    Forwarded {
        /// The reason for the request to the origin.
        why: Forward,
        /// The origin's status.
        status: Option<StatusCode>,
        /// Whether the response was stored.
        stored: bool,
        /// Whether the response came from another request's fetch.
        collapsed: bool,
    },
}

/// The storage that a hit came from. It shows in Cache-Status whether the disk was read.
///
/// ```
/// use larder_http::{CacheStatus, cache_status::Tier};
///
/// let hit = CacheStatus::hit(60).from_tier(Tier::Memory);
/// assert_eq!(hit.to_value("Larder"), "Larder; hit; ttl=60; detail=memory");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// The whole response came from memory.
    Memory,
    /// At least a part of the response came from the disk.
    Disk,
}

/// One cache's member of the Cache-Status list.
///
/// ```
/// use larder_http::{CacheStatus, Reason, cache_status::{Forward, Tier}};
///
/// let hit = CacheStatus::hit(86_399).from_tier(Tier::Disk);
/// assert_eq!(hit.to_value("Larder"), "Larder; hit; ttl=86399; detail=disk");
///
/// let miss = CacheStatus::forwarded(Forward::Stale).because(Reason::Expired);
/// assert!(miss.to_value("Larder").to_str()?.starts_with("Larder; fwd=stale; detail="));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheStatus {
    /// Whether the request was a hit or was forwarded, with the details.
    pub handling: RequestHandling,
    /// The rule that decided how the request was handled.
    pub detail: Option<Reason>,
    /// The storage that a hit came from. It is printed as the member's `detail` if no rule is set in `detail`.
    pub tier: Option<Tier>,
}

impl CacheStatus {
    /// Returns the status of a plain hit.
    pub fn hit(ttl_secs: i64) -> Self {
        Self { handling: RequestHandling::Hit { ttl_secs }, detail: None, tier: None }
    }

    /// Returns the status of a forwarded request without further details yet.
    pub fn forwarded(why: Forward) -> Self {
        let handling = RequestHandling::Forwarded { why, status: None, stored: false, collapsed: false };
        Self { handling, detail: None, tier: None }
    }

    /// Returns this status with the rule that decided it.
    pub fn because(self, reason: Reason) -> Self {
        Self { detail: Some(reason), ..self }
    }

    /// Returns this status with the storage that the hit came from.
    pub fn from_tier(self, tier: Tier) -> Self {
        Self { tier: Some(tier), ..self }
    }

    /// Appends this status as a member of Cache-Status. `name` is the cache's name in the form that [`node_name`]
    /// returns.
    pub fn push(&self, text: &mut Vec<u8>, name: &str) {
        text.extend_from_slice(name.as_bytes());
        match self.handling {
            RequestHandling::Hit { ttl_secs } => {
                text.extend_from_slice(b"; hit; ttl=");
                push_i64(text, ttl_secs.clamp(-INTEGER_MAX, INTEGER_MAX));
            }
            RequestHandling::Forwarded { why, status, stored, collapsed } => {
                text.extend_from_slice(b"; fwd=");
                text.extend_from_slice(why.token().as_bytes());
                if let Some(status) = status {
                    text.extend_from_slice(b"; fwd-status=");
                    push_u64(text, u64::from(status.as_u16()));
                }
                if stored {
                    text.extend_from_slice(b"; stored");
                }
                if collapsed {
                    text.extend_from_slice(b"; collapsed");
                }
            }
        }
        if let Some(detail) = self.detail.map(Reason::token).or(self.tier.map(Tier::token)) {
            text.extend_from_slice(b"; detail=");
            text.extend_from_slice(detail.as_bytes());
        }
    }

    /// Returns this status as a member of Cache-Status. `name` is the cache's name in the form that [`node_name`]
    /// returns.
    ///
    /// Append it after the members of caches nearer to the origin.
    ///
    /// # Panics
    /// If the name is not a valid field value. [`node_name`] returns only valid ones.
    pub fn to_value(&self, name: &str) -> HeaderValue {
        // The value is a copy with exactly its length, which takes one allocation.
        TEXT.with_borrow_mut(|text| {
            text.clear();
            self.push(text, name);
            HeaderValue::from_bytes(text).expect("tokens, digits and separators are a field value")
        })
    }
}

impl Tier {
    /// Returns the tier's name in Cache-Status.
    pub const fn token(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Disk => "disk",
        }
    }
}

/// Returns a node's name in the form of Cache-Status and Proxy-Status (RFC 9211 2, RFC 9209 2): as a token, or as a
/// quoted string if it is not a token (RFC 9651 3.3.3, 3.3.4).
///
/// ```
/// use larder_http::cache_status::node_name;
///
/// assert_eq!(node_name("cache-1"), "cache-1");
/// assert_eq!(node_name("my cache"), "\"my cache\"");
/// ```
pub fn node_name(name: &str) -> String {
    let is_token = |octet: u8| octet.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:/".contains(&octet);
    match name.bytes().next() {
        Some(first) if (first.is_ascii_alphabetic() || first == b'*') && name.bytes().all(is_token) => name.to_owned(),
        _ => {
            let visible = name.chars().filter(|character| matches!(character, ' '..='~'));
            let escaped = visible.flat_map(|character| {
                let escape = matches!(character, '"' | '\\').then_some('\\');
                escape.into_iter().chain([character])
            });
            format!("\"{}\"", escaped.collect::<String>())
        }
    }
}

impl Forward {
    /// Every reason, in the order of their numbers.
    pub const ALL: [Self; 8] = [
        Self::Bypass,
        Self::Method,
        Self::UriMiss,
        Self::VaryMiss,
        Self::Miss,
        Self::Request,
        Self::Stale,
        Self::Partial,
    ];

    /// Returns the reason's name in Cache-Status.
    pub const fn token(self) -> &'static str {
        match self {
            Self::Bypass => "bypass",
            Self::Method => "method",
            Self::UriMiss => "uri-miss",
            Self::VaryMiss => "vary-miss",
            Self::Miss => "miss",
            Self::Request => "request",
            Self::Stale => "stale",
            Self::Partial => "partial",
        }
    }
}

thread_local! {
    /// The buffer in which values are written.
    static TEXT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Largest magnitude of a structured-field integer (RFC 9651 3.3.1).
const INTEGER_MAX: i64 = 999_999_999_999_999;
