//! What a request is for: a resource, or something that this proxy answers itself.
//!
//! Owns: all that is found out about a request at the door and is not in its head. `resolve` makes it, once. Invariant:
//! a request has one kind of target. Its extensions carry no fact of ours, which nobody would see in a signature. Cost:
//! no allocation, except for a request of another node.

use std::{net::IpAddr, sync::Arc};

use http::{HeaderMap, Request, Uri, Version};
use larder_http::{coding::CodingWish, fields::accepted_authority, reuse::StaleAllowed, route::UplinkState};

use crate::{
    build_caches::{self, BuildCacheRequest},
    cache::mark::OriginMark,
    digest::NamedDigest,
    errors::Failure,
    fleet::link::FleetLink,
    mirrors::{MirrorRequest, RegistryAsk},
    routes::{Destination, SiteRoutes},
    shared::ProxyState,
    siblings::PeerRequest,
};

/// The purpose of a request, and the facts about it that its head does not have.
#[derive(Default)]
pub(crate) struct Target {
    pub(crate) kind: TargetKind,
    /// The client's address, if a trusted proxy named it.
    pub(crate) named_client: Option<IpAddr>,
    /// Whether the request is about the server as a whole (RFC 9112 3.2.4). The path of its URI may then be `/`, which
    /// stands for `*`.
    pub(crate) is_about_server: bool,
    /// The codings that the client prefers.
    pub(crate) wish: Option<CodingWish>,
}

/// The kinds of targets. A request has one.
#[derive(Default)]
pub(crate) enum TargetKind {
    /// The resource that its URL names: of a site, of the default origin, or of any server.
    #[default]
    Resource,
    /// A resource of the server that a mirror stands for.
    Mirror(MirrorRequest),
    /// A question that a mirror answers in place of its registry.
    Registry(MirrorRequest, RegistryAsk),
    BuildCache(BuildCacheRequest),
    /// A resource for another node of the fleet.
    Sibling(Box<PeerRequest>),
    HealthCheck,
    /// The script for browsers, with this address of the proxy.
    ProxyPac(Box<str>),
    /// The methods of this proxy, as a whole.
    WholeServer,
    /// This node's log of purges, for another node of the fleet.
    PurgeLog(Arc<FleetLink>),
}

impl Target {
    /// Returns whether this proxy itself is asked, not for a resource.
    pub(super) fn is_own(&self) -> bool {
        match self.kind {
            TargetKind::Resource | TargetKind::Mirror(_) | TargetKind::BuildCache(_) | TargetKind::Sibling(_) => false,
            TargetKind::Registry(..)
            | TargetKind::HealthCheck
            | TargetKind::ProxyPac(_)
            | TargetKind::WholeServer
            | TargetKind::PurgeLog(_) => true,
        }
    }

    /// Returns whether the request is counted and logged.
    pub(super) fn is_counted(&self) -> bool {
        !matches!(self.kind, TargetKind::HealthCheck | TargetKind::PurgeLog(_))
    }

    /// Returns whether the request is another node's for the log of purges.
    pub(super) fn is_log(&self) -> bool {
        matches!(self.kind, TargetKind::PurgeLog(_))
    }

    /// Returns the request of another node of the fleet, if it is one.
    pub(crate) fn sibling(&self) -> Option<&PeerRequest> {
        match &self.kind {
            TargetKind::Sibling(peer) => Some(peer),
            _ => None,
        }
    }

    /// Returns the mirror that the request came through, if any.
    pub(crate) fn mirror(&self) -> Option<&MirrorRequest> {
        match &self.kind {
            TargetKind::Mirror(mirrored) | TargetKind::Registry(mirrored, _) => Some(mirrored),
            _ => None,
        }
    }

    /// Returns whether the request is for a build cache.
    pub(crate) fn is_build_cache(&self) -> bool {
        matches!(self.kind, TargetKind::BuildCache(_))
    }

    /// Returns the scheme, authority and origin mark of the resource. `None` if they need a full parse of `request`.
    pub(crate) fn name<'a>(
        &'a self,
        routes: &'a SiteRoutes,
        own_scheme: &'a str,
        request: &'a Request<impl Sized>,
    ) -> Option<(&'a str, &'a str, OriginMark<'a>)> {
        match &self.kind {
            TargetKind::Sibling(peer) => Some(peer.name()),
            TargetKind::BuildCache(_) => Some(BuildCacheRequest::name()),
            TargetKind::Mirror(mirrored) | TargetKind::Registry(mirrored, _) => Some(mirrored.name()),
            TargetKind::Resource
            | TargetKind::HealthCheck
            | TargetKind::ProxyPac(_)
            | TargetKind::WholeServer
            | TargetKind::PurgeLog(_) => routes.name(own_scheme, request),
        }
    }

    /// Returns the destination of the request, whose fields are `fields`.
    ///
    /// # Errors
    /// None is configured, or another origin answers for the resource than at the node that asks.
    pub(super) fn destination<'a>(
        &'a self,
        shared: &'a ProxyState,
        own_scheme: &'a str,
        request: &'a Request<impl Sized>,
        fields: &'a HeaderMap,
    ) -> Result<Destination<'a>, Failure> {
        match &self.kind {
            TargetKind::Sibling(peer) => destination_of_sibling(peer, shared, request.uri()),
            TargetKind::BuildCache(build_cache) => Ok(build_cache.destination()),
            TargetKind::Mirror(mirrored) | TargetKind::Registry(mirrored, _) => Ok(mirrored.destination()),
            TargetKind::Resource
            | TargetKind::HealthCheck
            | TargetKind::ProxyPac(_)
            | TargetKind::WholeServer
            | TargetKind::PurgeLog(_) => {
                let authority = accepted_authority(request.uri(), fields);
                shared.routes.locate(own_scheme, request.uri(), request.version(), authority)
            }
        }
    }

    /// Returns the part of a path and query that is appended to the prefix of the origin.
    pub(super) fn rest<'a>(&self, path: &'a str) -> &'a str {
        match &self.kind {
            TargetKind::BuildCache(build_cache) => build_cache.rest(path),
            _ => path,
        }
    }

    /// Returns the state of the uplink, which is `line` at its origin. A build cache without an origin is always
    /// disconnected, and its entries never become stale.
    pub(super) fn line(&self, line: impl FnOnce() -> UplinkState) -> UplinkState {
        match &self.kind {
            TargetKind::BuildCache(build_cache) if !build_cache.has_origin() => {
                UplinkState::Down(StaleAllowed::HoweverOld)
            }
            _ => line(),
        }
    }

    /// Returns the digest that a build cache requires of the body.
    pub(super) fn digest(&self, path: &str) -> Result<Option<NamedDigest>, Failure> {
        if self.is_build_cache() { build_caches::digest_of(path) } else { Ok(None) }
    }
}

/// Returns the destination of a request of another node, which has the same sites and mirrors.
fn destination_of_sibling<'a>(
    peer: &'a PeerRequest,
    shared: &'a ProxyState,
    uri: &'a Uri,
) -> Result<Destination<'a>, Failure> {
    let PeerRequest { scheme, authority, path, mark, .. } = peer;
    if let Some(mirrored) = shared.mirrors.destination_of(scheme, authority, mark.as_deref()) {
        return Ok(mirrored);
    }
    // A configured origin is found as if the client had asked the server itself.
    let target = if mark.is_some() { path } else { uri };
    let found = shared.routes.locate(scheme, target, Version::HTTP_11, Some(authority))?;
    let is_same = found.mark.name() == mark.as_deref();
    if is_same { Ok(found) } else { Err(Failure::NoSite { forwards: shared.config.forward }) }
}
