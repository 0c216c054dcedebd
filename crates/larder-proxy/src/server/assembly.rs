//! Builds the state that all workers share from a configuration.
//!
//! Owns: reading the files that a configuration names, and the choice of the state that survives a reload. The only
//! threads started here are those that watch files; sockets are opened elsewhere. Invariant: every step that can fail
//! comes before any change of surviving state.

use std::{
    hash::{BuildHasher as _, Hasher as _, RandomState},
    io,
    net::SocketAddr,
    sync::Arc,
};

use http::Version;
use larder_cache::{ActiveKeys, MemoryCache};
use larder_http::{
    cache_status::{CACHE_NAME, node_name},
    fields::via::Pseudonym,
};
use larder_store::Store;
use tokio_rustls::TlsAcceptor;

use crate::{
    access_log::AccessLog,
    admin_tokens::AdminTokens,
    body_budget::BodyBudget,
    build_caches::{BuildCacheTable, BuildCacheTokens},
    cache::{
        CacheShared, SitePolicy, arrivals::Arrivals, copies::SiblingCopies, groups::PageGroups, hot::HotItem,
        key_set::KeySet, neighbours, patience::StorePatience, pins::Pins, purges::Purges, shared_reads::SharedReads,
        sightings::ChunkSightings, tag_changes::TagChanges,
    },
    client::{certificates::CertificateSet, intercept::Interceptor, opening, passwords::PasswordList},
    config::{ProxyConfig, Site},
    delays::DelayTable,
    exchange_budget::ExchangeBudget,
    file_watcher::FileWatcher,
    fleet::{keys::FleetKeys, link::FleetLink, peers::FleetPeers, shared_log::stream::SharedLogLink},
    flight::{rest::TailFetches, table::FlightTable},
    history::History,
    listings::ListingTable,
    lists::ActiveLists,
    marks::ResponseMarkers,
    metrics::WorkerMetrics,
    mirrors::MirrorTable,
    missing::{self, MissingList},
    origin::{
        certificate_askers::CertificateAskers,
        complaints::ComplaintLog,
        origins::OriginsShared,
        room::OriginRooms,
        tls::{self, OriginTls},
        uplink::Uplink,
        ways::ParentGroup,
    },
    routes::SiteRoutes,
    shared::{BoundedCounts, ProxyState},
    siblings::{Siblings, rules_of},
    tier::Tier,
};

/// The state built from a configuration.
pub(super) struct Assembly {
    pub(super) shared: Arc<ProxyState>,
    /// The watchers of the configuration's files.
    pub(super) file_watchers: Vec<FileWatcher>,
}

/// The content of the files that a configuration names.
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

/// The state that survives a reload.
pub(super) struct Persistent {
    store: Option<Store>,
    tier: Option<Arc<Tier>>,
    hot: Arc<MemoryCache<HotItem>>,
    sightings: Arc<ChunkSightings>,
    arrivals: Arc<Arrivals>,
    works: Arc<ActiveKeys>,
    uncollapsible: Arc<KeySet>,
    tag_changes: Arc<TagChanges>,
    copies: Arc<SiblingCopies>,
    groups: Arc<PageGroups>,
    flights: Arc<FlightTable>,
    bodies: Arc<BodyBudget>,
    places: Arc<ExchangeBudget>,
    reads: Arc<SharedReads>,
    rests: Arc<TailFetches>,
    missing: Arc<MissingList>,
    history: Arc<History>,
    pins: Arc<Pins>,
    purges: Arc<Purges>,
    fleet_peers: Arc<FleetPeers>,
    access_log: Option<Arc<AccessLog>>,
    uplink: Arc<Uplink>,
    complaints: Arc<ComplaintLog>,
    certificate_askers: Arc<CertificateAskers>,
    counts: Arc<BoundedCounts>,
    /// The random name for use if none is configured.
    pseudonym: Option<Pseudonym>,
}

