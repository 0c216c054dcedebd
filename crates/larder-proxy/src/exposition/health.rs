//! Encodes the health of origins, and the expiry of certificates.

use std::{collections::BTreeMap, fmt, time::UNIX_EPOCH};

use prometheus_client::{
    encoding::{DescriptorEncoder, EncodeMetric as _},
    metrics::{MetricType, gauge::ConstGauge},
};

use crate::shared::ProxyState;

/// Encodes the metrics.
pub(super) fn encode(encoder: &mut DescriptorEncoder<'_>, shared: &ProxyState) -> fmt::Result {
    let help = "1 while an origin of a site is in use, 0 while it is left out because it failed";
    let mut family = encoder.encode_descriptor("origin_up", help, None, MetricType::Gauge)?;
    for (origin, is_up) in origins(shared) {
        ConstGauge::new(i64::from(is_up)).encode(family.encode_family(&[("origin", origin.as_str())])?)?;
    }
    let help = "Expiry of a server certificate or of the CA, in Unix time";
    let mut family = encoder.encode_descriptor("certificate_expiry_seconds", help, None, MetricType::Gauge)?;
    for (name, expires_s) in certificates(shared) {
        ConstGauge::new(expires_s).encode(family.encode_family(&[("name", name.as_str())])?)?;
    }
    Ok(())
}

/// Returns the origins of sites, and whether requests are sent to them. An origin of several sites is up if any of
/// these sites uses it.
pub(crate) fn origins(shared: &ProxyState) -> BTreeMap<String, bool> {
    let mut origins = BTreeMap::new();
    for (origin, is_up) in shared.routes.groups().iter().flat_map(|group| group.health()) {
        *origins.entry(origin).or_insert(false) |= is_up;
    }
    origins
}

/// Returns the names of the certificates and their expiry in seconds of Unix time. If several have the same name, the
/// earliest expiry counts.
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
