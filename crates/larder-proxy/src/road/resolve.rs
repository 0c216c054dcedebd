//! Determines what a request is for, before it is looked up.
//!
//! Owns: the order in which the kinds of targets are tried, and the choice of the policy. `gate` has checked the
//! request's form, and `nodes` recognizes other nodes and balancers. Invariants: a request whose path is a site's own
//! is for no mirror and no build cache. No later step changes the target, the URI or the Host field of a request, so
//! all of them speak of the resource that is found here.

use std::sync::Arc;

use http::{Request, Uri, header, uri::Authority};
use larder_http::{coding::CodingWish, fields::accepted_authority};

use crate::{
    fleet::serving,
    ground::{errors::Failure, target::path_of},
    road::{
        exchange::ClientExchange,
        steps::{Onward, Step, Verdict},
        target::{OwnTarget, TargetKind},
    },
};

impl ClientExchange {
    /// Determines what a request is for, and returns its next step.
    ///
    /// # Errors
    /// The path leads out of the build cache or the mirror.
    pub(super) fn resolve(&mut self, request: &mut Request<impl Sized>) -> Result<Onward, Failure> {
        let shared = &self.worker.shared;
        if let TargetKind::Own(OwnTarget::HealthCheck) = self.target.kind {
            if self.may_check_health() {
                return Ok(Onward::To(Step::Own));
            }
            self.target.kind = TargetKind::default();
        }
        if let Some(link) = shared.fleet.as_ref().filter(|_| serving::is_log_request(&self.client, request)) {
            self.target.kind = TargetKind::Own(OwnTarget::PurgeLog(Arc::clone(link)));
            return Ok(Onward::To(Step::Own));
        }
        if self.target.sibling().is_none() {
            // The client's preferred coding is read first, because a mirror changes the request's Accept-Encoding.
            self.target.wish = if shared.compresses { CodingWish::of(request) } else { None };
            if !(shared.mirrors.is_empty() && shared.build_caches.is_empty()) {
                self.divert(request)?;
            }
        }
        if let TargetKind::Resource(_) = self.target.kind {
            self.target.kind = self.find_resource(request);
        }
        self.choose_policy(request);
        self.trace.note(verdict_of(&self.target.kind));
        Ok(Onward::To(Step::Memory))
    }

    /// Finds the origin of a request that is not for a mirror or build cache and does not come from another node,
    /// unless this proxy answers the request itself.
    fn find_resource(&self, request: &Request<impl Sized>) -> TargetKind {
        let uri = request.uri();
        let authority = || accepted_authority(uri, request.headers());
        let route = self.worker.shared.routes.find(self.client.scheme(), uri, request.version(), authority);
        if let Some(address) = self.script_address(request, route) {
            TargetKind::Own(OwnTarget::ProxyPac(address))
        } else if self.is_for_server(request, route) {
            TargetKind::Own(OwnTarget::WholeServer)
        } else {
            TargetKind::Resource(route)
        }
    }

    /// Sets the exchange's worker to one with the policy of the request's site.
    fn choose_policy(&mut self, request: &Request<impl Sized>) {
        if self.worker.has_policies() {
            let parts = self.target.key_parts(&self.worker.shared.routes, self.client.scheme(), request);
            let authority = parts.map(|(_, authority, _)| authority);
            let worker = self.worker.under_policy_of(request.uri(), authority, Some(self.client.listener));
            self.worker = Arc::clone(worker);
        }
    }

    /// Finds the build cache or mirror that a request is for. Rewrites a request for a mirror, so that it goes to the
    /// server for which the mirror stands.
    ///
    /// The paths of sites are left unchanged.
    ///
    /// # Errors
    /// The path leads out of the build cache or the mirror.
    fn divert(&mut self, request: &mut Request<impl Sized>) -> Result<(), Failure> {
        let Self { client, worker, target, .. } = self;
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
                Some(ask) => TargetKind::Own(OwnTarget::Registry(mirrored, ask)),
                None => TargetKind::Mirror(mirrored),
            };
        }
        Ok(())
    }
}

/// Returns the verdict of the step `Resolve`, its result for the log, for a kind of target.
fn verdict_of(kind: &TargetKind) -> Verdict {
    match kind {
        TargetKind::Mirror(_) => Verdict::Mirror,
        TargetKind::BuildCache(_) => Verdict::BuildCache,
        TargetKind::Sibling(_) => Verdict::Node,
        TargetKind::Own(OwnTarget::Registry(..)) => Verdict::Registry,
        TargetKind::Resource(_) | TargetKind::Own(_) => Verdict::Passed,
    }
}
