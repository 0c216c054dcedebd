//! Interception of `https://`: the responses inside a tunnel, and the tunnels that stay untouched.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use larder_proxy::{
    Authority, BypassReason, HostRules, Intercept, ProxyConfig, RunningProxy, SessionOptions, TlsIdentity,
};
use rustls::{
    ClientConfig, ClientConnection, StreamOwned,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _},
};
use tempfile::TempDir;

use crate::support::{
    Connection, Fixture, Reply, Response,
    certificates::client_config,
    eventually,
    gate::PATIENCE,
    nodes::Nodes,
    tls_origin::{OriginAuthority, TlsOrigin, server_config},
};

/// A proxy that intercepts, an origin over TLS, and the authorities of both.
struct Stage {
    proxy: RunningProxy,
    origin: TlsOrigin,
    ours: CertificateDer<'static>,
    theirs: OriginAuthority,
    _directory: TempDir,
}

impl Stage {
    fn new(hosts: &[&str]) -> Self {
        Self::with(hosts, |theirs| theirs.sign(|_| {}), |_| {})
    }

    fn with(
        hosts: &[&str],
        server: impl FnOnce(&OriginAuthority) -> rustls::ServerConfig,
        change: impl FnOnce(&mut ProxyConfig),
    ) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let theirs = OriginAuthority::new(directory.path(), "theirs.pem");
        let origin = TlsOrigin::start(server(&theirs));
        let hosts = rules(hosts);
        let authority = Authority::generate(&hosts.hosts, Duration::from_hours(1)).unwrap();
        let identity = write(directory.path(), &authority);
        let proxy = Fixture::proxy_to(origin.address, |config| {
            config.default_origin = None;
            config.forward = true;
            config.worker_count = 1;
            config.connect_ports = vec![origin.address.port()];
            config.origin_ca_file = Some(theirs.file.clone());
            config.intercept = Some(Intercept { hosts, authority: identity });
            change(config);
        });
        let ours = CertificateDer::from(authority.certificate_der().to_vec());
        Self { proxy, origin, ours, theirs, _directory: directory }
    }

    fn address(&self) -> SocketAddr {
        self.proxy.local_addrs()[0]
    }

    /// Opens a client's connection through a tunnel to the origin. It requests `name` and trusts only `trusted`.
    fn tls(&self, name: &str, trusted: &CertificateDer<'static>) -> Tls {
        let tunnel = tunnel(self.address(), &self.origin.authority());
        Tls::over(tunnel, name, client_config(&[trusted], &["http/1.1"]))
    }

    /// Sends a GET over HTTP inside a tunnel.
    fn get(&self, target: &str) -> Response {
        self.tls("localhost", &self.ours).get(target, &self.origin.authority()).unwrap()
    }

    /// Returns whether a client that trusts both CAs receives Larder's certificate and not the origin's.
    fn is_intercepted(&self) -> bool {
        let tunnel = tunnel(self.address(), &self.origin.authority());
        let mut tls = Tls::over(tunnel, "localhost", client_config(&[&self.ours, &self.theirs.der], &["http/1.1"]));
        tls.get("/whose", &self.origin.authority()).unwrap().field("via").is_some()
    }
}

fn rules(hosts: &[&str]) -> HostRules {
    HostRules { hosts: hosts.iter().map(|host| host.parse().unwrap()).collect(), except: Vec::new() }
}

fn write(directory: &Path, authority: &Authority) -> TlsIdentity {
    let identity = TlsIdentity { certificate: directory.join("ca.pem"), key: directory.join("ca.key") };
    std::fs::write(&identity.certificate, authority.certificate_pem()).unwrap();
    std::fs::write(&identity.key, authority.key_pem()).unwrap();
    identity
}

/// Opens a tunnel through the proxy.
fn tunnel(proxy: SocketAddr, authority: &str) -> TcpStream {
    let mut socket = TcpStream::connect(proxy).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(socket, "CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n").unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        socket.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    assert!(head.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&head));
    socket
}

/// HTTP inside a tunnel.
struct Tls(BufReader<StreamOwned<ClientConnection, TcpStream>>);

impl Tls {
    fn over(tunnel: TcpStream, name: &str, config: Arc<ClientConfig>) -> Self {
        let connection = ClientConnection::new(config, ServerName::try_from(name.to_owned()).unwrap()).unwrap();
        Self(BufReader::new(StreamOwned::new(connection, tunnel)))
    }

