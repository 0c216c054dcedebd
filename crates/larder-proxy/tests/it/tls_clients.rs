//! TLS towards clients: certificates by name, reloaded when they change, and errors at the start.

use std::{
    io::{BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    sync::Arc,
};

use larder_proxy::{Listener, Mirror, Proxy, ProxyConfig, TlsIdentity};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme, StreamOwned,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    pki_types::{CertificateDer, ServerName, UnixTime},
};

use crate::support::{
    Fixture, Received, Reply,
    certificates::{Made, client_config},
    eventually,
    http2::Http2,
};

fn storable(received: &Received, _: usize) -> Reply {
    Reply::ok(&["Cache-Control: max-age=60"], &received.target)
}

/// Starts a proxy with a plain listener and one with TLS.
fn fixture(identities: Vec<TlsIdentity>) -> (Fixture, SocketAddr) {
    let fixture = Fixture::with(storable, |config| {
        config.listeners.push(Listener::tls("127.0.0.1:0".parse().unwrap()));
        config.identities = identities;
        config.forward = false;
    });
    let address = fixture.proxy.local_addrs()[1];
    (fixture, address)
}

type Stream = BufReader<StreamOwned<ClientConnection, TcpStream>>;

fn connect(address: SocketAddr, name: &str, config: Arc<ClientConfig>) -> Stream {
    let connection = ClientConnection::new(config, ServerName::try_from(name.to_owned()).unwrap()).unwrap();
    BufReader::new(StreamOwned::new(connection, TcpStream::connect(address).unwrap()))
}

/// Sends a GET over a TLS connection, and reads a body of known length to its end.
fn get(stream: &mut Stream, target: &str) -> std::io::Result<String> {
    write!(stream.get_mut(), "GET {target} HTTP/1.1\r\nHost: site.example\r\n\r\n")?;
    let mut text = String::new();
    while !text.ends_with("\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        text.push(byte[0].into());
    }
    let length =
        text.to_ascii_lowercase().split("content-length: ").nth(1).unwrap().lines().next().unwrap().parse().unwrap();
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    Ok(text + &String::from_utf8(body).unwrap())
}

