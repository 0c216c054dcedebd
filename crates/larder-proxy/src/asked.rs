//! A request as it is answered and passed on: what was asked, of which origin, under which key.
//!
//! Owns: the request's head, taken apart once. Invariant: what goes to an origin carries no field of the
//! client's connection, one Host, and our own marks (RFC 9110 7.6).

use std::{net::IpAddr, sync::Arc};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri, Version,
    header::{
        CONTENT_LENGTH, EXPECT, HOST, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, RANGE,
        TRANSFER_ENCODING,
    },
    uri::{PathAndQuery, Scheme},
};
use larder_http::{
    fields::{self, count_down, strip_hop_by_hop, strip_named, via},
    interim::expects_continue,
    key,
};

use crate::{
    cache::groups::Asker,
    client::{connection::Client, interim::InterimSink},
    errors::Failure,
    forwarded::Told,
    origin::{expectation::Expectation, group::Choice, request_body::RequestBody, target::Origin},
    routes::Destination,
    server::Shared,
    worker::Worker,
};

/// A request's head and where it goes.
pub(crate) struct Asked {
    pub(crate) method: Method,
    pub(crate) fields: HeaderMap,
    pub(crate) version: Version,
    pub(crate) origin: Origin,
    /// The way to other origins, if there are others.
    pub(crate) choice: Option<Choice>,
    pub(crate) client: IpAddr,
    /// Whether it may be passed on; if not, this proxy is its last recipient (RFC 9110 7.6.2).
    pub(crate) goes_on: bool,
    /// Where interim responses go, if they go anywhere.
    interim: Option<Arc<InterimSink>>,
    /// What its body waits for, if the origin is to say first whether it wants it (RFC 9110 10.1.1).
    expectation: Option<Arc<Expectation>>,
    /// The key of the resource; `None` if it can have none.
    pub(crate) key: Option<Arc<[u8]>>,
    /// Path and query as the client means them.
    path: PathAndQuery,
    /// What stands in the request line to the origin.
    target: Uri,
    host: HeaderValue,
    scheme: Scheme,
}

/// What is different about a request on its way to the origin.
#[derive(Default)]
pub(crate) struct Edits {
    /// Whether the client's preconditions and ranges are left out, because the whole is wanted.
    pub(crate) whole: bool,
    /// Fields that are added: preconditions or a range of our own.
    pub(crate) added: Vec<(HeaderName, HeaderValue)>,
}

impl Asked {
    /// Takes a request's head apart.
    ///
    /// # Errors
    /// The request cannot be passed on: it is malformed, or it has come round.
    pub(crate) fn new(client: &Client, request: &mut Request<impl Sized>) -> Result<Self, Failure> {
        let shared = &client.worker.shared;
        let mut fields = std::mem::take(request.headers_mut());
        strip_named(&mut fields);
        if via::loops(&fields, &shared.pseudonym) {
            return Err(Failure::Loop);
        }
        let destination = shared.routes.locate(client.scheme(), (request.uri(), request.version()), &fields)?;
        let is_named = fields.contains_key(HOST) || request.uri().authority().is_some();
        if destination.origin.trusted && is_named && client.is_misdirected(&destination.authority) {
            return Err(Failure::Misdirected);
        }
        let rules = &shared.config.http.key_rules;
        let key = rules.key(destination.scheme, &destination.authority, path_of(request.uri())).ok();
        let key = key.map(|key| destination.mark.on(key));
        let Destination { scheme, authority, origin, choice, prefix, .. } = destination;
        let scheme = if scheme == "https" { Scheme::HTTPS } else { Scheme::HTTP };
        if path_of(request.uri()) == "*" && request.method() != Method::OPTIONS {
            return Err(Failure::BadRequest("the target * is for OPTIONS"));
        }
        let is_about_server = request.method() == Method::OPTIONS && request.uri().scheme().is_some();
        let path = match request.uri().path_and_query() {
            Some(_) if is_about_server && client.asks_server() => PathAndQuery::from_static("*"),
            path => path.cloned().unwrap_or_else(|| PathAndQuery::from_static("/")),
        };
        let target = target(prefix, &path).ok_or(Failure::BadRequest("the target is not a URI"))?;
        let normal = key::normal_authority(scheme.as_str(), &authority);
        let authority = normal.ok_or(Failure::BadRequest("the host is not a name"))?;
        let same = fields.get(HOST).filter(|host| host.as_bytes() == authority.as_bytes());
        let host = match same {
            Some(host) => host.clone(),
            None => HeaderValue::try_from(&*authority).map_err(|_| Failure::BadRequest("the host is not a name"))?,
        };
        let (method, version) = (request.method().clone(), request.version());
        let goes_on = count_down(&method, &mut fields);
        let (key, client) = (key.map(Arc::from), client.peer.ip());
        // A client of HTTP/1.0 cannot be waiting.
        let expects = version > Version::HTTP_10 && expects_continue(&fields) && has_body(&fields);
        let (interim, expectation) = (None, expects.then(Arc::default));
        Ok(Self {
            method,
            fields,
            version,
            origin,
            choice,
            client,
            goes_on,
            interim,
            expectation,
            key,
            path,
            target,
            host,
            scheme,
        })
    }

