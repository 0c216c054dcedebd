//! The metrics of origins and certificates: whether they are in use, and when they expire.

use std::{collections::BTreeMap, time::UNIX_EPOCH};

use crate::{
    figures::metrics::family::{MetricFamily, MetricKind, labeled, metric_table, series_of},
    run::shared::ProxyState,
};

metric_table! {
    pub(super) fn metrics("larder_", state: ProxyState) {
        Gauge origin_up[origin] = "1 while an origin of a site is in use, 0 while it is left out because it failed",
            origins(state).iter().map(|(origin, is_up)| labeled(&[origin], u64::from(*is_up))).collect();
        Gauge certificate_expiry_timestamp_seconds[name] =
            "Expiry of a server certificate or of the CA, in Unix time",
            certificates(state)
                .iter()
                .map(|(name, expires_s)| labeled(&[name], u64::try_from(*expires_s).unwrap_or(0)))
                .collect();
    }
}

/// Returns the URLs of all sites' origins, each with whether it is up, which means that it receives requests.
///
/// An origin of several sites is up if at least one of them sends requests to it.
pub(crate) fn origins(shared: &ProxyState) -> BTreeMap<String, bool> {
    let mut origins = BTreeMap::new();
    for (origin, is_up) in shared.routes.groups().iter().flat_map(|group| group.health()) {
        *origins.entry(origin).or_insert(false) |= is_up;
    }
    origins
}

/// Returns the name of each certificate and its expiry, in seconds of Unix time.
///
/// If several certificates have the same name, the earliest expiry is returned.
pub(crate) fn certificates(shared: &ProxyState) -> BTreeMap<String, i64> {
    let shown = shared.certificates.iter().flat_map(|certificates| certificates.expiries());
    let authority = shared.interceptor.as_ref().and_then(|interceptor| {
        let since_epoch = interceptor.expires_at().duration_since(UNIX_EPOCH).ok()?;
        Some(("local CA".to_owned(), i64::try_from(since_epoch.as_secs()).ok()?))
    });
    let mut ends = BTreeMap::new();
    for (name, expires_s) in shown.chain(authority) {
        let first = ends.entry(name).or_insert(expires_s);
        *first = expires_s.min(*first);
    }
    ends
}
