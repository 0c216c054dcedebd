//! Reloads the configuration of a running proxy.
//!
//! Owns: the last adopted configuration, and the list of changes that need a restart.
//! `larder_proxy::ProxyHandle::reload` makes a proxy adopt a configuration. Invariant: an unreadable or unusable
//! configuration changes nothing.

use crate::{
    ground::{failure::Failure, value},
    run::control::ControlSummary,
    settings::{
        self, RunSettings,
        memory_plan::{self, MemoryPlan},
    },
};
use ipnet::IpNet;
use larder_device::IgnorePoison;
use larder_proxy::{NeedsRestart, ProxyHandle, ReloadOutcome};
use std::{
    fmt, io,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

/// A function that reads the settings again, from the configuration file and the flags.
pub(crate) type SettingsReader = Arc<dyn Fn() -> Result<RunSettings, Failure> + Send + Sync>;

/// Reads the configuration again, and puts it into force in the running proxy.
pub(crate) struct Reloader {
    read: SettingsReader,
    handle: ProxyHandle,
    in_force: Mutex<RunSettings>,
    /// The division of memory that was made at the start.
    memory: MemoryPlan,
}

/// The result of a reload, for the user.
pub(crate) struct ReloadReport {
    /// The addresses on which the proxy now listens.
    listeners: Vec<SocketAddr>,
    /// Keys that were changed and take effect only after a restart.
    unchanged: Vec<&'static str>,
}

impl Reloader {
    /// Creates a reloader for a proxy that was started with `settings` and the division of memory `memory`.
    pub(crate) fn new(read: SettingsReader, handle: ProxyHandle, settings: RunSettings, memory: MemoryPlan) -> Self {
        Self { read, handle, in_force: Mutex::new(settings), memory }
    }

    /// Reads the configuration again and puts it into force. Blocks while it reads files, and until every worker uses
    /// the new settings.
    ///
    /// # Errors
    /// The fault of the configuration, with its place. The previous configuration stays in force.
    pub(crate) fn reload(&self) -> Result<ReloadReport, Failure> {
        let mut in_force = self.in_force();
        let mut settings = (self.read)()?;
        memory_plan::fit_with_index(&mut settings, self.memory.volume_count, self.memory.index)?;
        let config = settings.proxy_config();
        let ReloadOutcome { local_addrs, unchanged, .. } = self.handle.reload(config).map_err(refused)?;
        let mut keys = changed(&settings.store, &in_force.store);
        keys.extend(unchanged.into_iter().map(key_of));
        // The settings of the store in use are kept, so that the next reload reports the difference again.
        *in_force = RunSettings { store: in_force.store.clone(), ..settings };
        Ok(ReloadReport { listeners: local_addrs, unchanged: keys })
    }

    /// Describes the proxy under its current settings. The addresses come from `told`.
    pub(crate) fn about(&self, told: &ReloadReport) -> ControlSummary {
        ControlSummary::of(&self.in_force(), &told.listeners)
    }

    /// Returns whether the configuration permits targets in all these networks. An invalid network counts as not
    /// permitted.
    pub(crate) fn allows_targets(&self, networks: &[String]) -> bool {
        let in_force = self.in_force();
        let is_allowed = |network: IpNet| in_force.proxy.targets.allow.iter().any(|allowed| allowed.contains(&network));
        networks.iter().all(|network| value::network(network).is_ok_and(is_allowed))
    }

    /// Returns the time that exchanges may take to finish after a signal to stop.
    pub(crate) fn drain(&self) -> Duration {
        self.in_force().drain
    }

    /// Returns the time for which health checks fail before the listeners close.
    pub(crate) fn drain_notice(&self) -> Duration {
        self.in_force().drain_notice
    }

    fn in_force(&self) -> MutexGuard<'_, RunSettings> {
        self.in_force.lock().ignore_poison()
    }
}

impl fmt::Display for ReloadReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the new configuration is in force")?;
        match &self.unchanged[..] {
            [] => Ok(()),
            keys => write!(f, ", except for settings that need a restart: {}", keys.join(", ")),
        }
    }
}

/// Returns the keys of the store's settings that differ between two configurations.
fn changed(now: &settings::StoreSettings, before: &settings::StoreSettings) -> Vec<&'static str> {
    // The fields that are left out have no key in the file.
    let settings::StoreSettings { disks, sizes, policy, tuning, mean_object_size_bytes, io, .. } = now;
    let keys = [
        ("store.path", *disks == before.disks),
        ("store.size", *sizes == before.sizes),
        ("store.policy", *policy == before.policy),
        ("tuning", *tuning == before.tuning),
        ("store.mean_object_size", *mean_object_size_bytes == before.mean_object_size_bytes),
        ("store.io", *io == before.io),
    ];
    keys.into_iter().filter(|(_, is_same)| !is_same).map(|(key, _)| key).collect()
}

fn key_of(setting: NeedsRestart) -> &'static str {
    match setting {
        NeedsRestart::WorkerCount => "workers",
        NeedsRestart::Admin => "admin.listen",
        NeedsRestart::HotBytes => "memory.cache",
        NeedsRestart::Tier => "tier",
    }
}

fn refused(error: io::Error) -> Failure {
    let problem = format!("the new configuration cannot be used: {error}");
    match error.kind() {
        io::ErrorKind::InvalidInput => {
            Failure::usage(problem, "correct this setting; the previous configuration stays in force")
        }
        _ => Failure::runtime(problem, "the previous configuration stays in force; see the system's error"),
    }
}
