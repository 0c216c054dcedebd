//! Decides which requests are admitted, and parses their heads.
//!
//! Owns: the order of the checks that can refuse a request. Invariant: an admitted request can be forwarded: it has one
//! origin and one Host, and is not looping.

use std::sync::Arc;

use http::{
    HeaderMap, HeaderValue, Method, Request, Uri, Version, header,
    uri::{PathAndQuery, Scheme},
};
use larder_http::{
    Ruling,
    cache_control::RequestDirectives,
    fields::{BodyLength, NameFilter, check_request, count_down, host_lines, strip_named, strip_own, via},
    interim::{expects_continue, expects_unknown},
    key,
    rules::{RuledRequest, Rules},
};

use crate::{
    ground::{
        digest::NamedDigest,
        errors::Failure,
        received_body::{IncomingBody, ReceivedBody},
        target::path_of,
    },
    origins::{AskingClient, ClientEnds, InterimTaker, request_body::ClientBody},
    road::{
        admitted::AdmittedRequest,
        client::{http2_head, interim::InterimSink},
        exchange::ClientExchange,
        question,
        steps::{Onward, Step},
        target::{Target, with_key},
    },
    targets::{
        asked::{RequestHead, RequestRules, has_body, interim_taker},
        dots::may_climb,
        git,
        mirrors::MirrorRequest,
        routes::Destination,
    },
};

impl ClientExchange {
    /// Checks a request, parses its head, and decides which step answers it.
    ///
    /// # Errors
    /// The request is refused or cannot be forwarded.
    pub(super) async fn admit(&mut self) -> Result<Onward, Failure> {
        let mut request = self.take_request();
        // The credentials are checked first, because fields that a client names in Connection are removed below.
        self.judge_writer(&request);
        let mut asked = self.admit_head(&mut request).await?;
        self.catch_up(asked.key.as_deref()).await?;
        if self.target.is_build_cache() {
            return Ok(Onward::To(self.admit_to_build_cache(asked, request)));
        }
        let mut body = ClientBody::Arriving(ReceivedBody::of_request(request));
        if question::may_be(&asked) {
            let read = question::read(&self.worker, body).await?;
            question::apply(RequestHead::unshared(&mut asked), &read);
            body = ClientBody::Read(read);
        }
        // The body of a git question is part of its key, so the question is answered like a GET.
        let has_no_body = asked.question.is_some() || (body.is_empty() && !asked.has_body());
        let step = step_after(&asked, has_no_body);
        if let Step::Change = step {
            self.body = Some(Box::new(body));
        }
        let admitted = self.admitted.insert(AdmittedRequest { worker: Arc::clone(&self.worker), asked });
        if matches!(step, Step::Pass | Step::Change) {
            admitted.asked.check_line()?;
        }
        Ok(Onward::To(step))
    }

    /// Checks a request and parses its head.
    ///
    /// # Errors
    /// The request is refused or cannot be forwarded.
    pub(super) async fn admit_head(
        &mut self,
        request: &mut Request<IncomingBody>,
    ) -> Result<Arc<RequestHead>, Failure> {
        self.check_head(request)?;
        if self.client.is_http2() {
            http2_head::frame_body(request);
        }
        let sink = InterimSink::of(&self.client, request);
        if self.target.sibling().is_some() {
            // If another node sent the request, it waits for signs of life, however long the origin takes.
            sink.show_life();
        }
        let mut asked = self.take_apart(&self.target, request)?;
        self.check_trust(&asked).await?;
        if sink.is_of_use() {
            let taker = Arc::new(move |status, fields: &HeaderMap| _ = sink.forward(status, fields)) as InterimTaker;
            RequestHead::unshared(&mut asked).set_interim(taker);
        }
        Ok(asked)
    }

