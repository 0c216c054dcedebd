//! Opens connections to origins: resolves names, applies rules, tries addresses, and negotiates TLS.
//!
//! `pool` keeps the connections. Invariant: only addresses that were checked are connected to. Several addresses are
//! tried as RFC 8305 describes: the families alternate, and the next address is tried when the previous one has failed
//! or after [`STAGGER`]. The first connection to succeed is used.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use larder_http::proxy_status::ProxyError;
use tokio::{io::AsyncWriteExt as _, net::TcpStream, task::JoinSet};

use crate::{
    ground::{
        config::{Parent, TargetRules},
        errors::Failure,
        fault::FaultReport,
        target::{Origin, OriginWay},
        watch::WatchedConnection,
    },
    origins::{
        access::OriginRouter,
        parent,
        proxy_header::{self, ClientEnds},
        stream::{OriginStream, Transport},
    },
};

/// A new connection on which nothing has been sent.
pub(crate) struct NewLink {
    pub(crate) stream: OriginStream,
    /// The deadline of the connection.
    pub(crate) watched: Arc<WatchedConnection>,
    /// Whether the handshake agreed on HTTP/2.
    pub(crate) http2: bool,
}

/// Opens a connection to an origin: connects, sends the PROXY header and performs the TLS handshake.
///
/// `http2` says whether to offer HTTP/2. `ends` is the client's connection, for an origin that wants a PROXY header.
pub(crate) async fn connect(
    origins: &Arc<OriginRouter>,
    origin: &Origin,
    http2: bool,
    ends: Option<ClientEnds>,
) -> Result<NewLink, Failure> {
    let mut stream = match origins.shared.parent_of(origin) {
        // Plain HTTP requests go to the parent in absolute form, so they need no tunnel.
        Some(parent) if parent::takes_absolute_form(origin) => open_to_parent(origins, origin, parent).await?,
        _ => open(origins, origin).await?,
    };
    if origin.sends_proxy_header {
        send_proxy_header(origin, &mut stream, ends).await?;
    }
    let limits = &origins.policy.limits;
    let mut agreed = origin.prior_http2 && http2;
    let node_tls = origins.shared.fleet_tls.as_ref().filter(|_| origin.way == OriginWay::Sibling);
    let transport = if let Some(tls) = node_tls {
        let handshake = tls.connect(stream, &origin.host);
        match tokio::time::timeout(limits.origin_connect, handshake).await {
            Ok(Ok(stream)) => Transport::Tls(Box::new(stream)),
            Ok(Err(error)) => {
                return Err(Failure::Unusable { host: origin.to_string(), fault: FaultReport::of_node_tls(&error) });
            }
            Err(_) => return Err(not_in_time(origin, "the TLS handshake took too long")),
        }
    } else if origin.https {
        let extra_ca = origins.shared.ca_file.as_deref();
        let handshake = origins.shared.tls.connect(stream, &origin.host, (extra_ca, http2));
        let handshake = async {
            let (connected, asks_certificate) = handshake.await;
            if asks_certificate {
                origins.shared.certificate_askers.insert(origin);
            }
            connected
        };
        match tokio::time::timeout(limits.origin_connect, handshake).await {
            Ok(Ok(stream)) => {
                agreed = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                Transport::Tls(Box::new(stream))
            }
            Ok(Err(error)) => {
                return Err(Failure::Unusable { host: origin.to_string(), fault: FaultReport::of_tls(&error) });
            }
            Err(_) => return Err(not_in_time(origin, "the TLS handshake took too long")),
        }
    } else {
        Transport::Plain(stream)
    };
    let watched = Arc::new(origins.watches.register());
    let stream = OriginStream::new(transport, Arc::clone(&watched), limits.origin_response);
    let stream = stream.within(&origins.shared.bodies);
    origins.metrics.origin_connections.add(1);
    Ok(NewLink { stream, watched, http2: agreed })
}

/// Opens a connection to an origin through one of its parents, or directly if it has none.
pub(crate) async fn connect_by_a_way(
    origins: &Arc<OriginRouter>,
    origin: &Origin,
    http2: bool,
) -> Result<NewLink, Failure> {
    let Some(mut ways) = origins.shared.ways(origin, None) else {
        return connect(origins, origin, http2, None).await;
    };
    loop {
        let opened = connect(origins, ways.origin(), http2, None).await;
        if !ways.note(opened.as_ref(), true) {
            return opened;
        }
    }
}

