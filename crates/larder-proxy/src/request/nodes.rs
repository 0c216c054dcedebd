//! Requests of balancers, and of other nodes of the fleet.
//!
//! Owns: recognizing them, and the proof in responses to other nodes. Invariant: a request counts as another node's
//! only on a connection of its own, and with a code that needs the fleet's secret. If the nodes have certificates, it
//! must arrive on the listener that requires them.

use http::{Method, Request};

use crate::{
    cache::purges::PurgeMode,
    client::peer::Client,
    clock,
    errors::Failure,
    origin::target::is_within,
    request::{
        invalidation::{self, InvalidatedBy, Invalidation, InvalidationSubject},
        served::ServedResponse,
        target::Target,
    },
    siblings::{PEER_FIELD, PeerClaim, PeerRequest},
    worker::Worker,
};

/// Returns whether a request is a health check: for the path of these, and addressed to this proxy itself.
pub(super) fn is_health_check<B>(client: &Client, worker: &Worker, request: &Request<B>) -> bool {
    let path = worker.shared.config.fleet.ready_path.as_deref();
    let uri = request.uri();
    path == Some(uri.path())
        && matches!(*request.method(), Method::GET | Method::HEAD)
        && client.is_server_for(request.version(), uri)
        && client.inside.is_none()
        && client.session.is_none()
}

/// Returns whether a client gets an answer to a health check: balancers do, even if they may not use this proxy.
pub(super) fn may_check_health(client: &Client, worker: &Worker, target: &Target) -> bool {
    let balancers = &worker.shared.config.fleet.trusted_proxies;
    client.is_node || !client.is_denied(worker, target) || is_within(balancers, client.peer.ip())
}

/// Returns the other node's request if another node of the fleet sent this one.
///
/// # Errors
/// It did, and its clock or rules differ.
pub(super) fn request_of_sibling(
    client: &Client,
    worker: &Worker,
    request: &Request<impl Sized>,
) -> Result<Option<Box<PeerRequest>>, Failure> {
    let Some(siblings) = worker.shared.siblings.as_ref().filter(|_| request.headers().contains_key(&PEER_FIELD)) else {
        return Ok(None);
    };
    let is_direct = client.inside.is_none() && client.session.is_none() && client.is_node == siblings.uses_tls;
    if !is_direct {
        return Ok(None);
    }
    match PeerRequest::verify(siblings, request, clock::now()) {
        Some(PeerClaim::Proved(peer)) => Ok(Some(Box::new(peer))),
        Some(PeerClaim::Refused(proof)) => Err(Failure::PeerDiffers { proof }),
        None => Ok(None),
    }
}

/// Returns whether nothing stored here is outdated as far as the node knows that sent a request, if one did.
pub(super) fn is_up_to_date(worker: &Worker, peer: Option<&PeerRequest>) -> bool {
    let Some((peer, siblings)) = peer.zip(worker.shared.siblings.as_ref()) else { return true };
    !peer.is_changed && peer.knows_its_purges(siblings, &worker.shared.cache.purges)
}

/// Adds to a response for another node of the fleet the proof that this node gave it.
pub(super) fn prove(worker: &Worker, peer: Option<&PeerRequest>, served: &mut ServedResponse) {
    if let Some((peer, siblings)) = peer.zip(worker.shared.siblings.as_ref()) {
        let status = served.response.status();
        peer.prove(siblings, status, served.response.headers_mut());
    }
}

/// Drops what another node that sent a request knows to be outdated, if one did. For its purges, waits for a moment.
///
/// # Errors
/// They are not applied here by then.
pub(super) async fn catch_up(worker: &Worker, peer: Option<&PeerRequest>, key: Option<&[u8]>) -> Result<(), Failure> {
    let Some((peer, siblings)) = peer.zip(worker.shared.siblings.as_ref()) else { return Ok(()) };
    if let Some(key) = key.filter(|_| peer.is_changed) {
        // An error is ignored, because a removal takes effect even if the store cannot write it.
        let subject = InvalidationSubject::Resource(key);
        let invalidation = Invalidation { subject, effect: PurgeMode::Hard, by: InvalidatedBy::Node };
        drop(Box::pin(invalidation::invalidate(worker, invalidation)).await);
    }
    let is_known = Box::pin(peer.await_purges(siblings, &worker.shared.cache.purges)).await;
    if is_known { Ok(()) } else { Err(Failure::PurgesUnknown) }
}