    fn get(&mut self, target: &str, host: &str) -> std::io::Result<Response> {
        self.send(&format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n"))
    }

    fn send(&mut self, request: &str) -> std::io::Result<Response> {
        self.0.get_mut().write_all(request.as_bytes())?;
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line)? == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            if line == "\r\n" {
                break;
            }
            lines.push(line.trim_end().to_owned());
        }
        let status = lines[0].split(' ').nth(1).unwrap().parse().unwrap();
        let fields = lines[1..].iter().filter_map(|line| line.split_once(": "));
        let fields = fields.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect();
        let mut response = Response { status, fields, body: Vec::new(), complete: true };
        let length = response.field("content-length").map_or(0, |length| length.parse().unwrap());
        response.body = vec![0; length];
        self.0.read_exact(&mut response.body)?;
        Ok(response)
    }
}

/// Checks that `https://` is cached, and that it is one resource whichever way it is requested.
#[test]
fn request_inside_is_one_for_https_like_any_other() {
    let stage = Stage::new(&["localhost"]);
    let first = stage.get("/x");
    assert_eq!((first.status, first.text().as_str(), first.is_hit()), (200, "/x", false));
    eventually("it is a hit", || stage.get("/x").is_hit());
    let authority = stage.origin.authority();
    let mut plain = Connection::open(stage.address());
    plain.send(format!("GET https://{authority}/x HTTP/1.1\r\nHost: {authority}\r\n\r\n"));
    assert!(plain.read_response("GET").is_hit(), "as a request to the proxy in absolute form");
    let whole = stage.tls("localhost", &stage.ours).get(&format!("https://{authority}/x"), &authority).unwrap();
    assert!(whole.is_hit(), "in absolute form inside");
    let heads = stage.origin.heads();
    assert!(heads.len() == 1 && heads[0].starts_with("GET /x HTTP/1.1\r\n"), "{heads:?}");
    assert!(heads[0].to_ascii_lowercase().contains(&format!("host: {authority}\r\n")), "{heads:?}");
}

/// Checks that HTTP/2 clients, above all browsers, are served inside a tunnel too, each on one connection.
#[test]
fn http2_is_spoken_inside() {
    let stage = Stage::new(&["all"]);
    let authority = stage.origin.authority();
    let tunnel = tunnel(stage.address(), &authority);
    let config = client_config(&[&stage.ours], &["h2", "http/1.1"]);
    let mut http2 = crate::support::http2::Http2::inside(tunnel, "localhost", config);
    assert_eq!(http2.get(&format!("https://{authority}/x"), &[]).text(), "/x");
    eventually("it is a hit", || http2.get(&format!("https://{authority}/x"), &[]).is_hit());
    assert_eq!(http2.get("https://other.example/x", &[]).status, 421);
    assert_eq!(http2.get(&format!("http://{authority}/x"), &[]).status, 421);
    assert!(stage.get("/x").is_hit());
    assert_eq!(stage.origin.heads().len(), 1);
}

/// Guards against a client that reaches through a tunnel what the rules for CONNECT forbid.
#[test]
fn another_name_inside_is_connected_to_neither() {
    let stage = Stage::new(&["all"]);
    let refused = stage.tls("other.example", &stage.ours).get("/", "other.example").unwrap_err();
    assert!(refused.to_string().contains("AccessDenied") || refused.to_string().contains("alert"), "{refused}");
    let mut inside = stage.tls("localhost", &stage.ours);
    let authority = stage.origin.authority();
    for host in ["other.example", "localhost", "localhost:1", "127.0.0.1"] {
        assert_eq!(inside.get("/", host).unwrap().status, 421, "{host}");
    }
    for request in ["GET http://", "GET https://other.", "CONNECT "] {
        let target = if request.starts_with("CONNECT") { authority.clone() } else { format!("{authority}/") };
        let answer = inside.send(&format!("{request}{target} HTTP/1.1\r\nHost: {authority}\r\n\r\n")).unwrap();
        assert_eq!(answer.status, 421, "{request}");
    }
    assert_eq!(stage.origin.connections(), 0);
    assert_eq!(inside.get("/x", &authority).unwrap().text(), "/x");
    assert_eq!(inside.get("/x", &authority.to_uppercase()).unwrap().status, 200);
    let about_server = format!("OPTIONS * HTTP/1.1\r\nHost: {authority}\r\n\r\n");
    assert_eq!(inside.send(&about_server).unwrap().status, 200);
    assert!(stage.origin.heads().iter().any(|head| head.starts_with("OPTIONS * HTTP/1.1\r\n")));
}