/// Sends the PROXY header, which names the client, before any other byte.
///
/// The header fits into the send buffer of a new socket, so this does not wait for the origin.
async fn send_proxy_header(origin: &Origin, stream: &mut TcpStream, ends: Option<ClientEnds>) -> Result<(), Failure> {
    let sent = stream.write_all(&proxy_header::encode(ends)).await;
    sent.map_err(|error| Failure::Unusable { host: origin.to_string(), fault: FaultReport::of_socket(&error) })
}

/// Opens a connection to an origin like [`connect_by_a_way`], but without TLS handshake.
pub(crate) async fn open_by_a_way(origins: &Arc<OriginRouter>, origin: &Origin) -> Result<TcpStream, Failure> {
    let Some(mut ways) = origins.shared.ways(origin, None) else { return open(origins, origin).await };
    loop {
        let opened = open(origins, ways.origin()).await;
        if !ways.note(opened.as_ref(), true) {
            return opened;
        }
    }
}

/// Connects to an origin: to one of its addresses that the rules allow, or through its parent.
async fn open(origins: &Arc<OriginRouter>, origin: &Origin) -> Result<TcpStream, Failure> {
    let limit = origins.policy.limits.origin_connect;
    origins.shared.check_listed(origin)?;
    if let Some(parent) = origins.shared.parent_of(origin) {
        let mut stream = open_to_parent(origins, origin, parent).await?;
        let opening = parent::open_tunnel(&mut stream, origin, parent);
        let late = || Err(not_in_time(&parent::origin_of(parent), "the parent did not open a tunnel in time"));
        tokio::time::timeout(limit, opening).await.unwrap_or_else(|_| late())?;
        return Ok(stream);
    }
    connect_to_origin(origins, origin).await
}

/// Connects to the parent of an origin, if the rules allow clients to reach the origin.
async fn open_to_parent(origins: &Arc<OriginRouter>, origin: &Origin, parent: &Parent) -> Result<TcpStream, Failure> {
    origins.shared.check_listed(origin)?;
    parent::check_target(&origins.shared.targets, origin)?;
    connect_to_origin(origins, &parent::origin_of(parent)).await
}

async fn connect_to_origin(origins: &Arc<OriginRouter>, origin: &Origin) -> Result<TcpStream, Failure> {
    let limit = origins.policy.limits.origin_connect;
    let connecting = async {
        let addresses = addresses_of(origins, origin).await?;
        connect_any(origins, origin, in_turn(addresses)).await
    };
    match tokio::time::timeout(limit, connecting).await {
        Ok(connected) => connected,
        Err(_) => Err(not_in_time(origin, "it did not accept a connection in time")),
    }
}

/// Resolves an origin's name, and returns the addresses that the rules allow.
async fn addresses_of(origins: &OriginRouter, origin: &Origin) -> Result<Vec<SocketAddr>, Failure> {
    let mut addresses = origins.dns.resolve(origin).await?;
    if !origin.trusted {
        keep_allowed(&origins.shared.targets, origin, &mut addresses)?;
    }
    Ok(addresses)
}

/// Checks whether the rules allow an origin's addresses, without connecting.
///
/// # Errors
/// The rules refuse all addresses, or the name cannot be resolved.
pub(crate) async fn check_way(origins: &OriginRouter, origin: &Origin) -> Result<(), Failure> {
    match origins.shared.parent_of(origin) {
        _ if origin.trusted => Ok(()),
        Some(_) => parent::check_target(&origins.shared.targets, origin),
        None => addresses_of(origins, origin).await.map(drop),
    }
}

fn not_in_time(origin: &Origin, why: &str) -> Failure {
    Failure::Unusable { host: origin.to_string(), fault: FaultReport::new(ProxyError::ConnectionTimeout, why) }
}

/// Removes the addresses that the rules refuse. If none is left, returns the refusal.
fn keep_allowed(rules: &TargetRules, origin: &Origin, addresses: &mut Vec<SocketAddr>) -> Result<(), Failure> {
    let mut refused = None;
    addresses.retain(|address| match rules.check(address.ip()) {
        Ok(()) => true,
        Err(why) => {
            refused.get_or_insert((address.ip(), why));
            false
        }
    });
    match refused {
        Some((address, why)) if addresses.is_empty() => {
            Err(Failure::TargetDenied { host: origin.host.to_string(), address, why })
        }
        _ => Ok(()),
    }
}

/// Connects to the addresses in turn, and returns the first connection that succeeds.
async fn connect_any(
    origins: &OriginRouter,
    origin: &Origin,
    addresses: Vec<SocketAddr>,
) -> Result<TcpStream, Failure> {
    match first_of(addresses).await {
        Ok(stream) if leads_to_us(origins, &stream) => Err(Failure::Loop),
        Ok(stream) => {
            // Sends small requests without delay. A socket that refuses the option still works.
            let _ = stream.set_nodelay(true);
            Ok(stream)
        }
        Err(fault) => Err(Failure::Unusable { host: origin.to_string(), fault }),
    }
}

