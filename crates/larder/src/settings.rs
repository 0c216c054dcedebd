//! The settings of `larder run`: defaults, changed by the configuration file and then by flags.
//!
//! Owns: the program's own defaults, and the rules that concern several settings. Files and flags are read elsewhere.
//! Invariant: settings that pass [`RunSettings::check`] never open the proxy to other machines by accident.

pub(crate) mod authority_files;
pub(crate) mod config;
pub(crate) mod files;
pub(crate) mod memory_plan;
pub(crate) mod mirrors;
mod node_tls;
pub(crate) mod store_path;
pub(crate) mod tuning;
pub(crate) mod volumes;

pub(crate) use self::node_tls::NodeTlsSettings;
use self::{
    memory_plan::TotalMemory,
    mirrors::{Interception, NamedRegistry, OriginOf},
    tuning::PolicyChoice,
};
use crate::ground::{
    failure::{Failure, page},
    machine, open_files, size,
    value::BadValue,
};
use larder_proxy::{HostLists, HostPattern, ProxyConfig};
use larder_store::{IoChoice, PathContent, Policy, Tuning, TuningValue, mean_entry_bytes_default};
use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    ops::Range,
    path::{Path, PathBuf},
    time::Duration,
};

/// The settings of `larder run`, from defaults, configuration file and flags.
#[derive(Clone, Debug)]
pub(crate) struct RunSettings {
    /// The configuration file that was read. `None` if none was given.
    pub(crate) file: Option<ConfigFile>,
    /// The proxy's configuration. [`RunSettings::forwards`] overrides its field `forward`.
    pub(crate) proxy: ProxyConfig,
    /// Whether forward mode was turned on or off explicitly. `None` means the default, which [`RunSettings::forwards`]
    /// determines.
    pub(crate) forward: Option<bool>,
    /// The settings for TLS between the nodes of the fleet.
    pub(crate) node_tls: NodeTlsSettings,
    pub(crate) store: StoreSettings,
    /// The memory that the whole process may use.
    pub(crate) memory: TotalMemory,
    /// The size of the memory cache, in bytes. `None` if it was not set.
    pub(crate) memory_cache: Option<u64>,
    /// The package registries to mirror.
    pub(crate) registry_mirrors: RegistryNames,
    /// The hosts whose `https://` requests are decrypted.
    pub(crate) intercept: Interception,
    /// Time in which running exchanges must finish after a signal to stop.
    pub(crate) drain: Duration,
    /// Time for which a stopping proxy still accepts connections while its health checks already fail.
    pub(crate) drain_notice: Duration,
}

/// A configuration file, with the positions of those values that only a check of all settings together can refuse.
#[derive(Clone, Debug)]
pub(crate) struct ConfigFile {
    pub(crate) path: PathBuf,
    pub(crate) text: String,
    /// The listening addresses, each with its range of bytes in `text`.
    pub(crate) listeners: Vec<(SocketAddr, Range<usize>)>,
}

/// The package registries to mirror, and settings of the mirrors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RegistryNames {
    pub(crate) names: Vec<&'static str>,
    /// Servers to contact in place of a registry's usual ones.
    pub(crate) origins: Vec<OriginOf>,
    /// Container registries to mirror that are not in the built-in table of registries.
    pub(crate) registries: Vec<NamedRegistry>,
}

/// The settings of the store on disk.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StoreSettings {
    /// The places of the store's volumes, one for each disk.
    pub(crate) disks: Vec<DiskSettings>,
    /// The sizes of the volumes, in bytes. Empty: each volume keeps its existing size, or gets the default. One size:
    /// it applies to every volume. Several: one for each volume, in the order of `disks`.
    ///
    /// `None` in the list is `auto`: the existing size, or as much as the file system has room for.
    pub(crate) sizes: Vec<Option<u64>>,
    /// Whether a new file takes disk space only as it fills.
    pub(crate) is_sparse: bool,
    /// The storage policy. `None` means the policy of the existing store, or the default for a new one.
    pub(crate) policy: Option<PolicyChoice>,
    pub(crate) tuning: Tuning,
    /// Names of the constants in `tuning` that were set explicitly, even to their defaults.
    pub(crate) set_constants: Vec<&'static str>,
    pub(crate) mean_object_size_bytes: Option<u64>,
    pub(crate) io: IoChoice,
    /// Limits in bytes that follow from a given memory size: on the data waiting to be written to a volume, and on the
    /// index's memory. `None` if no memory size was given.
    pub(crate) dirty_bytes_max: Option<u64>,
    pub(crate) index_bytes_max: Option<u64>,
}

