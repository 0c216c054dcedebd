//! A request as it is answered and forwarded: its target, its origin and its cache key.
//!
//! Owns: the request's head, parsed once. Invariant: a request to an origin carries none of the fields that belong to
//! the client's connection. It has one Host and this proxy's own marks (RFC 9110 7.6).

use std::{net::IpAddr, sync::Arc, time::Duration};

use http::{
    HeaderMap, HeaderValue, Method, Request, StatusCode, Uri, Version,
    header::{AUTHORIZATION, CONTENT_LENGTH, COOKIE, EXPECT, HOST, TRANSFER_ENCODING, VARY},
    uri::{PathAndQuery, Scheme},
};
use larder_cache::http::fetcher::RequestEdits;
use larder_http::{
    Rules, Ruling,
    cache_control::RequestDirectives,
    fields::{NameLengths, has_token, is_hop_by_hop, via},
    route::{RequestTerms, UplinkState},
    rules::RuledRequest,
    ruling,
};

use crate::{
    digest::NamedDigest,
    errors::Failure,
    forwarded::ForwardedRequest,
    git::{self, GitQuestion, GitRequest},
    marks::ResponseMarkers,
    origin::{
        expectation::Expectation,
        group::OriginChoice,
        http1::InterimTaker,
        pool::{AskingClient, ReplayableRequest, RetryRule},
        proxy_header::ClientEnds,
        request_body::RequestBody,
        target::Origin,
    },
};

/// A request's head and where it goes.
pub(crate) struct RequestHead {
    pub(crate) method: Method,
    pub(crate) fields: HeaderMap,
    /// The lengths of the names of its fields.
    pub(crate) names: NameLengths,
    /// The directives for caches in its fields.
    pub(crate) directives: RequestDirectives,
    pub(crate) version: Version,
    pub(crate) origin: Origin,
    /// The chosen origin, if the site has several.
    pub(crate) choice: Option<OriginChoice>,
    pub(crate) client: IpAddr,
    /// The ends of the client's connection, for an origin that wants to know them.
    pub(crate) ends: ClientEnds,
    /// The address that the request came from: the client's, or a trusted proxy's.
    pub(crate) peer: IpAddr,
    /// The state of the uplink to its origin.
    pub(crate) line: UplinkState,
    /// Whether the request may be forwarded. If not, this proxy is its final recipient (RFC 9110 7.6.2).
    pub(crate) goes_on: bool,
    /// The receiver of interim responses, if the client wants any.
    pub(crate) interim: Option<InterimTaker>,
    /// The expectation that holds back the body until the origin asks for it (RFC 9110 10.1.1).
    pub(crate) expectation: Option<Arc<Expectation>>,
    /// The resource's key; `None` if it cannot have one.
    pub(crate) key: Option<Arc<[u8]>>,
    /// The path and query in the client's request.
    pub(crate) path: PathAndQuery,
    /// The request target sent to the origin.
    pub(crate) target: Uri,
    pub(crate) host: HeaderValue,
    pub(crate) scheme: Scheme,
    /// Whether another node of the fleet sent the request, so that no further node is asked.
    pub(crate) is_by_sibling: bool,
    /// Whether a plain response is sent as lines: its client speaks HTTP/1.1, and nothing else reads or changes its
    /// fields.
    pub(crate) takes_lines: bool,
    /// The rules that apply before there is a response.
    pub(crate) before: RequestRules,
    /// The rules of its client's session, which apply after those of the configuration.
    pub(crate) session_rules: Option<Arc<Rules>>,
    /// The git question in the body, if this is a POST that is answered like a GET.
    pub(crate) question: Option<GitQuestion>,
}

/// The rules that apply to a request before there is a response.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestRules {
    /// Whether the origin must permit each client to receive responses that were fetched with other credentials.
    pub(crate) checks_authorization: bool,
    /// Whether the client's credentials are ones that any client can get.
    pub(crate) is_anybodys: bool,
    /// The digest that the body must have.
    pub(crate) digest: Option<NamedDigest>,
    /// Whether the response may be a file that never changes. Its listing can then name a digest.
    pub(crate) may_never_change: bool,
    /// Whether git's POST requests are answered from the cache.
    pub(crate) caches_git: bool,
    /// Whether no response may be stored, whatever it says.
    pub(crate) is_never_stored: bool,
}

impl RequestHead {
    /// Returns the head for a change, while its request is being admitted.
    ///
    /// # Panics
    /// Something else has the head already.
    pub(crate) fn unshared(head: &mut Arc<Self>) -> &mut Self {
        Arc::get_mut(head).expect("a head is shared only once its request is admitted")
    }

    /// Returns the absolute URI of the request, or `None` for a target without one, such as that of `OPTIONS *`.
    pub(crate) fn uri(&self) -> Option<Uri> {
        let builder = Uri::builder().scheme(self.scheme.clone()).authority(self.host.as_bytes());
        builder.path_and_query(self.path.clone()).build().ok()
    }

    /// Returns the parts by which stored responses are judged.
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

