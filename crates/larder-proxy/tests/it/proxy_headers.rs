//! PROXY headers towards origins. Guards against a request that reaches the origin under another client's name.

use std::{
    io::{self, Read as _},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    time::Duration,
};

use larder_proxy::{OriginUrl, Origins, ProxyConfig, Site};

use crate::support::{
    Connection, Fixture, Origin, Reply, eventually,
    http2_origin::{Deed, Http2Origin},
};

const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

/// A server that reads the PROXY header of each connection, and relays the remainder to an origin.
struct Receiver {
    address: SocketAddr,
    named: Arc<Mutex<Vec<Named>>>,
}

/// Source and destination in a PROXY header, or `None` if the proxy speaks for itself.
type Named = Option<(SocketAddr, SocketAddr)>;

impl Receiver {
    fn start(origin: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let named = Arc::<Mutex<Vec<Named>>>::default();
        let seen = Arc::clone(&named);
        std::thread::spawn(move || {
            for socket in listener.incoming() {
                let mut socket = socket.unwrap();
                let seen = Arc::clone(&seen);
                std::thread::spawn(move || {
                    let header = read_header(&mut socket).expect("each connection begins with a header");
                    seen.lock().unwrap().push(header);
                    relay(socket, TcpStream::connect(origin).unwrap());
                });
            }
        });
        Self { address, named }
    }

    fn named(&self) -> Vec<Named> {
        self.named.lock().unwrap().clone()
    }

    fn sources(&self) -> Vec<SocketAddr> {
        self.named().into_iter().map(|named| named.unwrap().0).collect()
    }

    fn url(&self, scheme: &str) -> OriginUrl {
        let url: OriginUrl = format!("{scheme}://{}", self.address).parse().unwrap();
        url.with_proxy_header(true)
    }
}

/// Reads a header of version 2.
fn read_header(socket: &mut TcpStream) -> io::Result<Named> {
    let mut fixed = [0; 16];
    socket.read_exact(&mut fixed)?;
    assert_eq!(&fixed[..12], SIGNATURE);
    let mut addresses = vec![0; usize::from(u16::from_be_bytes([fixed[14], fixed[15]]))];
    socket.read_exact(&mut addresses)?;
    let port = |at: usize| u16::from_be_bytes([addresses[at], addresses[at + 1]]);
    let v4 = |at: usize| IpAddr::from(<[u8; 4]>::try_from(&addresses[at..at + 4]).unwrap());
    match (fixed[12], fixed[13]) {
        (0x20, _) => Ok(None),
        (0x21, 0x11) => Ok(Some((SocketAddr::new(v4(0), port(8)), SocketAddr::new(v4(4), port(10))))),
        other => panic!("an unexpected header: {other:?}"),
    }
}

fn relay(socket: TcpStream, origin: TcpStream) {
    let mut from = socket.try_clone().unwrap();
    let mut to = origin.try_clone().unwrap();
    std::thread::spawn(move || {
        // Either end may break off.
        drop(io::copy(&mut from, &mut to));
        drop(to.shutdown(std::net::Shutdown::Write));
    });
    let mut from = origin;
    let mut to = socket;
    drop(io::copy(&mut from, &mut to));
    drop(to.shutdown(std::net::Shutdown::Both));
}

/// Starts a proxy whose origin gets PROXY headers.
fn fixture(scheme: &str, origin: SocketAddr, change: impl FnOnce(&mut ProxyConfig)) -> (Fixture, Receiver) {
    let receiver = Receiver::start(origin);
    let url = receiver.url(scheme);
    let fixture = Fixture::with(
        |_, _| Reply::default(),
        |config| {
            config.default_origin = Some(url);
            config.worker_count = 1;
            change(config);
        },
    );
    (fixture, receiver)
}

fn origin() -> Origin {
    Origin::start(|received, _| Reply::ok(&["Cache-Control: max-age=60"], &received.target))
}

fn address_of(client: &Connection) -> SocketAddr {
    client.reader.get_ref().local_addr().unwrap()
}

