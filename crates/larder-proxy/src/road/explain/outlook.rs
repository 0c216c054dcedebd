//! Decides for `explain` whether a client's request would be refused, or become a tunnel, before the cache decides.
//!
//! Owns: the order of these checks, and their wording for the operator. Invariant: each check is the function that
//! decides real requests. Cost: one lookup of the origin's name, which may take [`NAME_PATIENCE`].

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
    time::Duration,
};

use http::{HeaderValue, Method, Request, Uri, Version, header};
use larder_http::fields::effective_authority;

use crate::{
    ground::{
        errors::Failure,
        target::{Origin, is_within, permission},
    },
    origins::{self, access::OriginRouter},
    road::{
        intercept::{self, Interception},
        tunnel,
    },
    run::{shared::ProxyState, worker::Worker},
    targets::routes::Destination,
};

/// The result of the checks that are made before and after the cache's own decision.
pub(super) struct RequestOutlook {
    /// The origin of the request. `None` if the request has none.
    pub(super) origin: Option<Origin>,
    /// The refusal that every request for the URL gets, whatever is stored. `None` if requests are not refused.
    pub(super) refusal: Option<String>,
    /// The refusal of requests that would have to contact the origin. `None` if they may contact it.
    pub(super) origin_refusal: Option<String>,
    /// The answer to a CONNECT for the origin. `None` if requests inside the tunnel reach the cache.
    pub(super) tunnel: Option<String>,
}

impl RequestOutlook {
    /// Makes the checks for a GET of `uri`.
    pub(super) async fn of(worker: &Arc<Worker>, uri: &Uri) -> Self {
        let host = uri.authority().and_then(|authority| HeaderValue::from_str(authority.as_str()).ok());
        let fields = host.map(|host| (header::HOST, host)).into_iter().collect();
        let located =
            effective_authority(uri, &fields, Version::HTTP_11).map_err(Failure::from).and_then(|authority| {
                let scheme = uri.scheme_str().unwrap_or("http");
                worker.shared.routes.locate(scheme, uri, Version::HTTP_11, authority)
            });
        let unknown = Self { origin: None, refusal: None, origin_refusal: None, tunnel: None };
        match located {
            // The URL belongs to a mirror or a build cache, whose requests are checked elsewhere.
            Err(_) if is_ours(&worker.shared, uri) => unknown,
            Err(failure) => Self { refusal: Some(told(&worker.shared, &failure)), ..unknown },
            Ok(Destination { origin, .. }) => Self::of_located(worker, uri, origin).await,
        }
    }

    async fn of_located(worker: &Arc<Worker>, uri: &Uri, origin: Origin) -> Self {
        let mut outlook = Self { origin: None, refusal: None, origin_refusal: None, tunnel: None };
        let is_admitted = origin.trusted || is_mirrored(&worker.shared, uri) || is_at_us(&worker.shared, uri, &origin);
        if !is_admitted {
            let listed = worker.shared.origins.check_listed(&origin);
            outlook.refusal = listed.err().map(|failure| told(&worker.shared, &failure));
            if outlook.refusal.is_none() {
                let refusal = target_refusal(&worker.origins, &origin).await;
                outlook.origin_refusal = refusal.map(|failure| told(&worker.shared, &failure));
            }
            if origin.https {
                outlook.tunnel = tunnel_of(worker, &origin, outlook.origin_refusal.clone());
            }
        }
        outlook.origin = Some(origin);
        outlook
    }
}

/// Returns whether clients send a request for a URI to this proxy as its server, not through it as a proxy.
pub(super) fn is_for_us(shared: &ProxyState, uri: &Uri) -> bool {
    let Some(authority) = uri.authority() else { return true };
    let scheme = uri.scheme_str().unwrap_or("http");
    match shared.routes.locate(scheme, uri, Version::HTTP_11, Some(authority.as_str())) {
        Ok(Destination { origin, .. }) => !origin.trusted && is_at_us(shared, uri, &origin),
        Err(_) => is_ours(shared, uri),
    }
}