    /// Returns the request as rules compare it.
    fn ruled(&self) -> RuledRequest<'_> {
        let scheme = self.scheme.as_str();
        let authority = self.host.to_str().unwrap_or_default();
        RuledRequest { method: &self.method, scheme, authority, path: self.path(), fields: &self.fields }
    }

    /// Returns the failure of a request that no stored response can answer while its origin cannot be contacted.
    pub(crate) fn offline(&self) -> Failure {
        Failure::Offline { host: self.origin.to_string() }
    }

    /// Checks that the origin can be contacted.
    pub(crate) fn check_line(&self) -> Result<(), Failure> {
        if self.line.is_down() { Err(self.offline()) } else { Ok(()) }
    }

    /// Returns the URL of the request to the origin, with the host name that the origin uses. `None` for a target
    /// without a URL.
    pub(crate) fn url_at_origin(&self) -> Option<Uri> {
        let builder = Uri::builder().scheme(self.scheme.clone()).authority(self.host.as_bytes());
        builder.path_and_query(self.target.path_and_query()?.clone()).build().ok()
    }

    /// Creates the request to the origin, without its body.
    pub(crate) fn outgoing(&self, marks: &ResponseMarkers, edits: &RequestEdits) -> Request<RequestBody> {
        // The fields that Connection names were removed when the request was admitted. There is room for the fields
        // that are added below, because a map that grows hashes its names again.
        let mut fields = HeaderMap::with_capacity(self.fields.len() + edits.added.len() + ADDED_FIELD_COUNT);
        let mut is_chunked = false;
        for (name, value) in &self.fields {
            is_chunked |= *name == TRANSFER_ENCODING;
            if !is_hop_by_hop(name) && *name != EXPECT && !edits.remove(name) {
                fields.append(name.clone(), value.clone());
            }
        }
        if self.expectation.is_some() {
            fields.insert(EXPECT, HeaderValue::from_static("100-continue"));
        }
        if is_chunked && !edits.whole {
            // A body that came in chunks is forwarded in chunks.
            fields.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        for (name, value) in edits.added.iter().filter(|_| edits.only_at.is_none()) {
            fields.insert(name.clone(), value.clone());
        }
        fields.insert(HOST, self.host.clone());
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

    /// Returns the request to its origin that `make` creates.
    pub(crate) fn replayable<M>(&self, repeat: RetryRule, make: M) -> ReplayableRequest<M> {
        let client = self.asking_client();
        ReplayableRequest {
            origin: self.origin.clone(),
            choice: self.choice.clone(),
            key: self.key.clone(),
            repeat,
            client,
            make,
        }
    }

    /// Returns the client, as far as the origin and its connection must know it.
    pub(crate) fn asking_client(&self) -> Option<Box<AskingClient>> {
        let ends = self.origin.sends_proxy_header.then_some(self.ends);
        let sink = self.interim.clone();
        let interim = match self.expectation.clone() {
            None => sink,
            Some(expectation) => Some(Arc::new(move |status, fields: &HeaderMap| {
                if status == StatusCode::CONTINUE {
                    expectation.grant();
                }
                if let Some(sink) = &sink {
                    sink(status, fields);
                }
            }) as InterimTaker),
        };
        (ends.is_some() || interim.is_some()).then(|| Box::new(AskingClient { ends, interim }))
    }

    /// Adds the rules' overrides for a response to this request to its fields.
    pub(crate) fn put_ruling(&self, rules: &Rules, status: StatusCode, fields: &mut HeaderMap) {
        self.put_ruling_of(rules, status, status, fields);
    }

    /// Adds the rules' overrides for a stored response with this status to the fields of the 304 that confirmed it.
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

    /// Adds the rules' overrides for a response with status `about` to the fields of one with `status`.
    fn put_ruling_of(&self, rules: &Rules, about: StatusCode, status: StatusCode, fields: &mut HeaderMap) {
        let request = self.ruled();
        let of_session = || self.session_rules.as_ref()?.find(&request, about, fields);
        let Some(ruling) = rules.find(&request, about, fields).or_else(of_session) else { return };
        let may_name = status != StatusCode::NOT_MODIFIED || fields.contains_key(VARY);
        if !ruling.varies.is_empty() && may_name && !has_token(fields, &VARY, "*") {
            // The fields are added to Vary, because downstream caches must know them too.
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

    /// Returns the kind of git request, if it is known whether responses of that kind can change.
    fn git_wants(&self) -> Option<GitRequest> {
        match &self.question {
            Some(question) => Some(question.wanted),
            None => git::names_references(self.path()).then_some(GitRequest::References),
        }
    }

    /// Returns the path and query in the client's request.
    pub(crate) fn path(&self) -> &str {
        self.path.as_str()
    }

    /// Returns whether the client sends a body.
    pub(crate) fn has_body(&self) -> bool {
        has_body(&self.fields)
    }

    /// Returns the expectation that holds back the body, if there is one.
    pub(crate) fn expectation(&self) -> Option<Arc<Expectation>> {
        self.expectation.clone()
    }
}

/// Returns the ruling on the response to a git request, based on the rule that caches git.
///
/// Packs never change. References are requested from the origin each time, but the last known ones are served while the
/// origin is unavailable.
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

/// Fields that a request to an origin can have in addition: Host, Via, CDN-Loop, Forwarded, three of X-Forwarded.
const ADDED_FIELD_COUNT: usize = 7;
/// Longest time that stored references are served while the origin is unavailable.
const REFERENCES_STAND_IN: Duration = Duration::from_hours(30 * 24);

/// Returns whether a request with these fields has a body.
pub(crate) fn has_body(fields: &HeaderMap) -> bool {
    fields.contains_key(TRANSFER_ENCODING) || fields.get(CONTENT_LENGTH).is_some_and(|length| length.as_bytes() != b"0")
}
