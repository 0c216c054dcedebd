//! The system's hosts file, which is read again after a change.
//!
//! Owns: the content of the file, and when the file is checked. While Larder runs, a replaced server may get another
//! address there. Cost: one look at the file's metadata, at most once a second.

use larder_device::IgnorePoison;
use std::{
    fs, mem,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::{Duration, Instant, SystemTime},
};

use hickory_resolver::Hosts;

/// A hosts file, and its content when it was last read.
pub(crate) struct HostsFile {
    path: PathBuf,
    state: Mutex<HostsState>,
}

struct HostsState {
    hosts: Arc<Hosts>,
    /// Modification time and length of the file when it was read. `None` if it did not exist.
    version: Option<(SystemTime, u64)>,
    looked_at: Instant,
}

impl HostsFile {
    /// Reads a hosts file. A file that does not exist or cannot be read counts as empty.
    pub(crate) fn at(path: &Path) -> Self {
        let version = version_of(path);
        let state = HostsState { hosts: read(path), version, looked_at: Instant::now() };
        Self { path: path.to_owned(), state: Mutex::new(state) }
    }

    /// Returns the current content. Reads the file again if it has changed since the last check.
    pub(crate) fn hosts(&self) -> Arc<Hosts> {
        let mut state = self.state.lock().ignore_poison();
        if state.looked_at.elapsed() >= LOOK_INTERVAL {
            state.looked_at = Instant::now();
            let version = version_of(&self.path);
            if mem::replace(&mut state.version, version) != version {
                state.hosts = read(&self.path);
            }
        }
        Arc::clone(&state.hosts)
    }
}

fn version_of(path: &Path) -> Option<(SystemTime, u64)> {
    let metadata = fs::metadata(path).ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}

fn read(path: &Path) -> Arc<Hosts> {
    let mut hosts = Hosts::default();
    if let Err(error) = fs::read(path)
        .and_then(|text| hosts.read_hosts_conf(&*text).map_err(|error| std::io::Error::other(error.to_string())))
    {
        tracing::debug!(path = %path.display(), %error, "cannot read the hosts file: all host names are looked up by DNS");
    }
    Arc::new(hosts)
}

/// The hosts file of the system.
pub(crate) const SYSTEM_FILE: &str = "/etc/hosts";
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use hickory_resolver::proto::{
        op::Query,
        rr::{Name, RecordType},
    };

    use super::*;

    /// Guards against requests to the old address of a replaced server, which would last until a restart.
    #[test]
    fn changed_file_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hosts");
        let file = HostsFile::at(&path);
        let is_there = |file: &HostsFile| {
            let query = Query::query(Name::from_utf8("svc.example").unwrap(), RecordType::A);
            file.hosts().lookup_static_host(&query).is_some()
        };
        let look_again = |file: &HostsFile| {
            let mut state = file.state.lock().unwrap();
            state.looked_at = state.looked_at.checked_sub(LOOK_INTERVAL).unwrap();
        };
        fs::write(&path, "127.0.0.2 svc.example\n").unwrap();
        assert!(!is_there(&file), "it was just looked at");
        look_again(&file);
        assert!(is_there(&file));
        fs::remove_file(&path).unwrap();
        look_again(&file);
        assert!(!is_there(&file));
    }
}
