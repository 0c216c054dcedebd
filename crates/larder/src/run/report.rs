//! Prints the lines at the start of the proxy: what is running, and how to try it.
//!
//! Owns: the wording. The facts come from elsewhere. The lines go to standard error, because standard output may be the
//! access log.

use crate::{
    ground::size,
    settings::{
        memory_plan::FittedMemory,
        volumes::{MissingDisk, OpenedStore},
    },
};
use larder_proxy::{HostPattern, LocalWriters, Offline, ProxyConfig};
use larder_store::{Policy, Stats, mean_entry_bytes_default};
use std::{
    fmt,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    path::PathBuf,
};

/// Minimum number of entries for printing the index's memory per entry. With fewer entries, the initial size of the
/// index would dominate.
const ENTRIES_TELLING: u64 = 1_000;

/// Everything that the start lines describe.
pub(crate) struct Report<'a> {
    pub(crate) config: &'a ProxyConfig,
    /// The bound addresses of the listeners.
    pub(crate) listeners: &'a [SocketAddr],
    pub(crate) admin: Option<SocketAddr>,
    /// The store. `None` if there is only memory.
    pub(crate) store: Option<StoreReport>,
    /// The policy and the reason for it, if the program chose it. Otherwise `None`.
    pub(crate) automatic: Option<String>,
    pub(crate) memory: &'a FittedMemory,
    /// The configured limit on connections, if the process may not open that many files. Otherwise `None`.
    pub(crate) connections_wanted: Option<usize>,
}

/// The open store, for the start lines.
pub(crate) struct StoreReport {
    /// Disks that are not in use, each with the reason.
    pub(crate) missing: Vec<MissingDisk>,
    pub(crate) volumes: Vec<VolumeReport>,
    /// The counters of all volumes together.
    pub(crate) stats: Stats,
}

/// One volume of the store, for the start lines.
pub(crate) struct VolumeReport {
    pub(crate) path: PathBuf,
    pub(crate) policy: &'static Policy,
    pub(crate) size_bytes: u64,
    /// The way in which the volume is read and written, such as io_uring.
    pub(crate) device: &'static str,
}

impl StoreReport {
    pub(crate) fn of(opened: &OpenedStore) -> Self {
        let OpenedStore { store, missing } = opened;
        let volumes = store.volumes().map(|volume| VolumeReport {
            path: volume.path.to_owned(),
            policy: volume.policy,
            size_bytes: volume.stats.size_bytes,
            device: volume.stats.device,
        });
        Self { missing: missing.clone(), volumes: volumes.collect(), stats: store.stats() }
    }
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "larder {}", env!("CARGO_PKG_VERSION"))?;
        for (address, listener) in self.listeners.iter().zip(&self.config.listeners) {
            let scheme = if listener.tls { "https" } else { "http" };
            let role = if listener.for_nodes { "other nodes, with certificates".into() } else { self.role() };
            writeln!(f, "  listen   {scheme}://{address}  {role}")?;
        }
        if let Some(origin) = &self.config.default_origin {
            writeln!(
                f,
                "  origin   {origin} for every host{}",
                if self.config.has_site_origins() { " not below" } else { "" }
            )?;
        }
        self.write_paths(f)?;
        for site in &self.config.sites {
            write!(f, "  site     {}", about(site))?;
            if let Some(origins) = &site.origins {
                let urls: Vec<String> = origins.members.iter().map(|(url, _)| url.to_string()).collect();
                write!(f, " from {}", urls.join(", "))?;
            }
            writeln!(f, "{}", if site.policy.is_some() { ", with settings of its own" } else { "" })?;
        }
        if let Some(intercept) = &self.config.intercept {
            let shown = |hosts: &[HostPattern]| hosts.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            let except = if intercept.hosts.except.is_empty() { "" } else { " except " };
            let hosts = shown(&intercept.hosts.hosts);
            let others = shown(&intercept.hosts.except);
            writeln!(
                f,
                "  https    cached for {hosts}{except}{others}, with the CA {}",
                intercept.authority.certificate.display()
            )?;
        }
        match self.config.offline {
            Offline::Off => {}
            Offline::Auto => {
                writeln!(f, "  offline  auto: stored responses are served, stale too, once several origins fail")?;
            }
            mode => writeln!(f, "  offline  {mode}: no origin is contacted; larder offline off ends this")?,
        }
        if let Some(automatic) = &self.automatic {
            writeln!(f, "  policy   {automatic}")?;
        }
        self.write_store(f)?;
        let limits = &self.config.limits;
        let waiting = limits.waiting_count_max as u64;
        let connections = self.config.policy.limits.origin_connection_count_max as u64;
        let waiting = size::show_count(waiting);
        let connections = size::show_count(connections);
        writeln!(f, "  limits   {waiting} requests may wait, {connections} connections to one origin")?;
        if let Some(admin) = self.admin {
            let scheme = if self.config.admin_tls { "https" } else { "http" };
            writeln!(f, "  admin    {scheme}://{admin}/")?;
            if !self.config.admin_tls && !admin.ip().is_loopback() {
                writeln!(f, "  warning  tokens reach the admin listener unencrypted: set `tls = true` in [admin]")?;
            }
        }
        if let Some(wanted) = self.connections_wanted {
            let connections = self.config.limits.connection_count_max;
            writeln!(
                f,
                "  warning  {connections} clients may connect instead of {wanted}, because the limit on open files is low \
                 (see ulimit -n)"
            )?;
        }
        match self.listeners.first() {
            Some(address) => write!(f, "  try      {}", self.example(*address)),
            None => Ok(()),
        }
    }
}

