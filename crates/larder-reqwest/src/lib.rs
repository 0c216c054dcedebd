//! An HTTP cache for [`reqwest`], in memory and on disk: a middleware that stores responses as RFC 9111
//! allows, and serves them again, also in the next run of the program.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use larder_reqwest::{Cache, CacheMiddleware};
//! use reqwest_middleware::ClientBuilder;
//!
//! let cache = Cache::builder("/var/cache/example").disk("10GB").memory("64MB").open()?;
//! let client = ClientBuilder::new(reqwest::Client::new()).with(CacheMiddleware::new(cache)).build();
//! let response = client.get("https://www.rust-lang.org/").send().await?;
//! println!("{:?}", response.headers().get("cache-status"));
//! # Ok(())
//! # }
//! ```
//!
//! | to do | call |
//! |---|---|
//! | cache the responses of a client | [`CacheMiddleware::new`] |
//! | cache for clients with default fields | [`HttpCacheBuilder::implied_fields`] |
//! | change the rules: heuristics, errors, a shared cache | [`HttpCache::builder`], [`HttpCacheBuilder::settings`] |
//! | force a validation, or accept a stale response | the request's Cache-Control: `no-cache`, `max-stale` |
//! | use only stored responses | the request's Cache-Control: `only-if-cached`; a miss is a 504 |
//! | see how a request was answered | the response's field Cache-Status |
//! | remove stored responses | [`HttpCache::remove`], [`Cache::clear`] |
//!
//! The cache is private (RFC 9111 1): it also stores responses that are for one user. A response to a request with
//! credentials is served only to requests with the same credentials.
//!
//! Requests at the same time for one response are one request of the server. The others read it as it arrives, unless
//! it may not be stored.
//!
//! A response over HTTP/2 without a length is stored only if its body reports that END_STREAM was received, or has
//! trailers: a stream that a server resets with NO_ERROR ends like a whole one otherwise. If reqwest is built with one
//! of its features `gzip`, `brotli`, `zstd` and `deflate`, no body reports it, decompressed or not. To cache such
//! responses, build reqwest without these features and decode in the program, or use HTTP/1.1
//! ([`reqwest::ClientBuilder::http1_only`]), where the end of the chunks or of the connection suffices.
//!
//! Three things of reqwest happen after the middleware, so the cache does not see them: default fields, the cookie
//! store, and redirects. A response that was reached by redirects is not stored. To cache it, let the client follow no
//! redirects ([`reqwest::redirect::Policy::none`]) and follow them in the program.

#![warn(missing_debug_implementations)]

mod middleware;
mod sync_body;

pub use larder_cache::Cache;
pub use larder_tower::{HttpCache, HttpCacheBuilder};
pub use middleware::CacheMiddleware;
