//! Requests a resource, and follows redirects where the operator's rules say so.
//!
//! Owns: the order of the hops, and the request for each. `larder_http::redirects` decides which redirects are
//! followed.
//!
//! Invariants: an origin other than the requested one gets the request without anything that identifies the client.
//! Each hop must pass the rules for targets, as if a client had requested it. The result is stored under the requested
//! key, with the constraints that the redirects impose on it. Cost: one request per hop, at most [`HOP_COUNT_MAX`].

use std::time::Instant;

use http::{
    HeaderName, HeaderValue, Method, Request, StatusCode, Uri,
    header::{
        ACCEPT, ACCEPT_ENCODING, ACCEPT_LANGUAGE, CACHE_CONTROL, HOST, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE,
        PRAGMA, RANGE, USER_AGENT, VIA,
    },
    response,
};
use larder_cache::http::fetcher::RequestEdits;
use larder_http::{
    Ruling,
    cache_control::RequestDirectives,
    chain::Chain,
    redirects::{self, is_same_origin, mark_of, may_follow},
    storable::Exchange,
};

use crate::{
    ground::{
        cache::body::continuation::{ContinuationAnswer, MissingRange},
        clock,
        errors::Failure,
        target::{Origin, is_plain_host},
    },
    origins::{
        body::OriginBody,
        fetcher::OriginFetcher,
        pool::{ReplayableRequest, RetryRule},
        request_body::RequestBody,
    },
    targets::asked::RequestHead,
};

/// The target of a redirect that is followed.
struct RedirectHop {
    url: Uri,
    origin: Origin,
    /// Whether the redirect leads to another origin than that of the requested URL.
    is_elsewhere: bool,
}

/// The redirects that one request has followed.
struct RedirectPath {
    chain: Chain,
    /// The name of the rule that permits following the redirects.
    rule: String,
    /// The fields of the redirects, the latest first.
    fields: Vec<http::HeaderMap>,
    url: Uri,
}

impl OriginFetcher {
    /// Sends a GET or HEAD to a node or an origin, and follows redirects. Adds the rules' overrides to the response.
    ///
    /// # Errors
    /// An origin is unreachable or forbidden, or a response is malformed.
    pub(crate) async fn ask_any(
        &self,
        asked: &RequestHead,
        edits: &RequestEdits,
    ) -> Result<(response::Parts, OriginBody), Failure> {
        if self.siblings.is_some()
            && let Some(answered) = Box::pin(self.ask_sibling(asked, edits, 0)).await
        {
            return Ok(answered);
        }
        self.ask_origin(asked, edits).await
    }

    async fn ask_origin(
        &self,
        asked: &RequestHead,
        edits: &RequestEdits,
    ) -> Result<(response::Parts, OriginBody), Failure> {
        let request_time = clock::now();
        let outgoing = asked.replayable(RetryRule::Safe, || self.outgoing(asked, edits));
        let (mut head, body) = self.origins.ask(outgoing).await?;
        asked.put_ruling(&self.cache.shared.rules, head.status, &mut head.headers);
        if next_hop(asked, None, &head).is_none() {
            return Ok((head, body));
        }
        // Boxed, because redirects are rare, and the future that follows them takes kilobytes.
        Box::pin(self.follow(asked, edits, (head, body), request_time)).await
    }