impl StoreSettings {
    /// Returns the policy that was given by name. `None` if none was given, or if it is `auto`.
    pub(crate) fn row(&self) -> Option<&'static Policy> {
        match self.policy {
            Some(PolicyChoice::Row(row)) => Some(row),
            Some(PolicyChoice::Auto) | None => None,
        }
    }

    /// Sets a constant of the policies. The value was checked when it was read.
    pub(crate) fn tune(&mut self, name: &'static str, value: TuningValue) {
        self.tuning.set(name, value).expect("it was checked when it was read");
        self.set_constants.push(name);
    }

    /// Returns the mean size of entries, in bytes, in a volume of `size_bytes`: the given one, or the engine's default.
    pub(crate) fn mean_entry_bytes(&self, size_bytes: u64) -> u64 {
        self.mean_object_size_bytes.unwrap_or_else(|| mean_entry_bytes_default(size_bytes))
    }

    /// Refuses settings with which no store can be opened.
    ///
    /// # Errors
    /// A usage failure that names the setting.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let Self { disks, sizes, .. } = self;
        if disks.len() > 1 && disks.contains(&DiskSettings::None) {
            return Err(Failure::usage(
                "`none` is given together with a disk",
                "give disks, or `none` alone for memory only",
            ));
        }
        if let Some(twice) = disks.iter().enumerate().find_map(|(at, disk)| disks[..at].contains(disk).then_some(disk))
        {
            let help = "give each disk once; the store places one share of the keys on each";
            return Err(Failure::usage(format!("a disk is given twice: {twice}"), help));
        }
        if sizes.len() > 1 && sizes.len() != disks.len() {
            return Err(Failure::usage(
                format!("{} sizes for {}", sizes.len(), size::show_things(disks.len() as u64, "disk", "disks")),
                "give no size, one for all disks, or one for each in the same order",
            ));
        }
        if disks.contains(&DiskSettings::None) && !sizes.is_empty() {
            return Err(Failure::usage(
                "a size is given, but no store on disk",
                "add --disk, or remove --size; --memory-cache sets the memory cache",
            ));
        }
        (0..disks.len()).filter(|_| !disks.contains(&DiskSettings::None)).try_for_each(|index| self.check_sizes(index))
    }

    /// Refuses the size of the disk number `index` if no store can have it.
    fn check_sizes(&self, index: usize) -> Result<(), Failure> {
        let options = volumes::options_of(Path::new(""), &PathContent::Nothing, self, index);
        let Err(error) = options.check() else { return Ok(()) };
        let mean = size::show(options.mean_entry_bytes);
        let size = size::show(options.size_bytes);
        let help = format!(
            "--size is {size} and can be from 64MiB to 16TiB; --mean-object-size is {mean} and can be from 512B (tiny: \
             64B) to 1MiB"
        );
        Err(Failure::usage(format!("these settings make no store: {error}"), help))
    }
}

/// The place of a volume of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DiskSettings {
    /// The file `larder/store.larder` in the user's cache directory.
    UserCache,
    /// A file or block device at this path, or the file `store.larder` if the path is a directory.
    At(PathBuf),
    /// There is no disk: only the memory cache is used.
    None,
}

impl DiskSettings {
    /// Parses the value of `--disk` and of `[store] path`.
    pub(crate) fn parse(text: &str) -> Result<Self, BadValue> {
        match text {
            "" => Err(BadValue::new("an empty path", "give a file, an existing directory, or `none` for memory only")),
            "none" => Ok(Self::None),
            path => Ok(Self::At(PathBuf::from(path))),
        }
    }
}

impl fmt::Display for DiskSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UserCache => f.write_str("the user's cache directory"),
            Self::At(path) => write!(f, "{}", path.display()),
            Self::None => f.write_str("none"),
        }
    }
}

