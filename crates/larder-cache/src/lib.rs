//! A cache in memory and on disk: values survive a restart, and a missing value is fetched once, however many callers
//! wait for it.
//!
//! ```no_run
//! # async fn download(url: &str) -> std::io::Result<Vec<u8>> { Ok(Vec::new()) }
//! # async fn example() -> larder_cache::Result<()> {
//! use larder_cache::Cache;
//!
//! let cache = Cache::builder("/var/cache/example").disk("10GB").memory("256MB").open()?;
//! let page = cache.get_or_fetch("https://example.com/", || download("https://example.com/")).await?;
//! # cache.close().await
//! # }
//! ```
//!
//! | to do | call |
//! |---|---|
//! | get a value, or fetch and store it | [`Cache::get_or_fetch`] |
//! | get a value of any length, or fetch and store it piece by piece | [`Cache::get_value_or_fetch`] |
//! | store values, and look up fresh ones | [`Cache::insert`], [`Cache::get`] |
//! | set a lifetime or tags | [`Cache::entry`] |
//! | return an old value while one caller fetches a new one, or if that fails | [`EntryRequest::stale_for`] |
//! | write or read a value piece by piece, of any length | [`EntryRequest::writer`], [`Cache::get_value`] |
//! | store a value unless its key was changed meanwhile | [`ValueWriter::finish_if_unchanged`] |
//! | remove a value, all values of a tag, or everything | [`Cache::remove`], [`Cache::remove_tag`], [`Cache::clear`] |
//! | keep a value from being evicted | [`Cache::pin`] |
//! | store values of Rust types as JSON (feature `serde`) | `Cache::insert_as`, `Cache::get_or_fetch_as` |
//! | watch it | [`Cache::stats`], [`CacheBuilder::on_event`] |
//! | keep responses of HTTP, as the proxy Larder does (feature `http`) | `http` |
//! | put a memory cache before a store of your own | [`MemoryCache`] |
//!
//! The cache may forget, but it never returns a wrong value. A lookup returns the bytes that were stored last under
//! exactly that key, verified by checksums, or nothing. Once [`Cache::remove`], [`Cache::remove_tag`] or
//! [`Cache::clear`] has returned, no lookup returns a removed value, even one whose fetch began earlier.
//!
//! The futures need no particular runtime: they work with tokio, with others, and with a plain `block_on`. The store
//! below the cache is the crate `larder-store`.

#![warn(missing_debug_implementations)]

mod builder;
mod cache;
pub mod chunk_format;
mod counters;
mod entry;
mod error;
mod fetches;
mod ground;
mod head;
#[cfg(feature = "http")]
#[expect(missing_debug_implementations, reason = "it is the state of a server, which nobody prints")]
pub mod http;
#[cfg(feature = "serde")]
mod json;
mod keys;
mod memory;
#[doc(hidden)] // for the tests of its laws, in tests/it/object
pub mod object;
#[doc(hidden)] // for larder-proxy
#[expect(missing_debug_implementations, reason = "it is the state of a server, which nobody prints")]
pub mod purges;
mod size;
mod tags;
mod value;
mod works;
mod writer;

pub use builder::CacheBuilder;
pub use bytes::{self, Bytes};
pub use cache::Cache;
pub use counters::{CacheEvent, CacheStats};
pub use entry::EntryRequest;
pub use error::{Error, Result};
#[doc(hidden)] // for larder-proxy
pub use keys::random;
#[doc(hidden)] // for larder-tower and larder-reqwest
pub use larder_device::IgnorePoison;
pub use larder_store;
pub use memory::{ChangeMoment, MemoryCache, Weigh};
pub use size::{ByteSize, SizeError};
pub use value::{Value, ValueReader};
pub use works::{ActiveKeys, KeyCommit, KeyWork, MarkedCommits};
pub use writer::ValueWriter;
