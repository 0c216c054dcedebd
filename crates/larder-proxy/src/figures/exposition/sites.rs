//! Metrics by site, for a limited number of sites. `other` stands for all other sites.
//!
//! Owns: the choice of sites with a label. A site that had many requests at the time of a check gets a label
//! permanently. Invariant: the number of labels is bounded, whatever clients request, and no counter ever decreases.

use larder_device::IgnorePoison;
use std::sync::{Arc, Mutex};

use crate::{
    figures::{
        metrics::{
            WorkerMetrics,
            family::{MetricFamily, MetricKind, labeled, metric_table, series_of},
        },
        outcome::OutcomeKind,
        site_figures::{LABEL_COUNT_MAX, OTHER_LABEL, SiteSums},
    },
    operators::popular::{self, PopularityCount},
    run::shared::ProxyState,
};

/// The names of the sites that have a label, with their sums.
pub(crate) type NamedSums = Vec<(String, SiteSums)>;

metric_table! {
    pub(crate) fn metrics("larder_site_", sites: NamedSums) {
        Counter requests[site, result] = "Exchanges by site; `other` stands for all but the busiest sites",
            sites.iter().flat_map(|(name, sums)| {
                OutcomeKind::ALL.map(|kind| labeled(&[name, kind.token()], sums.kinds[kind as usize]))
            }).collect();
        Counter client_bytes[site] = "Body bytes sent to clients, by site",
            sites.iter().map(|(name, sums)| labeled(&[name], sums.client_bytes)).collect();
        Counter saved_bytes[site] = "Body bytes that came from the cache, by site",
            sites.iter().map(|(name, sums)| labeled(&[name], sums.hit_bytes)).collect();
    }
}

/// The names of the sites that have a label. A name's index is its label.
#[derive(Debug, Default)]
pub(crate) struct SiteLabels(Mutex<Vec<String>>);

impl SiteLabels {
    /// Gives labels to busy sites that have none yet, and returns the sums of each label.
    ///
    /// The servers of mirrored registries get labels even without requests.
    pub(crate) fn sums(&self, state: &ProxyState) -> NamedSums {
        let workers = state.history.workers();
        let mut names = self.0.lock().ignore_poison();
        let servers = state.mirrors.registries().into_iter().map(|(_, authority)| authority);
        servers.take(REGISTRY_LABEL_COUNT_MAX).for_each(|server| name_site(&mut names, workers, &server));
        name_sites(&mut names, workers);
        let labels = names.iter().map(String::as_str).zip(0..).chain([(OTHER_NAME, OTHER_LABEL)]);
        labels.map(|(name, label)| (name.to_owned(), sums(workers, label))).collect()
    }
}

/// Gives labels to the sites with many recent requests, as long as labels are left.
fn name_sites(names: &mut Vec<String>, workers: &[Arc<WorkerMetrics>]) {
    let asked = popular::together(workers.iter().map(|worker| worker.popular.sites()));
    let is_new = |asked: &&PopularityCount| asked.requests() >= REQUEST_COUNT_MIN && asked.name != OTHER_NAME;
    for PopularityCount { name, .. } in asked.iter().filter(is_new) {
        name_site(names, workers, name);
    }
}

/// Gives a label to a site, unless the site has one already or no label is left.
fn name_site(names: &mut Vec<String>, workers: &[Arc<WorkerMetrics>], name: &str) {
    if names.len() < LABEL_COUNT_MAX && !names.iter().any(|known| known == name) {
        let label = names.len();
        workers.iter().for_each(|worker| worker.sites.assign(worker.popular.hash_of_site(name), label));
        names.push(name.to_owned());
    }
}

fn sums(workers: &[Arc<WorkerMetrics>], label: usize) -> SiteSums {
    let mut sums = SiteSums::default();
    workers.iter().for_each(|worker| worker.sites.add_to(label, &mut sums));
    sums
}

const OTHER_NAME: &str = "other";
/// Minimum number of requests within an hour for which a site gets a label.
const REQUEST_COUNT_MIN: u64 = 100;
/// Maximum number of labels for the servers of mirrored registries.
const REGISTRY_LABEL_COUNT_MAX: usize = LABEL_COUNT_MAX / 2;