    /// Checks that the client may use this proxy now, and that the request's head is supported.
    pub(super) fn check_head(&self, request: &mut Request<impl Sized>) -> Result<(), Failure> {
        self.check_client()?;
        let names = NameFilter::of(request.headers());
        if names.may_have(&header::EXPECT) && expects_unknown(request.headers()) {
            return Err(Failure::UnknownExpectation);
        }
        if !names.may_have_any(NameFilter::FRAMING) {
            return Ok(());
        }
        let ambiguous = Failure::BadRequest("the length of its body is ambiguous");
        let length = check_request(request.headers(), request.version()).map_err(|_| ambiguous)?;
        if let BodyLength::Length(length) = length {
            // Content-Length is rewritten as a plain number, because some servers misread leading zeros.
            request.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(length));
        }
        Ok(())
    }

    /// Checks the client's password. Exempt are requests to origins that the configuration names, and requests that
    /// another node of the fleet sent.
    pub(super) async fn check_trust(&self, asked: &RequestHead) -> Result<(), Failure> {
        if asked.origin.trusted || asked.is_by_sibling { Ok(()) } else { self.check_password(&asked.fields).await }
    }

    /// Returns whether the request is denied because of its client's address (see `Client::is_denied`).
    pub(super) fn is_denied(&self) -> bool {
        let shared = &self.worker.shared;
        self.client.is_denied(&shared.config, shared.siblings.as_deref(), &self.target)
    }

    /// Checks that the client's address is in a network that this proxy serves.
    pub(super) fn check_client(&self) -> Result<(), Failure> {
        if self.is_denied() { Err(Failure::ClientDenied) } else { Ok(()) }
    }

    /// Checks the user's password in a request's fields, if the proxy requires one.
    pub(super) async fn check_password(&self, fields: &HeaderMap) -> Result<(), Failure> {
        let may_forward = match &self.worker.shared.passwords {
            Some(passwords) if !self.client.is_admitted() => passwords.admit(fields).await,
            _ => true,
        };
        if may_forward { Ok(()) } else { Err(Failure::NoPassword) }
    }

    /// Moves the head of a request for `target` into a [`RequestHead`].
    ///
    /// The result is shared from the beginning, because moving it through futures and results would copy it each time.
    ///
    /// # Errors
    /// The request cannot be forwarded, because it is malformed or loops.
    pub(super) fn take_apart(
        &self,
        target: &Target,
        request: &mut Request<impl Sized>,
    ) -> Result<Arc<RequestHead>, Failure> {
        let client = &*self.client;
        let shared = &self.worker.shared;
        let mut fields = std::mem::take(request.headers_mut());
        let names = NameFilter::of(&fields);
        strip(&mut fields, names);
        if names.may_have_any(via::NAMES) && via::loops(&fields, &shared.marks.pseudonym) {
            return Err(Failure::Loop);
        }
        let destination = target.destination(shared, client.scheme(), request.uri(), &fields)?;
        shared.origins.check_listed(&destination.origin)?;
        let Destination { scheme, authority, origin, group, prefix, mark } = destination;
        let key_rules = &self.worker.cache.http.key_rules;
        let made = || with_key(key_rules, (scheme, &authority, mark), path_of(request.uri()), |key| Arc::from(key));
        let key: Option<Arc<[u8]>> = target.key.clone().or_else(made);
        debug_assert!(target.key.is_none() || made() == key, "the key that was looked up leads to this origin");
        let unmarked = key.as_deref().map(|key| mark.without(key));
        let (origin, choice) = group.map_or((origin, None), |group| group.choose(unmarked));
        let scheme = if scheme == "https" { Scheme::HTTPS } else { Scheme::HTTP };
        let path = match request.uri().path_and_query() {
            Some(_) if target.is_about_server => PathAndQuery::from_static("*"),
            path => path.cloned().unwrap_or_else(|| PathAndQuery::from_static("/")),
        };
        if !prefix.is_empty() && may_climb(path.path()) {
            return Err(Failure::BadRequest("its path leads outside the site's folder at its origin"));
        }
        let at_origin = target_at_origin(prefix, &path, target.rest(path.as_str()));
        let at_origin = at_origin.ok_or(Failure::BadRequest("the target is not a URI"))?;
        let normal = key::normal_authority(scheme.as_str(), &authority);
        let authority = normal.ok_or(Failure::BadRequest("the host is not a name"))?;
        let host = host_field(&fields, &authority)?;
        let method = request.method().clone();
        let version = request.version();
        let goes_on = count_down(&method, &mut fields);
        let session_rules = client.session.as_ref().map(|session| Arc::clone(&session.rules));
        let line = target.line(|| client.line_to(&origin));
        let ends = || ClientEnds { source: client.named_peer(target), destination: client.listener };
        let ends = origin.sends_proxy_header.then(ends);
        // An HTTP/1.0 client cannot wait for a 100 (Continue).
        let expects = version > Version::HTTP_10 && has_body(&fields, names) && expects_continue(&fields);
        let named = host.to_str().unwrap_or_default();
        let is_anybodys = target.mirror().is_some_and(MirrorRequest::is_anybodys);
        let rules = [Some(&shared.cache.rules), session_rules.as_deref()];
        let before = before(rules, (&method, scheme.as_str(), named, path.as_str()), &mut fields);
        let before = RequestRules { is_anybodys, digest: target.digest(path.as_str())?.or(before.digest), ..before };
        let expectation = expects.then(Arc::default);
        let interim = interim_taker(expectation.as_ref(), None);
        Ok(Arc::new(RequestHead {
            method,
            // The directives are read after the rules have removed the fields that they ignore.
            directives: RequestDirectives::of_named(&fields, names),
            names,
            fields,
            version,
            origin,
            choice,
            client: client.address_of(target),
            asking: AskingClient { ends, interim },
            peer: client.peer.ip(),
            line,
            goes_on,
            expectation,
            key,
            path,
            target: at_origin,
            host,
            scheme,
            before,
            session_rules,
            is_by_sibling: target.sibling().is_some(),
            takes_lines: self.may_encode(request) && target.mirror().is_none(),
            question: None,
        }))
    }
}

