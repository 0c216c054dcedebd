//! Metrics by site, for a limited number of sites. `other` stands for all other sites.
//!
//! Owns: the choice of sites with a label. A site that had many requests at the time of a check gets a label
//! permanently. Invariant: the number of labels is bounded, whatever clients request, and no counter ever decreases.

use larder_device::IgnorePoison;
use std::{
    fmt,
    sync::{Arc, Mutex},
};

use prometheus_client::{
    encoding::{DescriptorEncoder, EncodeMetric as _},
    metrics::{MetricType, counter::ConstCounter},
};

use crate::{
    metrics::WorkerMetrics,
    outcome::OutcomeKind,
    popular::{self, PopularityCount},
    site_figures::{LABEL_COUNT_MAX, OTHER_LABEL, SiteSums},
};

/// The sites that have a label, in the order of their labels.
#[derive(Debug, Default)]
pub(super) struct SiteLabels(Mutex<Vec<String>>);

impl SiteLabels {
    /// Encodes the metrics of all sites.
    pub(super) fn encode(&self, encoder: &mut DescriptorEncoder<'_>, workers: &[Arc<WorkerMetrics>]) -> fmt::Result {
        let mut names = self.0.lock().ignore_poison();
        name_sites(&mut names, workers);
        let labels = names.iter().map(String::as_str).zip(0..).chain([(OTHER_NAME, OTHER_LABEL)]);
        let sites: Vec<(&str, SiteSums)> = labels.map(|(name, label)| (name, sums(workers, label))).collect();
        let help = "Exchanges by site, for the busiest sites, and for all others together";
        let mut family = encoder.encode_descriptor("site_requests", help, None, MetricType::Counter)?;
        for (name, sums) in &sites {
            for kind in OutcomeKind::ALL {
                let labels = [("site", *name), ("result", kind.token())];
                ConstCounter::new(sums.kinds[kind as usize]).encode(family.encode_family(&labels)?)?;
            }
        }
        type Figure = fn(&SiteSums) -> u64;
        let bytes: [(&str, &str, Figure); 2] = [
            ("site_client_bytes", "Body bytes sent to clients, by site", |sums| sums.client_bytes),
            ("site_saved_bytes", "Body bytes that came from the cache, by site", |sums| sums.hit_bytes),
        ];
        for (name, help, of) in bytes {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (site, sums) in &sites {
                ConstCounter::new(of(sums)).encode(family.encode_family(&[("site", *site)])?)?;
            }
        }
        Ok(())
    }
}

/// Gives labels to sites with many recent requests, as long as the limit permits.
fn name_sites(names: &mut Vec<String>, workers: &[Arc<WorkerMetrics>]) {
    let asked = popular::together(workers.iter().map(|worker| worker.popular.sites()));
    let is_new = |asked: &&PopularityCount| asked.requests() >= REQUEST_COUNT_MIN && asked.name != OTHER_NAME;
    for PopularityCount { name, .. } in asked.iter().filter(is_new) {
        if names.len() == LABEL_COUNT_MAX {
            return;
        }
        if !names.contains(name) {
            let label = names.len();
            workers.iter().for_each(|worker| worker.sites.assign(worker.popular.hash_of_site(name), label));
            names.push(name.clone());
        }
    }
}

fn sums(workers: &[Arc<WorkerMetrics>], label: usize) -> SiteSums {
    let mut sums = SiteSums::default();
    workers.iter().for_each(|worker| worker.sites.add_to(label, &mut sums));
    sums
}

const OTHER_NAME: &str = "other";
/// Requests within an hour after which a site gets a label.
const REQUEST_COUNT_MIN: u64 = 100;