/// Starts an origin that records the bytes it receives, and sends its own once it has received as many as expected.
fn recording_origin(expected: usize) -> (SocketAddr, Arc<Mutex<Vec<u8>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let recorded = Arc::<Mutex<Vec<u8>>>::default();
    let kept = Arc::clone(&recorded);
    std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let mut bytes = vec![0; expected];
        socket.read_exact(&mut bytes).unwrap();
        *kept.lock().unwrap() = bytes;
        socket.write_all(b"answer").unwrap();
    });
    (address, recorded)
}

fn client_hello(alpn: &[&str]) -> Vec<u8> {
    let name = ServerName::try_from("localhost").unwrap();
    let mut bytes = Vec::new();
    ClientConnection::new(client_config(&[], alpn), name).unwrap().write_tls(&mut bytes).unwrap();
    bytes
}

/// Guards against users who blame the network for a blocked site, because a browser shows nothing of a refused CONNECT.
#[test]
fn browser_sees_why_a_host_is_blocked_over_http_and_in_an_intercepted_tunnel() {
    let directory = tempfile::tempdir().unwrap();
    let list = directory.path().join("list");
    std::fs::write(&list, "localhost\n").unwrap();
    let stage = Stage::with(&["all"], |theirs| theirs.sign(|_| {}), |config| config.lists.block = vec![list]);
    let authority = stage.origin.authority();
    let asking =
        |target: &str, accept: &str| format!("GET {target} HTTP/1.1\r\nHost: {authority}\r\nAccept: {accept}\r\n\r\n");
    let plain = |accept| {
        let mut plain = Connection::open(stage.address());
        plain.send(asking(&format!("http://{authority}/"), accept));
        plain.read_response("GET")
    };
    let inside = |accept| stage.tls("localhost", &stage.ours).send(&asking("/", accept)).unwrap();
    for page in [plain("text/html,*/*;q=0.8"), inside("text/html,*/*;q=0.8")] {
        assert_eq!((page.status, page.field("content-type")), (403, Some("text/html; charset=utf-8")));
        for part in ["<h1>This site is blocked on this network</h1>", "a block list names it", "ask the administrator"]
        {
            assert!(page.text().contains(part), "{part}: {}", page.text());
        }
    }
    for text in [plain("application/json"), inside("*/*")] {
        assert_eq!(text.status, 403);
        assert!(text.text().starts_with("this site is blocked on this network: localhost, "), "{}", text.text());
    }
    assert_eq!(stage.origin.connections(), 0);
}

/// Checks that other protocols and unlisted hosts are neither broken nor inspected.
#[test]
fn what_is_not_listed_or_not_tls_is_tunneled_byte_for_byte() {
    let ours = client_hello(&["h2", "http/1.1"]);
    let imap = client_hello(&["imap"]);
    let odd = [&[0x16, 3, 1, 0, 5][..], b"no hello at all"].concat();
    for (hosts, sent) in [
        (["*.localhost"], &ours[..]),
        (["all"], &imap),
        (["all"], b"SSH-2.0-OpenSSH\r\n\0\xff"),
        (["all"], &odd),
        (["all"], b"GET / HTTP/1.1\r\n\r\n"),
    ] {
        let (address, recorded) = recording_origin(sent.len());
        let stage =
            Stage::with(&hosts, |theirs| theirs.sign(|_| {}), |config| config.connect_ports = vec![address.port()]);
        let mut socket = tunnel(stage.address(), &format!("localhost:{}", address.port()));
        socket.write_all(sent).unwrap();
        let mut answer = [0; 6];
        socket.read_exact(&mut answer).unwrap();
        assert_eq!((&answer, &recorded.lock().unwrap()[..]), (b"answer", sent), "{hosts:?}");
        assert_eq!(stage.proxy.stats().outcome(larder_proxy::Outcome::Tunnel), 1);
    }
}

/// Checks that protocols such as mail, in which the server speaks first, do not hang.
#[test]
fn server_that_speaks_first_is_heard() {
    let (address, _) = recording_origin(0);
    let stage =
        Stage::with(&["all"], |theirs| theirs.sign(|_| {}), |config| config.connect_ports = vec![address.port()]);
    let mut socket = tunnel(stage.address(), &format!("localhost:{}", address.port()));
    let mut answer = [0; 6];
    socket.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"answer");
}

