//! The parts of larder-cache under the names that the proxy uses, and the settings that the proxy gives them.

use std::sync::Arc;

use larder_http::Settings;

use crate::ground::config::CacheSettings;
use groups::PageGroups;

pub(crate) mod body;
pub(crate) mod opening;

pub(crate) use larder_cache::http::{
    CacheShared, ResponseCache as Cache, StoreEvent, answer, body_budget, chunks, committed_body, entry, fetch,
    fetcher, groups, hot, http_cache, invalidation, key_set, key_slots, late_commits, lookup, mark, neighbors,
    patience, pins, responses, storing, survivors, tier, work,
};
pub(crate) use larder_cache::{MemoryCache, chunk_format, http::body::error::BodyError, purges};

/// The caching policy of one site.
pub(crate) struct CachePolicy {
    pub(crate) http: Arc<Settings>,
    pub(crate) groups: Arc<PageGroups>,
    /// Maximum length of a stored body, in bytes.
    pub(crate) entry_bytes_max: u64,
}

impl CachePolicy {
    /// Creates the caching policy of one site from its `settings`. `all` are the general settings, whose key rules
    /// apply to every site. All sites with the general time window for page groups share `groups`.
    pub(crate) fn new(settings: &CacheSettings, all: &CacheSettings, groups: &Arc<PageGroups>) -> Self {
        let http = Settings { key_rules: all.http.key_rules.clone(), ..settings.http.clone() };
        let groups = match settings.group_window == all.group_window {
            true => Arc::clone(groups),
            false => Arc::new(PageGroups::new(settings.group_window)),
        };
        Self { http: Arc::new(http), groups, entry_bytes_max: settings.entry_bytes_max }
    }
}
