//! A GET or HEAD request as the cache sees it, and its channel to the client's task, which alone can contact the
//! origin.

use crate::{origin_body::OriginBody, target::Target};
use http::{HeaderMap, Method, response};
use larder_cache::http::fetcher::{ClientRequest, RequestEdits};
use larder_http::{
    cache_control::RequestDirectives,
    fields::NameFilter,
    key::path_of,
    route::{RequestTerms, UplinkState},
    rules::RuledRequest,
};
use std::{
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
};
use tokio::sync::{
    mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    oneshot,
};

/// A client's GET or HEAD request, as the cache sees it.
pub(crate) struct AskedResource {
    method: Method,
    target: Target,
    key: Arc<[u8]>,
    directives: RequestDirectives,
    line: UnboundedSender<OriginAsk>,
}

/// An order to the client's task: send a request to the origin, and return the response through `reply`.
pub(crate) struct OriginAsk {
    pub(crate) edits: RequestEdits,
    pub(crate) reply: oneshot::Sender<OriginReply>,
}

/// The origin's response, or the reason why there is none.
pub(crate) type OriginReply = Result<(response::Parts, OriginBody), AskFailure>;

/// The reason why the cache has no response for a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AskFailure {
    /// The request that began the fetch got an error from the origin.
    NoResponse,
    /// The fetch ended without an answer of the origin, because the client whose request began it has left.
    Abandoned,
    /// The request has `only-if-cached`, and no stored response may be used for it (RFC 9111 5.2.1.7).
    OnlyIfCached,
}

impl AskedResource {
    /// Creates the cache's view of a request, and the receiver of the orders to contact the origin for it.
    pub(crate) fn new(method: Method, target: Target) -> (Self, UnboundedReceiver<OriginAsk>) {
        let (line, asks) = unbounded_channel();
        let directives = RequestDirectives::from_fields(&target.fields);
        let key = target.key.as_slice().into();
        (Self { method, target, key, directives, line }, asks)
    }

    /// Orders the client's task to send its request to the origin with `edits`, and waits for the response.
    ///
    /// # Errors
    /// The origin fails, or the client has left.
    pub(crate) async fn ask(&self, edits: &RequestEdits) -> OriginReply {
        let (reply, replied) = oneshot::channel();
        let ask = OriginAsk { edits: edits.clone(), reply };
        self.line.send(ask).map_err(|_| AskFailure::Abandoned)?;
        replied.await.unwrap_or(Err(AskFailure::Abandoned))
    }
}

impl ClientRequest for AskedResource {
    fn terms(&self) -> RequestTerms<'_> {
        let Target { uri, fields, .. } = &self.target;
        let ruled = RuledRequest {
            method: &self.method,
            scheme: uri.scheme_str().unwrap_or_default(),
            authority: uri.authority().map(|authority| authority.as_str()).unwrap_or_default(),
            path: path_of(uri),
            fields,
        };
        RequestTerms {
            method: &self.method,
            fields,
            names: NameFilter::ANY,
            directives: self.directives,
            line: UplinkState::Up,
            ruled,
            session_rules: None,
        }
    }

    fn method(&self) -> &Method {
        &self.method
    }

    fn fields(&self) -> &HeaderMap {
        &self.target.fields
    }

    fn key(&self) -> Option<&Arc<[u8]>> {
        Some(&self.key)
    }

    fn client(&self) -> IpAddr {
        Ipv4Addr::UNSPECIFIED.into()
    }

    fn is_never_stored(&self) -> bool {
        false
    }

    fn checks_access(&self) -> bool {
        false
    }

    fn names_digest(&self) -> bool {
        false
    }

    fn has_parts(&self) -> bool {
        // The remainder of a body would be requested later, when the client's task is gone.
        false
    }
}
