//! Builds the state that all workers share from a configuration.
//!
//! Owns: reading the files that a configuration names. The only threads started here are those that watch files and
//! that write the access log; sockets are opened elsewhere. Invariant: every step that can fail comes before any change
//! of surviving state.

use std::{io, net::SocketAddr, sync::Arc};

use http::Version;
use larder_http::{
    cache_status::{CACHE_NAME, node_name},
    fields::via::Pseudonym,
};
use larder_wire::HeadLimits;
use tokio_rustls::TlsAcceptor;

use crate::{
    door::{certificates::CertificateSet, opening, passwords::PasswordList},
    figures::access_log::AccessLog,
    fleet::{keys::FleetKeys, link::FleetLink, peers::FleetPeers, shared_log::stream::SharedLogLink},
    ground::{
        cache::{CacheShared, answer::marks::ResponseMarks, patience::StorePatience},
        config::ProxyConfig,
        delays::DelayTable,
        file_watcher::FileWatcher,
        marks::ResponseMarkers,
    },
    operators::admin_tokens::AdminTokens,
    origins::{
        access::OriginsShared,
        room::OriginRooms,
        tls::{self, OriginTls},
        ways::ParentGroup,
    },
    run::shared::{ProxyState, policies::PolicyTable, survivors::Survivors},
    targets::{
        build_caches::{BuildCacheTable, BuildCacheTokens},
        intercept::Interceptor,
        listings::ListingTable,
        lists::ActiveLists,
        mirrors::MirrorTable,
        routes::SiteRoutes,
        siblings::{Siblings, rules_of},
    },
};

/// The state that workers share, built from a configuration.
pub(super) struct Assembly {
    pub(super) shared: Arc<ProxyState>,
    /// The watchers of the files that the configuration names. Dropping one ends its watch.
    pub(super) file_watchers: Vec<FileWatcher>,
}

/// The content of the files that a configuration names, which are read before anything is changed.
pub(super) struct ConfigFiles {
    pseudonym: Option<Pseudonym>,
    passwords: Option<Arc<PasswordList>>,
    admin_tokens: Option<AdminTokens>,
    certificates: Option<Arc<CertificateSet>>,
    acceptor: Option<TlsAcceptor>,
    lists: Option<Arc<ActiveLists>>,
    interceptor: Option<Arc<Interceptor>>,
    fleet_keys: Option<FleetKeys>,
    build_cache_tokens: BuildCacheTokens,
    file_watchers: Vec<FileWatcher>,
}

impl ConfigFiles {
    /// Reads the files that a configuration names.
    ///
    /// # Errors
    /// `InvalidInput` with the file and its error.
    pub(super) fn read(config: &ProxyConfig) -> io::Result<Self> {
        let refused = |why| io::Error::new(io::ErrorKind::InvalidInput, why);
        let pseudonym = config.marking_name().map(named).transpose()?;
        check_authorities(config)?;
        let passwords = config.passwords.as_deref().map(PasswordList::load).transpose().map_err(refused)?.map(Arc::new);
        let admin_tokens = config.admin_tokens.as_deref().map(AdminTokens::load).transpose().map_err(refused)?;
        let fleet_keys = FleetKeys::load(&config.fleet).map_err(refused)?;
        let build_cache_tokens = BuildCacheTokens::load(config).map_err(refused)?;
        let mut file_watchers = Vec::new();
        let certificates = open_certificates(config, &mut file_watchers)?;
        let acceptor =
            certificates.as_ref().map(|certificates| opening::acceptor(Arc::clone(certificates))).transpose();
        let lists = open_lists(config, &mut file_watchers)?;
        let interceptor = config.intercept.as_ref().map(Interceptor::open).transpose()?.map(Arc::new);
        let acceptor = acceptor.map_err(io::Error::other)?;
        Ok(Self {
            pseudonym,
            passwords,
            admin_tokens,
            certificates,
            acceptor,
            lists,
            interceptor,
            fleet_keys,
            build_cache_tokens,
            file_watchers,
        })
    }
}

impl Assembly {
    /// Builds the shared state for `config`. The listeners are bound to `own_addresses`.
    ///
    /// On a reload, `before` is the state that is replaced, and `survivors` is adapted to the new configuration.
    ///
    /// # Errors
    /// The access log cannot be opened. Nothing was changed in that case.
    pub(super) fn new(
        config: ProxyConfig,
        files: ConfigFiles,
        own_addresses: Vec<SocketAddr>,
        survivors: Arc<Survivors>,
        before: Option<&ProxyState>,
    ) -> io::Result<Self> {
        let access_log = open_access_log(&config, before)?;
        if let Some(before) = before {
            survivors.adapt(&before.config, &config);
        }
        let pseudonym = files.pseudonym.unwrap_or_else(|| survivors.random_name.clone());
        let peers = Arc::clone(&survivors.fleet_peers);
        let (fleet, siblings) = fleet_of(&config, files.fleet_keys, peers, &own_addresses);
        let routes = Arc::new(SiteRoutes::new(&config));
        let origins = OriginsShared {
            heads: HeadLimits {
                bytes_max: config.limits.header_bytes_max,
                field_count_max: config.limits.header_count_max,
            },
            targets: config.targets.clone(),
            ca_file: config.origin_ca_file.clone(),
            http2: config.origin_http2,
            lists: files.lists,
            parents: ParentGroup::new(&config.parents),
            own_addresses,
            tls: OriginTls::default(),
            fleet_tls: fleet.as_ref().and_then(|link| link.tls.clone()),
            rooms: OriginRooms::new(config.limits.waiting_count_max),
            survivors: Arc::clone(&survivors.origins),
        };
        let cache = CacheShared {
            patience: StorePatience::new(config.limits.store),
            entry_bytes_max: config.policy.cache.entry_bytes_max,
            rules: config.rules.clone(),
            key_marks: Arc::<SiteRoutes>::clone(&routes),
            survivors: Arc::clone(&survivors.cache),
        };
        let compresses = config.policies().any(|policy| !policy.cache.http.compression.codings.is_empty());
        let shared = Arc::new(ProxyState {
            policies: PolicyTable::new(&config, before.map(|before| &before.policies)),
            compresses,
            cache: Arc::new(cache),
            routes,
            listings: Arc::new(ListingTable::new(&config.package_indexes)),
            mirrors: MirrorTable::new(&config.mirrors),
            build_caches: BuildCacheTable::new(&config.build_caches, files.build_cache_tokens),
            origins: Arc::new(origins),
            certificates: files.certificates,
            acceptor: files.acceptor,
            access_log,
            interceptor: files.interceptor,
            marks: Arc::new(marks_of(&config, pseudonym)),
            passwords: files.passwords,
            admin_tokens: files.admin_tokens,
            fleet,
            siblings,
            delays: DelayTable::new(&config.rate_limits),
            survivors,
            config,
        });
        Ok(Self { shared, file_watchers: files.file_watchers })
    }
}