/// Returns whether a URI leads to this proxy itself: to its own address, or to a mirror or build cache.
fn is_at_us(shared: &ProxyState, uri: &Uri, origin: &Origin) -> bool {
    let mut own = shared.origins.own_addresses.iter().filter(|own| own.port() == origin.port).peekable();
    let is_near = own.peek().is_some();
    let is_address = origin.host.parse().is_ok_and(|address: IpAddr| own.any(|own| own.ip() == address));
    is_address || (is_near && is_ours(shared, uri))
}

/// Returns whether a URI leads to a mirror or a build cache, if a client sends it to this proxy as its server.
fn is_ours(shared: &ProxyState, uri: &Uri) -> bool {
    let mut request = Request::new(());
    *request.uri_mut() = uri.clone();
    let is_elsewhere = shared.build_caches.find(&request, |_| true).is_ok_and(|found| found.is_none());
    if !is_elsewhere || is_mirrored(shared, uri) {
        return true;
    }
    !shared.mirrors.divert("http", &mut request, |_| true).is_ok_and(|found| found.is_none())
}

/// Returns whether a mirror stands for the server that a URI names, so that both have the same cache keys.
fn is_mirrored(shared: &ProxyState, uri: &Uri) -> bool {
    let named = uri.scheme_str().zip(uri.authority());
    named.is_some_and(|(scheme, authority)| shared.mirrors.leads_to(scheme, authority.as_str()))
}

/// Returns the refusal of an origin because of its addresses. A name that cannot be resolved in time is not refused.
pub(super) async fn target_refusal(origins: &OriginRouter, origin: &Origin) -> Option<Failure> {
    match tokio::time::timeout(NAME_PATIENCE, origins::check_way(origins, origin)).await {
        Ok(Err(failure @ Failure::TargetDenied { .. })) => Some(failure),
        _ => None,
    }
}

/// Returns how a CONNECT for an origin is answered, or `None` if requests inside the tunnel reach the cache.
///
/// `refusal` is the refusal of the origin because of its addresses, if any.
fn tunnel_of(worker: &Worker, origin: &Origin, refusal: Option<String>) -> Option<String> {
    let request = Request::builder().method(Method::CONNECT).uri(origin.to_string()).body(()).ok()?;
    let target = match tunnel::target(&worker.shared.config, &request) {
        Ok(target) => target,
        Err(failure) => return Some(told(&worker.shared, &failure)),
    };
    // This address belongs to no client, so no client's refused certificates influence the result.
    let address = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    let interceptor = worker.shared.interceptor.as_ref();
    let is_down = worker.shared.origins.uplink.line_to(&target).is_down();
    match intercept::interception(&worker.shared.origins, interceptor, &target, address) {
        Interception::Intercepted(_) => None,
        _ if is_down => Some("504, because the origin cannot be contacted (offline)".to_owned()),
        _ if refusal.is_some() => refusal,
        Interception::Unlisted => Some("a tunnel, not cached: see --intercept".to_owned()),
        Interception::Bypassed(why) => Some(format!("a tunnel, not cached ({})", why.token())),
    }
}

/// Describes why a request is refused, with the setting that decides it.
fn told(shared: &ProxyState, failure: &Failure) -> String {
    let status = failure.status().as_u16();
    match failure {
        Failure::TargetDenied { address, .. } if is_within(&shared.config.targets.deny, *address) => {
            format!("{status}, the target is not allowed: forward.deny_targets names {address}")
        }
        Failure::TargetDenied { address, why, .. } => {
            format!("{status}, the target is not allowed, {why}{}", permission(*address, why))
        }
        Failure::Blocked { .. } => format!("{status}, the host is blocked"),
        Failure::PortDenied { port } => {
            format!("{status}, tunnels to port {port} are not allowed: see forward.connect_ports")
        }
        Failure::NoSite { .. } => format!("{status}, no site has this host and path: see --origin and [[site]]"),
        other => format!("{status}, {other}"),
    }
}

/// Maximum time to resolve the origin's name.
const NAME_PATIENCE: Duration = Duration::from_secs(1);
