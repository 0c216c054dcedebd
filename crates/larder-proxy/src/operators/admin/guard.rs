//! Decides which requests the admin listener accepts. It refuses requests that a page of another site can make a
//! browser send.
//!
//! Owns: the checks of tokens, Host, Origin and Sec-Fetch-Site. The control socket is not guarded, because browsers
//! cannot reach it. Invariants: every request except `/healthz` is checked. A foreign name that resolves to this
//! machine (DNS rebinding) does not count as this machine's name.

use std::net::IpAddr;

use http::{HeaderValue, Method, Response, StatusCode, header, request, uri::Authority};
use larder_http::fields::check_host;

use super::page;
use crate::{
    ground::target::host_of, operators::admin_tokens::TokenAccess, road::client::response_body::ResponseBody,
    run::worker::Worker,
};

/// Returns the response that refuses a request, or `None` if the request is permitted.
pub(super) fn refusal(worker: &Worker, request: &request::Parts) -> Option<Response<ResponseBody>> {
    if is_about_health(request) {
        return None;
    }
    if check_host(&request.uri, &request.headers, request.version).is_err() {
        return Some(page(StatusCode::BAD_REQUEST, "the request needs exactly one valid Host\n".into()));
    }
    match worker.shared.admin_tokens.as_ref().map(|tokens| tokens.judge(request)) {
        None if is_for_this_machine(worker, request) => {}
        None => return Some(page(StatusCode::MISDIRECTED_REQUEST, MISDIRECTED.into())),
        // A request with a token may have any Host, because operators use proxies and other names. A browser sends a
        // token only to the host for which its user entered it.
        Some(TokenAccess::Granted) => {}
        Some(TokenAccess::TooLittle) => {
            return Some(page(StatusCode::FORBIDDEN, "this token's role does not allow the request\n".into()));
        }
        Some(TokenAccess::Unknown) => return Some(unauthorized()),
    }
    (!is_from_here(worker, request)).then(|| page(StatusCode::FORBIDDEN, FOREIGN.into()))
}

/// Returns whether a request is for `/healthz`, which needs no token.
pub(super) fn is_about_health(request: &request::Parts) -> bool {
    matches!(request.method, Method::GET | Method::HEAD) && request.uri.path() == "/healthz"
}

/// Creates the 401 for a request without a valid token.
fn unauthorized() -> Response<ResponseBody> {
    let mut response = page(StatusCode::UNAUTHORIZED, "the request needs a token\n".into());
    for challenge in ["Bearer realm=\"larder\"", "Basic realm=\"larder: the password is a token\""] {
        response.headers_mut().append(header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
    }
    response
}

/// Returns whether a request's Host names this machine: loopback, the listener's own address, or a name in its
/// certificate.
///
/// No other site has a certificate for such a name, so a page of another site cannot send it.
fn is_for_this_machine(worker: &Worker, request: &request::Parts) -> bool {
    let Some(host) = request.headers.get(header::HOST) else { return true };
    let Some(authority) = host.to_str().ok().and_then(|host| host.parse::<Authority>().ok()) else { return false };
    let shared = &worker.shared;
    let name = host_of(authority.as_str());
    if let Ok(address) = name.trim_matches(['[', ']']).parse::<IpAddr>() {
        let own = shared.config.admin.map(|admin| admin.ip());
        return address.to_canonical().is_loopback() || own == Some(address);
    }
    let certificates = shared.certificates.as_ref().filter(|_| shared.config.admin_tls);
    name.eq_ignore_ascii_case("localhost")
        || certificates.is_some_and(|certificates| certificates.speak_for(Some(name), name))
}

/// Returns whether a request comes from a page of this listener, or from an address that the user entered in the
/// browser.
///
/// Requests without the fields that browsers send (Sec-Fetch-Site, Origin) are accepted too.
fn is_from_here(worker: &Worker, request: &request::Parts) -> bool {
    let site = request.headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
    let is_ours = matches!(site, None | Some(b"same-origin" | b"none"));
    let host = request.headers.get(header::HOST).map(HeaderValue::as_bytes).unwrap_or_default();
    let scheme = if worker.shared.config.admin_tls { "https://" } else { "http://" };
    let mut origins = request.headers.get_all(header::ORIGIN).iter().map(HeaderValue::as_bytes);
    is_ours && origins.all(|origin| origin.strip_prefix(scheme.as_bytes()) == Some(host))
}

const MISDIRECTED: &str = "the Host must be an address of this machine, such as 127.0.0.1 or localhost\n";
const FOREIGN: &str = "another site's page may not send this request: open this listener's address itself\n";
