//! Determines what a request is for, before it is looked up.
//!
//! Owns: the order in which the kinds of targets are tried. `gate` has checked the request's form, and `nodes`
//! recognizes other nodes and balancers. Invariant: a request whose path is a site's own is for no mirror and no build
//! cache.

use std::sync::Arc;

use http::{Request, Uri, header, uri::Authority};
use larder_http::coding::CodingWish;

use crate::{
    fleet::serving,
    ground::{errors::Failure, target::path_of},
    road::{
        exchange::ClientExchange,
        steps::{Onward, Step, Verdict},
        target::TargetKind,
    },
};

impl ClientExchange {
    /// Determines what a request is for, and returns its next step.
    ///
    /// # Errors
    /// The path leads out of the build cache or the mirror.
    pub(super) fn resolve(&mut self, request: &mut Request<impl Sized>) -> Result<Onward, Failure> {
        let shared = &self.worker.shared;
        if let TargetKind::HealthCheck = self.target.kind {
            if self.may_check_health() {
                return Ok(Onward::To(Step::Own));
            }
            self.target.kind = TargetKind::Resource;
        }
        if let Some(link) = shared.fleet.as_ref().filter(|_| serving::is_log_request(&self.client, request)) {
            self.target.kind = TargetKind::PurgeLog(Arc::clone(link));
            return Ok(Onward::To(Step::Own));
        }
        if self.target.sibling().is_none() {
            // The client's preferred coding is read first, because a mirror changes the request's Accept-Encoding.
            self.target.wish = if shared.compresses { CodingWish::of(request) } else { None };
            if !(shared.mirrors.is_empty() && shared.build_caches.is_empty()) {
                self.divert(request)?;
            }
        }
        self.trace.note(verdict(&self.target.kind));
        Ok(Onward::To(Step::Memory))
    }

    /// Finds the build cache or mirror that a request is for. Rewrites a request for a mirror to the server it stands
    /// for.
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
                Some(ask) => TargetKind::Registry(mirrored, ask),
                None => TargetKind::Mirror(mirrored),
            };
        }
        Ok(())
    }
}

/// Returns the verdict of the step `Resolve` for a target of this kind.
fn verdict(kind: &TargetKind) -> Verdict {
    match kind {
        TargetKind::Mirror(_) => Verdict::Mirror,
        TargetKind::Registry(..) => Verdict::Registry,
        TargetKind::BuildCache(_) => Verdict::BuildCache,
        TargetKind::Sibling(_) => Verdict::Node,
        TargetKind::Resource
        | TargetKind::HealthCheck
        | TargetKind::ProxyPac(_)
        | TargetKind::WholeServer
        | TargetKind::PurgeLog(_) => Verdict::Passed,
    }
}
