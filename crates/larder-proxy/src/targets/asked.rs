//! A client's request as it is answered and forwarded: its target, its origin and its cache key.
//!
//! Owns: the request's head, parsed once. Invariant: a request to an origin carries none of the fields that belong to
//! the client's connection. It has one Host and this proxy's own marks (RFC 9110 7.6).

use std::{net::IpAddr, sync::Arc, time::Duration};

use http::{
    HeaderMap, HeaderValue, Method, Request, StatusCode, Uri, Version,
    header::{AUTHORIZATION, CONTENT_LENGTH, COOKIE, EXPECT, HOST, TRANSFER_ENCODING, VARY},
    uri::{PathAndQuery, Scheme},
};
use larder_http::{
    Rules, Ruling,
    cache_control::RequestDirectives,
    fields::{NameFilter, has_token, is_hop_by_hop, via},
    route::{RequestTerms, UplinkState},
    rules::RuledRequest,
    ruling,
};

use crate::{
    ground::{
        cache::fetcher::RequestEdits, digest::NamedDigest, errors::Failure, forwarded::ForwardedRequest,
        marks::ResponseMarkers, target::Origin,
    },
    origins::{
        expectation::Expectation,
        group::OriginChoice,
        http1::InterimTaker,
        pool::{AskingClient, ReplayableRequest, RetryRule},
        request_body::RequestBody,
    },
    targets::git::{self, GitQuestion, GitRequest},
};

/// The parsed head of a client's request, and where the request is forwarded.
pub(crate) struct RequestHead {
    pub(crate) method: Method,
    pub(crate) fields: HeaderMap,
    /// The names in `fields`. They show without a lookup that most fields are absent.
    pub(crate) names: NameFilter,
    /// The Cache-Control directives of the request.
    pub(crate) directives: RequestDirectives,
    pub(crate) version: Version,
    pub(crate) origin: Origin,
    /// The origins of the site among which the request can choose. `None` if the site has only one.
    pub(crate) choice: Option<OriginChoice>,
    pub(crate) client: IpAddr,
    /// The facts about the client that the origin and its connection need.
    pub(crate) asking: AskingClient,
    /// The address of the socket's peer: the client, or a trusted proxy.
    pub(crate) peer: IpAddr,
    /// Whether the origin can be contacted now.
    pub(crate) line: UplinkState,
    /// Whether the request may be forwarded. If not (Max-Forwards is 0), this proxy answers it (RFC 9110 7.6.2).
    pub(crate) goes_on: bool,
    /// Holds the body back until the origin asks for it (RFC 9110 10.1.1). `None` if the body need not wait.
    pub(crate) expectation: Option<Arc<Expectation>>,
    /// The cache key of the resource. `None` if it cannot have one.
    pub(crate) key: Option<Arc<[u8]>>,
    /// The path and query of the client's request.
    pub(crate) path: PathAndQuery,
    /// The request target that is sent to the origin.
    pub(crate) target: Uri,
    pub(crate) host: HeaderValue,
    pub(crate) scheme: Scheme,
    /// Whether another node of the fleet sent the request, so that it must not go to a further node.
    pub(crate) is_by_sibling: bool,
    /// Whether the response may be sent with a head that is already encoded as lines.
    ///
    /// This requires a client of HTTP/1.1, and that nothing reads or changes the response's fields.
    pub(crate) takes_lines: bool,
    /// The settings of rules that take effect before the response is known.
    pub(crate) before: RequestRules,
    /// The rules of the client's session. Those of the configuration take precedence.
    pub(crate) session_rules: Option<Arc<Rules>>,
    /// The git question in the body, if this is a POST that the cache may answer like a GET.
    pub(crate) question: Option<GitQuestion>,
}

/// The settings of rules that take effect on a request before its response is known.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestRules {
    /// Whether the origin must permit each client that gets a response fetched with another client's credentials.
    pub(crate) checks_authorization: bool,
    /// Whether any client can get the credentials of this request, such as an anonymous registry token.
    pub(crate) is_anybodys: bool,
    /// The digest that the response's body must have, if it is known.
    pub(crate) digest: Option<NamedDigest>,
    /// Whether the response may be a file that never changes. A listing may then contain its digest.
    pub(crate) may_never_change: bool,
    /// Whether git's POST requests are answered from the cache.
    pub(crate) caches_git: bool,
    /// Whether a rule forbids storing any response to the request.
    pub(crate) is_never_stored: bool,
}

impl RequestHead {
    /// Returns a mutable reference to a head that is not shared yet, while its request is being admitted.
    ///
    /// # Panics
    /// If the head is shared.
    pub(crate) fn unshared(head: &mut Arc<Self>) -> &mut Self {
        Arc::get_mut(head).expect("a head is shared only once its request is admitted")
    }

