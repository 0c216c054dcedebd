//! Chooses the origin of a request, and the site whose policy applies to it.
//!
//! Owns: the table of sites. It neither resolves nor checks addresses. Invariant: the origin of a request and the mark
//! in its key follow from one [`ResourceRoute`]. Cost: one lookup by host, then a comparison for each site that lists
//! the host, and for each site that matches many hosts.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
    net::SocketAddr,
    sync::Arc,
};

use http::{Uri, Version};
use larder_http::key::normal_authority;

use crate::{
    ground::{
        cache::mark::{KeyMarks, OriginMark},
        config::{Mirror, Origins, ProxyConfig, Site},
        errors::Failure,
        target::{ODD_HOST, Origin, host_of, is_plain_host, path_of, port_of},
    },
    origins::group::OriginGroup,
    targets::build_caches,
};

/// The sites, and the default origin for requests that match none of them.
pub(crate) struct SiteRoutes {
    sites: Vec<SiteRoute>,
    /// The sites for each exactly named host, as indexes in `sites`.
    by_host: HashMap<Box<str>, Vec<usize>>,
    /// The sites with host patterns, as indexes in `sites`.
    of_others: Vec<usize>,
    default: Option<TableRoute>,
    forward: bool,
    mirrored: Vec<MirroredServer>,
    /// The paths of build caches.
    build_caches: Vec<String>,
}

/// A server behind a mirror, with the scheme and authority that cache keys contain for it.
struct MirroredServer {
    scheme: &'static str,
    authority: String,
    mark: Option<String>,
}

struct SiteRoute {
    /// Whether the site matches every host.
    is_of_all: bool,
    /// The suffixes of the hosts that the site matches. Each begins with a dot.
    below: Vec<String>,
    paths: Vec<String>,
    listeners: Vec<SocketAddr>,
    route: Option<TableRoute>,
}

/// The route of a request to its origin. [`SiteRoutes::find`] determines it, once for each request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResourceRoute {
    /// The origin of the site with this index.
    Site(usize),
    /// The origin of requests that match no site.
    Default,
    /// The server that the request itself names, with this scheme.
    Named(&'static str),
}

/// The origin to which a request is forwarded, and the parts of its cache key.
pub(crate) struct Destination<'a> {
    /// The scheme of the URL that the client requested.
    pub(crate) scheme: &'a str,
    /// The host and port of the URL that the client requested.
    pub(crate) authority: Cow<'a, str>,
    /// The origin to which the request is forwarded. If there is a group, one of its members.
    pub(crate) origin: Origin,
    /// The group of origins from which the request's key selects one. `None` if there is no group.
    pub(crate) group: Option<&'a Arc<OriginGroup>>,
    /// The path on the origin that is put in front of the request's path.
    pub(crate) prefix: &'a str,
    pub(crate) mark: OriginMark<'a>,
}

struct TableRoute {
    group: Arc<OriginGroup>,
    origins: Arc<Origins>,
    prefix: String,
    authority: String,
    /// The origin's name in cache keys. A group has the name of its first origin.
    name: String,
}

/// Returns the origins for an authority and a path with query: those of the first matching site that has origins of its
/// own.
pub fn origins_of(config: &ProxyConfig, authority: &str, path: &str) -> Option<Arc<Origins>> {
    let routes = SiteRoutes::new(config);
    routes.route(authority, path).map(|route| Arc::clone(&route.origins))
}

impl SiteRoutes {
    pub(crate) fn new(config: &ProxyConfig) -> Self {
        let mut groups: HashMap<*const Origins, Arc<OriginGroup>> = HashMap::new();
        let sites = config.sites.iter().map(|site| {
            let route = site.origins.as_ref().map(|origins| {
                let group = groups.entry(Arc::as_ptr(origins)).or_insert_with(|| Arc::new(group_of(origins)));
                TableRoute::new(Arc::clone(group), origins)
            });
            SiteRoute::new(site, route)
        });
        let sites: Vec<SiteRoute> = sites.collect();
        let (by_host, of_others) = by_host(config, &sites);
        Self {
            sites,
            by_host,
            of_others,
            default: config.default_origin.as_ref().map(|url| {
                let origins = Arc::new(Origins::from(url.clone()));
                TableRoute::new(Arc::new(group_of(&origins)), &origins)
            }),
            forward: config.forward,
            mirrored: config.mirrors.iter().map(MirroredServer::new).collect(),
            build_caches: config.build_caches.iter().map(|cache| cache.path.clone()).collect(),
        }
    }

