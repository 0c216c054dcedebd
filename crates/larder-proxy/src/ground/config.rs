//! The configuration of a proxy: plain data, filled by the program and checked once at start.
//!
//! Owns: the options, their defaults and their limits. Files and arguments are read elsewhere.

mod build_cache;
mod fleet;
mod intercept;
mod listener;
mod memory;
mod mirrors;
mod offline;
mod origin_url;
mod origins;
mod parent;
mod policy;
mod rate_limit;
mod shared_log;
mod sites;

use std::{io, net::SocketAddr, path::PathBuf, time::Duration};

use ipnet::IpNet;

pub use crate::ground::cache::tier::{TierBucket, TierConfig};
pub use build_cache::{BuildCache, LocalWriters};
pub use fleet::{ClientField, Fleet, FleetName, FleetNode, InvalidFleetNode, NodeTls};
pub(crate) use intercept::normal as normal_host;
pub use intercept::{HostPattern, HostRules, Intercept, InvalidHostPattern};
pub use listener::{Listener, TlsIdentity};
pub use mirrors::{Mirror, MirrorLink, PackageIndex};
pub use offline::Offline;
pub use origin_url::{InvalidOriginUrl, OriginUrl};
pub use origins::{Balance, GroupRules, HostSent, Origins};
pub use parent::{Direct, DirectFallback, InvalidParent, Parent, Parents};
pub use policy::{CacheSettings, SiteLimits, SitePolicy};
pub use rate_limit::{RateLimit, RateSharing};
pub use shared_log::{InvalidSharedLog, LogSystem, SharedLog};
pub use sites::Site;

use crate::{figures::log_format::LogFormat, ground::machine_memory::MachineMemory, targets::lists::HostLists};

