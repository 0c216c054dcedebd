//! Determines what a request is for, before it is looked up.
//!
//! Owns: the order in which the kinds of targets are tried. `gate` checks the request's form, and `nodes` recognizes
//! other nodes and balancers. Invariant: a request whose path is a site's own is for no mirror and no build cache.

use std::sync::Arc;

use http::{Request, Uri, header, uri::Authority};
use larder_http::coding::CodingWish;
use larder_wire::WireFault;

use crate::{
    client::peer::Client,
    errors::Failure,
    fleet::serving,
    origin::target::path_of,
    request::{
        gate, nodes,
        target::{Target, TargetKind},
    },
    worker::Worker,
};

/// Checks a request, and completes its target. `fault` is the fault in its octets, if any.
///
/// # Errors
/// The request is refused before it is looked up.
pub(super) fn resolve(
    client: &Client,
    worker: &Worker,
    fault: Option<WireFault>,
    target: &mut Target,
    request: &mut Request<impl Sized>,
) -> Result<(), Failure> {
    let shared = &worker.shared;
    let is_health_check = nodes::is_health_check(client, worker, request);
    if let Some(peer) = nodes::request_of_sibling(client, worker, request)? {
        target.kind = TargetKind::Sibling(peer);
    }
    gate::pass(client, worker, fault, target, request)?;
    if is_health_check && nodes::may_check_health(client, worker, target) {
        target.kind = TargetKind::HealthCheck;
    } else if let Some(link) = shared.fleet.as_ref().filter(|_| serving::is_log_request(client, request)) {
        target.kind = TargetKind::PurgeLog(Arc::clone(link));
    } else if target.sibling().is_none() {
        // Read first, because a mirror changes the coding that the request accepts.
        target.wish = if shared.compresses { CodingWish::of(request) } else { None };
        if !(shared.mirrors.is_empty() && shared.build_caches.is_empty()) {
            divert(client, worker, target, request)?;
        }
    }
    Ok(())
}

/// Finds the build cache or the mirror that a request is for. Rewrites one to a mirror to one for its server. A site's
/// own paths are left unchanged.
///
/// # Errors
/// The path leads out of the build cache or the mirror.
fn divert(
    client: &Client,
    worker: &Worker,
    target: &mut Target,
    request: &mut Request<impl Sized>,
) -> Result<(), Failure> {
    let shared = &worker.shared;
    let version = request.version();
    let host = request.headers().get(header::HOST).cloned();
    let host = host.as_ref().and_then(|host| host.to_str().ok());
    let is_ours = |uri: &Uri| {
        let authority = uri.authority().map(Authority::as_str).or(host);
        client.inside.is_none()
            && client.is_server_for(version, uri)
            && !authority.is_some_and(|authority| shared.routes.is_for_site(authority, path_of(uri)))
    };
    if let Some(build_cache) = shared.build_caches.find(request, is_ours)? {
        target.kind = TargetKind::BuildCache(build_cache);
    } else if let Some((mirrored, ask)) = shared.mirrors.divert(client.scheme(), request, is_ours)? {
        target.kind = match ask {
            Some(ask) => TargetKind::Registry(mirrored, ask),
            None => TargetKind::Mirror(mirrored),
        };
    }
    Ok(())
}
