//! The web of the documentation's examples: one origin that stands in for example.com and for the package registries.
//!
//! It listens on port 80, and on port 443 with a certificate that the stage's system trusts. It behaves like the real
//! servers: only a few resources exist and every other path is a 404, lifetimes are those that the servers send,
//! example.com comes from a cache of its own with an Age, and registries take their time.

use rustls::{
    ServerConfig, ServerConnection, StreamOwned,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
};
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpListener,
    sync::Arc,
    thread,
    time::Duration,
};

/// The address that every name resolves to. It is public, so a forward proxy may reach it.
pub(crate) const ADDRESS: &str = "93.184.215.14";

/// The names that exist.
pub(crate) const NAMES: [&str; 18] = [
    "example.com",
    "www.example.com",
    "static.example.com",
    "docs.example.com",
    "games.example.com",
    "downloads.example.com",
    "intranet.example.com",
    "example.org",
    "ads.example",
    "deb.debian.org",
    "security.debian.org",
    "pypi.org",
    "files.pythonhosted.org",
    "registry.npmjs.org",
    "crates.io",
    "index.crates.io",
    "static.crates.io",
    "proxy.golang.org",
];

/// What the origin has at a host and path.
struct Resource {
    hosts: &'static [&'static str],
    path: &'static str,
    kind: &'static str,
    /// Lines of the head that decide how the response may be cached.
    caching: &'static str,
    body: &'static str,
    /// Length of the body on the real server; `body` is followed by spaces.
    length: usize,
}

const RESOURCES: [Resource; 10] = [
    Resource {
        hosts: &["example.com", "www.example.com", "example.org"],
        path: "/",
        kind: "text/html",
        caching: "Cache-Control: max-age=86000\r\nAge: 2351\r\nLast-Modified: Mon, 13 Jan 2025 20:11:20 GMT\r\n",
        body: PAGE,
        length: 1256,
    },
    // Sites of the reader's own.
    page("/", PAGE),
    page("/guide.html", PAGE),
    page("/map.png", PAGE),
    page("/sitemap.xml", SITEMAP),
    Resource {
        hosts: &["static.example.com", "games.example.com", "downloads.example.com", "intranet.example.com"],
        path: "/",
        kind: "text/html",
        caching: "Cache-Control: no-cache\r\n",
        body: PAGE,
        length: PAGE.len(),
    },
    package(&["registry.npmjs.org"], "/is-odd/-/is-odd-3.0.1.tgz", NPM, 2774),
    package(&["registry.npmjs.org"], "/left-pad/-/left-pad-1.3.0.tgz", NPM, 3619),
    package(&["deb.debian.org"], "/debian/pool/main/h/hello/hello_2.10-3_amd64.deb", DEBIAN, 53_092),
    package(
        &["deb.debian.org", "security.debian.org"],
        "/debian-security/dists/bookworm-security/InRelease",
        "Cache-Control: public, max-age=120\r\n",
        48_033,
    ),
];

const NPM: &str = "Cache-Control: public, immutable, max-age=31557600\r\n";
const DEBIAN: &str = "Cache-Control: public, max-age=2592000\r\n";

/// A page of docs.example.com, whose server sends no lifetime.
const fn page(path: &'static str, body: &'static str) -> Resource {
    let caching = "Last-Modified: Wed, 07 Oct 2026 08:00:00 GMT\r\n";
    Resource { hosts: &["docs.example.com"], path, kind: "text/html", caching, body, length: body.len() }
}

/// A file of a registry.
const fn package(hosts: &'static [&'static str], path: &'static str, caching: &'static str, length: usize) -> Resource {
    Resource { hosts, path, kind: "application/octet-stream", caching, body: "", length }
}

/// Hosts whose responses take [`REGISTRY_DELAY`].
const SLOW_HOSTS: [&str; 4] = ["debian.org", "npmjs.org", "pypi.org", "crates.io"];
const REGISTRY_DELAY: Duration = Duration::from_millis(150);

const PAGE: &str = "<!doctype html>\n<title>Example Domain</title>\n<h1>Example Domain</h1>\n";

const SITEMAP: &str = "<?xml version='1.0'?>\n<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9'>\n\
    <url><loc>https://docs.example.com/</loc></url>\n<url><loc>https://docs.example.com/map.png</loc></url>\n</urlset>\n";

/// Starts the origin and returns the certificate that clients must trust, in PEM. Its threads end with the process.
pub(crate) fn start() -> String {
    let made = rcgen::generate_simple_self_signed(NAMES.map(str::to_owned).to_vec()).unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = Arc::new(builder.with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key).unwrap());
    let plain = listen(80);
    let secure = listen(443);
    thread::spawn(move || plain.incoming().for_each(|stream| drop(thread::spawn(move || serve(stream.unwrap())))));
    thread::spawn(move || {
        for stream in secure.incoming() {
            let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
            thread::spawn(move || serve(StreamOwned::new(connection, stream.unwrap())));
        }
    });
    made.cert.pem()
}

fn listen(port: u16) -> TcpListener {
    TcpListener::bind((ADDRESS, port)).unwrap()
}

/// Answers the requests of one connection, until the client closes it.
fn serve(stream: impl Read + Write) {
    let mut stream = BufReader::new(stream);
    loop {
        let mut request = String::new();
        while !request.ends_with("\r\n\r\n") {
            if stream.read_line(&mut request).unwrap_or(0) == 0 {
                return;
            }
        }
        let response = respond(&request);
        let mut discarded = vec![0; body_length(&request)];
        if stream.read_exact(&mut discarded).is_err() || stream.get_mut().write_all(&response).is_err() {
            return;
        }
    }
}

fn body_length(request: &str) -> usize {
    let field = |line: &str| line.to_ascii_lowercase().strip_prefix("content-length:").map(|text| text.trim().parse());
    request.lines().find_map(field).map_or(0, Result::unwrap)
}

/// Returns the value of a request's Host field.
fn host(request: &str) -> &str {
    let line = request.lines().find(|line| line.to_ascii_lowercase().starts_with("host:")).unwrap_or_default();
    let value = line.split_once(':').map_or("", |(_, value)| value.trim());
    value.split(':').next().unwrap_or_default()
}

fn respond(request: &str) -> Vec<u8> {
    let mut words = request.split(' ');
    let method = words.next().unwrap_or_default();
    let path = words.next().unwrap_or_default();
    let host = host(request);
    if SLOW_HOSTS.iter().any(|slow| host.ends_with(slow)) {
        thread::park_timeout(REGISTRY_DELAY);
    }
    let found = RESOURCES.iter().find(|resource| resource.path == path && resource.hosts.contains(&host));
    let Some(resource) = found else {
        let body = "<!doctype html>\n<title>404 Not Found</title>\n";
        let sent = if method == "HEAD" { "" } else { body };
        let head = format!("Content-Type: text/html\r\nContent-Length: {}\r\n", body.len());
        return format!("HTTP/1.1 404 Not Found\r\n{head}\r\n{sent}").into_bytes();
    };
    let Resource { kind, caching, .. } = resource;
    if request.to_ascii_lowercase().contains("if-none-match: \"v1\"") {
        return format!("HTTP/1.1 304 Not Modified\r\n{caching}ETag: \"v1\"\r\n\r\n").into_bytes();
    }
    let body = format!("{:1$}", resource.body, resource.length);
    let fields = format!("Content-Type: {kind}\r\n{caching}ETag: \"v1\"\r\nContent-Length: {}\r\n", body.len());
    let sent = if method == "HEAD" { "" } else { &body };
    format!("HTTP/1.1 200 OK\r\n{fields}\r\n{sent}").into_bytes()
}
