//! Everything `larder run` was told, by defaults, configuration file and flags, in that order.
//!
//! Owns: the defaults and the rules that concern several settings at once. Does not: read files or flags, or start
//! anything. Invariant: settings that pass [`Settings::check`] never listen to strangers by accident.

use crate::{failure::Failure, origin::OriginUrl, value::BadValue};
use ipnet::IpNet;
use std::{net::SocketAddr, path::PathBuf, time::Duration};

/// Where `larder run` listens if nothing else is said: the port proxies have used since the nineties.
pub(crate) const LISTEN_DEFAULT: &str = "127.0.0.1:3128";

/// What to run with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) listen: Vec<SocketAddr>,
    /// Threads that serve; one per processor if not said.
    pub(crate) workers: Option<usize>,
    /// How long running exchanges may take after a signal to stop.
    pub(crate) drain: Duration,
    pub(crate) store: Store,
    /// Size of the hot tier.
    pub(crate) hot_bytes: u64,
    pub(crate) forward: Forward,
    /// Networks that may use the proxy; loopback always may.
    pub(crate) allow_clients: Vec<IpNet>,
    /// The origin of every host that no site names.
    pub(crate) origin: Option<OriginUrl>,
    pub(crate) sites: Vec<Site>,
    pub(crate) access_log: Option<AccessLog>,
    pub(crate) admin: Option<SocketAddr>,
    /// Whether responses carry Via (RFC 9110 7.6.3).
    pub(crate) via: bool,
    /// Whether responses carry Cache-Status (RFC 9211).
    pub(crate) cache_status: bool,
}

/// The store on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Store {
    pub(crate) disk: Disk,
    pub(crate) size_bytes: u64,
    pub(crate) mean_object_size_bytes: u64,
    pub(crate) io: Io,
}

/// Where the store is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Disk {
    /// `larder/store.larder` in the user's cache directory.
    UserCache,
    /// This file, or `store.larder` in this directory.
    At(PathBuf),
    /// Nowhere: the hot tier is all there is.
    None,
}

/// How the store makes its transfers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Io {
    /// io_uring where the kernel allows it, else threads.
    Auto,
    /// io_uring or an error.
    Uring,
    /// A pool of threads.
    Threads,
}

/// The forward proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Forward {
    /// On unless an origin or a site is configured, if not said.
    pub(crate) enabled: Option<bool>,
    /// Networks that may be asked for although they are loopback, link-local or private.
    pub(crate) allow_targets: Vec<IpNet>,
    /// Ports that CONNECT may open a tunnel to.
    pub(crate) connect_ports: Vec<u16>,
}

/// Hosts served from one origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Site {
    pub(crate) hosts: Vec<String>,
    pub(crate) origin: OriginUrl,
}

/// Where the access log goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AccessLog {
    /// Standard output.
    Stdout,
    /// Appended to a file.
    File(PathBuf),
}

impl Disk {
    /// Reads `--disk` and `[store] path`.
    pub(crate) fn parse(text: &str) -> Result<Self, BadValue> {
        match text {
            "" => Err(BadValue::new("an empty path", "give a file, an existing directory, or `none` for memory only")),
            "none" => Ok(Self::None),
            path => Ok(Self::At(PathBuf::from(path))),
        }
    }
}

impl Io {
    /// Reads `--io` and `[store] io`.
    pub(crate) fn parse(text: &str) -> Result<Self, BadValue> {
        match text {
            "auto" => Ok(Self::Auto),
            "uring" => Ok(Self::Uring),
            "threads" => Ok(Self::Threads),
            _ => Err(BadValue::new(format!("not a way to do I/O: `{text}`"), "it can be auto, uring or threads")),
        }
    }
}

