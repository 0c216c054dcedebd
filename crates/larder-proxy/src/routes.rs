//! Which origin a request goes to.
//!
//! Owns: the table of sites. Does not: resolve or check addresses. Cost: one look-up by host.

use std::{borrow::Cow, collections::HashMap, sync::Arc};

use http::{HeaderMap, Request, Uri, Version};
use larder_http::fields::effective_authority;

use crate::{
    cache::mark::Mark,
    config::{OriginUrl, Origins, ProxyConfig},
    errors::Failure,
    origin::{
        group::{Choice, Group},
        target::{ODD_HOST, Origin, host_of, is_plain_host, path_of, port_of},
    },
};

/// The table of sites, and whether other targets are served.
pub(crate) struct Routes {
    sites: HashMap<Box<str>, Route>,
    default: Option<Route>,
    forward: bool,
}

/// Where a request goes and what it is called there and here.
pub(crate) struct Destination<'a> {
    /// `http` or `https`, as the client means it.
    pub(crate) scheme: &'a str,
    /// Host and port, as the client means it.
    pub(crate) authority: Cow<'a, str>,
    pub(crate) origin: Origin,
    /// The way to other origins, if there are others.
    pub(crate) choice: Option<Choice>,
    /// Goes before the path at the origin.
    pub(crate) prefix: &'a str,
    pub(crate) mark: Mark,
}

struct Route {
    group: Arc<Group>,
    prefix: String,
    authority: String,
}

impl Routes {
    pub(crate) fn new(config: &ProxyConfig) -> Self {
        let mut groups: HashMap<*const Origins, Arc<Group>> = HashMap::new();
        let sites = config.sites.iter().map(|site| {
            let group = groups.entry(Arc::as_ptr(&site.origins)).or_insert_with(|| Arc::new(Group::new(&site.origins)));
            (site.host.to_ascii_lowercase().into(), Route::new(Arc::clone(group), &site.origins.members[0].0))
        });
        Self {
            sites: sites.collect(),
            default: config.default_origin.as_ref().map(|url| {
                let group = Group::new(&Arc::new(Origins::from(url.clone())));
                Route::new(Arc::new(group), url)
            }),
            forward: config.forward,
        }
    }

    /// The groups of origins of all sites, each once.
    pub(crate) fn groups(&self) -> Vec<Arc<Group>> {
        let mut groups: Vec<Arc<Group>> = self.sites.values().map(|route| Arc::clone(&route.group)).collect();
        groups.sort_by_key(Arc::as_ptr);
        groups.dedup_by(|a, b| Arc::ptr_eq(a, b));
        groups
    }

