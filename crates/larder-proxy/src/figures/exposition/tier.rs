//! The metrics of the second tier. A proxy without one has none of them.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use crate::{
    figures::metrics::family::{MetricFamily, MetricKind, MetricValue, metric_table, series_of},
    ground::cache::tier::Tier,
};

metric_table! {
    pub(super) fn metrics("larder_tier_", tier: Arc<Tier>) {
        Counter hits = "Entries found in the second tier", tier.figures().hits.load(Relaxed);
        Counter failed = "Operations of the second tier that failed or took too long",
            tier.figures().failed.load(Relaxed);
        Counter bypassed = "Lookups that skipped the second tier because it was not responding",
            tier.figures().bypassed.load(Relaxed);
        Counter corrupt = "Entries of the second tier that were damaged or gone (served as misses)",
            tier.figures().corrupt.load(Relaxed);
        Counter stored = "Evicted entries stored in the second tier", tier.figures().stored.load(Relaxed);
        Counter dropped = "Evicted entries not stored in the second tier: its write limit was reached, or it failed",
            tier.figures().dropped.load(Relaxed);
        Counter packs_stored = "Packs stored in the second tier", tier.figures().packs.load(Relaxed);
        Counter written_bytes = "Bytes of packs stored in the second tier", tier.figures().bytes.load(Relaxed);
        Gauge up = "1 while the second tier is used", u8::from(tier.gauges().is_up);
        Gauge entries = "Entries in the second tier", tier.gauges().entries;
        Gauge waiting_entries = "Evicted entries that wait until their pack is stored", tier.gauges().waiting;
        Gauge packs = "Packs in the second tier", tier.gauges().packs;
        Gauge bytes = "Bytes of the packs in the second tier", tier.gauges().bytes;
    }
}
