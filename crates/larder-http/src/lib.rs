//! HTTP caching rules of a shared or private cache (RFC 9110, 9111, 9209, 9211, 9213, 5861) as pure functions and plain
//! types.
//!
//! Every decision is a function of (request, stored head, now, settings) and returns data with its [`Reason`]; the
//! caller acts on it. The crate has no sockets, no clock and no store. The freshness of a response is parsed once, when
//! its head is created or decoded. A hit reads the result and the few request fields that matter, and does not
//! allocate.
//!
//! Each module covers one part of the RFCs:
//!
//! | module | rule |
//! |---|---|
//! | [`cache_control`] | directives of requests and responses, Pragma (RFC 9111 5.2, 5.4) |
//! | [`cache_status`] | the Cache-Status field (RFC 9211) |
//! | [`coding`] | content codings towards clients (RFC 9110 8.4, 12.5.3) |
//! | [`conditional`] | preconditions answered from a stored response (RFC 9111 4.3.2, RFC 9110 13) |
//! | [`date`] | HTTP dates (RFC 9110 5.6.7) |
//! | [`entity_tag`] | entity tags and their two comparisons (RFC 9110 8.8.3) |
//! | [`fields`] | hop-by-hop fields, framing, Via, Host (RFC 9110 7.2, 7.6; RFC 9112 6, 7) |
//! | [`framing`] | whether a body is complete (RFC 9112 6.3, 8; RFC 9113 8.1) |
//! | [`freshness`] | lifetime and age (RFC 9111 4.2, 5.1, 5.3) |
//! | [`invalidate`] | the URIs that an unsafe request invalidates (RFC 9111 4.4) |
//! | [`interim`] | interim responses (RFC 9110 15.2) |
//! | [`key`] | cache keys (RFC 9111 2) |
//! | [`multipart`] | bodies of several parts (RFC 9110 14.6) |
//! | [`owner`] | the node of a fleet that owns a key |
//! | [`partial`] | partial content and how parts are combined (RFC 9111 3.3, 3.4, RFC 9110 14.4) |
//! | [`proxy_status`] | the Proxy-Status field (RFC 9209) |
//! | [`range`] | range requests against a stored response (RFC 9110 14) |
//! | [`redirects`], [`chain`] | redirects that the proxy follows for a client (RFC 9110 15.4) |
//! | [`rules`], [`ruling`] | the operator's rules, which override responses |
//! | [`reuse`] | whether a stored response may answer a request (RFC 9111 4) |
//! | [`route`] | the way in which a GET or HEAD is answered (RFC 9111 4) |
//! | [`storable`] | whether a response may be stored (RFC 9111 3) |
//! | [`span`] | spans of bytes and sets of them |
//! | [`stored`] | a stored response's head and its bytes |
//! | [`tags`] | names by which responses are purged together (Surrogate-Key, Cache-Tag) |
//! | [`targeted`] | CDN-Cache-Control and other targeted fields (RFC 9213) |
//! | [`telling`] | request fields that origins use without naming them in Vary |
//! | [`validate`] | validation towards the origin (RFC 9111 4.3.1, 4.3.4, 4.3.5, 3.2) |
//! | [`vary`] | selecting among variants (RFC 9111 4.1) |

#![warn(missing_debug_implementations)]

pub mod cache_control;
pub mod cache_status;
pub mod chain;
pub mod coding;
pub mod conditional;
pub mod date;
pub mod decimal;
pub mod entity_tag;
pub mod fields;
pub mod framing;
pub mod freshness;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
pub mod interim;
pub mod invalidate;
pub mod key;
pub mod key_rules;
pub mod language;
pub mod multipart;
#[doc(hidden)]
pub mod octets;
pub mod owner;
pub mod partial;
pub mod priority;
pub mod proxy_status;
pub mod range;
pub mod redirects;
pub mod repr_digest;
pub mod reuse;
pub mod route;
pub mod rules;
pub mod ruling;
pub mod span;
#[doc(hidden)]
pub mod steps;
pub mod storable;
pub mod stored;
pub mod tags;
pub mod targeted;
pub mod telling;
mod url_patterns;
pub mod validate;
pub mod vary;

mod codec;
mod facts;
mod list;
#[cfg(doctest)]
mod readme;
mod reason;
mod reference;
mod settings;
mod time;

pub use cache_status::CacheStatus;
pub use conditional::Precondition;
pub use proxy_status::ProxyStatus;
pub use range::RangeOutcome;
pub use reason::Reason;
pub use reuse::Reuse;
pub use rules::Rules;
pub use ruling::Ruling;
pub use settings::Settings;
pub use storable::Storability;
pub use stored::{BodyPlace, DecodeError, Head, ReceivedFacts, ReceivedHead, StoredFields, StoredHead};
pub use targeted::TargetList;
pub use time::Timestamp;
pub use url_patterns::{BadUrlPattern, UrlPattern, UrlPatterns};
pub use vary::{SelectingFields, VaryMarker, VaryRule};
