//! The policies of all sites under one configuration, with the parts that are made from them.
//!
//! Owns: the merge, once per site, when a configuration is put into force. Invariants: all sites have the same key
//! rules, because they share stored responses. Sites with the same time window have the same page groups.

use std::sync::Arc;

use crate::ground::{
    cache::{CachePolicy, groups::PageGroups},
    config::{ProxyConfig, SitePolicy},
};

/// The general policy of one configuration, and the policies of sites that have their own.
pub(crate) struct PolicyTable {
    pub(crate) general: PolicyInForce,
    /// The policy of each site that has its own, by the site's index. Empty if no site has one.
    pub(crate) of_sites: Vec<Option<PolicyInForce>>,
}

/// A policy, and the part of it that the cache needs.
pub(crate) struct PolicyInForce {
    pub(crate) policy: Arc<SitePolicy>,
    pub(crate) cache: CachePolicy,
}

impl PolicyTable {
    /// Creates the table for `config`. On a reload, `before` is the previous table. Its page groups stay in use if
    /// possible.
    pub(crate) fn new(config: &ProxyConfig, before: Option<&Self>) -> Self {
        let general = &config.policy;
        let window = general.cache.group_window;
        let same = before.filter(|before| before.general.policy.cache.group_window == window);
        let groups =
            same.map_or_else(|| Arc::new(PageGroups::new(window)), |before| Arc::clone(&before.general.cache.groups));
        let in_force = |policy: &SitePolicy| PolicyInForce {
            policy: Arc::new(policy.clone()),
            cache: CachePolicy::new(&policy.cache, &general.cache, &groups),
        };
        let has_own = config.sites.iter().any(|site| site.policy.is_some());
        let sites = if has_own { &config.sites[..] } else { &[] };
        let of_sites = sites.iter().map(|site| site.policy.as_ref().map(in_force)).collect();
        Self { general: in_force(general), of_sites }
    }
}