impl Default for RunSettings {
    fn default() -> Self {
        Self {
            file: None,
            proxy: ProxyConfig::default(),
            forward: None,
            node_tls: NodeTlsSettings::default(),
            store: StoreSettings {
                disks: vec![DiskSettings::UserCache],
                sizes: Vec::new(),
                is_sparse: false,
                policy: None,
                tuning: Tuning::default(),
                set_constants: Vec::new(),
                mean_object_size_bytes: None,
                io: IoChoice::Auto,
                dirty_bytes_max: None,
                index_bytes_max: None,
            },
            memory: TotalMemory::Auto,
            memory_cache: None,
            registry_mirrors: RegistryNames::default(),
            intercept: Interception::default(),
            drain: Duration::from_secs(10),
            drain_notice: Duration::ZERO,
        }
    }
}

impl RunSettings {
    /// Refuses settings that contradict each other.
    ///
    /// # Errors
    /// A usage failure with all contradictions, each with the way to write what was probably intended.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        Failure::all([
            self.check_addresses(),
            self.check_clients(),
            self.check_tls(),
            self.check_admin(),
            self.check_origin_form(),
            self.check_fleet(),
            self.store.check(),
            self.check_tier(),
            self.check_interception(),
            self.check_mirrors(),
            self.check_build_caches(),
            self.check_purpose(),
        ])?;
        // Other contradictions are found by the proxy's own check, such as a site on a listener that is not configured.
        let checked = self.proxy_config().check();
        let help = concat!("correct that setting; see ", page!("reference/configuration.md"));
        checked.map_err(|error| Failure::usage(error.to_string(), help))
    }

    /// Returns a warning if the proxy's PAC script makes browsers contact hosts directly, so that they bypass block
    /// lists or rate limits.
    pub(crate) fn warn_of_direct_hosts(&self) -> Option<String> {
        let proxy = &self.proxy;
        let is_limited = proxy.lists != HostLists::default() || !proxy.rate_limits.is_empty();
        let direct = match (proxy.pac.hosts.is_empty(), proxy.pac.except.is_empty()) {
            _ if !is_limited || !self.forwards() => return None,
            (true, true) => return None,
            (true, false) => "those of `pac.except`",
            (false, true) => "all but those of `pac.hosts`",
            (false, false) => "all but those of `pac.hosts`, and those of `pac.except`",
        };
        Some(format!("browsers with the PAC script contact some hosts past block lists and rate limits: {direct}"))
    }

    /// Refuses a server for a registry that is not mirrored.
    fn check_mirrors(&self) -> Result<(), Failure> {
        let unused =
            self.registry_mirrors.origins.iter().find(|origin| !self.registry_mirrors.names.contains(&origin.name));
        if let Some(OriginOf { name, .. }) = unused {
            let help = format!("mirror it too, such as with --mirror {name}");
            return Err(Failure::usage(format!("a server is given for a mirror that is off: {name}"), help));
        }
        Ok(())
    }

    /// Refuses a proxy that would refuse every request.
    fn check_purpose(&self) -> Result<(), Failure> {
        let has_paths = self.mirrors() || !self.proxy.build_caches.is_empty();
        if !self.forwards() && !self.reverses() && !has_paths {
            return Err(Failure::usage(
                "nothing to do: forward mode is off and there is no origin, no mirror and no build cache",
                "give --origin URL, --mirror NAME, --build-cache PATH, a [[site]], or `[forward] enabled = true`",
            ));
        }
        Ok(())
    }

    /// Refuses a proxy without a listening address, and two listeners with the same address.
    fn check_addresses(&self) -> Result<(), Failure> {
        if self.proxy.listeners.is_empty() {
            let help = "give one, such as --listen 3128 or listen = [\"127.0.0.1:3128\"]";
            return Err(Failure::usage("no address to listen on", help));
        }
        let addresses = self.proxy.listeners.iter().map(|listener| listener.address).chain(self.proxy.admin);
        let addresses: Vec<_> = addresses.chain(self.node_tls.listen).collect();
        // Port 0 may be repeated, because the system chooses a different port each time.
        let is_twice = |(at, address): &(usize, &SocketAddr)| address.port() != 0 && addresses[..*at].contains(address);
        if let Some((_, address)) = addresses.iter().enumerate().find(is_twice) {
            let help = "give each listener its own address, including the admin listener";
            return Err(Failure::usage(format!("two listeners have the same address: {address}"), help));
        }
        Ok(())
    }

    /// Refuses a listener that other machines can reach if the settings do not name the clients that may use it.
    fn check_clients(&self) -> Result<(), Failure> {
        let mut addresses = self.proxy.listeners.iter().map(|listener| listener.address);
        let open = addresses.find(|address| !address.ip().is_loopback());
        let (Some(address), true) = (open, self.proxy.clients.is_empty()) else { return Ok(()) };
        let failure = Failure::usage(
            format!("listening beyond this machine requires a list of clients: {address}"),
            "name the networks that may use the proxy, with allow_clients = [\"192.168.0.0/16\"] in the file or \
             --allow-client 192.168.0.0/16 (0.0.0.0/0 and ::/0 admit everybody), or listen on 127.0.0.1",
        );
        let files = self.file.iter();
        let mut places = files.flat_map(|file| file.listeners.iter().map(move |(listed, span)| (file, listed, span)));
        Err(match places.find(|(_, listed, _)| **listed == address) {
            Some((file, _, span)) => failure.at(&file.path, &file.text, span.clone(), "open to other machines"),
            None => failure,
        })
    }

    /// Refuses a TLS listener if there is no certificate.
    fn check_tls(&self) -> Result<(), Failure> {
        let tls = self.proxy.listeners.iter().find(|listener| listener.tls && self.proxy.identities.is_empty());
        if let Some(listener) = tls {
            return Err(Failure::usage(
                format!("a TLS listener needs a certificate: {}", listener.address),
                "give --certificate FILE,KEY or a [[certificate]] with file and key",
            ));
        }
        if self.proxy.admin_tls && self.proxy.identities.is_empty() {
            let help =
                "give --certificate FILE,KEY or a [[certificate]] with file and key, or remove `tls` from [admin]";
            return Err(Failure::usage("the admin listener with TLS needs a certificate", help));
        }
        Ok(())
    }

    /// Refuses an admin listener that other machines reach and that requires no token.
    fn check_admin(&self) -> Result<(), Failure> {
        let is_guarded = self.proxy.admin_tokens.is_some();
        if let Some(admin) = self.proxy.admin.filter(|admin| !admin.ip().is_loopback() && !is_guarded) {
            return Err(Failure::usage(
                format!("without tokens, the admin listener must be on this machine: {admin}"),
                concat!(
                    "use a loopback address such as --admin 127.0.0.1:3180, or set `tokens` in [admin]; see ",
                    page!("reference/configuration.md")
                ),
            ));
        }
        Ok(())
    }

    /// Refuses interception of TLS that cannot work, or that was probably not intended.
    fn check_interception(&self) -> Result<(), Failure> {
        if self.intercepts() && !self.forwards() {
            let help = "turn on forward mode with `[forward] enabled = true`, or remove the hosts to intercept";
            return Err(Failure::usage(
                "interception needs forward mode: only tunnels of a forward proxy can be intercepted",
                help,
            ));
        }
        let all_count = self.intercept.hosts.hosts.iter().filter(|pattern| **pattern == HostPattern::All).count();
        if all_count == 1 {
            return Err(Failure::usage(
                "interception of all hosts reads all https:// traffic of all clients, including banking, mail and \
                 passwords",
                "name the hosts to cache (--intercept pypi.org, --intercept npm); to intercept all hosts, give `all` \
                 twice: --intercept all --intercept all, or hosts = [\"all\", \"all\"]",
            ));
        }
        if let (true, Some(origin)) = (self.intercepts(), &self.proxy.default_origin) {
            let help = "give that origin to its hosts in a [[site]], or remove the hosts to intercept";
            return Err(Failure::usage(
                format!("interception and an origin for every host exclude each other: {origin}"),
                help,
            ));
        }
        Ok(())
    }

    /// Refuses a listener that accepts requests in origin form if the proxy does not forward them.
    fn check_origin_form(&self) -> Result<(), Failure> {
        let takes_it = self.proxy.listeners.iter().find(|listener| listener.origin_form);
        let is_reverse_alone = !self.forwards() || self.proxy.default_origin.is_some();
        let Some(listener) = takes_it.filter(|_| is_reverse_alone) else { return Ok(()) };
        let problem = format!("a listener with origin_form needs forward mode: {}", listener.address);
        let help = "remove `origin_form` from that [[listener]]: sites and origins accept such requests without it";
        Err(Failure::usage(problem, help))
    }

    /// Refuses settings of a fleet whose nodes could not read each other's purges.
    fn check_fleet(&self) -> Result<(), Failure> {
        let fault = self.node_tls.fault().or_else(|| self.proxy_config().fleet.fault());
        let Some(fault) = fault else { return Ok(()) };
        let help = concat!(
            "list all nodes in [fleet], also this one by its `node`, and give all the same `secret_file`; see ",
            page!("how-to/fleet.md")
        );
        Err(Failure::usage(fault, help))
    }

    /// Refuses a second tier without a place, or without a store in front of it.
    fn check_tier(&self) -> Result<(), Failure> {
        let has_store = !self.store.disks.contains(&DiskSettings::None);
        let Some(fault) = self.proxy.tier.fault(has_store) else { return Ok(()) };
        Err(Failure::usage(
            fault,
            concat!("give [tier] either a `folder` or a `bucket`, and Larder a store; see ", page!("how-to/tier.md")),
        ))
    }

    /// Refuses build caches that share a path with each other or with a mirror.
    fn check_build_caches(&self) -> Result<(), Failure> {
        let Some(fault) = self.proxy_config().build_caches_fault() else { return Ok(()) };
        Err(Failure::usage(fault, "give each [[build_cache]] and each [[mirror]] a `path` of its own"))
    }

    /// Returns whether this is a forward proxy. By default it is one, unless an origin or a site with origins is
    /// configured.
    pub(crate) fn forwards(&self) -> bool {
        self.forward.unwrap_or(!self.reverses())
    }

    /// Returns whether `https://` requests to at least one host are decrypted.
    pub(crate) fn intercepts(&self) -> bool {
        !self.intercept.hosts.hosts.is_empty()
    }

    /// Returns whether this is a reverse proxy, which has an origin or a site with origins.
    pub(crate) fn reverses(&self) -> bool {
        self.proxy.default_origin.is_some() || self.proxy.has_site_origins()
    }

    /// Returns whether any package registry or other server is mirrored.
    pub(crate) fn mirrors(&self) -> bool {
        !self.registry_mirrors.names.is_empty() || !self.proxy.mirrors.is_empty()
    }

    /// Returns the proxy's final configuration. If clients are listed, this machine's loopback is added to them. The
    /// limits on connections are lowered to fit the process's limit on open files.
    pub(crate) fn proxy_config(&self) -> ProxyConfig {
        let mut config = ProxyConfig { forward: self.forwards(), ..self.proxy.clone() };
        self.node_tls.add_to(&mut config);
        config.fleet.node = config.fleet.node.or_else(|| machine::host_name().map(Into::into));
        let mut names = self.registry_mirrors.names.clone();
        names.sort_unstable();
        names.dedup();
        let first = |name: &str| {
            let origins = &self.registry_mirrors.origins;
            origins.iter().rfind(|origin| origin.name == name).map(|origin| &origin.url)
        };
        for name in names {
            mirrors::named(name).expect("it was read from the table").add_to(&mut config, first(name));
        }
        config.package_indexes = mirrors::package_indexes(first);
        config.rules.extend(self.intercept.rules.clone());
        for NamedRegistry { name, url } in &self.registry_mirrors.registries {
            mirrors::add_registry(&mut config, (name, false), url.clone());
        }
        if !config.clients.is_empty() {
            let loopback = [IpAddr::from([127, 0, 0, 0]), IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1])];
            let widths = [8, 128];
            let nets = loopback
                .into_iter()
                .zip(widths)
                .map(|(address, width)| ipnet::IpNet::new(address, width).expect("the widths fit the addresses"));
            config.clients.extend(nets);
        }
        open_files::fit(&mut config, open_files::limit());
        config
    }
}

#[cfg(test)]
mod tests;
