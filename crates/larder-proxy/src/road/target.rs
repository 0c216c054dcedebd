//! What a request is for: a resource, or something that this proxy answers itself.
//!
//! Owns: the facts about a request that are found before the cache looks it up and are not in its head, and the key of
//! its resource. `resolve` finds the facts, once, after the last change of the request's target and Host. Invariants: a
//! request has one kind of target. Its key, its policy and its origin follow from the same [`ResourceRoute`], mirror or
//! build cache. No such fact is in the request's extensions, where no signature would show it. Cost: no allocation,
//! except for a request of another node. The key is made at most once.

use std::{cell::RefCell, net::IpAddr, sync::Arc};

use http::{HeaderMap, Request, Uri, Version};
use larder_http::{
    coding::CodingWish, fields::accepted_authority, key_rules::KeyRules, reuse::StaleAllowed, route::UplinkState,
};

use crate::{
    fleet::link::FleetLink,
    ground::{cache::mark::OriginMark, digest::NamedDigest, errors::Failure},
    run::shared::ProxyState,
    targets::{
        build_caches::{self, BuildCacheRequest},
        mirrors::{MirrorRequest, RegistryAsk},
        routes::{Destination, ResourceRoute, SiteRoutes},
        siblings::PeerRequest,
    },
};

/// The purpose of a request, and the facts about it that are not in its head.
#[derive(Default)]
pub(crate) struct Target {
    pub(crate) kind: TargetKind,
    /// The client's address, if a trusted proxy named it in a field.
    pub(crate) named_client: Option<IpAddr>,
    /// Whether the request is about the whole server, so its target was `*` (RFC 9112 3.2.4). Its URI then has the path
    /// `/`.
    pub(crate) is_about_server: bool,
    /// The content codings that the client prefers.
    pub(crate) wish: Option<CodingWish>,
    /// The cache key of the resource. `None` until a step other than the lookup in memory needs it.
    pub(super) key: Option<Arc<[u8]>>,
}

/// The things that a request can be for.
pub(crate) enum TargetKind {
    /// The resource that the request's URL names: of a site, of the default origin, or of any other server. `None` if
    /// the URL leads to no server, and before the step `Resolve`.
    Resource(Option<ResourceRoute>),
    /// A resource of the server that a mirror stands for.
    Mirror(MirrorRequest),
    BuildCache(BuildCacheRequest),
    /// A resource that another node of the fleet requests.
    Sibling(Box<PeerRequest>),
    /// Something that this proxy answers itself.
    Own(OwnTarget),
}

/// The things that this proxy answers itself.
pub(crate) enum OwnTarget {
    /// A request for a registry that the registry's mirror itself answers.
    Registry(MirrorRequest, RegistryAsk),
    HealthCheck,
    /// The proxy auto-configuration script for browsers. The text is the proxy's address in it.
    ProxyPac(Box<str>),
    /// This proxy's own methods, for `OPTIONS *`.
    WholeServer,
    /// This node's log of purges, which another node of the fleet requests.
    PurgeLog(Arc<FleetLink>),
}

/// The parts of a resource's key: scheme, authority, and the mark of its origin, which distinguishes origins of the
/// same URL.
pub(super) type KeyParts<'a> = (&'a str, &'a str, OriginMark<'a>);

impl Target {
    /// Returns whether the request is for this proxy itself and not for a resource.
    pub(super) fn is_own(&self) -> bool {
        matches!(self.kind, TargetKind::Own(_))
    }

    /// Returns whether the request is counted and logged.
    pub(super) fn is_counted(&self) -> bool {
        !matches!(self.kind, TargetKind::Own(OwnTarget::HealthCheck | OwnTarget::PurgeLog(_)))
    }

    /// Returns whether another node requests this node's log of purges.
    pub(super) fn is_log(&self) -> bool {
        matches!(self.kind, TargetKind::Own(OwnTarget::PurgeLog(_)))
    }

    /// Returns the facts that another node of the fleet sent with its request, or `None` if a client sent it.
    pub(crate) fn sibling(&self) -> Option<&PeerRequest> {
        match &self.kind {
            TargetKind::Sibling(peer) => Some(peer),
            _ => None,
        }
    }

    /// Returns the mirror that the request is for. `None` if it is for no mirror.
    pub(crate) fn mirror(&self) -> Option<&MirrorRequest> {
        match &self.kind {
            TargetKind::Mirror(mirrored) | TargetKind::Own(OwnTarget::Registry(mirrored, _)) => Some(mirrored),
            _ => None,
        }
    }

    /// Returns whether the request is for a build cache.
    pub(crate) fn is_build_cache(&self) -> bool {
        matches!(self.kind, TargetKind::BuildCache(_))
    }

