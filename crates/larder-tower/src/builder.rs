//! The settings of an HTTP cache.

use crate::{HttpCache, fetcher::TimeSource};
use http::{HeaderMap, uri::Scheme};
use larder_cache::Cache;
use larder_http::{Settings, Timestamp, cache_status::node_name};
use std::{fmt, sync::Arc, time::SystemTime};

/// Creates an [`HttpCache`] with settings that differ from the defaults.
///
/// ```no_run
/// # fn example() -> larder_cache::Result<()> {
/// use http::uri::Scheme;
/// use larder_cache::Cache;
/// use larder_tower::HttpCache;
///
/// let cache = Cache::builder("/var/cache/example").disk("10GB").open()?;
/// let cache = HttpCache::builder(cache).name("frontend-1").scheme(Scheme::HTTPS).build();
/// # Ok(())
/// # }
/// ```
#[must_use = "a builder does nothing until `build` is called"]
pub struct HttpCacheBuilder {
    pub(crate) cache: Cache,
    pub(crate) settings: Settings,
    pub(crate) name: String,
    pub(crate) scheme: Scheme,
    pub(crate) implied_fields: HeaderMap,
    pub(crate) time: TimeSource,
}

impl HttpCacheBuilder {
    pub(crate) fn new(cache: Cache) -> Self {
        Self {
            cache,
            settings: Settings::default(),
            name: node_name("larder"),
            scheme: Scheme::HTTP,
            implied_fields: HeaderMap::new(),
            time: Arc::new(system_time),
        }
    }

    /// Sets the cache's choices where RFC 9111 leaves one, such as heuristic lifetimes.
    ///
    /// Start from [`Settings::default`] for a shared cache (the default), or from [`Settings::private`] for a cache
    /// with one user.
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// Sets the name by which the cache identifies itself in Cache-Status fields (RFC 9211). Default: `larder`.
    pub fn name(mut self, name: &str) -> Self {
        self.name = node_name(name);
        self
    }

    /// Sets the scheme that is assumed for requests whose URI has none, as servers receive them. Default: `http`.
    pub fn scheme(mut self, scheme: Scheme) -> Self {
        self.scheme = scheme;
        self
    }

    /// Sets fields that the client adds to each request after the cache has seen it, such as reqwest's default headers.
    ///
    /// The cache then takes them into account for Vary and for credentials. If they are not set, two clients with
    /// different default credentials must not share a cache: one could get a response that is meant for the other.
    pub fn implied_fields(mut self, fields: HeaderMap) -> Self {
        self.implied_fields = fields;
        self
    }

    /// Replaces the system's clock by another source of the current time, for tests.
    pub fn time(mut self, time: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        self.time = Arc::new(time);
        self
    }

    /// Builds the HTTP cache.
    pub fn build(self) -> HttpCache {
        HttpCache::from_builder(self)
    }
}

fn system_time() -> Timestamp {
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
}

impl fmt::Debug for HttpCacheBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpCacheBuilder")
            .field("name", &self.name)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}