/// Removes the fields that are for this connection only, and those that only Larder itself may send.
fn strip(fields: &mut HeaderMap, names: NameFilter) {
    if names.may_have(&header::CONNECTION) {
        strip_named(fields);
    }
    strip_own(fields);
}

/// Returns the step that answers an admitted request. `has_no_body` says that there is no body to forward.
pub(super) fn step_after(asked: &RequestHead, has_no_body: bool) -> Step {
    let is_cached = has_no_body && matches!(asked.method, Method::GET | Method::HEAD);
    match (is_cached, &asked.key) {
        (true, Some(_)) => Step::Cache,
        (true, None) => Step::Pass,
        (false, _) if asked.goes_on => Step::Change,
        (false, _) => Step::Own,
    }
}

/// Returns a Host field for `authority`. Reuses the client's own field if it has the same value.
fn host_field(fields: &HeaderMap, authority: &str) -> Result<HeaderValue, Failure> {
    let same = host_lines(fields).next().filter(|host| host.as_bytes() == authority.as_bytes());
    match same {
        Some(host) => Ok(host.clone()),
        None => HeaderValue::try_from(authority).map_err(|_| Failure::BadRequest("the host is not a name")),
    }
}

/// Finds the first rule for a request, removes the fields that it ignores, and returns the overrides that apply before
/// there is a response.
fn before(
    rules: [Option<&Rules>; 2],
    (method, scheme, authority, path): (&Method, &str, &str, &str),
    fields: &mut HeaderMap,
) -> RequestRules {
    let may_be_git = git::may_be_question(method, path, fields);
    // A git question is answered like a GET, so the rules for GET apply to it.
    let method = if may_be_git { &Method::GET } else { method };
    let request = RuledRequest { method, scheme, authority, path, fields };
    let may_never_change = rules.into_iter().flatten().any(|rules| rules.may_never_change(&request));
    let Some(ruling) = ruling_before(rules, &request) else {
        return RequestRules { may_never_change, ..RequestRules::default() };
    };
    if ruling.ignores_client() && RequestDirectives::from_fields(fields).no_store {
        RequestDirectives::drop_no_store(fields);
    }
    let digest = if ruling.checks_digest || ruling.immutable { NamedDigest::of_path(path) } else { None };
    // For a POST, the origin is not asked whether a client with credentials may have the stored response.
    let is_for_all = (!fields.contains_key(header::AUTHORIZATION) || ruling.ignored.authorization)
        && (!fields.contains_key(header::COOKIE) || ruling.ignored.cookie);
    let caches_git = may_be_git && ruling.caches_git && is_for_all;
    let checks_authorization = ruling.checks_authorization;
    let is_never_stored = ruling.is_never_stored;
    RequestRules { checks_authorization, digest, may_never_change, is_anybodys: false, caches_git, is_never_stored }
}

/// Returns the settings of the first rule that matches a request and has an effect before there is a response.
pub(crate) fn ruling_before<'a>(rules: [Option<&'a Rules>; 2], request: &RuledRequest<'_>) -> Option<&'a Ruling> {
    rules.into_iter().flatten().find_map(|rules| rules.find_before(request))
}

/// Returns the request target for an origin that has a path prefix.
///
/// `rest` is the part of the client's path and query that follows `prefix`.
fn target_at_origin(prefix: &str, path: &PathAndQuery, rest: &str) -> Option<Uri> {
    let is_whole = prefix.is_empty() && rest.len() == path.as_str().len();
    // `OPTIONS *` is about the whole server, so it gets no prefix (RFC 9112 3.2.4).
    if path == "*" || is_whole && rest.starts_with('/') {
        return Some(Uri::from(path.clone()));
    }
    // A URL such as `http://host?query` has no path, so a slash is added.
    let slash = if rest.starts_with('/') { "" } else { "/" };
    format!("{prefix}{slash}{rest}").parse().ok()
}