    /// Returns the groups of origins of all sites, without duplicates.
    pub(crate) fn groups(&self) -> Vec<Arc<OriginGroup>> {
        let mut groups: Vec<Arc<OriginGroup>> =
            self.sites.iter().filter_map(|site| Some(Arc::clone(&site.route.as_ref()?.group))).collect();
        groups.sort_by_key(Arc::as_ptr);
        groups.dedup_by(|a, b| Arc::ptr_eq(a, b));
        groups
    }

    /// Finds the route of a request. `own_scheme` is the scheme of the client's connection. `authority` returns the
    /// host that the request names; it is called only if there are sites.
    ///
    /// Returns `None` if no site matches the request, and this proxy neither forwards it nor has a default origin for
    /// it.
    pub(crate) fn find<'a>(
        &self,
        own_scheme: &str,
        uri: &'a Uri,
        version: Version,
        authority: impl FnOnce() -> Option<&'a str>,
    ) -> Option<ResourceRoute> {
        if !self.sites.is_empty()
            && let Some(site) = authority().and_then(|authority| self.site_with_origin(authority, path_of(uri)))
        {
            return Some(ResourceRoute::Site(site));
        }
        match self.asked_scheme(own_scheme, uri, version) {
            Some("http") if self.forward => Some(ResourceRoute::Named("http")),
            Some("https") if self.forward => Some(ResourceRoute::Named("https")),
            Some("http" | "https") | None => self.default.as_ref().map(|_| ResourceRoute::Default),
            Some(_) => None,
        }
    }

    /// Returns the scheme and the origin mark in the cache keys of requests on this route.
    ///
    /// A request for a site gets the scheme of its connection, whatever its target says, so that a plain connection
    /// cannot pass for TLS.
    pub(crate) fn scheme_and_mark<'a>(
        &'a self,
        route: ResourceRoute,
        own_scheme: &'a str,
    ) -> (&'a str, OriginMark<'a>) {
        match route {
            ResourceRoute::Named(scheme) => (scheme, OriginMark::NONE),
            ResourceRoute::Site(_) | ResourceRoute::Default => (own_scheme, self.table_route(route).mark()),
        }
    }

    /// Returns where a request for `authority` on this route is forwarded.
    ///
    /// # Errors
    /// The request names a server that is not a permitted target.
    pub(crate) fn destination<'a>(
        &'a self,
        route: ResourceRoute,
        own_scheme: &'a str,
        uri: &'a Uri,
        authority: Option<&'a str>,
    ) -> Result<Destination<'a>, Failure> {
        match route {
            ResourceRoute::Named(scheme) => named(scheme, uri, authority),
            ResourceRoute::Site(_) | ResourceRoute::Default => {
                Ok(self.table_route(route).destination(own_scheme, authority))
            }
        }
    }

    /// Finds where a request for `authority` is forwarded (see [`Self::find`]).
    ///
    /// # Errors
    /// No site matches the host, and it is not a permitted target.
    pub(crate) fn locate<'a>(
        &'a self,
        own_scheme: &'a str,
        uri: &'a Uri,
        version: Version,
        authority: Option<&'a str>,
    ) -> Result<Destination<'a>, Failure> {
        let route = self.find(own_scheme, uri, version, || authority).ok_or_else(|| self.no_site())?;
        self.destination(route, own_scheme, uri, authority)
    }

    /// Returns the failure of a request for which [`Self::find`] found no route.
    pub(crate) fn no_site(&self) -> Failure {
        Failure::NoSite { forwards: self.forward }
    }

    /// Returns whether this proxy answers a request as a server, and not as a forward proxy.
    pub(crate) fn is_for_us(&self, own_scheme: &str, uri: &Uri, version: Version, authority: &str) -> bool {
        let is_for_site = self.route(authority, path_of(uri)).is_some();
        is_for_site || !self.forward || self.asked_scheme(own_scheme, uri, version).is_none()
    }

    /// Returns whether a request for this authority and path goes to the origin of a site.
    pub(crate) fn is_for_site(&self, authority: &str, path: &str) -> bool {
        self.route(authority, path).is_some()
    }

    /// Returns the index of the site whose policy applies to a request through `listener`.
    ///
    /// If `listener` is `None`, sites that name listeners do not match.
    pub(crate) fn site(&self, authority: &str, path: &str, listener: Option<SocketAddr>) -> Option<usize> {
        let is_through =
            |site: &SiteRoute| site.listeners.is_empty() || listener.is_some_and(|at| site.listeners.contains(&at));
        self.sites_of(host_of(authority), path).find(|index| is_through(&self.sites[*index]))
    }

    /// Returns the scheme of the target that a client wants forwarded. `None` for a request that this proxy answers as
    /// a server.
    ///
    /// Over HTTP/2 every request has a scheme. If there is a default origin, a request with the connection's own scheme
    /// is for that origin.
    fn asked_scheme<'a>(&self, own_scheme: &str, uri: &'a Uri, version: Version) -> Option<&'a str> {
        let is_direct = |scheme: &str| version == Version::HTTP_2 && self.default.is_some() && scheme == own_scheme;
        uri.scheme_str().filter(|scheme| !is_direct(scheme))
    }

    /// Returns the index of the first site that matches an authority and path and has its own origin.
    fn site_with_origin(&self, authority: &str, path: &str) -> Option<usize> {
        // Most proxies have no sites, and finding the end of the host costs a scan.
        if self.sites.is_empty() {
            return None;
        }
        self.sites_of(host_of(authority), path).find(|index| self.sites[*index].route.is_some())
    }

    /// Returns the route of the first site that matches an authority and path and has its own origin.
    fn route(&self, authority: &str, path: &str) -> Option<&TableRoute> {
        self.site_with_origin(authority, path).and_then(|site| self.sites[site].route.as_ref())
    }

    /// Returns the configured origin of a route that [`Self::find`] has found in this table.
    fn table_route(&self, route: ResourceRoute) -> &TableRoute {
        let found = match route {
            ResourceRoute::Site(site) => self.sites[site].route.as_ref(),
            ResourceRoute::Default | ResourceRoute::Named(_) => self.default.as_ref(),
        };
        found.expect("only ways with an origin are found")
    }

    /// Returns the indexes of the sites that match a host and a path, in the order of the configuration.
    fn sites_of(&self, host: &str, path: &str) -> impl Iterator<Item = usize> {
        let named = if self.by_host.is_empty() {
            None
        } else {
            self.by_host.get(host).or_else(|| {
                let has_upper = host.bytes().any(|byte| byte.is_ascii_uppercase());
                if has_upper { self.by_host.get(host.to_ascii_lowercase().as_str()) } else { None }
            })
        };
        let is_named = named.is_some();
        named.unwrap_or(&self.of_others).iter().copied().filter(move |index| {
            let site = &self.sites[*index];
            (is_named || site.is_about_others(host)) && site.is_about_path(path)
        })
    }
}