impl Report<'_> {
    fn role(&self) -> String {
        let reverse = self.config.default_origin.is_some() || self.config.has_site_origins();
        let proxy = match (self.config.forward, reverse) {
            (false, false) => None,
            (true, false) => Some("forward proxy"),
            (true, true) => Some("forward and reverse proxy"),
            (false, true) => Some("reverse proxy"),
        };
        let mirror = (!self.config.mirrors.is_empty() && !reverse).then_some("mirror");
        let build_cache = (!self.config.build_caches.is_empty()).then_some("build cache");
        [proxy, mirror, build_cache].into_iter().flatten().collect::<Vec<_>>().join(" and ")
    }

    /// Writes a line for each path of this proxy that is a mirror or a build cache.
    fn write_paths(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for mirror in &self.config.mirrors {
            writeln!(f, "  mirror   {} is {}", mirror.path, mirror.origin)?;
        }
        for cache in &self.config.build_caches {
            let writers = match cache.local_writers {
                _ if cache.tokens.is_some() => "writable for clients with a token",
                LocalWriters::All => "writable for programs on this machine",
                LocalWriters::OwnUser => "writable for your programs on this machine",
                LocalWriters::None => "read-only, see `tokens`",
            };
            let origin = cache.origin.as_ref().map(|url| format!(", reads from {url}")).unwrap_or_default();
            writeln!(f, "  builds   {}: {writers}{origin}", cache.path)?;
        }
        Ok(())
    }

    fn write_store(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(StoreReport { missing, volumes, stats }) = &self.store else {
            writeln!(f, "  store    none: cached responses are lost when larder stops")?;
            return self.write_memory(f);
        };
        for VolumeReport { path, policy, size_bytes, device } in volumes {
            writeln!(f, "  store    {}: {} on {device}, policy {policy}", path.display(), size::show(*size_bytes))?;
        }
        for MissingDisk { path, why } in missing {
            writeln!(f, "  warning  {}: not in use, its share of the keys misses: {why}", path.display())?;
        }
        write!(f, "  entries  {}", entries(stats))?;
        if stats.entries >= ENTRIES_TELLING {
            let bits = stats.index_bytes as f64 * 8.0 / stats.entries as f64;
            write!(f, "; the index takes {bits:.1} bits per entry")?;
        }
        writeln!(f)?;
        self.write_memory(f)
    }

    fn write_memory(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FittedMemory { plan, basis } = self.memory;
        writeln!(f, "  memory   {plan}")?;
        match basis {
            Some(basis) => writeln!(f, "  memory   {basis}; it shrinks while memory is short"),
            None => Ok(()),
        }
    }

    fn example(&self, address: SocketAddr) -> String {
        let address = reachable(address);
        // The example cannot name the CA that signed the certificate, so it uses `--proxy-insecure`.
        let tls = self.config.listeners.first().is_some_and(|listener| listener.tls);
        if self.config.forward {
            let (scheme, trust) = if tls { ("https", "--proxy-insecure ") } else { ("http", "") };
            return format!("curl {trust}-x {scheme}://{address} http://example.com/");
        }
        let named = self.config.sites.iter().filter(|site| site.origins.is_some()).find_map(|site| site.hosts.first());
        let named = named.filter(|_| self.config.default_origin.is_none()).cloned();
        // Over TLS, a request for a host that the certificate does not cover would get 421.
        let covered = || self.config.identities.first()?.host_names().ok()?.into_iter().next();
        match named.or_else(|| covered().filter(|_| tls)).map(|host| host.replace('*', "www")) {
            Some(host) if tls => {
                let port = address.port();
                let ip = SocketAddr::new(address.ip(), 0).to_string();
                let ip = ip.strip_suffix(":0").unwrap_or(&ip);
                format!("curl -k --resolve {host}:{port}:{ip} https://{host}:{port}/")
            }
            Some(host) => format!("curl -H 'Host: {host}' http://{address}/"),
            None if tls => format!("curl -k https://{address}/"),
            None => format!("curl http://{address}/"),
        }
    }
}

