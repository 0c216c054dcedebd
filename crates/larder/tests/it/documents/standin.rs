//! The web of the documentation's examples: one origin that stands in for example.com and for the package registries.
//!
//! It listens on port 80, and on port 443 with a certificate that the stage's system trusts. Every path exists. The name
//! of a file decides its type and its lifetime: packages have a validator and no lifetime, as on most servers.

use rustls::{
    ServerConfig, ServerConnection, StreamOwned,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
};
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpListener,
    sync::Arc,
    thread,
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

const PAGE: &str = "<!doctype html>\n<title>Example Domain</title>\n<h1>Example Domain</h1>\n";

const SITEMAP: &str = "<?xml version='1.0'?>\n<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9'>\n\
    <url><loc>https://example.com/</loc></url>\n<url><loc>https://example.com/map.png</loc></url>\n</urlset>\n";

/// Length of this package on the real registry.
const IS_ODD_BYTES: usize = 2774;

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

fn respond(request: &str) -> Vec<u8> {
    let mut words = request.split(' ');
    let method = words.next().unwrap_or_default();
    let path = words.next().unwrap_or_default();
    let is_confirmed = request.to_ascii_lowercase().contains("if-none-match: \"v1\"");
    let (kind, caching) = match path.rsplit_once('.').map(|(_, extension)| extension) {
        _ if path.starts_with("/account") => ("text/html", "Cache-Control: private\r\n"),
        Some("css") => ("text/css", "Cache-Control: max-age=86400\r\n"),
        Some("js") => ("text/javascript", "Cache-Control: max-age=86400\r\n"),
        Some("deb" | "iso" | "gz" | "whl" | "tgz" | "zip") => {
            ("application/octet-stream", "Last-Modified: Wed, 07 Oct 2026 08:00:00 GMT\r\n")
        }
        _ => ("text/html", "Cache-Control: max-age=86400\r\n"),
    };
    let status = if is_confirmed { "304 Not Modified" } else { "200 OK" };
    let page = match path {
        "/sitemap.xml" => SITEMAP,
        "/is-odd/-/is-odd-3.0.1.tgz" => &" ".repeat(IS_ODD_BYTES),
        _ => PAGE,
    };
    let body = if is_confirmed { "" } else { page };
    let fields = format!("Content-Type: {kind}\r\n{caching}ETag: \"v1\"\r\nContent-Length: {}\r\n", body.len());
    let fields = if is_confirmed { format!("{caching}ETag: \"v1\"\r\n") } else { fields };
    let sent = if method == "HEAD" { "" } else { body };
    format!("HTTP/1.1 {status}\r\n{fields}\r\n{sent}").into_bytes()
}