impl KeyMarks for SiteRoutes {
    fn marks_of(&self, scheme: &str, authority: &str, path: &str) -> Vec<OriginMark<'_>> {
        let route = self.route(authority, path);
        let is_forwarded = (self.forward && route.is_none()).then_some(OriginMark::NONE);
        let named = normal_authority(scheme, authority);
        let is_it = |server: &&MirroredServer| {
            server.scheme.eq_ignore_ascii_case(scheme) && named.as_deref() == Some(&*server.authority)
        };
        let mirrored = self.mirrored.iter().filter(is_it).map(MirroredServer::mark);
        let routed = route.or(self.default.as_ref()).map(TableRoute::mark);
        // A mirrored server may have other names by the key rules, or only its mirror may reach it. So keys without a
        // mark count too.
        let otherwise = (routed.is_none() || !self.mirrored.is_empty()).then_some(OriginMark::NONE);
        let is_built = named.as_deref() == Some(build_caches::AUTHORITY)
            && self.build_caches.iter().any(|prefix| build_caches::is_below(path, prefix));
        let built = is_built.then_some(build_caches::MARK);
        let marks = is_forwarded.into_iter().chain(mirrored).chain(routed).chain(built).chain(otherwise);
        let mut marks: Vec<OriginMark<'_>> = marks.collect();
        let mut seen = HashSet::new();
        marks.retain(|mark| seen.insert(mark.name()));
        marks
    }
}

impl MirroredServer {
    fn new(mirror: &Mirror) -> Self {
        let origin = Origin::of_mirror(&mirror.origin);
        let scheme = if origin.https { "https" } else { "http" };
        Self { scheme, authority: mirror.origin.authority(), mark: origin.name_of_another(&mirror.origin) }
    }

    fn mark(&self) -> OriginMark<'_> {
        self.mark.as_deref().map_or(OriginMark::NONE, OriginMark::of_origin)
    }
}