    /// This request, whose interim responses go to `sink`.
    pub(crate) fn with_interim(self, sink: InterimSink) -> Self {
        Self { interim: sink.is_of_use().then(|| Arc::new(sink)), ..self }
    }

    /// The absolute URI, as the client means it; `None` for a target that has none, as that of `OPTIONS *`.
    pub(crate) fn uri(&self) -> Option<Uri> {
        let builder = Uri::builder().scheme(self.scheme.clone()).authority(self.host.as_bytes());
        builder.path_and_query(self.path.clone()).build().ok()
    }

    /// The request to the origin, without its body.
    pub(crate) fn outgoing(&self, shared: &Shared, edits: &Edits) -> Request<RequestBody> {
        let mut fields = self.fields.clone();
        let is_chunked = fields.contains_key(TRANSFER_ENCODING);
        strip_hop_by_hop(&mut fields);
        fields.remove(EXPECT);
        if self.expectation.is_some() {
            fields.insert(EXPECT, HeaderValue::from_static("100-continue"));
        }
        if edits.whole {
            for name in [IF_MATCH, IF_NONE_MATCH, IF_MODIFIED_SINCE, IF_UNMODIFIED_SINCE, IF_RANGE, RANGE] {
                fields.remove(name);
            }
            // Bodies of these methods have no meaning (RFC 9110 9.3.1), and none is sent.
            fields.remove(CONTENT_LENGTH);
        } else if is_chunked {
            // Else the HTTP library would take a GET of unknown length for one without a body.
            fields.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        for (name, value) in &edits.added {
            fields.insert(name.clone(), value.clone());
        }
        fields.insert(HOST, self.host.clone());
        if shared.config.add_via {
            via::append_via(&mut fields, self.version, &shared.pseudonym);
        }
        via::append_cdn_loop(&mut fields, &shared.pseudonym);
        let told = Told { client: self.client, scheme: self.scheme.as_str(), host: &self.host };
        if shared.config.add_x_forwarded {
            told.append_x_forwarded(&mut fields);
        }
        if shared.config.add_forwarded {
            told.append_forwarded(&mut fields);
        }
        let mut request = Request::new(RequestBody::none());
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.target.clone();
        *request.headers_mut() = fields;
        let (sink, expectation) = (self.interim.clone(), self.expectation.clone());
        if sink.is_some() || expectation.is_some() {
            hyper::ext::on_informational(&mut request, move |interim| {
                if let Some(expectation) = expectation.as_ref().filter(|_| interim.status() == StatusCode::CONTINUE) {
                    expectation.grant();
                }
                if let Some(sink) = &sink {
                    sink.push(interim.status(), interim.headers());
                }
            });
        }
        request
    }

    /// Path and query as the client means them.
    pub(crate) fn path(&self) -> &str {
        self.path.as_str()
    }

    /// Who asks, and that it is now.
    pub(crate) fn asker(&self, worker: &Worker) -> Asker {
        Asker { client: self.client, now: worker.now() }
    }

    /// Whether the client sends a body.
    pub(crate) fn has_body(&self) -> bool {
        has_body(&self.fields)
    }

    /// What its body waits for, if it does.
    pub(crate) fn expectation(&self) -> Option<Arc<Expectation>> {
        self.expectation.clone()
    }
}

fn has_body(fields: &HeaderMap) -> bool {
    fields.contains_key(TRANSFER_ENCODING) || fields.get(CONTENT_LENGTH).is_some_and(|length| length.as_bytes() != b"0")
}

/// Takes a request's head out of the buffer it was read into, which then serves for the next one. To be called before the HTTP
/// library reads on: it would take another buffer.
pub(crate) fn detach(request: &mut Request<impl Sized>) {
    fields::detach(request.headers_mut());
    if let Ok(target) = Uri::from_maybe_shared(Bytes::from(request.uri().to_string())) {
        *request.uri_mut() = target;
    }
}

/// What stands in the request line to an origin whose paths begin with `prefix`.
fn target(prefix: &str, path: &PathAndQuery) -> Option<Uri> {
    let text = path.as_str();
    if prefix.is_empty() && (text.starts_with('/') || text == "*") {
        return Some(Uri::from(path.clone()));
    }
    // A target of an authority and a query alone has no path of its own.
    let slash = if text.starts_with('/') { "" } else { "/" };
    format!("{prefix}{slash}{text}").parse().ok()
}

/// The path and query of a request's target.
pub(crate) fn path_of(uri: &Uri) -> &str {
    uri.path_and_query().map_or("", |path| path.as_str())
}
