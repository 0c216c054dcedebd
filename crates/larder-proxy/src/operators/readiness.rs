//! Decides whether this proxy should receive requests, for load balancers and service managers.
//!
//! The proxy itself answers requests in each of these states. The state only tells others where to send theirs.

use std::sync::atomic::Ordering::Relaxed;

use http::{HeaderValue, Response, StatusCode, header};

use crate::{
    road::client::response_body::{ResponseBody, text_response},
    run::shared::ProxyState,
};

/// Whether load balancers should send requests to this proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Readiness {
    /// The proxy is ready.
    Ready,
    /// The store is being loaded, so every lookup misses and all requests would reach the origins.
    Loading,
    /// This node is still reading purges of other nodes. Until that is done, stored responses must be validated with
    /// their origins before use.
    CatchingUp,
    /// The proxy is about to close its listeners.
    Draining,
}

impl Readiness {
    pub(crate) fn of(shared: &ProxyState) -> Self {
        if shared.counts.is_draining.load(Relaxed) {
            return Self::Draining;
        }
        let is_loaded = shared.cache.store.as_ref().is_none_or(|store| store.stats().loaded);
        match &shared.fleet {
            _ if !is_loaded => Self::Loading,
            Some(link) if link.peers.is_catching_up() => Self::CatchingUp,
            _ => Self::Ready,
        }
    }

    /// Returns the response to a health check.
    pub(crate) fn response(self) -> Response<ResponseBody> {
        let (status, text) = match self {
            Self::Ready => (StatusCode::OK, "ok\n"),
            Self::Loading => (StatusCode::SERVICE_UNAVAILABLE, "the store is loading\n"),
            Self::CatchingUp => (StatusCode::SERVICE_UNAVAILABLE, "the purges of other nodes are being read\n"),
            Self::Draining => (StatusCode::SERVICE_UNAVAILABLE, "this proxy is about to stop\n"),
        };
        let mut response = text_response(status, text.into());
        if status != StatusCode::OK {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}