    /// Follows the redirects of a response. `request_time` is the time at which the response was requested.
    async fn follow(
        &self,
        asked: &RequestHead,
        edits: &RequestEdits,
        (mut head, mut body): (response::Parts, OriginBody),
        mut request_time: larder_http::Timestamp,
    ) -> Result<(response::Parts, OriginBody), Failure> {
        let mut way: Option<RedirectPath> = None;
        while let Some((hop, rule)) = next_hop(asked, way.as_ref().map(|way| &way.url), &head) {
            if way.as_ref().is_some_and(|way| way.fields.len() >= HOP_COUNT_MAX) {
                let why = format!("it redirects more than {HOP_COUNT_MAX} times in a row");
                return Err(Failure::Broken { host: hop.origin.to_string(), why });
            }
            let redirection = self.exchange(asked, &head, request_time);
            let settings = &self.cache.http;
            let chain = redirects::through(way.as_ref().map(|way| way.chain), &redirection, &hop.url, settings);
            let mut fields = way.map(|way| way.fields).unwrap_or_default();
            fields.insert(0, std::mem::take(&mut head.headers));
            drain(body).await;
            request_time = clock::now();
            let outgoing = ReplayableRequest {
                origin: hop.origin.clone(),
                choice: None,
                key: None,
                repeat: RetryRule::Safe,
                client: Some(&asked.asking),
                make: || request_for(asked, &hop, self, edits),
            };
            (head, body) = self.origins.ask(outgoing).await?;
            asked.put_ruling(&self.cache.shared.rules, head.status, &mut head.headers);
            way = Some(RedirectPath { chain, rule, fields, url: hop.url });
        }
        if let Some(way) = way {
            way.complete(&mut head);
        }
        Ok((head, body))
    }

    /// Requests the remainder of a body from `start` on, from the node that owns the piece or from the origin.
    pub(super) async fn ask_missing(
        &self,
        asked: &RequestHead,
        missing: &MissingRange<'_>,
        start: u64,
    ) -> ContinuationAnswer {
        self.metrics.range_fills.add(1);
        let edits = RequestEdits { whole: true, added: missing.fields(start), only_at: None };
        let piece = self.piece_of(asked, missing, start);
        if self.siblings.is_some()
            && let Some((head, body)) = Box::pin(self.ask_sibling(asked, &edits, piece.unwrap_or(0))).await
            && let continued @ ContinuationAnswer::Continued { .. } = missing.judge(start, &head, body, clock::now())
        {
            return continued;
        }
        // The node may have another representation although the origin still has this one, so the origin is asked too.
        let answer = match self.ask_origin(asked, &edits).await {
            Ok((head, body)) => missing.judge(start, &head, body, clock::now()),
            Err(failure) => ContinuationAnswer::Failed(failure.to_string()),
        };
        match (&answer, &asked.key) {
            (ContinuationAnswer::Continued { status: StatusCode::OK, .. }, _) if piece.is_some() => {
                self.note_whole(asked);
            }
            (ContinuationAnswer::Changed, Some(key)) => self.cache.shared.tag_changes.note(key, Instant::now()),
            _ => {}
        }
        answer
    }

    /// Creates the request to an origin, with the cache's changes in `edits`.
    ///
    /// A parent proxy does not know the purges made here. So the request limits the age of the parent's response to the
    /// time since the last purge that may concern the resource.
    fn outgoing(&self, asked: &RequestHead, edits: &RequestEdits) -> Request<RequestBody> {
        let mut request = asked.outgoing(&self.marks, edits);
        let key = asked.key.as_ref().filter(|_| self.origins.shared.may_be_cached(&asked.origin));
        if let Some(purged_at) = key.and_then(|key| self.cache.shared.purges.last_at(key)) {
            // Caches count age in whole seconds, which may be one less than the real age.
            let secs = clock::now().millis_since(purged_at) / 1000 - 1;
            let secs = u32::try_from(secs.max(0)).unwrap_or(u32::MAX);
            RequestDirectives::limit_age(request.headers_mut(), secs);
        }
        request
    }

    fn exchange<'a>(
        &self,
        asked: &'a RequestHead,
        head: &'a response::Parts,
        request_time: larder_http::Timestamp,
    ) -> Exchange<'a> {
        Exchange {
            method: &asked.method,
            request_fields: &asked.fields,
            status: head.status,
            response_fields: &head.headers,
            request_time,
            response_time: clock::now(),
        }
    }
}

impl RedirectPath {
    /// Adds to the final response the limits that the redirects impose on storing it.
    fn complete(self, head: &mut response::Parts) {
        for redirection in &self.fields {
            redirects::complete(&mut head.headers, redirection, &self.url);
        }
        let ruling = Ruling::of(&head.headers).unwrap_or_else(|| Ruling { name: self.rule, ..Ruling::default() });
        Ruling { chain: Some(self.chain), ..ruling }.put(&mut head.headers);
    }
}