/// Protects programs with their own CAs, for which no retry would succeed.
#[test]
fn host_whose_certificate_is_refused_three_times_is_tunneled() {
    let stage = Stage::new(&["all"]);
    for _ in 0..3 {
        assert!(stage.is_intercepted());
        let mut refusing = stage.tls("localhost", &stage.theirs.der);
        refusing.get("/", "localhost").unwrap_err();
        // Its alert may still be in transit.
        drop(refusing);
    }
    eventually("it is tunneled", || !stage.is_intercepted());
    assert_eq!(stage.tls("localhost", &stage.theirs.der).get("/y", &stage.origin.authority()).unwrap().text(), "/y");
    assert!(stage.tls("localhost", &stage.ours).get("/y", "localhost").is_err(), "ours is no longer shown");
}

/// Checks that clients with their own certificates, which only they can present, are not locked out.
#[test]
fn origin_that_asks_for_a_client_certificate_is_tunneled_from_then_on() {
    let stage = Stage::with(&["all"], OriginAuthority::sign_asking, |_| {});
    assert!(stage.is_intercepted());
    assert!(!stage.is_intercepted() && !stage.is_intercepted());
    assert_eq!(stage.tls("localhost", &stage.theirs.der).get("/y", &stage.origin.authority()).unwrap().text(), "/y");
}