/// Returns the certificate that a client receives if it requests `name`.
fn shown(address: SocketAddr, name: &str, trusted: &[&CertificateDer<'static>]) -> CertificateDer<'static> {
    let mut stream = connect(address, name, client_config(trusted, &[]));
    get(&mut stream, "/").unwrap();
    stream.get_ref().conn.peer_certificates().unwrap()[0].clone()
}

#[test]
fn both_protocols_are_served_and_do_not_mix_with_plain_ones() {
    let directory = tempfile::tempdir().unwrap();
    let made = Made::new(directory.path(), "a", &["site.example"]);
    let (fixture, address) = fixture(vec![made.identity.clone()]);
    let mut http1 = connect(address, "site.example", client_config(&[&made.der], &["http/1.1"]));
    let first = get(&mut http1, "/x").unwrap();
    assert!(first.contains("200 OK") && first.ends_with("/x"), "{first}");
    let mut http2 = Http2::tls(address, "site.example", client_config(&[&made.der], &["h2"]));
    eventually("it is a hit over HTTP/2", || http2.get("https://site.example/x", &[]).is_hit());
    assert_eq!(fixture.origin.count(), 1);
    // The plain resource is a different one (RFC 9110 4.2.3), whatever the client claims.
    assert!(!fixture.get("https://site.example/x", &[]).is_hit());
    assert!(fixture.get_hit("/x", &[]).is_hit());
    assert_eq!(fixture.origin.count(), 2);
}

#[test]
fn certificate_is_chosen_by_name_and_the_first_is_for_all_others() {
    let directory = tempfile::tempdir().unwrap();
    let names = [("a", &["a.example", "127.0.0.1"][..]), ("b", &["b.example", "*.b.example"])];
    let [a, b] = names.map(|(file, names)| Made::new(directory.path(), file, names));
    let (_fixture, address) = fixture(vec![a.identity.clone(), b.identity.clone()]);
    let trusted = [&a.der, &b.der];
    for (name, made) in
        [("a.example", &a), ("b.example", &b), ("B.example", &b), ("x.b.example", &b), ("127.0.0.1", &a)]
    {
        assert!(shown(address, name, &trusted) == made.der, "{name}");
    }
}

#[test]
fn changed_files_are_read_again_and_open_connections_stay() {
    let directory = tempfile::tempdir().unwrap();
    let before = Made::new(directory.path(), "a", &["site.example"]);
    let (_fixture, address) = fixture(vec![before.identity.clone()]);
    let mut open = connect(address, "site.example", client_config(&[&before.der], &[]));
    get(&mut open, "/before").unwrap();
    // Invalid for a while, as when one file is replaced before the other.
    std::fs::write(&before.identity.key, "no key").unwrap();
    assert!(shown(address, "site.example", &[&before.der]) == before.der);
    let after = Made::new(directory.path(), "a", &["site.example"]);
    let trusted = [&before.der, &after.der];
    eventually("the new certificate is shown", || shown(address, "site.example", &trusted) == after.der);
    assert!(get(&mut open, "/after").unwrap().ends_with("/after"));
}

#[test]
fn what_is_no_certificate_or_key_is_an_error_at_start() {
    let directory = tempfile::tempdir().unwrap();
    let [a, b] = ["a", "b"].map(|file| Made::new(directory.path(), file, &["site.example"]).identity);
    let text = directory.path().join("text");
    std::fs::write(&text, "hello").unwrap();
    let missing = directory.path().join("none.pem");
    for (identities, told) in [
        (vec![], "needs a certificate"),
        (vec![TlsIdentity { certificate: missing.clone(), ..a.clone() }], missing.to_str().unwrap()),
        (vec![TlsIdentity { certificate: text.clone(), ..a.clone() }], "no certificate in PEM form"),
        (vec![TlsIdentity { key: text.clone(), ..a.clone() }], "cannot read private key"),
        (vec![TlsIdentity { key: b.key.clone(), ..a.clone() }], "does not match its certificate"),
    ] {
        let listeners = vec![Listener::tls("127.0.0.1:0".parse().unwrap())];
        let config = ProxyConfig { listeners, identities, ..ProxyConfig::default() };
        let error = Proxy::start(config, None).err().expect(told).to_string();
        assert!(error.contains(told), "{error}");
    }
}

#[test]
fn client_that_does_not_speak_tls_is_cut_off() {
    let directory = tempfile::tempdir().unwrap();
    let made = Made::new(directory.path(), "a", &["site.example"]);
    let (fixture, address) = fixture(vec![made.identity]);
    let mut plain = crate::support::Connection::open(address);
    plain.send("GET / HTTP/1.1\r\nHost: site.example\r\n\r\n");
    plain.read_exact(1);
    assert_eq!(fixture.origin.count(), 0);
}

#[test]
fn handshake_and_proxy_header_that_never_end_are_cut_off() {
    let directory = tempfile::tempdir().unwrap();
    let made = Made::new(directory.path(), "a", &["site.example"]);
    let fixture = Fixture::with(storable, |config| {
        let proxied_by = vec!["127.0.0.0/8".parse().unwrap()];
        config.listeners = vec![
            Listener::tls("127.0.0.1:0".parse().unwrap()),
            Listener { proxied_by, ..Listener::plain("127.0.0.1:0".parse().unwrap()) },
        ];
        config.identities = vec![made.identity.clone()];
        config.limits.header = std::time::Duration::ZERO;
    });
    // The beginning of a handshake, and of a PROXY header of version 2.
    for (address, begin) in
        fixture.proxy.local_addrs().iter().zip([&b"\x16\x03\x01\x02\x00\x01"[..], b"\r\n\r\n\0\r\nQ"])
    {
        let mut slow = crate::support::Connection::open(*address);
        slow.send(begin);
        assert!(slow.is_closed());
    }
}

/// Sends a GET for any host. Returns only the status.
fn status_of(stream: &mut Stream, host: &str) -> String {
    write!(stream.get_mut(), "GET /{host} HTTP/1.1\r\nHost: {host}\r\n\r\n").unwrap();
    let mut text = String::new();
    while !text.ends_with("\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        text.push(byte[0].into());
    }
    let length = text.to_ascii_lowercase().split("content-length: ").nth(1).unwrap().lines().next().unwrap().parse();
    stream.read_exact(&mut vec![0; length.unwrap()]).unwrap();
    text.split(' ').nth(1).unwrap().to_owned()
}

/// RFC 9110 7.4. Otherwise, the owner of one name's certificate would receive responses of another's site.
#[test]
fn request_for_a_name_that_the_connection_does_not_speak_for_is_misdirected() {
    let directory = tempfile::tempdir().unwrap();
    let one = Made::new(directory.path(), "a", &["a.example", "*.a.example", "both.example"]);
    let other = Made::new(directory.path(), "b", &["b.example", "both.example"]);
    let (fixture, address) = fixture(vec![one.identity.clone(), other.identity.clone()]);
    let config = || client_config(&[&one.der, &other.der], &["http/1.1"]);
    let mut by_b = connect(address, "b.example", config());
    assert_eq!(status_of(&mut by_b, "b.example"), "200");
    let mut by_a = connect(address, "a.example", config());
    let hosts =
        [("a.example", "200"), ("A.example:443", "200"), ("x.a.example", "200"), ("both.example", "200")].into_iter();
    for (host, status) in hosts.chain([("b.example", "421"), ("c.example", "421"), ("a.example", "200")]) {
        assert_eq!(status_of(&mut by_a, host), status, "{host}");
    }
    assert_eq!(status_of(&mut by_b, "both.example"), "200", "though the first certificate has it too");
    assert_eq!(status_of(&mut by_b, "a.example"), "421", "also of what is in memory");
    assert_eq!(fixture.origin.count(), 5);
}

/// Connects as a client whose handshake names `name` or no host, and which accepts any certificate, like `curl -k`.
fn unverified(address: SocketAddr, name: &str) -> Stream {
    let mut config = Arc::unwrap_or_clone(client_config(&[], &["http/1.1"]));
    config.dangerous().set_certificate_verifier(Arc::new(AnyCertificate));
    connect(address, name, Arc::new(config))
}

#[derive(Debug)]
struct AnyCertificate;

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        rustls::crypto::ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

/// RFC 9110 7.4. Guards against a client without a name in its handshake, or with an unknown one, that is served any
/// host.
#[test]
fn host_that_the_certificate_in_use_does_not_cover_is_misdirected_whatever_the_handshake_named() {
    let directory = tempfile::tempdir().unwrap();
    let one = Made::new(directory.path(), "a", &["a.example", "*.a.example", "127.0.0.1"]);
    let other = Made::new(directory.path(), "b", &["b.example"]);
    let (fixture, address) = fixture(vec![one.identity.clone(), other.identity.clone()]);
    // A handshake never names an address; other clients receive the first certificate.
    for name in ["127.0.0.1", "nobody.example"] {
        let mut stream = unverified(address, name);
        for (host, status) in [
            ("a.example", "200"),
            ("a.example.", "200"),
            ("x.a.example", "200"),
            ("127.0.0.1", "200"),
            ("x.y.a.example", "421"),
            ("*.a.example", "421"),
            ("b.example", "421"),
            ("nobody.example", "421"),
            ("127.0.0.2", "421"),
            ("[::1]", "421"),
        ] {
            assert_eq!(status_of(&mut stream, host), status, "{host} by {name}");
        }
    }
    let mut http2 = Http2::tls(address, "b.example", client_config(&[&other.der], &["h2"]));
    for (host, status) in [("b.example", 200), ("a.example", 421), ("nobody.example", 421)] {
        assert_eq!(http2.get(&format!("https://{host}/x"), &[]).status, status, "{host} over HTTP/2");
    }
    assert_eq!(
        fixture.origin.count(),
        5,
        "four by the first connection, which the second gets from the cache, and one over HTTP/2"
    );
}

/// Guards against a mirror's path over TLS that is served under any name.
#[test]
fn request_by_a_mirrors_path_is_misdirected_like_any_other() {
    let directory = tempfile::tempdir().unwrap();
    let made = Made::new(directory.path(), "a", &["a.example"]);
    let fixture = Fixture::with(storable, |config| {
        config.listeners.push(Listener::tls("127.0.0.1:0".parse().unwrap()));
        config.identities = vec![made.identity.clone()];
        let origin = config.default_origin.take().unwrap();
        // The mirror's path is the host, because `status_of` requests that path.
        config.mirrors.extend(["/a.example", "/b.example"].map(|path| Mirror::of_files(path, origin.clone())));
        config.forward = true;
    });
    let mut stream = unverified(fixture.proxy.local_addrs()[1], "127.0.0.1");
    assert_eq!(status_of(&mut stream, "a.example"), "200");
    assert_eq!(status_of(&mut stream, "b.example"), "421");
    assert_eq!(fixture.origin.count(), 1);
}

/// Guards against requests without TLS, served by a listener that has used TLS since an upgrade.
#[test]
fn connection_that_is_handed_over_without_tls_is_closed_where_its_listener_has_tls_now() {
    let directory = tempfile::tempdir().unwrap();
    let made = Made::new(directory.path(), "a", &["site.example"]);
    let listener = Listener::tls("127.0.0.1:0".parse().unwrap());
    let fixture = Fixture::with(storable, |config| {
        config.listeners = vec![listener.clone()];
        config.identities = vec![made.identity.clone()];
        config.forward = false;
    });
    let between = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let adopted = |client: Option<SocketAddr>| {
        let own = TcpStream::connect(between.local_addr().unwrap()).unwrap();
        let (socket, _) = between.accept().unwrap();
        fixture.proxy.handle().adopt(larder_proxy::ClientConnection { listener: listener.address, client, socket });
        own
    };
    let mut plain = adopted(Some("192.0.2.1:1".parse().unwrap()));
    // It may be closed already.
    let _ = plain.write_all(b"GET /x HTTP/1.1\r\nHost: site.example\r\n\r\n");
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer);
    assert!(answer.is_empty(), "{}", String::from_utf8_lossy(&answer));
    // A client that has sent nothing yet begins with the handshake.
    let config = client_config(&[&made.der], &["http/1.1"]);
    let connection = ClientConnection::new(config, ServerName::try_from("site.example").unwrap()).unwrap();
    let mut unread = BufReader::new(StreamOwned::new(connection, adopted(None)));
    assert!(get(&mut unread, "/x").unwrap().ends_with("/x"));
}
