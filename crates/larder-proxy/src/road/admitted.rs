//! A request that may be forwarded, with the worker that answers it.
//!
//! The steps from the cache to the origin are its methods, each in the file of its subject.

use std::sync::Arc;

use larder_cache::http::answer::CacheQuery;

use crate::{origins::fetcher::OriginFetcher, run::worker::Worker, targets::asked::RequestHead};

/// A request that may be forwarded: it has one origin and one Host, and is not looping.
pub(crate) struct AdmittedRequest {
    /// The worker, with the policy of the request's site.
    pub(crate) worker: Arc<Worker>,
    pub(crate) asked: Arc<RequestHead>,
}

impl AdmittedRequest {
    /// Returns the request in the form in which the cache answers it.
    pub(crate) fn query(&self) -> CacheQuery<'_, OriginFetcher> {
        CacheQuery { http: &self.worker.http, asked: &self.asked }
    }
}
