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
    asked::RequestHead,
    body::continuation::{ContinuationAnswer, MissingRange},
    clock,
    errors::Failure,
    fetcher::OriginFetcher,
    origin::{
        body::OriginBody,
        pool::{ReplayableRequest, RetryRule},
        request_body::RequestBody,
        target::{Origin, is_plain_host},
    },
};

/// The target of a redirect.
struct RedirectHop {
    url: Uri,
    origin: Origin,
    /// Whether the target has another origin than the requested URL.
    is_elsewhere: bool,
}

/// The redirects that were followed for one request.
struct RedirectPath {
    chain: Chain,
    /// The rule that allowed them.
    rule: String,
    /// The fields of the redirects, the last redirect first.
    fields: Vec<http::HeaderMap>,
    url: Uri,
}

impl OriginFetcher {
    /// Sends a GET or HEAD to an origin and follows redirects. The fields of the result include the rules' overrides.
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
        // Boxed, because redirects are rare, and following them takes kilobytes.
        Box::pin(self.follow(asked, edits, (head, body), request_time)).await
    }

    /// Follows the redirects of a response to a request that was sent at `request_time`.
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
                client: asked.asking_client(),
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

    /// Requests the continuation of a body from `start` on.
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
        // The node may have another representation, although the origin still has this one.
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

    /// Returns the request to an origin.
    ///
    /// A parent does not know the purges made here. So it must not answer with what it stored before the last purge
    /// that may concern the resource.
    fn outgoing(&self, asked: &RequestHead, edits: &RequestEdits) -> Request<RequestBody> {
        let mut request = asked.outgoing(&self.marks, edits);
        let key = asked.key.as_ref().filter(|_| self.origins.shared.may_be_cached(&asked.origin));
        if let Some(purged_at) = key.and_then(|key| self.cache.shared.purges.last_at(key)) {
            // Other caches count the age in whole seconds, which may be up to one too few.
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
    /// Adds the redirects' constraints to a response.
    fn complete(self, head: &mut response::Parts) {
        for redirection in &self.fields {
            redirects::complete(&mut head.headers, redirection, &self.url);
        }
        let ruling = Ruling::of(&head.headers).unwrap_or_else(|| Ruling { name: self.rule, ..Ruling::default() });
        Ruling { chain: Some(self.chain), ..ruling }.put(&mut head.headers);
    }
}

/// Returns the target of a redirect that must be followed, and the rule that permits it.
fn next_hop(asked: &RequestHead, url: Option<&Uri>, head: &response::Parts) -> Option<(RedirectHop, String)> {
    let is_none = !head.status.is_redirection() || head.status == StatusCode::NOT_MODIFIED;
    // The redirect of a git question is not followed, but sent to the client.
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

/// Returns the hop to `url`, or `None` if it must not be requested.
fn hop(asked: &RequestHead, own: &Uri, url: Uri) -> Option<RedirectHop> {
    let origin = Origin::of_url(&url)?;
    let server = |origin: &Origin| (origin.https, origin.host.clone(), origin.port);
    let is_same_server = server(&origin) == server(&asked.origin);
    if is_same_origin(own, &url) || is_same_server {
        return Some(RedirectHop { url, origin: asked.origin.clone(), is_elsewhere: false });
    }
    is_plain_host(url.host()?).then_some(RedirectHop { url, origin, is_elsewhere: true })
}

/// Creates the request for a hop.
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
        // These validators belong to the requested URL. At another URL, the same tag can mean another response.
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

/// Reads the short remainder of a body, so that its connection can be reused.
async fn drain(body: OriginBody) {
    let len = body.remaining().filter(|len| *len <= DRAINED_BYTES_MAX).and_then(|len| usize::try_from(len).ok());
    if let Some(len) = len {
        drop(body.collect(len).await);
    }
}

/// Most redirects followed in a row.
const HOP_COUNT_MAX: usize = 8;
/// Longest body of a redirect that is read so that the connection can be reused, in bytes.
const DRAINED_BYTES_MAX: u64 = 64 << 10;
/// Fields that describe the request and its path, but not its client.
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
