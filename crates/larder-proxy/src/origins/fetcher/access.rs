//! Asks the origin whether a client may read a response that was fetched with another client's credentials.
//!
//! Owns: the request to the origin, and the decision which responses its answer covers. The cache answers
//! the client's request. Invariant: a client gets such a response, or shares such a fetch, only if the origin has
//! answered a request for the same URL by the client's own method and with its own credentials, and that answer
//! describes the same response. A permission to HEAD is none to GET: origins and gateways have rules by method. Cost:
//! one request each time; for a GET one for the first octet, so that an origin that knows ranges sends little.

use http::{
    HeaderMap, HeaderValue, Method, StatusCode,
    header::{AUTHORIZATION, CONTENT_LENGTH, RANGE},
    response,
};
use larder_cache::http::fetcher::{AccessAnswer, RequestEdits};
use larder_http::{StoredHead, partial, redirects, validate};

use crate::{
    ground::{cache::lookup::FoundResponse, errors::Failure},
    origins::{fetcher::OriginFetcher, pool::RetryRule},
    targets::asked::RequestHead,
};

/// An origin's answer to a request with a client's own credentials, for comparison with stored responses.
pub(crate) struct Permission {
    status: StatusCode,
    fields: HeaderMap,
    /// The digest of the URL to which the answer redirects. `None` if it is no redirect.
    leads_to: Option<u64>,
    /// Whether the requested URL contains the digest of its content, so that the same length means the same content.
    names_digest: bool,
}

impl OriginFetcher {
    /// Asks the origin with the client's own credentials, and compares the answer with the stored response.
    ///
    /// # Errors
    /// The origin is unreachable.
    pub(super) async fn ask_access(
        &self,
        asked: &RequestHead,
        found: Option<&FoundResponse>,
    ) -> Result<AccessAnswer<Permission>, Failure> {
        let method = if asked.method == Method::HEAD { Method::HEAD } else { Method::GET };
        let added = if method == Method::GET { vec![(RANGE, FIRST_OCTET)] } else { Vec::new() };
        let edits = RequestEdits { whole: true, added, only_at: None };
        let outgoing = asked.replayable(RetryRule::Safe, || {
            let mut request = asked.outgoing(&self.marks, &edits);
            method.clone_into(request.method_mut());
            request
        });
        let (head, body) = self.origins.ask(outgoing).await?;
        // A short answer is read to its end, so that its connection can be reused. Longer ones are not worth it.
        let is_short = body.remaining().is_some_and(|len| len <= READ_OUT_BYTES_MAX);
        if is_short && head.status != StatusCode::OK {
            drop(body.collect_up_to(READ_OUT_BYTES_MAX as usize).await);
        }
        let head = of_the_whole(head);
        let url = asked.url_at_origin();
        let target = url.as_ref().and_then(|url| redirects::target(url, head.status, &head.headers));
        if !head.status.is_success() && target.is_none() {
            return Ok(AccessAnswer::Refused);
        }
        let leads_to = target.as_ref().map(redirects::mark_of);
        let names_digest = asked.before.digest.is_some();
        let permission = Permission { status: head.status, fields: head.headers, leads_to, names_digest };
        let Some(found) = found else {
            return Ok(AccessAnswer::Granted(permission));
        };
        if permission.covers(&found.entry.head, Some(found.entry.body_len())) {
            return Ok(AccessAnswer::Granted(permission));
        }
        // A redirect or a page may be a refusal for clients without credentials. It must not replace the stored
        // response.
        let replaces = permission.status.is_success() && asked.fields.contains_key(AUTHORIZATION);
        Ok(if replaces { AccessAnswer::Differs } else { AccessAnswer::Refused })
    }
}

/// Converts the head of a 206 with only the first octet into the head of the whole response.
fn of_the_whole(mut head: response::Parts) -> response::Parts {
    if let Ok(part) = partial::part(head.status, &head.headers) {
        head.status = StatusCode::OK;
        head.headers.insert(CONTENT_LENGTH, HeaderValue::from(part.total_len));
    }
    head
}

impl Permission {
    /// Returns whether the origin's answer describes the response with this head and, if known, this body length.
    pub(crate) fn covers(&self, head: &StoredHead, body_len: Option<u64>) -> bool {
        match self.leads_to {
            Some(leads_to) => {
                let chain = head.ruling().and_then(|ruling| ruling.chain);
                chain.is_some_and(|chain| chain.first_to == leads_to)
            }
            None => validate::is_described(head, body_len, (self.status, &self.fields), self.names_digest),
        }
    }
}

/// The range that is requested to learn whether a client may read a body.
const FIRST_OCTET: HeaderValue = HeaderValue::from_static("bytes=0-0");
/// Maximum length of an answer that is read so that its connection can be reused, in bytes.
const READ_OUT_BYTES_MAX: u64 = 4 << 10;