impl AccessLog {
    /// Reads `--access-log` and `[log] access`.
    pub(crate) fn parse(text: &str) -> Result<Self, BadValue> {
        match text {
            "" => Err(BadValue::new("an empty path", "give a file, or `-` for standard output")),
            "-" => Ok(Self::Stdout),
            path => Ok(Self::File(PathBuf::from(path))),
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            listen: vec![LISTEN_DEFAULT.parse().expect("the default address is an address")],
            workers: None,
            drain: Duration::from_secs(10),
            store: Store {
                disk: Disk::UserCache,
                size_bytes: 1_000_000_000,
                mean_object_size_bytes: 16 << 10,
                io: Io::Auto,
            },
            hot_bytes: 64_000_000,
            forward: Forward { enabled: None, allow_targets: Vec::new(), connect_ports: vec![443] },
            allow_clients: Vec::new(),
            origin: None,
            sites: Vec::new(),
            access_log: None,
            admin: None,
            via: true,
            cache_status: true,
        }
    }
}

impl Settings {
    /// Refuses settings that make no sense together.
    ///
    /// # Errors
    /// A usage failure that says how to write what was probably meant.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let Some(first) = self.listen.first() else {
            return Err(Failure::usage(
                "no address to listen on",
                format!("give one with --listen, such as --listen {LISTEN_DEFAULT}"),
            ));
        };
        let open = self.listen.iter().find(|address| !address.ip().is_loopback());
        if let (Some(address), true) = (open, self.allow_clients.is_empty()) {
            return Err(Failure::usage(
                format!("listening beyond this machine needs a list of clients: {address}"),
                "say who may use the proxy, such as --allow-client 192.168.0.0/16 \
                 (repeat for more; 0.0.0.0/0 and ::/0 are everybody), or listen on 127.0.0.1",
            ));
        }
        if let Some(admin) = self.admin.filter(|admin| !admin.ip().is_loopback()) {
            return Err(Failure::usage(
                format!("the admin listener knows no passwords and stays on this machine: {admin}"),
                "use a loopback address such as --admin 127.0.0.1:3180",
            ));
        }
        if !self.forwards() && !self.reverses() {
            return Err(Failure::usage(
                format!("nothing to do on {first}: forward mode is off and there is no origin"),
                "give --origin URL, a [[site]], or `[forward] enabled = true`",
            ));
        }
        Ok(())
    }

    /// Whether this is a forward proxy.
    pub(crate) fn forwards(&self) -> bool {
        self.forward.enabled.unwrap_or(!self.reverses())
    }

    /// Whether this is a reverse proxy.
    pub(crate) fn reverses(&self) -> bool {
        self.origin.is_some() || !self.sites.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(change: impl FnOnce(&mut Settings), expected: Result<(), &str>) {
        let mut settings = Settings::default();
        change(&mut settings);
        let found = settings.check().map_err(|failure| failure.to_string());
        match (&found, expected) {
            (Ok(()), Ok(())) => {}
            (Err(found), Err(expected)) if found.contains(expected) => {}
            _ => panic!("expected {expected:?}, found {found:?}"),
        }
    }

    fn origin() -> Option<OriginUrl> {
        Some(crate::origin::parse("http://127.0.0.1:8080").unwrap())
    }

    #[test]
    fn defaults_are_sound() {
        check(|_| {}, Ok(()));
        assert!(Settings::default().forwards() && !Settings::default().reverses());
    }

    #[test]
    fn strangers_need_an_invitation() {
        let open = || vec!["127.0.0.1:1".parse().unwrap(), "0.0.0.0:2".parse().unwrap()];
        check(|settings| settings.listen = open(), Err("needs a list of clients: 0.0.0.0:2"));
        let invite = |settings: &mut Settings| {
            settings.listen = open();
            settings.allow_clients = vec!["10.0.0.0/8".parse().unwrap()];
        };
        check(invite, Ok(()));
        check(
            |settings| settings.admin = Some("10.0.0.1:1".parse().unwrap()),
            Err("stays on this machine: 10.0.0.1:1"),
        );
    }

    #[test]
    fn an_origin_turns_forward_mode_off_unless_it_is_asked_for() {
        let mut settings = Settings { origin: origin(), ..Settings::default() };
        assert!(settings.reverses() && !settings.forwards());
        settings.forward.enabled = Some(true);
        assert!(settings.reverses() && settings.forwards());
        check(|settings| settings.forward.enabled = Some(false), Err("nothing to do on 127.0.0.1:3128"));
    }
}
