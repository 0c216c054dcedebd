//! Origins over TLS: contacted only if they present a trusted certificate for their name.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::{SocketAddr, TcpListener},
    path::Path,
    sync::Arc,
};

use larder_proxy::ProxyConfig;
use rustls::{
    ServerConfig, ServerConnection, StreamOwned,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};

use crate::support::{Fixture, Reply, Response};

const AUTHORITY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/tls/ca.pem");

/// Starts an origin that answers every request on a TLS connection for `localhost` with its target.
fn secure_origin() -> SocketAddr {
    let certificate = CertificateDer::from_pem_slice(include_bytes!("tls/leaf.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_slice(include_bytes!("tls/leaf.key")).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = Arc::new(builder.with_no_client_auth().with_single_cert(vec![certificate], key).unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let config = Arc::clone(&config);
            std::thread::spawn(move || {
                let connection = ServerConnection::new(config).unwrap();
                let mut stream = BufReader::new(StreamOwned::new(connection, socket.unwrap()));
                loop {
                    let mut head = String::new();
                    // A client that refuses the certificate ends the handshake.
                    while !head.ends_with("\r\n\r\n") {
                        if !stream.read_line(&mut head).is_ok_and(|count| count > 0) {
                            return;
                        }
                    }
                    let body = head.split_whitespace().nth(1).unwrap();
                    let text = format!(
                        "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: {}\r\n\r\n{body}",
                        body.len()
                    );
                    stream.get_mut().write_all(text.as_bytes()).unwrap();
                }
            });
        }
    });
    address
}

fn fixture(host: &str, change: impl FnOnce(&mut ProxyConfig)) -> Fixture {
    let url = format!("https://{host}:{}", secure_origin().port()).parse().unwrap();
    Fixture::with(
        |_, _| Reply::default(),
        |config| {
            config.default_origin = Some(url);
            change(config);
        },
    )
}

#[test]
fn origin_with_a_certificate_of_an_added_authority_is_reached() {
    let fixture = fixture("localhost", |config| config.origin_ca_file = Some(Path::new(AUTHORITY).into()));
    // A client connection is served by one worker, which has its own connections to origins.
    let mut connection = fixture.connect();
    for target in ["/a", "/b", "/a"] {
        assert_eq!(connection.request("GET", target, &[]).text(), target);
    }
    assert!(fixture.get_hit("/a", &[]).is_hit());
    assert_eq!(fixture.proxy.stats().origin_connections, 1);
}

#[test]
fn origin_with_an_unknown_authority_is_refused() {
    let refused = fixture("localhost", |_| {}).get("/", &[]);
    check_refused(&refused);
}

#[test]
fn origin_with_a_certificate_for_another_name_is_refused() {
    let fixture = fixture("127.0.0.1", |config| config.origin_ca_file = Some(Path::new(AUTHORITY).into()));
    let refused = fixture.get("/", &[]);
    check_refused(&refused);
}

#[track_caller]
fn check_refused(refused: &Response) {
    let said = refused.field("proxy-status").unwrap();
    assert_eq!((refused.status, said.contains(";error=tls_certificate_error;")), (502, true), "{said}");
    assert!(refused.text().contains("its certificate cannot be trusted: "), "{}", refused.text());
}

#[test]
fn authority_file_that_cannot_be_read_is_an_error_at_start() {
    let directory = tempfile::tempdir().unwrap();
    let missing = directory.path().join("ca.pem");
    let config = ProxyConfig { origin_ca_file: Some(missing.clone()), ..ProxyConfig::default() };
    let error = larder_proxy::Proxy::start(config, None).err().expect("the file does not exist");
    assert!(error.to_string().contains(missing.to_str().unwrap()), "{error}");
}