/// Returns an address on which clients of this machine reach a listener. A wildcard address becomes loopback.
pub(crate) fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    address
}

/// Describes which requests a site matches.
fn about(site: &larder_proxy::Site) -> String {
    let hosts = if site.hosts.is_empty() { "every host".to_owned() } else { site.hosts.join(", ") };
    let paths = if site.paths.is_empty() { String::new() } else { format!(" below {}", site.paths.join(", ")) };
    let listeners: Vec<String> = site.listeners.iter().map(ToString::to_string).collect();
    let through = if listeners.is_empty() { String::new() } else { format!(" through {}", listeners.join(", ")) };
    format!("{hosts}{paths}{through}")
}

/// Describes how many entries the store has, as far as that is known, and how many fit.
pub(crate) fn entries(stats: &Stats) -> String {
    let known = size::show_count(stats.entries);
    let room = room(stats);
    match stats.recoverable_segments.saturating_sub(stats.recovered_segments) {
        _ if stats.loaded && stats.counts_all_entries => format!("{known} (room for {room})"),
        _ if stats.loaded => format!("at least {known} (room for {room}; not all are known in memory)"),
        0 => format!("loading, lookups may miss until then; room for {room}"),
        left => format!("loading ({left} segments left), lookups may miss until then; room for {room}"),
    }
}

/// Describes how many entries fit. Counts entries of the usual mean size, unless the index has room for fewer entries.
///
/// The start lines also print the size of the index for this number of entries.
fn room(stats: &Stats) -> String {
    let mean_bytes = mean_entry_bytes_default(stats.size_bytes);
    let usual = stats.size_bytes / mean_bytes;
    if stats.entries_max < usual {
        return format!("at most {}", size::show_count(stats.entries_max));
    }
    format!("about {} of {}", size::show_count(usual), size::show(mean_bytes))
}

