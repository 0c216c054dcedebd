//! Collects the figures of an overview.

use larder_store::{Store, mean_entry_bytes_default};

use super::{
    AskedFor, Expiry, Latency, LineState, NamedFigure, OriginState, Overview, PeriodFigures, RequestFigures,
    VolumeFigures,
};
use crate::{
    figures::{
        exposition::{self, health, memory, sites::NamedSums},
        outcome::MissReason,
        site_figures::SiteSums,
        times::TimeCounts,
    },
    operators::{
        history::{ClockMoment, CounterBook, ExchangeSums, History, SeriesPoint, TimeSeries},
        popular::{self, PopularityCount},
    },
    run::shared::ProxyState,
};

impl Overview {
    /// Collects the figures. `sites` must include the sums of the servers of mirrored registries.
    pub(crate) fn of(shared: &ProxyState, sites: &NamedSums) -> Self {
        let moment = ClockMoment::now();
        let history = &shared.history;
        let CounterBook { kept, seconds, .. } = history.book_at(moment);
        let families = exposition::families(shared);
        let workers = || history.workers().iter();
        let named = |(name, count): (&str, u64)| NamedFigure { name: name.to_owned(), count };
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            try_with: try_with(shared),
            now_s: moment.unix_s(),
            since_s: kept.since_s,
            minute: RequestFigures::of(&seconds.sum()),
            today: RequestFigures::of(&kept.today.point()),
            ever: RequestFigures::of(&kept.ever.point()),
            by_second: counted(&seconds),
            by_minute: counted(&kept.minutes),
            by_quarter: counted(&kept.quarters),
            by_day: periods(kept.days.last_days(DAY_COUNT_SHOWN)),
            by_month: periods(kept.days.months()),
            misses_today: reasons(&kept.today),
            misses_ever: reasons(&kept.ever),
            latencies: latencies(history),
            sites: most(popular::together(workers().map(|worker| worker.popular.sites()))),
            registries: registries(shared, sites),
            objects: most(popular::together(workers().map(|worker| worker.popular.objects()))),
            volumes: shared.cache.store.as_ref().map(volumes).unwrap_or_default(),
            memory: memory::parts(shared).into_iter().map(named).collect(),
            line: line(shared),
            origins: health::origins(shared).into_iter().map(|(name, up)| OriginState { name, up }).collect(),
            certificates: health::certificates(shared)
                .into_iter()
                .map(|(name, expires_s)| Expiry { name, expires_s })
                .collect(),
            metrics: families.iter().filter_map(|each| Some((each.full_name(), each.only_value()?))).collect(),
        }
    }
}

impl RequestFigures {
    fn of(point: &SeriesPoint) -> Self {
        let SeriesPoint { hits, misses, others, client_bytes, origin_bytes, hit_bytes: saved_bytes } = *point;
        Self { hits, misses, others, client_bytes, origin_bytes, saved_bytes }
    }
}

fn counted(series: &TimeSeries) -> Vec<RequestFigures> {
    series.points().map(RequestFigures::of).collect()
}

/// Returns an example command that sends a request through this proxy, or an empty text if none is known.
fn try_with(shared: &ProxyState) -> String {
    let Some(address) = shared.origins.own_addresses.first() else { return String::new() };
    let is_tls = shared.config.listeners.first().is_some_and(|listener| listener.tls);
    match (shared.config.forward, is_tls) {
        (true, false) => format!("curl -x http://{address} http://example.com/"),
        (true, true) => format!("curl --proxy-insecure -x https://{address} http://example.com/"),
        (false, false) => format!("curl http://{address}/"),
        (false, true) => format!("curl -k https://{address}/"),
    }
}

/// Returns the reasons why bodies came from origins, with their counts, the most frequent first.
fn reasons(sums: &ExchangeSums) -> Vec<NamedFigure> {
    let reasons = MissReason::ALL
        .into_iter()
        .map(|reason| NamedFigure { name: reason.token().to_owned(), count: sums.missed(reason) });
    let mut reasons: Vec<NamedFigure> = reasons.filter(|reason| reason.count > 0).collect();
    reasons.sort_by_key(|reason| std::cmp::Reverse(reason.count));
    reasons
}

fn latencies(history: &History) -> Vec<Latency> {
    let latency = |(name, times): (&str, TimeCounts)| {
        let at = |share| times.quantile_s(share).unwrap_or(0.0) * 1000.0;
        Latency { name: name.to_owned(), count: times.count(), half_ms: at(0.5), p99_ms: at(0.99) }
    };
    history.lately().map(latency).into()
}

/// Returns the figures of the names in `asked`, at most [`ASKED_COUNT_MAX`].
fn most(asked: Vec<PopularityCount>) -> Vec<AskedFor> {
    let most = asked.into_iter().take(ASKED_COUNT_MAX).map(|asked| {
        let PopularityCount { name, hits, misses, others, failed, client_bytes, hit_bytes: saved_bytes } = asked;
        // Bytes received from origins are not counted by name.
        let counted = RequestFigures { hits, misses, others, client_bytes, saved_bytes, origin_bytes: 0 };
        AskedFor { name, counted, failed }
    });
    most.collect()
}

/// Returns the figures of each mirrored package registry, summed over its servers.
fn registries(shared: &ProxyState, sites: &NamedSums) -> Vec<AskedFor> {
    let counted = shared.mirrors.registries().into_iter().filter_map(|(name, authority)| {
        let (_, sums) = sites.iter().find(|(site, _)| *site == authority)?;
        let [hits, misses, tunnels, _, failed] = sums.kinds;
        let SiteSums { client_bytes, hit_bytes, .. } = *sums;
        Some(PopularityCount { name, hits, misses, others: tunnels + failed, failed, client_bytes, hit_bytes })
    });
    most(popular::together(std::iter::once(counted.collect())))
}

fn periods(sums: Vec<(String, SeriesPoint)>) -> Vec<PeriodFigures> {
    sums.into_iter().map(|(period, point)| PeriodFigures { period, counted: RequestFigures::of(&point) }).collect()
}

fn volumes(store: &Store) -> Vec<VolumeFigures> {
    let volumes = store.volumes().map(|volume| {
        let stats = volume.stats;
        VolumeFigures {
            path: volume.path.display().to_string(),
            policy: volume.policy.to_string(),
            size_bytes: stats.size_bytes,
            entries: stats.entries,
            // The index of `log` grows, so its capacity says nothing about the room on the disk.
            entries_room: stats.entries_max.min(stats.size_bytes / mean_entry_bytes_default(stats.size_bytes)),
            evicted: stats.evicted,
            corrupt: stats.corrupt,
            io_errors: stats.io_errors,
            loaded: stats.loaded,
            out: stats.volumes_out > 0,
        }
    });
    volumes.collect()
}

fn line(shared: &ProxyState) -> LineState {
    let uplink = &shared.origins.uplink;
    let mode = uplink.mode().to_string();
    let missing = shared.missing.count() as u64;
    LineState { mode, offline: uplink.is_offline(), missing }
}

/// Maximum number of sites, and of objects, in an overview.
const ASKED_COUNT_MAX: usize = 20;
/// Maximum number of days in an overview.
const DAY_COUNT_SHOWN: usize = 31;
