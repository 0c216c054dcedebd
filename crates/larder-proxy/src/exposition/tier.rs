//! Encodes the state of the second tier.

use std::{fmt, sync::atomic::Ordering::Relaxed};

use prometheus_client::encoding::DescriptorEncoder;

use crate::shared::ProxyState;

/// Encodes the metrics. A proxy without a second tier has none of them.
pub(super) fn encode(encoder: &mut DescriptorEncoder<'_>, shared: &ProxyState) -> fmt::Result {
    let Some(tier) = &shared.cache.tier else { return Ok(()) };
    let figures = tier.figures();
    let gauges = tier.gauges();
    for (name, help, counter) in [
        ("tier_hits", "Entries found in the second tier", &figures.hits),
        ("tier_failed", "Operations of the second tier that failed or took too long", &figures.failed),
        ("tier_bypassed", "Lookups that skipped the second tier because it was not responding", &figures.bypassed),
        ("tier_corrupt", "Entries of the second tier that were damaged or gone (served as misses)", &figures.corrupt),
        ("tier_stored", "Evicted entries stored in the second tier", &figures.stored),
        (
            "tier_dropped",
            "Evicted entries not stored in the second tier: over budget, or not responding",
            &figures.dropped,
        ),
        ("tier_packs_stored", "Packs stored in the second tier", &figures.packs),
        ("tier_written_bytes", "Bytes of packs stored in the second tier", &figures.bytes),
    ] {
        super::encode_counter(encoder, name, help, counter.load(Relaxed))?;
    }
    super::encode_gauge(encoder, "tier_up", "1 while the second tier is used", u64::from(gauges.is_up))?;
    super::encode_gauge(encoder, "tier_entries", "Entries in the second tier", gauges.entries)?;
    let waiting = "Evicted entries that wait until their pack is stored";
    super::encode_gauge(encoder, "tier_waiting_entries", waiting, gauges.waiting)?;
    super::encode_gauge(encoder, "tier_packs", "Packs in the second tier", gauges.packs)?;
    super::encode_gauge(encoder, "tier_bytes", "Bytes of the packs in the second tier", gauges.bytes)
}
