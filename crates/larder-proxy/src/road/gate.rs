//! The gate: checks every request first, before mirrors, sites and interception examine it.
//!
//! Owns: the checks of Host and target, and whether the certificate of a client's connection covers the host. `routes`
//! chooses the origin, and `larder_wire` checks the framing. Invariant: after the gate a request names one well-formed
//! host, or none if it is HTTP/1.0. Its target is a path, a whole `http` or `https` URI, or the authority of a CONNECT.
//! Cost: a few comparisons, and one of the certificate's names on a connection with TLS.

use http::{
    Method, Request, Uri, Version,
    uri::{PathAndQuery, Scheme},
};
use larder_http::fields::{accepted_authority, check_host, effective_authority};
use larder_wire::WireFault;

use crate::{
    ground::{errors::Failure, target::path_of},
    road::{
        client::http2_head,
        exchange::ClientExchange,
        intercept,
        steps::{Onward, Step},
        target::{OwnTarget, TargetKind},
    },
};

impl ClientExchange {
    /// Checks a request and normalizes its form for all later code. If the parser refused its head, `fault` is the
    /// reason.
    ///
    /// # Errors
    /// The request does not name exactly one host and a valid target, or its connection is for another host. For a
    /// request of another node of the fleet: its clock or rules differ.
    pub(super) fn pass_gate(
        &mut self,
        fault: Option<WireFault>,
        request: &mut Request<impl Sized>,
    ) -> Result<Onward, Failure> {
        // Nodes are recognized first, because they may send fields that others may not, and the form is changed below.
        if let Some(peer) = self.request_of_sibling(request)? {
            self.target.kind = TargetKind::Sibling(peer);
        } else if self.is_health_check(request) {
            self.target.kind = TargetKind::Own(OwnTarget::HealthCheck);
        }
        let client = &self.client;
        if client.is_stranger {
            return Err(Failure::OtherUser);
        }
        client.drop_untrusted(&self.worker.shared.config, &self.target, request.headers_mut());
        if let Some(fault) = fault {
            return Err(fault.into());
        }
        http2_head::check(request, &self.worker.shared.config.limits).map_err(Failure::BadRequest)?;
        let is_connect = *request.method() == Method::CONNECT;
        if is_connect {
            check_host(request.uri(), request.headers(), request.version())?;
        } else {
            effective_authority(request.uri(), request.headers(), request.version())?;
            self.target.is_about_server = check_target(request)?;
        }
        if client.takes_origin_form && !is_connect {
            put_in_absolute_form(client.scheme(), request)?;
        }
        match &client.inside {
            Some(origin) => intercept::place(origin, request)?,
            None if !is_connect && self.is_misdirected(request) => return Err(Failure::Misdirected),
            None => {}
        }
        Ok(Onward::To(Step::Resolve))
    }

    /// Returns whether a request came over a connection whose certificate does not cover the request's host (RFC 9110
    /// 7.4).
    fn is_misdirected(&self, request: &Request<impl Sized>) -> bool {
        let client = &self.client;
        if !client.shows_certificate() {
            return false;
        }
        let uri = request.uri();
        let version = request.version();
        let Some(authority) = accepted_authority(uri, request.headers()) else { return false };
        let routes = &self.worker.shared.routes;
        let is_for_us =
            client.is_server_for(version, uri) || routes.is_for_us(client.scheme(), uri, version, authority);
        is_for_us && !client.speaks_for(authority)
    }
}

/// Checks the form of a target, unless the method is CONNECT (RFC 9112 3.2, RFC 9113 8.3.1).
///
/// Returns whether the target is `*`, the server as a whole.
fn check_target<B>(request: &mut Request<B>) -> Result<bool, Failure> {
    let uri = request.uri();
    if uri.scheme().is_some_and(|scheme| *scheme != Scheme::HTTP && *scheme != Scheme::HTTPS) {
        return Err(Failure::BadRequest("only http and https targets are served"));
    }
    let is_options = *request.method() == Method::OPTIONS;
    let is_whole = uri.scheme().is_some();
    match path_of(uri) {
        "*" if !is_options => Err(Failure::BadRequest("the target * is valid for OPTIONS only")),
        "*" if is_whole => put_path_for_server(request).map(|()| true),
        "*" => Ok(true),
        // h2 accepts a path without a slash, which would become part of the host's name when the URL is put together.
        path if request.version() == Version::HTTP_2 && !path.starts_with('/') => {
            Err(Failure::BadRequest("its path does not begin with a slash"))
        }
        _ => Ok(false),
    }
}

/// Rewrites a request's target to absolute form with the help of its Host field. Clients of a proxy send that form (RFC
/// 9112 3.2.2).
///
/// A request about the server as a whole (`*`) keeps its form, because this proxy answers it.
fn put_in_absolute_form<B>(scheme: &str, request: &mut Request<B>) -> Result<(), Failure> {
    let uri = request.uri();
    let host = accepted_authority(uri, request.headers());
    let (None, Some(host), true) = (uri.scheme(), host, path_of(uri).starts_with('/')) else { return Ok(()) };
    let builder = Uri::builder().scheme(scheme).authority(host).path_and_query(path_of(uri));
    *request.uri_mut() = builder.build().map_err(|_| Failure::BadRequest("the target is not a URI"))?;
    Ok(())
}

/// Replaces the target `*` by `/`, because a URI with an authority cannot have the path `*`.
fn put_path_for_server<B>(request: &mut Request<B>) -> Result<(), Failure> {
    let mut parts = std::mem::take(request.uri_mut()).into_parts();
    parts.path_and_query = Some(PathAndQuery::from_static("/"));
    *request.uri_mut() = Uri::from_parts(parts).map_err(|_| Failure::BadRequest("the target is not a URI"))?;
    Ok(())
}
