//! Encodes durations as Prometheus histograms.

use std::{fmt, sync::Arc};

use prometheus_client::{
    encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet},
    metrics::MetricType,
};

use crate::{
    metrics::{WorkerMetrics, sum_times},
    outcome::OutcomeKind,
    times::{Histogram, TimeCounts},
};

/// Encodes all histograms.
pub(super) fn encode(encoder: &mut DescriptorEncoder<'_>, workers: &[Arc<WorkerMetrics>]) -> fmt::Result {
    type ByKind = fn(&WorkerMetrics) -> &[Histogram; OutcomeKind::ALL.len()];
    let by_kind: [(&str, &str, ByKind); 2] = [
        ("first_byte_seconds", "Time from a request's head to the head of its response", |worker| &worker.first_bytes),
        ("response_seconds", "Time from a request's head to the end of its response", |worker| &worker.whole_responses),
    ];
    for (name, help, of) in by_kind {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
        // Tunnels are left out, because they last as long as their users want.
        for kind in OutcomeKind::ALL.into_iter().filter(|kind| *kind != OutcomeKind::Tunnel) {
            let times = sum_times(workers, |worker| &of(worker)[kind as usize]);
            times.encode(family.encode_family(&[("result", kind.token())])?)?;
        }
    }
    let help = "Time from a request to an origin to the head of its response, including connecting and waiting for a \
                connection";
    let origin = sum_times(workers, |worker| &worker.origin_answers);
    origin.encode(encoder.encode_descriptor("origin_first_byte_seconds", help, None, origin.metric_type())?)?;
    let help = "Duration of store reads that waited for the disk";
    let reads = sum_times(workers, |worker| &worker.store_reads);
    reads.encode(encoder.encode_descriptor("store_read_seconds", help, None, reads.metric_type())?)
}

impl EncodeMetric for TimeCounts {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        let buckets: Vec<(f64, u64)> = self.buckets().collect();
        encoder.encode_histogram::<NoLabelSet>(self.sum_s(), self.count(), &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}