/// The configuration of a proxy. [`crate::Proxy::start`] refuses invalid values; it never corrects them.
#[derive(Clone, Debug)]
pub struct ProxyConfig {
    /// Addresses on which clients connect. For port 0, the system chooses a free port; see
    /// [`crate::RunningProxy::local_addrs`].
    pub listeners: Vec<Listener>,
    /// Certificates for listeners with TLS. A client gets the certificate for the name it requests, otherwise the
    /// first.
    pub identities: Vec<TlsIdentity>,
    /// Number of worker threads, each with its own runtime and listeners. Default: one per core; from 1 to 1024.
    pub worker_count: usize,
    /// Sites: hosts or paths whose requests go to their own origins, or have their own policy.
    ///
    /// The first match counts. A site's origin takes precedence over forward mode.
    pub sites: Vec<Site>,
    /// Reverse proxy: the origin for every host that no site names.
    pub default_origin: Option<OriginUrl>,
    /// Mirrors: paths of this proxy that stand for other servers. They take precedence over the default origin. Default
    /// none.
    pub mirrors: Vec<Mirror>,
    /// Package servers whose listings, with the files' digests, are on other servers. Default none.
    pub package_indexes: Vec<PackageIndex>,
    /// Paths of this proxy under which build tools store results. They take precedence over mirrors and the default
    /// origin. Default none.
    pub build_caches: Vec<BuildCache>,
    /// Whether Larder is a forward proxy: serves absolute-form requests and CONNECT for all targets in
    /// [`Self::targets`]. Default on.
    pub forward: bool,
    /// The parent proxies for origins that clients and mirrors name. Origins of sites name their own parent. Default
    /// none.
    pub parents: Parents,
    /// The addresses that the proxy may connect to for forward-proxy requests and for tunnels.
    pub targets: TargetRules,
    /// Ports to which CONNECT is allowed. With more ports, clients can tunnel other protocols through the proxy.
    /// Default 443 and 8443.
    pub connect_ports: Vec<u16>,
    /// Forward proxy: hosts whose `https://` requests are decrypted and cached instead of tunneled. Default none.
    pub intercept: Option<Intercept>,
    /// Forward proxy: the hosts for which the script at `/proxy.pac` and `/wpad.dat` selects this proxy. Default: all.
    pub pac: HostRules,
    /// Files with block lists and allow lists of hosts, for forward requests and tunnels. They are read again when they
    /// change. Default none.
    pub lists: HostLists,
    /// Networks whose clients are served. If empty, every client that can connect is served. Default: empty.
    pub clients: Vec<IpNet>,
    /// The proxies and nodes that this proxy works with: load balancers, and the other nodes of its fleet.
    pub fleet: Fleet,
    /// Rate limits for responses to clients. Default none.
    pub rate_limits: Vec<RateLimit>,
    /// Limits that apply before a request's site is known. Those that a site can override are in [`Self::policy`].
    pub limits: Limits,
    /// Memory limit of the whole process, in bytes. The memory cache shrinks when other parts grow. Default none: each
    /// part has only its own limit.
    pub memory_bytes: Option<u64>,
    /// Lowers the memory limit while memory is short on the machine or in this process's control groups.
    ///
    /// The memory cache shrinks, and grows again later. The store's index never shrinks. Default none: the limit stays.
    pub memory_yields: Option<MachineMemory>,
    /// Size of the memory cache for whole responses, including heads and bookkeeping, in bytes. 0 disables it. Default
    /// 64 MiB.
    pub hot_bytes: u64,
    /// Memory for all bodies in transfer to clients, in bytes. Once it is used up, each body has 16 KiB.
    ///
    /// With more, fetches from origins finish sooner when clients are slow. Default none: a quarter of `hot_bytes`, at
    /// least 8 MiB.
    pub window_bytes: Option<u64>,
    /// Memory for connections, exchanges and the memory cache together, in bytes.
    ///
    /// The memory cache shrinks when the others grow. Requests for which no memory is left get 503. Default none: no
    /// limit.
    pub exchange_bytes: Option<u64>,
    /// The policy of requests whose site has no policy of its own.
    pub policy: SitePolicy,
    /// The destination of the access log. Default none: no log is written.
    pub access_log: Option<AccessLogTarget>,
    /// The format of the access log's lines. Default: Squid's native format.
    pub log_format: LogFormat,
    /// Whether the access log contains the queries of URLs, which may be private. Default off.
    pub log_queries: bool,
    /// Whether the most recent requests are kept in memory for the dashboard. Default on.
    pub query_log: bool,
    /// Address of the admin listener, for the dashboard, `/metrics` and `/healthz`. Default none: there is no such
    /// listener.
    pub admin: Option<SocketAddr>,
    /// Whether the admin listener uses TLS, with the certificates of [`Self::identities`]. Default off.
    pub admin_tls: bool,
    /// A file of tokens for the admin listener. Each line has a role (`read`, `purge` or `control`) and a token.
    ///
    /// Each request except `/healthz` must carry one of the tokens. Required if other machines can reach the listener.
    /// Default none.
    pub admin_tokens: Option<PathBuf>,
    /// The proxy's name in Via and CDN-Loop (RFC 9110 7.6.3), by which it detects loops.
    ///
    /// It may contain letters, digits, `-`, `.` and `_`. Proxies in a chain need different names. Default none:
    /// `larder-` and eight digits, chosen at random at start.
    pub pseudonym: Option<String>,
    /// Whether a Via field is added to requests and responses. Without it, only CDN-Loop detects loops. Default on.
    pub add_via: bool,
    /// Whether responses have Cache-Status (RFC 9211), which says how the cache answered. Default on.
    pub add_cache_status: bool,
    /// Whether X-Forwarded-For, X-Forwarded-Proto and X-Forwarded-Host tell origins the client's address, scheme and
    /// host. Default off.
    pub add_x_forwarded: bool,
    /// Whether Forwarded (RFC 7239) tells origins the client's address. Default off.
    pub add_forwarded: bool,
    /// Whether request fields with an underscore in their names are forwarded. Default off.
    ///
    /// Programs behind CGI, WSGI or Rack cannot distinguish such a field from the one with a hyphen, so a client could
    /// forge the latter.
    pub keep_underscores: bool,
    /// A file of users and passwords in the format of `htpasswd`, with bcrypt or SHA-crypt hashes. Forward requests and
    /// tunnels must carry a user's credentials. Default none: no credentials are required.
    pub passwords: Option<PathBuf>,
    /// A PEM file of CAs that are trusted for origins, in addition to the system's.
    pub origin_ca_file: Option<PathBuf>,
    /// The offline mode: whether origins are contacted, and which stored responses are served if they are not. Default
    /// `Off`.
    pub offline: Offline,
    /// Path prefix of the files that keep the proxy's state across restarts, next to the store. `.missing` and other
    /// suffixes are appended. Default none: no state is kept.
    pub state_base: Option<PathBuf>,
    /// The second tier, which receives entries that the store evicts. It needs a store and `state_base`. Default none.
    pub tier: TierConfig,
    /// Whether HTTP/2 is used with origins that use TLS and support it. Default on.
    pub origin_http2: bool,
    /// Rules that override the caching directives of some responses. Default none.
    pub rules: larder_http::Rules,
}