    /// Returns the parts of the resource's key, or `None` if the request names no resource or no host.
    pub(super) fn key_parts<'a>(
        &'a self,
        routes: &'a SiteRoutes,
        own_scheme: &'a str,
        request: &'a Request<impl Sized>,
    ) -> Option<KeyParts<'a>> {
        match &self.kind {
            TargetKind::Resource(route) => {
                let (scheme, mark) = routes.scheme_and_mark((*route)?, own_scheme);
                Some((scheme, accepted_authority(request.uri(), request.headers())?, mark))
            }
            TargetKind::Sibling(peer) => Some(peer.name()),
            TargetKind::BuildCache(_) => Some(BuildCacheRequest::name()),
            TargetKind::Mirror(mirrored) | TargetKind::Own(OwnTarget::Registry(mirrored, _)) => Some(mirrored.name()),
            TargetKind::Own(_) => None,
        }
    }

    /// Returns where the request is to be forwarded. `fields` are those of the request.
    ///
    /// # Errors
    /// No origin is configured, or another node sent the request and has another origin for the resource.
    pub(super) fn destination<'a>(
        &'a self,
        shared: &'a ProxyState,
        own_scheme: &'a str,
        uri: &'a Uri,
        fields: &'a HeaderMap,
    ) -> Result<Destination<'a>, Failure> {
        match &self.kind {
            TargetKind::Resource(Some(route)) => {
                shared.routes.destination(*route, own_scheme, uri, accepted_authority(uri, fields))
            }
            TargetKind::Sibling(peer) => destination_of_sibling(peer, shared, uri),
            TargetKind::BuildCache(build_cache) => Ok(build_cache.destination()),
            TargetKind::Mirror(mirrored) | TargetKind::Own(OwnTarget::Registry(mirrored, _)) => {
                Ok(mirrored.destination())
            }
            TargetKind::Resource(None) | TargetKind::Own(_) => Err(shared.routes.no_site()),
        }
    }

    /// Returns the part of a path and query that follows the prefix of the origin.
    pub(super) fn rest<'a>(&self, path: &'a str) -> &'a str {
        match &self.kind {
            TargetKind::BuildCache(build_cache) => build_cache.rest(path),
            _ => path,
        }
    }

    /// Returns whether the origin can be contacted. `line` returns the state of the uplink, which decides this for all
    /// other origins.
    ///
    /// A build cache without an origin is always disconnected, so its entries never become stale.
    pub(super) fn line(&self, line: impl FnOnce() -> UplinkState) -> UplinkState {
        match &self.kind {
            TargetKind::BuildCache(build_cache) if !build_cache.has_origin() => {
                UplinkState::Down(StaleAllowed::HoweverOld)
            }
            _ => line(),
        }
    }

    /// Returns the digest that the body must have, if the request is for a build cache and `path` names one.
    pub(super) fn digest(&self, path: &str) -> Result<Option<NamedDigest>, Failure> {
        if self.is_build_cache() { build_caches::digest_of(path) } else { Ok(None) }
    }
}

impl Default for TargetKind {
    fn default() -> Self {
        Self::Resource(None)
    }
}

thread_local! {
    /// The buffer for keys. A lookup that finds the response in memory needs no other.
    static KEY: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Makes the key of a resource, which parts of the key and a path describe, and calls `use_key` with the key.
///
/// Returns `None` if the resource cannot have a key. `use_key` must not make another key.
pub(super) fn with_key<T>(
    rules: &KeyRules,
    (scheme, authority, mark): KeyParts<'_>,
    path: &str,
    use_key: impl FnOnce(&[u8]) -> T,
) -> Option<T> {
    KEY.with_borrow_mut(|key| {
        rules.write_key((scheme, authority, path), key).ok()?;
        mark.add_to(key);
        Some(use_key(key))
    })
}

/// Returns where a request of another node is forwarded. All nodes have the same sites and mirrors.
fn destination_of_sibling<'a>(
    peer: &'a PeerRequest,
    shared: &'a ProxyState,
    uri: &'a Uri,
) -> Result<Destination<'a>, Failure> {
    let PeerRequest { scheme, authority, path, mark, .. } = peer;
    if let Some(mirrored) = shared.mirrors.destination_of(scheme, authority, mark.as_deref()) {
        return Ok(mirrored);
    }
    // A site's origin is found as if the client had sent the request to this proxy as a server.
    let target = if mark.is_some() { path } else { uri };
    let found = shared.routes.locate(scheme, target, Version::HTTP_11, Some(authority))?;
    let is_same = found.mark.name() == mark.as_deref();
    if is_same { Ok(found) } else { Err(shared.routes.no_site()) }
}
