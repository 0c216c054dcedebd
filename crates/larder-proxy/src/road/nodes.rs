//! Requests of balancers, and of other nodes of the fleet.
//!
//! Owns: recognizing them, and the proof in responses to other nodes. Invariant: a request counts as another node's
//! only on a connection of its own, and with a code that needs the fleet's secret. If the nodes have certificates, it
//! must arrive on the listener that requires them.

use std::sync::Arc;

use http::{Method, Request};

use crate::{
    ground::{cache::purges::PurgeMode, clock, errors::Failure, target::is_within},
    road::{
        exchange::ClientExchange,
        invalidation::{self, InvalidatedBy, Invalidation, InvalidationSubject},
        served::ServedResponse,
    },
    targets::siblings::{PEER_FIELD, PeerClaim, PeerRequest, Siblings},
};

impl ClientExchange {
    /// Returns whether a request is a health check: addressed to this proxy itself, for the configured path.
    pub(super) fn is_health_check(&self, request: &Request<impl Sized>) -> bool {
        let path = self.worker.shared.config.fleet.ready_path.as_deref();
        let uri = request.uri();
        path == Some(uri.path())
            && matches!(*request.method(), Method::GET | Method::HEAD)
            && self.client.is_server_for(request.version(), uri)
            && self.client.inside.is_none()
            && self.client.session.is_none()
    }

    /// Returns whether the client may make health checks. Trusted load balancers may, even if they may not use this
    /// proxy.
    pub(super) fn may_check_health(&self) -> bool {
        let balancers = &self.worker.shared.config.fleet.trusted_proxies;
        self.client.is_node || !self.is_denied() || is_within(balancers, self.client.peer.ip())
    }

    /// Returns the facts that another node of the fleet sent with its request, or `None` if a client sent the request.
    ///
    /// # Errors
    /// Another node sent it, but its clock or rules differ from this node's.
    pub(super) fn request_of_sibling(
        &self,
        request: &Request<impl Sized>,
    ) -> Result<Option<Box<PeerRequest>>, Failure> {
        let siblings = self.worker.shared.siblings.as_ref();
        let Some(siblings) = siblings.filter(|_| request.headers().contains_key(&PEER_FIELD)) else {
            return Ok(None);
        };
        let client = &self.client;
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

    /// Returns whether this node has applied all purges that are known to the sender of the request, another node of
    /// the fleet.
    ///
    /// Always true for requests of clients.
    pub(super) fn is_up_to_date(&self) -> bool {
        let Some((peer, siblings)) = self.sibling() else { return true };
        !peer.is_changed && peer.knows_its_purges(siblings, &self.worker.shared.cache.purges)
    }

    /// Adds the proof that this node gave the response, if another node of the fleet sent the request.
    pub(super) fn prove(&self, served: &mut ServedResponse) {
        if let Some((peer, siblings)) = self.sibling() {
            let status = served.response.status();
            peer.prove(siblings, status, served.response.headers_mut());
        }
    }

    /// Applies what another node's request says is outdated, and waits briefly for the purges of that node.
    ///
    /// Does nothing for requests of clients.
    ///
    /// # Errors
    /// The purges did not arrive in time.
    pub(super) async fn catch_up(&self, key: Option<&[u8]>) -> Result<(), Failure> {
        let Some((peer, siblings)) = self.sibling() else { return Ok(()) };
        if let Some(key) = key.filter(|_| peer.is_changed) {
            // Errors are ignored, because a removal takes effect in memory even if the store cannot write it.
            let subject = InvalidationSubject::Resource(key);
            let invalidation = Invalidation { subject, effect: PurgeMode::Hard, by: InvalidatedBy::Node };
            drop(Box::pin(invalidation::invalidate(&self.worker, invalidation)).await);
        }
        let is_known = Box::pin(peer.await_purges(siblings, &self.worker.shared.cache.purges)).await;
        if is_known { Ok(()) } else { Err(Failure::PurgesUnknown) }
    }

    /// Returns the other node's facts, and what this node knows of the fleet. `None` if a client sent the request.
    fn sibling(&self) -> Option<(&PeerRequest, &Arc<Siblings>)> {
        self.target.sibling().zip(self.worker.shared.siblings.as_ref())
    }
}