impl Default for ProxyConfig {
    fn default() -> Self {
        Self {
            listeners: vec![Listener::plain(([127, 0, 0, 1], 3128).into())],
            identities: Vec::new(),
            worker_count: std::thread::available_parallelism().map_or(1, usize::from),
            sites: Vec::new(),
            default_origin: None,
            mirrors: Vec::new(),
            package_indexes: Vec::new(),
            build_caches: Vec::new(),
            forward: true,
            parents: Parents::default(),
            targets: TargetRules::default(),
            connect_ports: vec![443, 8443],
            intercept: None,
            pac: HostRules::default(),
            lists: HostLists::default(),
            clients: Vec::new(),
            fleet: Fleet::default(),
            rate_limits: Vec::new(),
            limits: Limits::default(),
            memory_bytes: None,
            memory_yields: None,
            hot_bytes: 64 << 20,
            window_bytes: None,
            exchange_bytes: None,
            policy: SitePolicy::default(),
            access_log: None,
            log_format: LogFormat::default(),
            log_queries: false,
            query_log: true,
            admin: None,
            admin_tls: false,
            admin_tokens: None,
            pseudonym: None,
            add_via: true,
            add_cache_status: true,
            add_x_forwarded: false,
            add_forwarded: false,
            keep_underscores: false,
            passwords: None,
            origin_ca_file: None,
            offline: Offline::Off,
            state_base: None,
            tier: TierConfig::default(),
            origin_http2: true,
            rules: larder_http::Rules::default(),
        }
    }
}

impl ProxyConfig {
    /// Returns the configured name of this proxy for Via, CDN-Loop and Cache-Status, or `None` if none is configured.
    pub(crate) fn marking_name(&self) -> Option<&str> {
        let node = self.fleet.node.as_deref().filter(|_| self.fleet.shows_node);
        self.pseudonym.as_deref().or(node)
    }

    /// Returns the memory for connections, exchanges and the memory cache, in bytes. `u64::MAX` means no limit.
    pub(crate) fn exchange_bytes(&self) -> u64 {
        self.exchange_bytes.unwrap_or(u64::MAX)
    }

    /// Returns the memory for bodies in transfer to clients, in bytes: the configured size or the default.
    pub fn window_bytes(&self) -> u64 {
        self.window_bytes.unwrap_or((self.hot_bytes / WINDOW_SHARE).max(WINDOW_BYTES_MIN))
    }

    /// Returns the general policy, then the policies of sites that have their own.
    pub(crate) fn policies(&self) -> impl Iterator<Item = &SitePolicy> {
        std::iter::once(&self.policy).chain(self.sites.iter().filter_map(|site| site.policy.as_ref()))
    }

    /// Returns the general policy and the policies of sites, to change them.
    pub fn policies_mut(&mut self) -> impl Iterator<Item = &mut SitePolicy> {
        std::iter::once(&mut self.policy).chain(self.sites.iter_mut().filter_map(|site| site.policy.as_mut()))
    }

    /// Returns whether any site has its own origins.
    pub fn has_site_origins(&self) -> bool {
        self.sites.iter().any(|site| site.origins.is_some())
    }

