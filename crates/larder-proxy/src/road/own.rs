//! Answers the requests that are for this proxy itself, not for a resource.

use std::sync::Arc;

use crate::{
    figures::outcome::Outcome,
    fleet::serving,
    ground::errors::Failure,
    operators::readiness::Readiness,
    road::{
        exchange::ClientExchange,
        final_recipient, pac,
        served::ServedResponse,
        steps::Onward,
        target::{OwnTarget, TargetKind},
    },
};

impl ClientExchange {
    /// Answers requests to this proxy itself that need not wait for anything, such as health checks.
    ///
    /// Such a response takes no memory, so load balancers get it however many requests wait.
    pub(super) fn answer_at_once(&self) -> Option<ServedResponse> {
        let shared = &self.worker.shared;
        let TargetKind::Own(target) = &self.target.kind else { return None };
        match target {
            OwnTarget::HealthCheck => {
                let response = Readiness::of(shared).response();
                Some(ServedResponse { response: Box::new(response), outcome: Outcome::Failed, origin: None, why: None })
            }
            OwnTarget::ProxyPac(address) => Some(pac::answer(&shared.config, address)),
            OwnTarget::WholeServer => Some(final_recipient::own_methods()),
            OwnTarget::Registry(..) | OwnTarget::PurgeLog(_) => None,
        }
    }

    /// Answers the requests to this proxy itself that [`Self::answer_at_once`] does not.
    pub(super) async fn answer_itself(&mut self) -> Result<Onward, Failure> {
        let served = match &self.target.kind {
            TargetKind::Own(OwnTarget::PurgeLog(link)) => {
                let link = Arc::clone(link);
                let (parts, _) = self.take_request().into_parts();
                let response = serving::answer(&self.client, &link, &self.worker.shared.cache.purges, &parts).await;
                ServedResponse { response: Box::new(response), outcome: Outcome::Failed, origin: None, why: None }
            }
            TargetKind::Own(OwnTarget::Registry(mirrored, ask)) => {
                let mirrored = mirrored.clone();
                let ask = *ask;
                let request = self.take_request();
                self.answer_for_registry(&mirrored, ask, &request).await?
            }
            TargetKind::BuildCache(cache) => {
                let cache = cache.clone();
                self.answer_for_build_cache(&cache).await?
            }
            _ => final_recipient::answer(&self.admitted().asked),
        };
        Ok(Onward::Served(served))
    }
}
