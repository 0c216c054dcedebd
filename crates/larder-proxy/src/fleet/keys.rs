//! Reads the files with the fleet's secret, the credentials for its shared log, and its certificates.

use std::sync::Arc;

use super::{secret::FleetSecret, shared_log::stream::LogCredentials, tls::FleetTls};
use crate::ground::config::Fleet;

/// The secret, credentials and certificates that this node needs to work with its fleet.
pub(crate) struct FleetKeys {
    pub(crate) secret: FleetSecret,
    pub(crate) log_credentials: Option<LogCredentials>,
    pub(crate) tls: Option<Arc<FleetTls>>,
}

impl FleetKeys {
    /// Reads the files. `None` if the fleet has neither other nodes nor a shared log.
    ///
    /// # Errors
    /// A file cannot be used; the error says why.
    pub(crate) fn load(fleet: &Fleet) -> Result<Option<Self>, String> {
        let is_needed = fleet.log.is_some() || fleet.peers().next().is_some();
        let Some(path) = fleet.secret_file.as_deref().filter(|_| is_needed) else { return Ok(None) };
        let secret = FleetSecret::load(path)?;
        let log_credentials = fleet.log_credentials_file.as_deref().map(LogCredentials::load).transpose()?;
        let tls = FleetTls::load(fleet)?.map(Arc::new);
        Ok(Some(Self { secret, log_credentials, tls }))
    }
}