/// Guards against a certificate that the client would refuse, accepted by the proxy.
#[test]
fn bad_certificate_of_an_origin_is_told_with_its_reason() {
    let check = |server: fn(&OriginAuthority) -> rustls::ServerConfig, authority: Option<&str>, told: &str| {
        let authority =
            authority.map(|file| Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/tls")).join(file));
        let stage = Stage::with(&["all"], server, |config| {
            config.origin_ca_file = authority.or(config.origin_ca_file.take());
        });
        for _ in 0..2 {
            let failed = stage.get("/x");
            let status = failed.field("proxy-status").unwrap_or_default().to_owned();
            assert_eq!(failed.status, 502, "{told}");
            assert!(status.contains("error=tls_certificate_error"), "{told}: {status}");
            assert!(failed.text().contains(told), "{told}: {}", failed.text());
        }
        assert_eq!(stage.origin.heads(), Vec::<String>::new(), "{told}");
    };
    check(|theirs| theirs.sign(|leaf| leaf.not_after = rcgen::date_time_ymd(2020, 1, 1)), None, "it has expired");
    check(|theirs| theirs.sign(|leaf| leaf.not_before = rcgen::date_time_ymd(2100, 1, 1)), None, "it is not valid yet");
    let other = |theirs: &OriginAuthority| {
        theirs.sign(|leaf| leaf.subject_alt_names = vec![rcgen::SanType::DnsName("other.example".try_into().unwrap())])
    };
    check(other, None, "it does not cover the host's name");
    check(|_| self_signed(), None, "no trusted CA has signed it");
    let unknown =
        |_: &OriginAuthority| OriginAuthority::new(tempfile::tempdir().unwrap().path(), "unknown.pem").sign(|_| {});
    check(unknown, None, "no trusted CA has signed it");
    check(|_| signed_weakly(), Some("weak-ca.pem"), "is too weak");
}

fn self_signed() -> rustls::ServerConfig {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    server_config((vec![made.cert.der().clone()], &made.signing_key.serialize_der()), None)
}

/// Returns a configuration with a certificate signed by an RSA key of 1024 bits.
fn signed_weakly() -> rustls::ServerConfig {
    let leaf = CertificateDer::from_pem_slice(include_bytes!("tls/weak.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_slice(include_bytes!("tls/weak.key")).unwrap();
    server_config((vec![leaf], key.secret_der()), None)
}

/// Checks that WebSockets work inside a tunnel as outside.
#[test]
fn upgrade_inside_passes() {
    let stage = Stage::new(&["all"]);
    let mut inside = stage.tls("localhost", &stage.ours);
    let fields = "Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==";
    let request = format!("GET /chat HTTP/1.1\r\nHost: {}\r\n{fields}\r\n\r\n", stage.origin.authority());
    assert_eq!(inside.send(&request).unwrap().status, 101);
    inside.0.get_mut().write_all(b"hello\n").unwrap();
    let mut echoed = String::new();
    inside.0.read_line(&mut echoed).unwrap();
    assert_eq!(echoed, "hello\n");
}

/// Checks that a password that the client sends to the proxy once is neither requested again inside the tunnel nor sent
/// to the origin.
#[test]
fn password_is_asked_for_at_connect_and_not_inside() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("passwords");
    // As `openssl passwd -6` hashes `secret`.
    let hash = "$6$abcdefgh$ltjgWl6579NluT/Vi1nwEvcil.G5Nbc4NiXZaNGStk8PSwGfQv72N2CKPPrVACtLtip/cZ/1GM/O6IND4WQhG.";
    std::fs::write(&file, format!("user:{hash}\n")).unwrap();
    let stage = Stage::with(&["all"], |theirs| theirs.sign(|_| {}), |config| config.passwords = Some(file));
    let authority = stage.origin.authority();
    let mut socket = Connection::open(stage.address());
    socket.send(format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n"));
    assert_eq!(socket.read_response("GET").status, 407);
    let mut socket = TcpStream::connect(stage.address()).unwrap();
    let lines = format!("Host: {authority}\r\nProxy-Authorization: Basic dXNlcjpzZWNyZXQ=\r\n\r\n");
    write!(socket, "CONNECT {authority} HTTP/1.1\r\n{lines}").unwrap();
    let mut head = [0; 12];
    socket.read_exact(&mut head).unwrap();
    assert_eq!(&head, b"HTTP/1.1 200");
    while !head.ends_with(b"\r\n\r\n") {
        head.rotate_left(1);
        socket.read_exact(&mut head[11..]).unwrap();
    }
    let mut inside = Tls::over(socket, "localhost", client_config(&[&stage.ours], &["http/1.1"]));
    assert_eq!(inside.get("/x", &authority).unwrap().text(), "/x");
    eventually("it is a hit", || inside.get("/x", &authority).unwrap().is_hit());
    assert!(!stage.origin.heads()[0].to_ascii_lowercase().contains("proxy-authorization"));
}

/// Checks that rules for targets also apply inside a tunnel.
#[test]
fn rules_for_targets_hold_inside() {
    let stage = Stage::with(&["all"], |theirs| theirs.sign(|_| {}), |config| config.targets.allow.clear());
    let denied = stage.get("/x");
    assert_eq!(denied.status, 403);
    assert!(denied.field("proxy-status").is_some_and(|status| status.contains("destination_ip_prohibited")));
    assert_eq!(stage.origin.connections(), 0);
}

/// Guards against a CA that cannot sign for a listed host, which only the clients would notice.
#[test]
fn authority_that_cannot_be_used_is_an_error_at_start() {
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::generate(&rules(&["pypi.org"]).hosts, Duration::from_hours(1)).unwrap();
    let expired = Authority::generate(&[], Duration::ZERO).unwrap();
    for (authority, hosts, told) in
        [(&authority, "localhost", "may not sign for a host to intercept: localhost"), (&expired, "all", "has expired")]
    {
        let intercept = Intercept { hosts: rules(&[hosts]), authority: write(directory.path(), authority) };
        let config = ProxyConfig { intercept: Some(intercept), ..ProxyConfig::default() };
        let error = larder_proxy::Proxy::start(config, None).err().expect(told).to_string();
        assert!(error.contains(told), "{error}");
    }
    // All hosts except those that it may not sign for.
    let stage = Stage::new(&["pypi.org"]);
    assert!(!stage.is_intercepted());
}

/// Protects a session's figures, and the guarantee that no other client's tunnels are decrypted.
#[test]
fn session_has_rules_an_authority_and_figures_of_its_own() {
    let stage = Stage::new(&["nobody.example"]);
    let handle = stage.proxy.handle();
    let open = |offline| {
        handle.open_session(SessionOptions { hosts: rules(&["all"]), offline, ..SessionOptions::default() }).unwrap()
    };
    let session = open(false);
    let offline = open(true);
    assert_ne!(session.certificate_pem(), offline.certificate_pem());
    let get = |session: &larder_proxy::Session, target: &str, fields: &str| {
        let authority = stage.origin.authority();
        let trusted = CertificateDer::from_pem_slice(session.certificate_pem().as_bytes()).unwrap();
        let tunnel = tunnel(session.address(), &authority);
        let mut inside = Tls::over(tunnel, "localhost", client_config(&[&trusted], &["http/1.1"]));
        inside.send(&format!("GET {target} HTTP/1.1\r\nHost: {authority}\r\n{fields}\r\n")).unwrap()
    };
    let nothing = get(&offline, "/x", "");
    assert_eq!(nothing.status, 504);
    assert!(nothing.text().contains("offline"), "{}", nothing.text());
    assert_eq!(stage.origin.connections(), 0);
    for target in ["/x", "/stale"] {
        assert_eq!(get(&session, target, "").text(), target);
    }
    eventually("it is stored", || get(&session, "/x", "").is_hit());
    let from_origin = stage.origin.heads().len();
    let connections = stage.origin.connections();
    let mut other = tunnel(offline.address(), &stage.origin.authority());
    other.write_all(b"SSH-2.0-x\r\n").unwrap();
    assert_eq!(other.read(&mut [0]).unwrap_or(0), 0, "what would have to be asked for is closed");
    for (target, fields) in
        [("/x", ""), ("/x", "Cache-Control: no-cache\r\n"), ("/stale", ""), ("/stale", "Pragma: no-cache\r\n")]
    {
        assert_eq!(get(&offline, target, fields).text(), target, "{fields}");
    }
    assert_eq!((stage.origin.heads().len(), stage.origin.connections()), (from_origin, connections));
    let authority = stage.origin.authority();
    let missing = [format!("https://{authority}/x"), format!("CONNECT {authority}")];
    assert_eq!((offline.stats().missing, offline.stats().missing_count), (missing.to_vec(), 2));
    let stats = session.stats();
    assert!(stats.requests >= 3 && stats.hits == stats.requests - 2, "{stats:?}");
    eventually("the bytes are counted", || session.stats().sent_bytes == 8 + 2 * stats.hits);
    assert_eq!(session.stats().hit_bytes, 2 * stats.hits);
    let address = session.address();
    drop(session);
    eventually("its listener is closed", || TcpStream::connect(address).is_err());
    assert_eq!(get(&offline, "/x", "").status, 200, "others go on");
    assert!(!stage.is_intercepted(), "the proxy's own listener has rules of its own");
}

/// Guards against an intercepted host of which each node fetches everything for itself.
#[test]
fn nodes_of_a_fleet_share_the_entries_of_an_intercepted_host() {
    let directory = tempfile::tempdir().unwrap();
    let theirs = OriginAuthority::new(directory.path(), "theirs.pem");
    let origin = TlsOrigin::start(theirs.sign(|_| {}));
    let authority = Authority::generate(&rules(&["localhost"]).hosts, Duration::from_hours(1)).unwrap();
    let identity = write(directory.path(), &authority);
    let port = origin.address.port();
    let ca = theirs.file.clone();
    let nodes = Nodes::with(
        |_, _| Reply::ok(&[], "another origin"),
        move |config| {
            config.default_origin = None;
            config.forward = true;
            config.connect_ports = vec![port];
            config.origin_ca_file = Some(ca.clone());
            config.intercept = Some(Intercept { hosts: rules(&["localhost"]), authority: identity.clone() });
        },
    );
    let ours = CertificateDer::from(authority.certificate_der().to_vec());
    let get = |node: usize, target: &str| {
        let tunnel = tunnel(nodes.addresses[node], &origin.authority());
        let mut inside = Tls::over(tunnel, "localhost", client_config(&[&ours], &["http/1.1"]));
        inside.get(target, &origin.authority()).unwrap()
    };
    let targets = (0..12).map(|number| format!("/{number}"));
    for target in targets.clone() {
        for node in 0..3 {
            let response = get(node, &target);
            assert_eq!((response.status, response.text()), (200, target.clone()));
        }
    }
    assert_eq!(origin.heads().len(), targets.count());
}

/// Guards against a host that its user believes to be cached although it is not.
#[test]
fn tunnel_to_a_listed_host_that_is_passed_on_unread_is_counted_with_its_reason() {
    let stage = Stage::new(&["localhost"]);
    let options = SessionOptions { hosts: rules(&["all"]), ..SessionOptions::default() };
    let session = stage.proxy.handle().open_session(options).unwrap();
    for address in [session.address(), stage.address()] {
        let mut other = tunnel(address, &stage.origin.authority());
        other.write_all(b"SSH-2.0-x\r\n").unwrap();
        eventually("it is passed on", || other.read(&mut [0]).is_ok());
    }
    assert_eq!(
        (session.stats().bypassed_count, session.stats().bypassed),
        (1, vec![(stage.origin.authority(), BypassReason::NotTls)])
    );
    assert_eq!(stage.proxy.stats().interception_bypassed[BypassReason::NotTls as usize], 2);
}
