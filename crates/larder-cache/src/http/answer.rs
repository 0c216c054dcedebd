//! Answers GET and HEAD: from memory, from the store, by a shared fetch, or by the origin's own response.
//!
//! [`larder_http::route`] decides, and the modules here execute the decision. A request is looked up
//! ([`CacheQuery::look`]), then fetched or passed on as that has planned; [`CacheQuery::answer`] does both. The caller
//! sends the [`Answer`] to its client.

#[doc(hidden)]
pub mod hit;
#[doc(hidden)]
pub mod look;
pub mod marks;
pub mod pass;
#[doc(hidden)]
pub mod plan;
mod query;
mod reading;
mod share;

pub use self::query::{Answer, AnswerBody, AnswerKind, AnswerResponse, CacheQuery, PlainResponse};

use self::look::CacheAnswer;
use super::fetcher::Fetcher;

impl<F: Fetcher> CacheQuery<'_, F> {
    /// Answers the request.
    ///
    /// # Errors
    /// No stored response may be used, and the origin sends none.
    pub async fn answer(self) -> Result<Answer<F>, F::Failure> {
        match self.look().await.answer {
            CacheAnswer::Answered(answer) => answer,
            CacheAnswer::Fetch(plan) => self.fetch(plan).await,
            CacheAnswer::Pass(plan) => self.pass_planned(&plan).await,
        }
    }
}
