//! An HTTP cache for Rust programs: a [`tower_layer::Layer`] for clients and servers, with responses in memory and on
//! disk.
//!
//! ```no_run
//! # fn example() -> larder_cache::Result<()> {
//! use larder_cache::Cache;
//! use larder_tower::{CacheLayer, HttpCache};
//!
//! let cache = Cache::builder("/var/cache/example").disk("10GB").memory("256MB").open()?;
//! let layer = CacheLayer::new(HttpCache::shared(cache));
//! // axum: Router::new().route("/", get(page)).layer(layer)
//! # Ok(())
//! # }
//! ```
//!
//! | to do | call |
//! |---|---|
//! | cache the responses of a server, for all its clients | [`HttpCache::shared`] |
//! | cache the responses that a client receives, for one user | [`HttpCache::private`] |
//! | change the rules: heuristics, cookies, errors | [`HttpCacheBuilder::settings`] |
//! | put the cache into a stack of services | [`CacheLayer`] |
//! | put the cache before another client | [`HttpCache::respond`], [`Origin`] |
//! | see how a request was answered | the field Cache-Status of each response (RFC 9211) |
//! | remove stored responses | [`HttpCache::remove`], [`larder_cache::Cache::clear`] |
//!
//! The rules are those of RFC 9111, from the crate `larder-http`. A response that is fresh is served without the
//! origin. A stale one is validated by its ETag or Last-Modified. Vary selects among variants. A POST, PUT or DELETE
//! that succeeds removes the responses of its URL. A response is stored while its body arrives, and only if the body
//! arrives complete; it may be as long as half of the disk. Requests for a response that is being fetched read it as it
//! arrives, so that the origin gets one request. They do not wait for a response that may not be stored. All calls
//! need a tokio runtime with its time.

#![warn(missing_debug_implementations)]

mod asked;
mod body;
mod builder;
mod fetcher;
mod http_cache;
mod layer;
mod origin;
mod origin_body;
mod target;

pub use body::CacheBody;
pub use builder::HttpCacheBuilder;
pub use http_cache::HttpCache;
pub use layer::{CacheLayer, CacheService};
pub use origin::{DoNotStore, Origin};
pub use origin_body::BodyError;