    /// Returns the absolute URI of the request, or `None` for a target without one, such as `*`.
    pub(crate) fn uri(&self) -> Option<Uri> {
        let builder = Uri::builder().scheme(self.scheme.clone()).authority(self.host.as_bytes());
        builder.path_and_query(self.path.clone()).build().ok()
    }

    /// Returns the demands of the request on a stored response.
    pub(crate) fn terms(&self) -> RequestTerms<'_> {
        RequestTerms {
            method: &self.method,
            fields: &self.fields,
            names: self.names,
            directives: self.directives,
            line: self.line,
            ruled: self.ruled(),
            session_rules: self.session_rules.as_deref(),
        }
    }

    /// Returns the properties of the request that rules compare.
    fn ruled(&self) -> RuledRequest<'_> {
        let scheme = self.scheme.as_str();
        let authority = self.host.to_str().unwrap_or_default();
        RuledRequest { method: &self.method, scheme, authority, path: self.path(), fields: &self.fields }
    }

    /// Returns the failure to report if neither the origin nor a stored response can answer.
    pub(crate) fn offline(&self) -> Failure {
        Failure::Offline { host: self.origin.to_string() }
    }

    /// Checks that the origin can be contacted.
    ///
    /// # Errors
    /// The uplink is down, or the operator forbids contacting origins.
    pub(crate) fn check_line(&self) -> Result<(), Failure> {
        if self.line.is_down() { Err(self.offline()) } else { Ok(()) }
    }

    /// Returns the URL of the request to the origin, with the origin's host name. `None` for a target without a URL.
    pub(crate) fn url_at_origin(&self) -> Option<Uri> {
        let builder = Uri::builder().scheme(self.scheme.clone()).authority(self.host.as_bytes());
        builder.path_and_query(self.target.path_and_query()?.clone()).build().ok()
    }

    /// Creates the request to the origin, without its body. `edits` are the cache's changes, such as a validator.
    pub(crate) fn outgoing(&self, marks: &ResponseMarkers, edits: &RequestEdits) -> Request<RequestBody> {
        // Hop-by-hop fields were removed on admission. The map has room for the fields added below, because growing
        // hashes all names again.
        let mut fields = HeaderMap::with_capacity(self.fields.len() + edits.added.len() + ADDED_FIELD_COUNT);
        let mut is_chunked = false;
        fields.insert(HOST, self.host.clone());
        for (name, value) in &self.fields {
            is_chunked |= *name == TRANSFER_ENCODING;
            if !is_hop_by_hop(name) && *name != EXPECT && *name != HOST && !edits.remove(name) {
                fields.append(name.clone(), value.clone());
            }
        }
        if self.expectation.is_some() {
            fields.insert(EXPECT, HeaderValue::from_static("100-continue"));
        }
        if is_chunked && !edits.whole {
            // A body of unknown length is forwarded in chunks.
            fields.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        for (name, value) in edits.added.iter().filter(|_| edits.only_at.is_none()) {
            fields.insert(name.clone(), value.clone());
        }
        if marks.add_via {
            via::append_via(&mut fields, self.version, &marks.pseudonym);
        }
        via::append_cdn_loop(&mut fields, &marks.pseudonym);
        let told = ForwardedRequest {
            peer: self.peer,
            scheme: self.scheme.as_str(),
            host: &self.host,
            is_by_proxy: self.peer != self.client,
        };
        if marks.add_x_forwarded {
            told.append_x_forwarded(&mut fields);
        }
        if marks.add_forwarded {
            told.append_forwarded(&mut fields);
        }
        let (method, body) = match &self.question {
            Some(question) => {
                fields.insert(CONTENT_LENGTH, HeaderValue::from(question.body.len()));
                (Method::POST, RequestBody::whole(question.body.clone()))
            }
            None => (self.method.clone(), RequestBody::none()),
        };
        let mut request = Request::new(body);
        *request.method_mut() = method;
        *request.uri_mut() = self.target.clone();
        *request.headers_mut() = fields;
        request
    }

    /// Returns the request to the origin in a form that can be sent several times. `make` creates the request for each
    /// attempt.
    pub(crate) fn replayable<M>(&self, repeat: RetryRule, make: M) -> ReplayableRequest<'_, M> {
        ReplayableRequest {
            origin: self.origin.clone(),
            choice: self.choice.clone(),
            key: self.key.clone(),
            repeat,
            client: Some(&self.asking),
            make,
        }
    }

    /// Sets the function that sends interim responses to the client.
    pub(crate) fn set_interim(&mut self, sink: InterimTaker) {
        self.asking.interim = interim_taker(self.expectation.as_ref(), Some(sink));
    }

    /// Adds the rules' overrides for a response to this request to the fields of the response.
    pub(crate) fn put_ruling(&self, rules: &Rules, status: StatusCode, fields: &mut HeaderMap) {
        self.put_ruling_of(rules, status, status, fields);
    }

    /// Adds the rules' overrides for a stored response with the status `stored` to the fields of the 304 that confirmed
    /// it.
    pub(crate) fn put_confirmed_ruling(&self, rules: &Rules, stored: StatusCode, fields: &mut HeaderMap) {
        let chain = Ruling::of(fields).and_then(|ruling| ruling.chain);
        let led = Ruling::of(fields).filter(|_| chain.is_some());
        fields.remove(ruling::FIELD);
        self.put_ruling_of(rules, stored, StatusCode::NOT_MODIFIED, fields);
        if let Some(led) = led {
            let ruling = Ruling::of(fields).unwrap_or(Ruling { name: led.name, ..Ruling::default() });
            Ruling { chain, ..ruling }.put(fields);
        }
    }

    /// Adds the rules' overrides to the fields of a response with `status`. Rules are chosen by the status `about`.
    fn put_ruling_of(&self, rules: &Rules, about: StatusCode, status: StatusCode, fields: &mut HeaderMap) {
        let request = self.ruled();
        let of_session = || self.session_rules.as_ref()?.find(&request, about, fields);
        let Some(ruling) = rules.find(&request, about, fields).or_else(of_session) else { return };
        let may_name = status != StatusCode::NOT_MODIFIED || fields.contains_key(VARY);
        if !ruling.varies.is_empty() && may_name && !has_token(fields, &VARY, "*") {
            // The names are added to Vary, because caches downstream must distinguish the variants too.
            for name in &ruling.varies {
                if !has_token(fields, &VARY, name.as_str()) {
                    fields.append(VARY, HeaderValue::from(name.clone()));
                }
            }
        }
        let is_kept = ruling.caches_git
            && (about.is_success() || about == StatusCode::NOT_MODIFIED)
            && (ruling.ignored.cookie || !self.fields.contains_key(COOKIE));
        let of_question = self.git_wants().filter(|_| is_kept).map(|wanted| ruling_on(wanted, ruling));
        let ruling = of_question.as_ref().unwrap_or(ruling);
        let answers_credentials = self.fields.contains_key(AUTHORIZATION) && !self.before.is_anybodys;
        if ruling.checks_authorization && answers_credentials {
            Ruling { answers_credentials, ..ruling.clone() }.put(fields);
        } else {
            ruling.put(fields);
        }
    }

    /// Returns what a git request wants, or `None` if the request is not git's.
    fn git_wants(&self) -> Option<GitRequest> {
        match &self.question {
            Some(question) => Some(question.wanted),
            None => git::names_references(self.path()).then_some(GitRequest::References),
        }
    }

    /// Returns the path and query of the client's request.
    pub(crate) fn path(&self) -> &str {
        self.path.as_str()
    }

    /// Returns whether the client announced a body.
    pub(crate) fn has_body(&self) -> bool {
        has_body(&self.fields, self.names)
    }

    /// Returns the expectation that holds the body back, or `None` if it need not wait.
    pub(crate) fn expectation(&self) -> Option<Arc<Expectation>> {
        self.expectation.clone()
    }
}