async fn first_of(addresses: Vec<SocketAddr>) -> Result<TcpStream, FaultReport> {
    if let [only] = addresses[..] {
        return connect_to(only).await;
    }
    let mut why = FaultReport::new(ProxyError::DnsError, "the name has no address");
    let mut waiting = addresses.into_iter();
    let mut trying = JoinSet::new();
    loop {
        if let Some(address) = waiting.next() {
            trying.spawn(connect_to(address));
        }
        let stagger = if waiting.len() > 0 { STAGGER } else { Duration::MAX };
        match tokio::time::timeout(stagger, trying.join_next()).await {
            Ok(None) => return Err(why),
            Ok(Some(Ok(Ok(stream)))) => return Ok(stream),
            Ok(Some(Ok(Err(fault)))) => why = fault,
            Ok(Some(Err(error))) => why = FaultReport::new(ProxyError::ProxyInternalError, error.to_string()),
            Err(_) => {}
        }
    }
}

async fn connect_to(address: SocketAddr) -> Result<TcpStream, FaultReport> {
    TcpStream::connect(address).await.map_err(|error| {
        let FaultReport { error, why, .. } = FaultReport::of_socket(&error);
        FaultReport::new(error, format!("{why} ({address})"))
    })
}

/// Orders addresses so that both families alternate, beginning with the family of the first address (RFC 8305 4).
fn in_turn(addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let Some(first) = addresses.first().map(SocketAddr::is_ipv6) else { return addresses };
    let (mut these, mut those): (Vec<_>, Vec<_>) =
        addresses.into_iter().partition(|address| address.is_ipv6() == first);
    these.reverse();
    those.reverse();
    let mut ordered = Vec::with_capacity(these.len() + those.len());
    while !(these.is_empty() && those.is_empty()) {
        ordered.extend(these.pop());
        ordered.extend(those.pop());
    }
    ordered
}

/// Returns whether a connection leads to one of this proxy's own listeners, which would be a loop.
///
/// The check looks at the two ends of the connection, so no other name or notation of the address evades it.
fn leads_to_us(origins: &OriginRouter, stream: &TcpStream) -> bool {
    let (Ok(local), Ok(peer)) = (stream.local_addr(), stream.peer_addr()) else { return true };
    origins.shared.own_addresses.iter().any(|own| {
        own.port() == peer.port()
            && local.ip().to_canonical() == peer.ip().to_canonical()
            && (own.ip().is_unspecified() || own.ip().to_canonical() == peer.ip().to_canonical())
    })
}

/// Time after which the next address is tried, in parallel with those that have not answered yet (RFC 8305 5).
const STAGGER: Duration = Duration::from_millis(250);

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use socket2::{Domain, Socket, Type};

    use super::*;

    fn addresses(texts: &[&str]) -> Vec<SocketAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn families_take_turns() {
        let given = addresses(&["[::1]:1", "[::2]:1", "[::3]:1", "1.0.0.1:1"]);
        assert_eq!(in_turn(given), addresses(&["[::1]:1", "1.0.0.1:1", "[::2]:1", "[::3]:1"]));
        assert_eq!(in_turn(addresses(&["1.0.0.1:1", "[::1]:1"])), addresses(&["1.0.0.1:1", "[::1]:1"]));
        assert_eq!(in_turn(Vec::new()), Vec::new());
    }

    #[tokio::test]
    async fn address_that_does_not_answer_is_not_waited_for() {
        // A listener whose backlog is full drops further connection attempts.
        let full = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        full.bind(&"127.0.0.1:0".parse::<SocketAddr>().unwrap().into()).unwrap();
        full.listen(0).unwrap();
        let silent = full.local_addr().unwrap().as_socket().unwrap();
        let _filling: Vec<_> = (0..4)
            .map(|_| {
                let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
                socket.set_nonblocking(true).unwrap();
                // This connection attempt must stay in progress.
                let _ = socket.connect(&silent.into());
                socket
            })
            .collect();
        let good = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let listener = TcpListener::bind(good).unwrap();
        let refusing = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let started = std::time::Instant::now();
        let stream = first_of(vec![silent, refusing, good]).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), listener.local_addr().unwrap());
        assert!(started.elapsed() < Duration::from_secs(5));
        let why = first_of(vec![refusing, refusing]).await.unwrap_err();
        assert_eq!(why.error, ProxyError::ConnectionRefused);
        assert!(why.why.contains(&refusing.to_string()), "{why:?}");
    }
}