impl ConfigFiles {
    /// Reads the files.
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

impl Persistent {
    /// Creates the surviving state at start.
    ///
    /// # Errors
    /// The access log or the journal of the second tier cannot be opened.
    pub(super) fn new(config: &ProxyConfig, store: Option<&Store>, workers: &[Arc<WorkerMetrics>]) -> io::Result<Self> {
        // First, because nothing may be stored before.
        let pins = Arc::new(Pins::open(config.state_file("pins"), config.state_file("pinned"), store));
        let access_log = config.access_log.as_ref().map(AccessLog::open).transpose()?.map(Arc::new);
        let peers = config.fleet.log_names();
        let purges = Purges::open(config.state_file("purges"), store, &peers);
        let fleet_peers = FleetPeers::default();
        fleet_peers.set(&peers);
        // Before any request is served: others may have purged what is stored.
        if !peers.is_empty()
            && let Err(error) = purges.doubt()
        {
            tracing::warn!(%error, "the record of purges cannot be written: everything is validated before use");
        }
        let hot = open_memory_cache(config, store);
        Ok(Self {
            store: store.cloned(),
            tier: open_tier(config, store)?,
            places: Arc::new(ExchangeBudget::new(config.exchange_bytes(), Arc::clone(&hot))),
            hot,
            sightings: Arc::default(),
            arrivals: Arc::default(),
            works: Arc::default(),
            uncollapsible: Arc::default(),
            tag_changes: Arc::default(),
            copies: Arc::default(),
            groups: Arc::new(PageGroups::new(config.cache.group_window)),
            flights: Arc::default(),
            bodies: Arc::new(BodyBudget::new(config.window_bytes())),
            reads: Arc::default(),
            rests: Arc::default(),
            missing: Arc::new(MissingList::open(config.state_file(missing::FILE_KIND))),
            history: Arc::new(History::open(config.state_file("figures"), workers.to_vec())),
            pins,
            purges: Arc::new(purges),
            fleet_peers: Arc::new(fleet_peers),
            access_log,
            uplink: Arc::new(Uplink::new(config.offline)),
            complaints: Arc::default(),
            certificate_askers: Arc::default(),
            counts: Arc::default(),
            pseudonym: None,
        })
    }