/// Returns a function that forwards interim responses to `sink`, and has the request's body sent when the origin asks
/// for it. `None` if nothing waits for interim responses.
pub(crate) fn interim_taker(
    expectation: Option<&Arc<Expectation>>,
    sink: Option<InterimTaker>,
) -> Option<InterimTaker> {
    let Some(expectation) = expectation.cloned() else { return sink };
    Some(Arc::new(move |status, fields| {
        if status == StatusCode::CONTINUE {
            expectation.grant();
        }
        if let Some(sink) = &sink {
            sink(status, fields);
        }
    }))
}

/// Returns the overrides of a rule that caches git, adapted to the response to this git request.
///
/// Packs never change. References are requested from the origin each time; the last known ones are served only while
/// the origin is unavailable.
fn ruling_on(wanted: GitRequest, ruling: &Ruling) -> Ruling {
    let mut ruling = ruling.clone();
    match wanted {
        GitRequest::Pack => {
            ruling.immutable = true;
            ruling.ignored.client_directives = true;
        }
        GitRequest::References => {
            ruling.fresh = Some(Duration::ZERO);
            ruling.stale_if_error.get_or_insert(REFERENCES_STAND_IN);
            ruling.ignored.must_revalidate = true;
        }
    }
    ruling
}

/// Number of fields that a forwarded request usually gets: Host, Via, CDN-Loop, Forwarded, and three X-Forwarded
/// fields.
const ADDED_FIELD_COUNT: usize = 7;
/// Time for which stored references are served while the origin is unavailable, unless the rule says otherwise.
const REFERENCES_STAND_IN: Duration = Duration::from_hours(30 * 24);

/// Returns whether a request with these fields has a body.
pub(crate) fn has_body(fields: &HeaderMap, names: NameFilter) -> bool {
    let has_length = || fields.get(CONTENT_LENGTH).is_some_and(|length| length.as_bytes() != b"0");
    names.may_have_any(NameFilter::FRAMING) && (fields.contains_key(TRANSFER_ENCODING) || has_length())
}
