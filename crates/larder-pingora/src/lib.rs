//! A [`pingora_cache::Storage`] on disk and in memory, which survives restarts and crashes.
//!
//! ```no_run
//! # fn example() -> larder_cache::Result<()> {
//! use larder_cache::Cache;
//! use larder_pingora::LarderStorage;
//!
//! let cache = Cache::builder("/var/cache/proxy").disk("100GB").memory("1GB").open()?;
//! let storage: &'static LarderStorage = LarderStorage::leak(cache);
//! // In ProxyHttp::request_cache_filter: session.cache.enable(storage, None, None, Some(lock), None);
//! # Ok(())
//! # }
//! ```
//!
//! | to do | call |
//! |---|---|
//! | use the storage in a pingora proxy | [`LarderStorage::leak`], then `session.cache.enable` with it |
//! | purge by a tag | [`LarderStorage::with_tags`], then [`larder_cache::Cache::remove_tag`] |
//! | purge everything | [`larder_cache::Cache::clear`] |
//! | watch it | [`larder_cache::Cache::stats`] |
//!
//! The storage evicts entries itself, within the sizes of its cache, so a proxy needs no eviction manager. A response
//! becomes visible when its body is complete. Ranges are read from the stored body. A lookup that fails is a miss.

#![warn(missing_debug_implementations)]

mod entry;
mod hit;
mod miss;
mod storage;

pub use storage::LarderStorage;