    /// Takes the surviving state from another configuration, and adapts it to `config`.
    ///
    /// The memory cache is resized if possible, and emptied if responses are marked differently.
    ///
    /// # Errors
    /// The access log cannot be opened. Nothing is changed in that case.
    pub(super) fn of(before: &ProxyState, config: &ProxyConfig) -> io::Result<Self> {
        let access_log = match (&config.access_log, &before.access_log) {
            (target, Some(log)) if *target == before.config.access_log => {
                log.reopen()?;
                Some(Arc::clone(log))
            }
            (target, _) => target.as_ref().map(AccessLog::open).transpose()?.map(Arc::new),
        };
        let cache = &before.cache;
        let origins = &before.origins;
        let groups = match config.cache.group_window == before.config.cache.group_window {
            true => Arc::clone(&before.manner.groups),
            false => Arc::new(PageGroups::new(config.cache.group_window)),
        };
        if marking(config) != marking(&before.config) {
            // The prepared fields of cached entries contain these marks.
            cache.hot.clear();
        }
        cache.places.set_max_bytes(config.exchange_bytes());
        cache.hot.set_capacity_bytes(config.hot_bytes.min(cache.places.cache_bytes_max()));
        cache.bodies.set_max_bytes(config.window_bytes());
        let peers = config.fleet.log_names();
        let fleet_peers = before.fleet.as_ref().map_or_else(Arc::default, |link| Arc::clone(&link.peers));
        fleet_peers.set(&peers);
        cache.purges.set_peers(&peers);
        if config.offline != before.config.offline {
            // A mode that the operator set since the start stays, unless the mode in the file has changed.
            origins.uplink.set_mode(config.offline);
        }
        Ok(Self {
            store: cache.store.clone(),
            tier: cache.tier.clone(),
            hot: Arc::clone(&cache.hot),
            sightings: Arc::clone(&cache.sightings),
            arrivals: Arc::clone(&cache.arrivals),
            works: Arc::clone(&cache.works),
            uncollapsible: Arc::clone(&cache.uncollapsible),
            tag_changes: Arc::clone(&cache.tag_changes),
            copies: Arc::clone(&cache.copies),
            groups,
            flights: Arc::clone(&before.flights),
            bodies: Arc::clone(&cache.bodies),
            places: Arc::clone(&cache.places),
            reads: Arc::clone(&cache.reads),
            rests: Arc::clone(&before.rests),
            missing: Arc::clone(&before.missing),
            history: Arc::clone(&before.history),
            pins: Arc::clone(&cache.pins),
            purges: Arc::clone(&cache.purges),
            fleet_peers,
            access_log,
            uplink: Arc::clone(&origins.uplink),
            complaints: Arc::clone(&origins.complaints),
            certificate_askers: Arc::clone(&origins.certificate_askers),
            counts: Arc::clone(&before.counts),
            pseudonym: before.config.marking_name().is_none().then(|| before.marks.pseudonym.clone()),
        })
    }
}

impl Assembly {
    /// Builds the shared state for `config`, with listeners at these addresses.
    pub(super) fn new(
        config: ProxyConfig,
        files: ConfigFiles,
        own_addresses: Vec<SocketAddr>,
        lasting: Persistent,
    ) -> Self {
        let pseudonym = files.pseudonym.or(lasting.pseudonym).unwrap_or_else(unique);
        let (fleet, siblings) = fleet_of(&config, files.fleet_keys, lasting.fleet_peers, &own_addresses);
        let routes = Arc::new(SiteRoutes::new(&config));
        let origins = OriginsShared {
            limits: config.limits.clone(),
            targets: config.targets.clone(),
            ca_file: config.origin_ca_file.clone(),
            http2: config.origin_http2,
            lists: files.lists,
            parents: ParentGroup::new(&config.parents),
            own_addresses,
            tls: OriginTls::default(),
            fleet_tls: fleet.as_ref().and_then(|link| link.tls.clone()),
            certificate_askers: lasting.certificate_askers,
            rooms: OriginRooms::new(&config.limits),
            complaints: lasting.complaints,
            uplink: lasting.uplink,
            bodies: Arc::clone(&lasting.bodies),
        };
        let cache = CacheShared {
            hot: lasting.hot,
            store: lasting.store,
            tier: lasting.tier,
            bodies: lasting.bodies,
            places: lasting.places,
            reads: lasting.reads,
            sightings: lasting.sightings,
            arrivals: lasting.arrivals,
            works: lasting.works,
            uncollapsible: lasting.uncollapsible,
            tag_changes: lasting.tag_changes,
            copies: lasting.copies,
            patience: StorePatience::new(config.limits.store),
            pins: lasting.pins,
            purges: lasting.purges,
            entry_bytes_max: config.cache.entry_bytes_max,
            rules: config.rules.clone(),
            key_marks: Arc::<SiteRoutes>::clone(&routes),
            listings: ListingTable::new(&config.package_indexes),
            stall: config.limits.stall,
        };
        let settings = |site: &Site| Some(SitePolicy::new(site.cache.as_ref()?, &config.cache, &lasting.groups));
        let compresses = config.settings().any(|settings| !settings.http.compression.codings.is_empty());
        let shared = Arc::new(ProxyState {
            manners: config.sites.iter().map(settings).collect(),
            manner: SitePolicy::new(&config.cache, &config.cache, &lasting.groups),
            compresses,
            cache: Arc::new(cache),
            routes,
            mirrors: MirrorTable::new(&config.mirrors),
            build_caches: BuildCacheTable::new(&config.build_caches, files.build_cache_tokens),
            flights: lasting.flights,
            rests: lasting.rests,
            origins: Arc::new(origins),
            certificates: files.certificates,
            acceptor: files.acceptor,
            access_log: lasting.access_log,
            missing: lasting.missing,
            history: lasting.history,
            interceptor: files.interceptor,
            marks: Arc::new(marks_of(&config, pseudonym)),
            passwords: files.passwords,
            admin_tokens: files.admin_tokens,
            fleet,
            siblings,
            delays: DelayTable::new(&config.delays),
            counts: lasting.counts,
            config,
        });
        Self { shared, file_watchers: files.file_watchers }
    }
}

/// Returns the other nodes of the fleet, for their purges and for their entries.
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

/// Refuses a file of CAs that is unusable. Otherwise only the first TLS connection to an origin would show the error.
pub(super) fn check_authorities(config: &ProxyConfig) -> io::Result<()> {
    let Some(path) = &config.origin_ca_file else { return Ok(()) };
    let mut roots = rustls::RootCertStore::empty();
    tls::load_ca_file(path, &mut roots).map_err(|why| io::Error::new(io::ErrorKind::InvalidInput, why))
}

/// Returns the settings that decide how responses are marked.
fn marking(config: &ProxyConfig) -> (bool, bool, Option<&str>) {
    (config.add_via, config.add_cache_status, config.marking_name())
}

fn named(name: &str) -> io::Result<Pseudonym> {
    Pseudonym::new(name).ok_or_else(|| {
        let why = format!("pseudonym must be letters, digits, '-', '.' or '_': {name:?}");
        io::Error::new(io::ErrorKind::InvalidInput, why)
    })
}

/// Returns a name that no other proxy has, so that a chain of proxies is not mistaken for a loop.
fn unique() -> Pseudonym {
    // A random number from the standard library's hash keys.
    let drawn = RandomState::new().build_hasher().finish();
    Pseudonym::new(format!("larder-{:08x}", drawn as u32)).expect("it is letters, digits and a hyphen")
}

fn marks_of(config: &ProxyConfig, pseudonym: Pseudonym) -> ResponseMarkers {
    ResponseMarkers {
        add_via: config.add_via,
        via: config.add_via.then(|| pseudonym.via_value(Version::HTTP_11)),
        pseudonym,
        add_x_forwarded: config.add_x_forwarded,
        add_forwarded: config.add_forwarded,
        add_cache_status: config.add_cache_status,
        // A random name would mean nothing to readers of the field.
        cache_name: node_name(config.marking_name().unwrap_or(CACHE_NAME)),
    }
}

/// Opens the second tier, if one is configured and the store can have one.
fn open_tier(config: &ProxyConfig, store: Option<&Store>) -> io::Result<Option<Arc<Tier>>> {
    let Some(place) = config.tier.place() else { return Ok(None) };
    let Some((store, path)) = store.zip(config.state_file("tier")) else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a second tier needs a store"));
    };
    Tier::open(&config.tier, place, &path, store).map(Some)
}

/// Creates the memory cache. The store puts neighbours into it.
fn open_memory_cache(config: &ProxyConfig, store: Option<&Store>) -> Arc<MemoryCache<HotItem>> {
    let brings_unasked = store.is_some_and(Store::brings_neighbours);
    let hot = Arc::new(if brings_unasked {
        MemoryCache::with_room_for_unrequested(config.hot_bytes)
    } else {
        MemoryCache::new(config.hot_bytes)
    });
    // Neighbours are decoded with one list of targeted fields for all sites.
    let has_one_list = config.settings().all(|settings| settings.http.targets == config.cache.http.targets);
    if let Some(store) = store.filter(|_| has_one_list) {
        neighbours::connect(store, &hot, &config.cache.http.targets);
    }
    hot
}

/// Reads the certificates for TLS listeners, if there are any, and starts the watcher of their files.
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

/// Reads the lists of hosts, if there are any, and starts the watcher of their files.
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
