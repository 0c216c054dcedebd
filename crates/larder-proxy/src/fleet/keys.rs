//! The files with the fleet's secret, with the credentials for its shared log, and with certificates.

use std::sync::Arc;

use super::{secret::FleetSecret, shared_log::stream::LogCredentials, tls::FleetTls};
use crate::config::Fleet;

/// The content of these files.
pub(crate) struct FleetKeys {
    pub(crate) secret: FleetSecret,
    pub(crate) log_credentials: Option<LogCredentials>,
    pub(crate) tls: Option<Arc<FleetTls>>,
}

impl FleetKeys {
    /// Reads the files, if there are other nodes or a shared log.
    ///
    /// # Errors
    /// A file is unusable, with the reason.
    pub(crate) fn load(fleet: &Fleet) -> Result<Option<Self>, String> {
        let is_needed = fleet.log.is_some() || fleet.peers().next().is_some();
        let Some(path) = fleet.secret_file.as_deref().filter(|_| is_needed) else { return Ok(None) };
        let secret = FleetSecret::load(path)?;
        let log_credentials = fleet.log_credentials_file.as_deref().map(LogCredentials::load).transpose()?;
        let tls = FleetTls::load(fleet)?.map(Arc::new);
        Ok(Some(Self { secret, log_credentials, tls }))
    }
}