    /// Returns whether any origin is contacted through a parent.
    pub(crate) fn has_parents(&self) -> bool {
        let of_sites = self.sites.iter().filter_map(|site| site.origins.as_ref());
        let mut of_sites = of_sites.flat_map(|origins| origins.members.iter().map(|(url, _)| url));
        let has_parent = |url: &OriginUrl| url.parent.is_some();
        !self.parents.members.is_empty()
            || self.default_origin.as_ref().is_some_and(has_parent)
            || of_sites.any(has_parent)
    }

    /// Returns the path of the state file with the suffix `kind`. `None` if no state is kept across restarts.
    pub(crate) fn state_file(&self, kind: &str) -> Option<PathBuf> {
        self.state_base.as_deref().map(|base| base.with_added_extension(kind))
    }

    /// Checks that all values are within their ranges. [`crate::Proxy::start`] calls this first.
    ///
    /// # Errors
    /// `InvalidInput`, which says which value is wrong.
    pub fn check(&self) -> io::Result<()> {
        let refuse = |what: String| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        if self.listeners.is_empty() {
            return refuse("no listener is configured".into());
        }
        if !(1..=WORKER_COUNT_MAX).contains(&self.worker_count) {
            return refuse(format!("worker count must be from 1 to {WORKER_COUNT_MAX}: {}", self.worker_count));
        }
        let has_paths = !self.mirrors.is_empty() || !self.build_caches.is_empty();
        if !self.forward && self.default_origin.is_none() && !self.has_site_origins() && !has_paths {
            return refuse("nothing to serve: forward mode is off and no site, mirror or origin is configured".into());
        }
        if let Some(fault) = self.mirrors.iter().find_map(Mirror::fault).or_else(|| self.build_caches_fault()) {
            return refuse(fault);
        }
        if !(HEADER_BYTES_MIN..=HEADER_BYTES_MAX).contains(&self.limits.header_bytes_max) {
            return refuse(format!(
                "header size limit must be from {HEADER_BYTES_MIN} to {HEADER_BYTES_MAX} bytes: {}",
                self.limits.header_bytes_max
            ));
        }
        if let (Some(_), Some(origin)) = (&self.intercept, &self.default_origin) {
            return refuse(format!("interception and an origin for every host exclude each other: {origin}"));
        }
        if let Some(admin) = self.admin.filter(|admin| !admin.ip().is_loopback() && self.admin_tokens.is_none()) {
            return refuse(format!("the admin listener is open to other machines and has no tokens: {admin}"));
        }
        if self.admin_tls && self.identities.is_empty() {
            return refuse("the admin listener uses TLS, and there is no certificate".to_owned());
        }
        let is_reverse_alone = !self.forward || self.default_origin.is_some();
        if let Some(listener) = self.listeners.iter().find(|listener| listener.origin_form && is_reverse_alone) {
            return refuse(format!("origin_form needs forward mode: {}", listener.address));
        }
        let listeners: Vec<SocketAddr> = self.listeners.iter().map(|listener| listener.address).collect();
        let fault = self.sites.iter().find_map(|site| site.fault(&listeners, &self.policy));
        let fault = fault
            .or_else(|| self.fleet.fault())
            .or_else(|| self.parents.fault())
            .or_else(|| self.rate_limits.iter().find_map(RateLimit::fault));
        if let Some(fault) = fault.or_else(|| self.policy.fault()) {
            return refuse(fault);
        }
        Ok(())
    }
}

/// The addresses that the proxy may connect to for forward-proxy requests and for tunnels.
///
/// A target's name is resolved first, and the proxy connects only to an address that was checked.
#[derive(Clone, Debug, Default)]
pub struct TargetRules {
    /// Networks that are allowed although they are loopback, private, link-local or otherwise special.
    pub allow: Vec<IpNet>,
    /// Networks that are always refused, even if `allow` contains them.
    pub deny: Vec<IpNet>,
}