/// Requests that alternate between clients would share a kept connection, and reach the origin under one name.
#[test]
fn each_request_reaches_the_origin_under_its_own_clients_name() {
    let origin = origin();
    let (fixture, receiver) = fixture("http", origin.address, |_| {});
    let address = fixture.proxy.local_addrs()[0];
    let mut clients: Vec<Connection> =
        (1..=3).map(|last| Connection::open_from(IpAddr::from([127, 0, 0, last]), address)).collect();
    let mut expected = Vec::new();
    for number in 0..12 {
        let client = &mut clients[number % 3];
        expected.push(address_of(client));
        let target = format!("/{number}");
        let answer = match number {
            // With a body, the HTTP library sends the request.
            6..9 => {
                client.send(format!("POST {target} HTTP/1.1\r\nHost: site.example\r\nContent-Length: 2\r\n\r\nhi"));
                client.read_response("POST")
            }
            _ => client.request("GET", &target, &[]),
        };
        assert_eq!((answer.status, answer.text()), (200, target));
    }
    assert_eq!(receiver.sources(), expected);
    assert_eq!((origin.count(), origin.connections()), (12, 12));
    assert_eq!(fixture.get_hit("/0", &[]).text(), "/0");
}

#[test]
fn streams_of_http2_do_not_share_a_connection_either() {
    let origin = Http2Origin::start(None, |_| Deed::Answer);
    let (fixture, receiver) = fixture("h2c", origin.address, |_| {});
    let mut clients = [fixture.connect(), fixture.connect()];
    let expected: Vec<SocketAddr> = (0..6).map(|number| address_of(&clients[number % 2])).collect();
    for number in 0..6 {
        let target = format!("/{number}");
        assert_eq!(clients[number % 2].request("GET", &target, &[]).text(), target);
    }
    assert_eq!((receiver.sources(), origin.connections()), (expected, 6));
}

#[test]
fn upgraded_connection_names_its_client_and_so_does_one_that_a_balancer_named() {
    let origin = Origin::start(|received, _| match received.field("upgrade") {
        Some(_) => {
            Reply::head("101 Switching Protocols", &["Connection: Upgrade", "Upgrade: websocket"]).send("hello").echo()
        }
        None => Reply::ok(&[], "plain"),
    });
    let (fixture, receiver) = fixture("http", origin.address, |config| {
        config.fleet.trusted_proxies = vec!["127.0.0.1/32".parse().unwrap()];
    });
    let mut client = fixture.connect();
    let fields = ["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: x3JJHMbDL1EzLkh9GBhXDw=="];
    client.send(crate::support::request_text("GET", "/chat", &fields));
    assert_eq!(client.read_head().status, 101);
    assert_eq!(client.read_exact(5), b"hello");
    assert_eq!(receiver.sources(), [address_of(&client)]);
    // The balancer names an address without a port.
    assert_eq!(fixture.get("/", &["X-Forwarded-For: 192.0.2.9"]).text(), "plain");
    assert_eq!(receiver.sources()[1], "192.0.2.9:0".parse().unwrap());
}

#[test]
fn header_of_a_health_check_names_nobody() {
    let origin = origin();
    let receiver = Receiver::start(origin.address);
    let mut origins = Origins::from(receiver.url("http"));
    origins.rules.check = Some(("/health".into(), Duration::from_millis(20)));
    let site = Site::of_host("site.example", Arc::new(origins));
    let _fixture = Fixture::with(|_, _| Reply::default(), |config| config.sites.push(site));
    eventually("it was checked", || origin.count_of("/health") >= 2);
    assert!(receiver.named().iter().all(Option::is_none));
}

#[test]
fn header_through_a_parent_is_refused() {
    let url: OriginUrl = "http://10.0.0.5".parse().unwrap();
    let url = url.with_proxy_header(true).by_parent("http://10.0.0.9:3128".parse().unwrap());
    let site = Site::of_host("a", Arc::new(url.into()));
    let refused = ProxyConfig { sites: vec![site], ..ProxyConfig::default() }.check().unwrap_err();
    assert!(refused.to_string().contains("cannot reach an origin through a parent"), "{refused}");
}