    /// Finds where a request goes that came over a connection of this scheme. What we serve as an origin has the
    /// connection's scheme, whatever the client says, so that no plain connection can speak for a TLS one.
    ///
    /// # Errors
    /// Host is missing or malformed, or nobody answers for it.
    pub(crate) fn locate<'a>(
        &'a self,
        own_scheme: &'a str,
        uri: &'a Uri,
        version: Version,
        fields: &'a HeaderMap,
    ) -> Result<Destination<'a>, Failure> {
        let authority = self.authority(uri, fields, version)?;
        if let Some(route) = authority.and_then(|authority| self.site(host_of(authority))) {
            return Ok(route.destination(own_scheme, authority, uri));
        }
        match (self.asked_scheme(own_scheme, uri, version), authority) {
            (Some(scheme @ ("http" | "https")), Some(authority)) if self.forward => forward(scheme, uri, authority),
            (Some("http" | "https") | None, authority) => match &self.default {
                Some(route) => {
                    Ok(Destination { mark: self.default_mark(), ..route.destination(own_scheme, authority, uri) })
                }
                None => Err(Failure::NoSite),
            },
            (Some(_), _) => Err(Failure::BadRequest("only http and https targets are served")),
        }
    }

    /// Whether a request whose target is as clients of servers write it is for one of the sites.
    pub(crate) fn is_for_site(&self, authority: &str) -> bool {
        self.site(host_of(authority)).is_some()
    }

    /// Every mark that a key can have.
    pub(crate) fn marks(&self) -> &'static [Mark] {
        if self.forward && self.default.is_some() { &[Mark::None, Mark::DefaultOrigin] } else { &[Mark::None] }
    }

    /// The mark of what the default origin says.
    fn default_mark(&self) -> Mark {
        if self.forward { Mark::DefaultOrigin } else { Mark::None }
    }

    /// Scheme, authority and mark alone, for the key: the cheap half of [`Routes::locate`], to be trusted only
    /// where a response is stored already. `None` for whatever is not plain.
    pub(crate) fn name<'a>(
        &'a self,
        own_scheme: &'a str,
        request: &'a Request<impl Sized>,
    ) -> Option<(&'a str, &'a str, Mark)> {
        let (uri, version) = (request.uri(), request.version());
        let authority = effective_authority(uri, request.headers(), version).ok()??;
        if self.site(host_of(authority)).is_some() {
            return Some((own_scheme, authority, Mark::None));
        }
        match self.asked_scheme(own_scheme, uri, version) {
            Some(scheme @ ("http" | "https")) if self.forward => Some((scheme, authority, Mark::None)),
            Some("http" | "https") | None if self.default.is_some() => {
                Some((own_scheme, authority, self.default_mark()))
            }
            _ => None,
        }
    }

    /// The scheme of a target that is asked for through us. Over HTTP/2 every request has one, also those to us: with an
    /// origin for every host, one of our own scheme is for that origin.
    fn asked_scheme<'a>(&self, own_scheme: &str, uri: &'a Uri, version: Version) -> Option<&'a str> {
        let is_direct = |scheme: &str| version == Version::HTTP_2 && self.default.is_some() && scheme == own_scheme;
        uri.scheme_str().filter(|scheme| !is_direct(scheme))
    }

    fn authority<'a>(&self, uri: &'a Uri, fields: &'a HeaderMap, version: Version) -> Result<Option<&'a str>, Failure> {
        effective_authority(uri, fields, version).map_err(|error| match error {
            larder_http::fields::HostError::Missing => Failure::BadRequest("it has no Host"),
            larder_http::fields::HostError::Repeated => Failure::BadRequest("it has more than one Host"),
            larder_http::fields::HostError::Invalid => {
                Failure::BadRequest("its host is not a name with an optional port")
            }
        })
    }

    fn site(&self, host: &str) -> Option<&Route> {
        if self.sites.is_empty() {
            return None;
        }
        self.sites.get(host).or_else(|| {
            let has_upper = host.bytes().any(|byte| byte.is_ascii_uppercase());
            if has_upper { self.sites.get(host.to_ascii_lowercase().as_str()) } else { None }
        })
    }
}

impl Route {
    fn new(group: Arc<Group>, url: &OriginUrl) -> Self {
        Self { authority: Origin::of_site(url).to_string(), group, prefix: url.prefix.clone() }
    }

    /// A client of HTTP/1.0 may not say whom it means; then it means this origin.
    fn destination<'a>(&'a self, scheme: &'a str, authority: Option<&'a str>, uri: &Uri) -> Destination<'a> {
        let (origin, choice) = self.group.choose(path_of(uri));
        let authority = Cow::Borrowed(authority.unwrap_or(&self.authority));
        Destination { scheme, authority, origin, choice, prefix: &self.prefix, mark: Mark::None }
    }
}

/// The destination that an absolute-form target names itself.
fn forward<'a>(scheme: &'a str, uri: &'a Uri, authority: &'a str) -> Result<Destination<'a>, Failure> {
    let host = uri.host().filter(|host| !host.is_empty()).ok_or(Failure::BadRequest("the target has no host"))?;
    if !is_plain_host(host) {
        return Err(Failure::BadRequest(ODD_HOST));
    }
    let https = scheme == "https";
    let port = uri.authority().and_then(|authority| port_of(authority, https));
    let port = port.ok_or(Failure::BadRequest("the target's port is not a number from 1 to 65535"))?;
    let origin = Origin { https, ..Origin::of_client(host, port) };
    Ok(Destination { scheme, authority: Cow::Borrowed(authority), origin, choice: None, prefix: "", mark: Mark::None })
}