/// Limits on connections, on heads and on the whole process. They apply before a request's site is known.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Maximum length of a request's or response's head, in bytes. Default 64 KiB; from 8 KiB to 1 MiB.
    pub header_bytes_max: usize,
    /// Maximum number of fields of a request or response. Default 400.
    pub header_count_max: usize,
    /// Maximum number of concurrent requests on one HTTP/2 connection of a client. Default 128.
    pub stream_count_max: u32,
    /// Maximum number of requests that a client may abandon within ten seconds on one HTTP/2 connection. Default 500.
    ///
    /// Exceeding the limit closes the connection.
    pub abandoned_count_max: u32,
    /// Maximum control frames (SETTINGS, PING, PRIORITY, WINDOW_UPDATE and similar) in ten seconds on one HTTP/2
    /// connection.
    ///
    /// The limit grows by 16 with each request, and by one with each 64 bytes that the client receives. Exceeding the
    /// limit closes the connection. A low limit disconnects clients that acknowledge a slow transfer byte by byte.
    /// Default 2000.
    pub control_count_max: u32,
    /// Maximum number of client connections, over all workers. Default 16384.
    pub connection_count_max: usize,
    /// Maximum number of connections from one client address (of IPv6: one /64 network), over all workers.
    ///
    /// Connections of trusted proxies and load balancers do not count. Default none: no limit.
    pub client_connection_count_max: Option<usize>,
    /// Maximum number of concurrent requests from one client address (of IPv6: one /64 network), over all workers.
    ///
    /// Hits from memory and open tunnels do not count. Default none: no limit.
    pub client_request_count_max: Option<usize>,
    /// Maximum number of requests that wait for a response, over all workers. Further requests get 503.
    ///
    /// Hits from memory do not wait. Each waiting request needs 64 KiB, so a higher limit needs more memory when
    /// origins are slow. Default: as many as fit in a quarter of the machine's memory, at least 1024.
    pub waiting_count_max: usize,
    /// Maximum time that a ready request may wait for the processor. If every request within half a second waits
    /// longer, a share of the requests gets 503.
    ///
    /// The share grows until the wait is shorter. Hits from memory are never refused. Zero refuses nothing. Default 50
    /// ms. A response waits for the processor several times, so it takes longer in total.
    pub lag: Duration,
    /// Maximum time that a client connection may be idle between requests. Default 60 s.
    pub idle: Duration,
    /// Maximum time that a client may take to send the head of a request. Default 30 s.
    pub header: Duration,
    /// Maximum time to wait for the store. After that the origin is contacted, and a store that stays slow is not used
    /// for a while.
    ///
    /// With a longer time, a slow disk still gives hits. With a shorter one, clients wait less when a disk fails.
    /// Default 3 s.
    pub store: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            header_bytes_max: 64 << 10,
            header_count_max: 400,
            stream_count_max: 128,
            abandoned_count_max: 500,
            control_count_max: 2000,
            connection_count_max: 16_384,
            client_connection_count_max: None,
            client_request_count_max: None,
            waiting_count_max: memory::waiting_count_max(),
            lag: Duration::from_millis(50),
            idle: Duration::from_secs(60),
            header: Duration::from_secs(30),
            store: Duration::from_secs(3),
        }
    }
}

/// The destination of the access log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessLogTarget {
    /// The log is written to standard output.
    Stdout,
    /// The log is appended to this file, which is created if it does not exist.
    File(PathBuf),
}

/// The default of `window_bytes` is `hot_bytes` divided by this number, but at least `WINDOW_BYTES_MIN`.
const WINDOW_SHARE: u64 = 4;
const WINDOW_BYTES_MIN: u64 = 8 << 20;
const WORKER_COUNT_MAX: usize = 1024;
/// Smallest permitted limit on a head, in bytes. Usual heads are shorter.
const HEADER_BYTES_MIN: usize = 8 << 10;
const HEADER_BYTES_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_configuration_is_accepted_and_empty_ones_are_not() {
        let mut policy = SitePolicy::default();
        policy.cache.group_window = Duration::from_secs(61);
        assert!(ProxyConfig::default().check().is_ok());
        assert!(ProxyConfig { listeners: vec![], ..ProxyConfig::default() }.check().is_err());
        assert!(ProxyConfig { forward: false, ..ProxyConfig::default() }.check().is_err());
        assert!(ProxyConfig { policy, ..ProxyConfig::default() }.check().is_err());
    }
}