/// Opens the access log, if one is configured. If a reload does not change its settings, the same writer continues with
/// a reopened file.
fn open_access_log(config: &ProxyConfig, before: Option<&ProxyState>) -> io::Result<Option<Arc<AccessLog>>> {
    let same = before.filter(|before| before.config.access_log == config.access_log);
    if let Some(log) = same.and_then(|before| before.access_log.as_ref()) {
        log.reopen()?;
        return Ok(Some(Arc::clone(log)));
    }
    Ok(config.access_log.as_ref().map(AccessLog::open).transpose()?.map(Arc::new))
}

/// Returns this node's links to the other nodes: one for reading their purges, and one for sharing entries with them.
fn fleet_of(
    config: &ProxyConfig,
    keys: Option<FleetKeys>,
    peers: Arc<FleetPeers>,
    own_addresses: &[SocketAddr],
) -> (Option<Arc<FleetLink>>, Option<Arc<Siblings>>) {
    let Some((FleetKeys { secret, log_credentials, tls }, own_name)) = keys.zip(config.fleet.node.clone()) else {
        return (None, None);
    };
    let secret = Arc::new(secret);
    let siblings = Siblings::new(&config.fleet, &own_name, &secret, own_addresses, rules_of(config));
    let shared = config.fleet.log.clone().map(|log| SharedLogLink { log, credentials: log_credentials });
    let timeout = config.fleet.node_timeout;
    (Some(Arc::new(FleetLink { own_name, secret, peers, timeout, tls, shared })), siblings)
}

/// Checks the file with additional CAs, so that an error shows at the start and not at the first TLS connection to an
/// origin.
pub(super) fn check_authorities(config: &ProxyConfig) -> io::Result<()> {
    let Some(path) = &config.origin_ca_file else { return Ok(()) };
    let mut roots = rustls::RootCertStore::empty();
    tls::load_ca_file(path, &mut roots).map_err(|why| io::Error::new(io::ErrorKind::InvalidInput, why))
}

fn named(name: &str) -> io::Result<Pseudonym> {
    Pseudonym::new(name).ok_or_else(|| {
        let why = format!("pseudonym must be letters, digits, '-', '.' or '_': {name:?}");
        io::Error::new(io::ErrorKind::InvalidInput, why)
    })
}

fn marks_of(config: &ProxyConfig, pseudonym: Pseudonym) -> ResponseMarkers {
    ResponseMarkers {
        add_via: config.add_via,
        response: ResponseMarks {
            via: config.add_via.then(|| pseudonym.via_value(Version::HTTP_11)),
            add_cache_status: config.add_cache_status,
            // A random name would mean nothing to readers of Cache-Status.
            cache_name: node_name(config.marking_name().unwrap_or(CACHE_NAME)),
        },
        pseudonym,
        add_x_forwarded: config.add_x_forwarded,
        add_forwarded: config.add_forwarded,
    }
}

/// Reads the certificates of TLS listeners, if there are any, and starts to watch their files.
fn open_certificates(
    config: &ProxyConfig,
    file_watchers: &mut Vec<FileWatcher>,
) -> io::Result<Option<Arc<CertificateSet>>> {
    if !config.listeners.iter().any(|listener| listener.tls && !listener.for_nodes) && !config.admin_tls {
        return Ok(None);
    }
    let refused = |why| io::Error::new(io::ErrorKind::InvalidInput, why);
    let certificates = Arc::new(CertificateSet::load(&config.identities).map_err(refused)?);
    let watched = Arc::clone(&certificates);
    let reloaded = Arc::clone(&certificates);
    file_watchers.push(FileWatcher::start("certificates", move || watched.stamps(), move || reloaded.reload())?);
    Ok(Some(certificates))
}

/// Reads the lists of hosts, if there are any, and starts to watch their files.
fn open_lists(config: &ProxyConfig, file_watchers: &mut Vec<FileWatcher>) -> io::Result<Option<Arc<ActiveLists>>> {
    if config.lists.is_empty() {
        return Ok(None);
    }
    let lists = ActiveLists::load(&config.lists).map_err(|why| io::Error::new(io::ErrorKind::InvalidInput, why))?;
    let lists = Arc::new(lists);
    let watched = Arc::clone(&lists);
    let reloaded = Arc::clone(&lists);
    file_watchers.push(FileWatcher::start("lists of hosts", move || watched.stamps(), move || reloaded.reload())?);
    Ok(Some(lists))
}