/// Formats a rate with three significant digits, and commas between thousands.
pub(crate) fn rate(per_second: f64) -> String {
    match per_second {
        0.0..10.0 => format!("{per_second:.2}"),
        10.0..100.0 => format!("{per_second:.1}"),
        _ => {
            let step = f64::powi(10.0, (per_second.log10().floor() as i32 - 2).max(0));
            size::show_count(((per_second / step).round() * step) as u64)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{
        DiskSettings, RunSettings,
        memory_plan::{self, TotalMemory},
    };

    fn fitted() -> FittedMemory {
        let mut settings = RunSettings { memory: TotalMemory::Bytes(64_000_000), ..RunSettings::default() };
        (settings.store.disks, settings.proxy.worker_count) = (vec![DiskSettings::None], 1);
        memory_plan::fit(&mut settings, None).unwrap()
    }

    fn check(change: impl FnOnce(&mut ProxyConfig), expected: &[&str]) {
        let mut config = ProxyConfig::default();
        change(&mut config);
        let listeners = ["127.0.0.1:3128".parse().unwrap()];
        let shown = Report {
            config: &config,
            listeners: &listeners,
            admin: None,
            store: None,
            automatic: None,
            memory: &fitted(),
            connections_wanted: None,
        }
        .to_string();
        for line in expected {
            assert!(shown.lines().any(|shown| shown.trim() == *line), "{line:?} is not in {shown}");
        }
    }

    #[test]
    fn every_role_has_an_example_that_works_for_it() {
        check(
            |_| {},
            &[
                "listen   http://127.0.0.1:3128  forward proxy",
                "try      curl -x http://127.0.0.1:3128 http://example.com/",
            ],
        );
        let reverse = |config: &mut ProxyConfig| {
            config.forward = false;
            config.default_origin = Some("http://127.0.0.1:80".parse().unwrap());
        };
        check(reverse, &["listen   http://127.0.0.1:3128  reverse proxy", "try      curl http://127.0.0.1:3128/"]);
        let site = |config: &mut ProxyConfig| {
            config.forward = false;
            let origin: larder_proxy::OriginUrl = "http://10.0.0.1".parse().unwrap();
            let origins = std::sync::Arc::new(origin.into());
            config.sites = vec![larder_proxy::Site::of_host("a.example", origins)];
        };
        check(
            site,
            &[
                "site     a.example from http://10.0.0.1:80",
                "try      curl -H 'Host: a.example' http://127.0.0.1:3128/",
            ],
        );
    }

    #[test]
    fn example_over_tls_names_a_host_of_the_certificate() {
        let directory = tempfile::tempdir().unwrap();
        let over_tls = |names: &[&str], change: fn(&mut ProxyConfig), example: &str| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            let made = rcgen::generate_simple_self_signed(names).unwrap();
            let certificate = directory.path().join("a.pem");
            std::fs::write(&certificate, made.cert.pem()).unwrap();
            let identity = larder_proxy::TlsIdentity { certificate, key: directory.path().join("a.key") };
            let change = |config: &mut ProxyConfig| {
                config.listeners = vec![larder_proxy::Listener::tls("127.0.0.1:3128".parse().unwrap())];
                (config.forward, config.identities) = (false, vec![identity]);
                change(config);
            };
            check(change, &[&format!("try      curl {example}")]);
        };
        let reverse: fn(&mut ProxyConfig) =
            |config| config.default_origin = Some("http://127.0.0.1:80".parse().unwrap());
        over_tls(
            &["shop.example", "b.example"],
            reverse,
            "-k --resolve shop.example:3128:127.0.0.1 https://shop.example:3128/",
        );
        over_tls(&["*.b.example"], reverse, "-k --resolve www.b.example:3128:127.0.0.1 https://www.b.example:3128/");
        over_tls(&["127.0.0.1"], reverse, "-k https://127.0.0.1:3128/");
        let site: fn(&mut ProxyConfig) = |config| {
            let origin: larder_proxy::OriginUrl = "http://10.0.0.1".parse().unwrap();
            config.sites = vec![larder_proxy::Site::of_host("b.example", std::sync::Arc::new(origin.into()))];
        };
        over_tls(&["a.example", "b.example"], site, "-k --resolve b.example:3128:127.0.0.1 https://b.example:3128/");
        over_tls(
            &["a.example"],
            |config| config.forward = true,
            "--proxy-insecure -x https://127.0.0.1:3128 http://example.com/",
        );
    }

    #[test]
    fn example_names_an_address_that_a_client_can_use() {
        for (listen, shown) in
            [("0.0.0.0:3128", "127.0.0.1:3128"), ("[::]:3128", "[::1]:3128"), ("192.168.0.1:3128", "192.168.0.1:3128")]
        {
            assert_eq!(reachable(listen.parse().unwrap()).to_string(), shown);
        }
    }

    #[test]
    fn loading_and_a_low_limit_are_told() {
        let mut stats = Stats::default();
        (stats.size_bytes, stats.entries_max, stats.index_bytes) = (500_000_000, 1_000_000, 61_035);
        (stats.recoverable_segments, stats.recovered_segments) = (7, 2);
        let show = |stats: &Stats| {
            let volume = VolumeReport {
                path: "/s".into(),
                policy: Policy::default_policy(),
                size_bytes: 64_000_000,
                device: "threads",
            };
            let missing = vec![MissingDisk { path: "/t".into(), why: "no such device".to_owned() }];
            let store = Some(StoreReport { missing, volumes: vec![volume], stats: stats.clone() });
            Report {
                config: &ProxyConfig::default(),
                listeners: &[],
                admin: None,
                store,
                automatic: None,
                memory: &fitted(),
                connections_wanted: Some(20_000),
            }
            .to_string()
        };
        for line in [
            "store    /s: 64 MB on threads, policy log\n",
            "warning  /t: not in use, its share of the keys misses: no such device\n",
            "MB memory cache\n",
        ] {
            assert!(show(&stats).contains(line), "{}", show(&stats));
        }
        let loading =
            "entries  loading (5 segments left), lookups may miss until then; room for about 61,035 of 8.19 kB\n";
        assert!(show(&stats).contains(loading), "{}", show(&stats));
        stats.entries = 61_035;
        let bits = "; the index takes 8.0 bits per entry\n";
        assert!(show(&stats).contains(bits), "{}", show(&stats));
        stats.entries = 0;
        let warning = "warning  16384 clients may connect instead of 20000, because the limit on open files is low";
        assert!(show(&stats).contains(warning), "{}", show(&stats));
        (stats.loaded, stats.recovered_segments, stats.counts_all_entries) = (true, 7, true);
        assert!(show(&stats).contains("entries  0 (room for about 61,035 of 8.19 kB)\n"), "{}", show(&stats));
        stats.counts_all_entries = false;
        stats.entries_max = 50_000;
        let unknown = "entries  at least 0 (room for at most 50,000; not all are known in memory)\n";
        assert!(show(&stats).contains(unknown), "{}", show(&stats));
    }

    #[test]
    fn memory_only_says_what_it_means() {
        check(
            |_| {},
            &[
                "store    none: cached responses are lost when larder stops",
                "memory   64 MB in all: 22.5 MB program, 8 MB bodies in transfer, 4 MB connections, 29.5 MB memory cache",
            ],
        );
        check(
            |config| {
                config.limits.waiting_count_max = 50_000;
                config.policy.limits.origin_connection_count_max = 1000;
            },
            &["limits   50,000 requests may wait, 1,000 connections to one origin"],
        );
    }
}
