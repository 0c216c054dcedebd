//! The state of origins that survives a reload.
//!
//! Owns: the list of that state. `OriginsShared` dereferences to it.

use std::sync::Arc;

use crate::{
    ground::cache::body_budget::BodyBudget,
    ground::config::ProxyConfig,
    origins::{certificate_askers::CertificateAskers, complaints::ComplaintLog, uplink::Uplink},
};

/// The state of origins that survives a reload.
pub(crate) struct OriginSurvivors {
    /// Origins that requested a client certificate.
    pub(crate) certificate_askers: CertificateAskers,
    /// Recently logged faults of origins, to limit the rate of log lines.
    pub(crate) complaints: ComplaintLog,
    /// The state of the uplink: whether origins can be contacted.
    pub(crate) uplink: Uplink,
    /// The memory budget of bodies that are being received.
    pub(crate) bodies: Arc<BodyBudget>,
}

impl OriginSurvivors {
    /// Creates the state of origins when the proxy starts.
    pub(crate) fn open(config: &ProxyConfig, bodies: &Arc<BodyBudget>) -> Self {
        Self {
            certificate_askers: CertificateAskers::default(),
            complaints: ComplaintLog::default(),
            uplink: Uplink::new(config.offline),
            bodies: Arc::clone(bodies),
        }
    }

    /// Adapts the state to a new configuration.
    pub(crate) fn adapt(&self, before: &ProxyConfig, after: &ProxyConfig) {
        if after.offline != before.offline {
            // A mode set with `larder offline` stays, unless the mode in the file has changed.
            self.uplink.set_mode(after.offline);
        }
    }
}
