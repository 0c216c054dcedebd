//! A request that may be forwarded, with the worker that answers it.
//!
//! The steps from the cache to the origin are its methods, each in the file of its subject.

use std::sync::Arc;

use crate::{asked::RequestHead, worker::Worker};

/// A request that may be forwarded: it has one origin and one Host, and is not looping.
pub(crate) struct AdmittedRequest {
    /// The worker of the request's site.
    pub(crate) worker: Arc<Worker>,
    pub(crate) asked: Arc<RequestHead>,
}