/// Returns the redirect of a response that must be followed, and the name of the rule that permits it.
fn next_hop(asked: &RequestHead, url: Option<&Uri>, head: &response::Parts) -> Option<(RedirectHop, String)> {
    let is_none = !head.status.is_redirection() || head.status == StatusCode::NOT_MODIFIED;
    // Redirects of git questions are not followed, but sent to the client.
    if is_none || asked.question.is_some() {
        return None;
    }
    let ruling = Ruling::of(&head.headers)?;
    let own = asked.url_at_origin()?;
    let from = url.unwrap_or(&own);
    let to = redirects::target(from, head.status, &head.headers)?;
    if !may_follow(from, &to, ruling.following) {
        return None;
    }
    let hop = hop(asked, &own, to)?;
    Some((hop, ruling.name))
}

/// Returns the redirect to `url`, or `None` if it must not be followed.
fn hop(asked: &RequestHead, own: &Uri, url: Uri) -> Option<RedirectHop> {
    let origin = Origin::of_url(&url)?;
    let server = |origin: &Origin| (origin.https, origin.host.clone(), origin.port);
    let is_same_server = server(&origin) == server(&asked.origin);
    if is_same_origin(own, &url) || is_same_server {
        return Some(RedirectHop { url, origin: asked.origin.clone(), is_elsewhere: false });
    }
    is_plain_host(url.host()?).then_some(RedirectHop { url, origin, is_elsewhere: true })
}

/// Creates the request to the target of a redirect.
fn request_for(
    asked: &RequestHead,
    hop: &RedirectHop,
    fetcher: &OriginFetcher,
    edits: &RequestEdits,
) -> Request<RequestBody> {
    let is_about_it = edits.only_at == Some(mark_of(&hop.url));
    let there = RequestEdits {
        whole: edits.whole,
        added: if is_about_it || edits.only_at.is_none() { edits.added.clone() } else { Vec::new() },
        only_at: None,
    };
    let mut request = fetcher.outgoing(asked, &there);
    let fields = request.headers_mut();
    if !is_about_it {
        // The validators belong to the requested URL. At another URL, the same tag can mean another response.
        for name in [IF_NONE_MATCH, IF_MODIFIED_SINCE] {
            fields.remove(name);
        }
    }
    if hop.is_elsewhere {
        let names: Vec<HeaderName> = fields.keys().filter(|name| !SAID_TO_ALL.contains(name)).cloned().collect();
        for name in names {
            fields.remove(name);
        }
    }
    if let Some(host) = hop.url.authority().and_then(|authority| HeaderValue::try_from(authority.as_str()).ok()) {
        fields.insert(HOST, host);
    }
    if let Some(path) = hop.url.path_and_query() {
        *request.uri_mut() = path.clone().into();
    }
    debug_assert!(matches!(*request.method(), Method::GET | Method::HEAD), "nothing else is followed");
    request
}

/// Reads the remainder of a short body, so that its connection can be reused.
async fn drain(body: OriginBody) {
    let len = body.remaining().filter(|len| *len <= DRAINED_BYTES_MAX).and_then(|len| usize::try_from(len).ok());
    if let Some(len) = len {
        drop(body.collect(len).await);
    }
}

/// Maximum number of redirects that are followed in a row.
const HOP_COUNT_MAX: usize = 8;
/// Maximum remainder of a redirect's body that is read, in bytes.
const DRAINED_BYTES_MAX: u64 = 64 << 10;
/// Request fields that do not identify the client, so they are kept when a redirect leads to another origin.
const SAID_TO_ALL: [HeaderName; 12] = [
    ACCEPT,
    ACCEPT_ENCODING,
    ACCEPT_LANGUAGE,
    CACHE_CONTROL,
    IF_MODIFIED_SINCE,
    IF_NONE_MATCH,
    IF_RANGE,
    PRAGMA,
    RANGE,
    USER_AGENT,
    VIA,
    HeaderName::from_static("cdn-loop"),
];
