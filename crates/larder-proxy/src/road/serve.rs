//! Answers GET and HEAD through the cache: from the store if the stored response may be used, otherwise by a flight.
//!
//! `larder_cache::http::answer` decides and answers. Its verdict becomes that of the step.

use larder_cache::http::answer::look::{CacheAnswer, LookResult, LookVerdict};
use larder_http::route::{Route, UnstoredRoute};

use crate::{
    ground::errors::Failure,
    road::{
        exchange::ClientExchange,
        served::ServedResponse,
        steps::{Onward, Step, Verdict},
    },
};

impl ClientExchange {
    /// Answers with the stored response, or plans how to contact the origin.
    ///
    /// # Errors
    /// No stored response may be used, and the origin must not be contacted.
    pub(super) async fn look_in_cache(&mut self) -> Result<Onward, Failure> {
        let LookResult { verdict, answer } = self.admitted().query().look().await;
        self.trace.note(Verdict::from(verdict));
        let (step, plan) = match answer {
            CacheAnswer::Answered(answer) => {
                return answer.map(|answer| Onward::Served(ServedResponse::of(answer, self.admitted())));
            }
            CacheAnswer::Fetch(plan) => (Step::Fetch, plan),
            CacheAnswer::Pass(plan) => (Step::Pass, plan),
        };
        self.plan = Some(plan);
        Ok(Onward::To(step))
    }

    /// Answers by a fetch of the resource: joins one in progress, or begins one.
    ///
    /// # Errors
    /// The origin is unreachable, and no stale response may be served.
    pub(super) async fn fetch(&mut self) -> Result<Onward, Failure> {
        let plan = self.plan.take().expect("the cache has planned the fetch");
        let admitted = self.admitted();
        let answer = admitted.query().fetch(plan).await?;
        Ok(Onward::Served(ServedResponse::of(answer, admitted)))
    }
}

impl From<LookVerdict> for Verdict {
    fn from(verdict: LookVerdict) -> Self {
        match verdict {
            LookVerdict::Hit => Self::Hit,
            LookVerdict::Stale => Self::Stale,
            LookVerdict::Validate => Self::Validate,
            LookVerdict::Miss => Self::Miss,
            LookVerdict::Bypass => Self::Bypass,
            LookVerdict::OnlyIfCached => Self::OnlyIfCached,
            LookVerdict::Offline => Self::Offline,
        }
    }
}

impl<S> From<&Route<S>> for Step {
    fn from(route: &Route<S>) -> Self {
        match route {
            Route::Unstored(UnstoredRoute::Fly { .. }) => Self::Fetch,
            Route::Unstored(UnstoredRoute::Pass { .. } | UnstoredRoute::PassHead { .. }) => Self::Pass,
            Route::Stored { .. }
            | Route::Meanwhile { .. }
            | Route::Unstored(UnstoredRoute::Refuse | UnstoredRoute::Offline) => Self::Deliver,
        }
    }
}