impl SiteRoute {
    fn new(site: &Site, route: Option<TableRoute>) -> Self {
        let below = site.hosts.iter().filter_map(|host| host.strip_prefix('*').map(str::to_ascii_lowercase));
        let paths = site.paths.iter().map(|path| path.trim_end_matches('/').to_owned());
        Self {
            is_of_all: site.hosts.is_empty(),
            below: below.collect(),
            paths: paths.collect(),
            listeners: site.listeners.clone(),
            route,
        }
    }

    /// Returns whether one of the site's host patterns matches a host.
    fn is_about_others(&self, host: &str) -> bool {
        let is_below = |end: &String| {
            let split = host.len().checked_sub(end.len()).filter(|split| *split > 0);
            split.is_some_and(|split| host.as_bytes()[split..].eq_ignore_ascii_case(end.as_bytes()))
        };
        self.is_of_all || self.below.iter().any(is_below)
    }

    fn is_about_path(&self, target: &str) -> bool {
        if self.paths.is_empty() {
            return true;
        }
        let path = target.split('?').next().unwrap_or_default();
        let begins = |start: &String| {
            // An empty prefix matches the whole site, including the path `*`.
            start.is_empty()
                || path.strip_prefix(start.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        self.paths.iter().any(begins)
    }
}

/// Returns the sites for each host that they name exactly, and the sites with host patterns. Both are in the order of
/// the configuration.
fn by_host(config: &ProxyConfig, sites: &[SiteRoute]) -> (HashMap<Box<str>, Vec<usize>>, Vec<usize>) {
    let named = config.sites.iter().flat_map(|site| &site.hosts).filter(|host| !host.starts_with('*'));
    let names: HashSet<String> = named.map(|host| host.to_ascii_lowercase()).collect();
    let mut by_host: HashMap<Box<str>, Vec<usize>> =
        names.iter().map(|name| (name.as_str().into(), Vec::new())).collect();
    let mut of_others = Vec::new();
    for (index, (site, listed)) in sites.iter().zip(&config.sites).enumerate() {
        for host in &listed.hosts {
            let places = by_host.get_mut(host.to_ascii_lowercase().as_str());
            places.into_iter().for_each(|places| places.push(index));
        }
        if site.is_of_all || !site.below.is_empty() {
            of_others.push(index);
            let others = by_host.iter_mut().filter(|(host, _)| site.is_about_others(host));
            others.for_each(|(_, places)| places.push(index));
        }
    }
    by_host.values_mut().for_each(Vec::dedup);
    (by_host, of_others)
}

impl TableRoute {
    fn new(group: Arc<OriginGroup>, origins: &Arc<Origins>) -> Self {
        let url = &origins.members[0].0;
        let origin = Origin::of_site(url);
        let origins = Arc::clone(origins);
        Self { authority: origin.to_string(), group, origins, prefix: url.prefix.clone(), name: origin.name(url) }
    }

    fn mark(&self) -> OriginMark<'_> {
        OriginMark::of_origin(&self.name)
    }

    /// Creates the destination of a request on this route. An HTTP/1.0 request without a host gets the origin's
    /// authority.
    fn destination<'a>(&'a self, scheme: &'a str, authority: Option<&'a str>) -> Destination<'a> {
        let origin = self.group.first().clone();
        let group = Some(&self.group);
        let authority = Cow::Borrowed(authority.unwrap_or(&self.authority));
        Destination { scheme, authority, origin, group, prefix: &self.prefix, mark: self.mark() }
    }
}

fn group_of(origins: &Origins) -> OriginGroup {
    let members = origins.members.iter().map(|(url, _)| Origin::of_site(url)).collect();
    OriginGroup::new(members, &origins.nodes(), &origins.rules)
}

/// Creates the destination of a request with an absolute-form target, which is forwarded to the host in the target.
fn named<'a>(scheme: &'a str, uri: &'a Uri, authority: Option<&'a str>) -> Result<Destination<'a>, Failure> {
    let authority = authority.ok_or(Failure::BadRequest("the target has no host"))?;
    let host = uri.host().filter(|host| !host.is_empty()).ok_or(Failure::BadRequest("the target has no host"))?;
    if !is_plain_host(host) {
        return Err(Failure::BadRequest(ODD_HOST));
    }
    let https = scheme == "https";
    let port = uri.authority().and_then(|authority| port_of(authority, https));
    let port = port.ok_or(Failure::BadRequest("the target's port is not a number from 1 to 65535"))?;
    let origin = Origin { https, ..Origin::of_client(host, port) };
    Ok(Destination {
        scheme,
        authority: Cow::Borrowed(authority),
        origin,
        group: None,
        prefix: "",
        mark: OriginMark::NONE,
    })
}
