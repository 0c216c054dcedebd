//! A GET or HEAD as the cache sees it, and the line to its client's task, which alone can ask the origin.

use crate::{origin_body::OriginBody, target::Target};
use http::{HeaderMap, Method, response};
use larder_cache::http::fetcher::{ClientRequest, RequestEdits};
use larder_http::{
    cache_control::RequestDirectives,
    fields::NameLengths,
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

/// A GET or HEAD.
pub(crate) struct AskedResource {
    method: Method,
    target: Target,
    key: Arc<[u8]>,
    directives: RequestDirectives,
    line: UnboundedSender<OriginAsk>,
}

/// A request to the origin that the task of the client is to send.
pub(crate) struct OriginAsk {
    pub(crate) edits: RequestEdits,
    pub(crate) reply: oneshot::Sender<OriginReply>,
}

/// The origin's response, or the reason why there is none.
pub(crate) type OriginReply = Result<(response::Parts, OriginBody), AskFailure>;

/// The reasons for which the cache has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AskFailure {
    /// The request that began the fetch got an error from the origin.
    NoResponse,
    /// The fetch ended without an answer of the origin, because the client whose request began it has left.
    Abandoned,
    /// The request demands a stored response, and none answers it.
    OnlyIfCached,
}

impl AskedResource {
    /// Returns a request, and the requests to the origin that are made for it.
    pub(crate) fn new(method: Method, target: Target) -> (Self, UnboundedReceiver<OriginAsk>) {
        let (line, asks) = unbounded_channel();
        let directives = RequestDirectives::from_fields(&target.fields);
        let key = target.key.as_slice().into();
        (Self { method, target, key, directives, line }, asks)
    }

    /// Lets the task of the client ask the origin.
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
            names: NameLengths::ANY,
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
        // Later, the client's task is not there to ask for the remainder.
        false
    }
}
