//! Bodies that break off. Guards against a part that is stored or served as the whole.
//!
//! A body is whole only if END_STREAM, the last chunk or the announced length was received, or if HTTP/1 announces
//! nothing and the connection is closed in an orderly way (RFC 9112 6.3, 8, 9.8).

use std::{fs, os::unix::fs::PermissionsExt as _, thread, time::Duration};

use larder_proxy::{BuildCache, Listener, Mirror, OriginUrl, Parent, Proxy, ProxyConfig, RunningProxy};
use larder_store::{Store, StoreOptions};
use rustls::{
    ClientConnection, StreamOwned,
    pki_types::{CertificateDer, ServerName},
};
use tempfile::TempDir;

use crate::support::{
    Connection, Fixture, Response, body,
    breaking_origin::{BreakingOrigin, BrokenResponse, Ending, Framing},
    certificates::{Made, client_config},
    eventually,
    gate::PATIENCE,
    http2::Http2,
    nodes::Nodes,
    raw_http2::{Outcome, RawHttp2},
    request_text,
    tls_origin::OriginAuthority,
};

const MIB: usize = 1 << 20;
/// A body in one piece, and one in chunks whose last one is short.
const LENGTHS: [usize; 2] = [3000, MIB + 3000];

/// How a proxy reaches the origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Http1,
    Http2,
    /// HTTP/1.1 over TLS.
    Tls,
    /// HTTP/2 over TLS.
    TlsHttp2,
}

impl Protocol {
    fn is_http2(self) -> bool {
        matches!(self, Self::Http2 | Self::TlsHttp2)
    }

    fn is_tls(self) -> bool {
        matches!(self, Self::Tls | Self::TlsHttp2)
    }
}

/// An origin that breaks off, and its URL.
struct Broken {
    origin: BreakingOrigin,
    protocol: Protocol,
    authority: Option<OriginAuthority>,
    _directory: TempDir,
}

impl Broken {
    fn start(protocol: Protocol) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let authority = protocol.is_tls().then(|| OriginAuthority::new(directory.path(), "ca"));
        let tls = authority.as_ref().map(|authority| {
            let mut config = authority.sign(|_| {});
            let offered: &[u8] = if protocol.is_http2() { b"h2" } else { b"http/1.1" };
            config.alpn_protocols = vec![offered.to_vec()];
            config
        });
        let origin = BreakingOrigin::start(tls);
        Self { origin, protocol, authority, _directory: directory }
    }

    fn url(&self) -> OriginUrl {
        let port = self.origin.address.port();
        let url = match self.protocol {
            Protocol::Http1 => format!("http://127.0.0.1:{port}"),
            Protocol::Http2 => format!("h2c://127.0.0.1:{port}"),
            Protocol::Tls | Protocol::TlsHttp2 => format!("https://localhost:{port}"),
        };
        url.parse().unwrap()
    }

    /// Makes a proxy use the origin.
    fn configure(&self, config: &mut ProxyConfig) {
        config.default_origin = Some(self.url());
        config.origin_ca_file = self.authority.as_ref().map(|authority| authority.file.clone());
        config.policy.limits.origin_response = PATIENCE_WITH_ORIGINS;
    }

    /// Returns the responses that end at once and that the protocol permits.
    fn responses(&self) -> Vec<BrokenResponse> {
        let endings: &[Ending] = match self.protocol.is_http2() {
            true => &[
                Ending::Mark,
                Ending::Close,
                Ending::Cut,
                Ending::Reset,
                Ending::StreamReset(0),
                Ending::StreamReset(2),
                Ending::StreamReset(8),
                Ending::GoAway,
                Ending::GoAwayBefore,
            ],
            false => &[Ending::Mark, Ending::Close, Ending::Cut, Ending::Reset],
        };
        self.protocol.responses(endings)
    }
}

impl Protocol {
    /// Returns the responses with these endings that the protocol permits.
    fn responses(self, endings: &[Ending]) -> Vec<BrokenResponse> {
        let framings: &[Framing] = match self.is_http2() {
            true => &[Framing::Length, Framing::Unstated],
            false => &[Framing::Length, Framing::Chunked, Framing::Unstated],
        };
        let mut responses = Vec::new();
        for len in LENGTHS {
            for &framing in framings {
                for sent in [0, len / 2, MIB, len - 1, len] {
                    for &ending in endings {
                        let response = BrokenResponse { framing, len, sent, ending };
                        if sent <= len && self.is_possible(&response) {
                            responses.push(response);
                        }
                    }
                }
            }
        }
        responses
    }

    fn is_possible(self, response: &BrokenResponse) -> bool {
        let BrokenResponse { framing, len, sent, ending } = *response;
        let is_all = framing == Framing::Length && sent == len;
        match ending {
            // Octets may be lost that were sent before.
            Ending::Reset | Ending::GoAwayBefore => !is_all,
            // What has an end mark is not marked before its end, and what has none cannot be marked.
            Ending::Mark => sent == len && (self.is_http2() || framing != Framing::Unstated),
            Ending::Cut => self.is_tls(),
            _ => true,
        }
    }
}

/// The ways of a client to the responses.
trait Way {
    /// Sends a GET. `fields` are additional fields.
    fn get(&mut self, target: &str, fields: &[(&str, &str)]) -> Response;
}

impl<F: FnMut(&str, &[(&str, &str)]) -> Response> Way for F {
    fn get(&mut self, target: &str, fields: &[(&str, &str)]) -> Response {
        self(target, fields)
    }
}

fn http1(address: std::net::SocketAddr) -> impl Way {
    move |target: &str, fields: &[(&str, &str)]| {
        let lines: Vec<String> = fields.iter().map(|(name, value)| format!("{name}: {value}")).collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let mut connection = Connection::open(address);
        connection.send(request_text("GET", target, &lines));
        connection.read_response("GET")
    }
}

fn http2(address: std::net::SocketAddr) -> impl Way {
    let mut client = Http2::plain(address);
    move |target: &str, fields: &[(&str, &str)]| client.get(&format!("http://site.example{target}"), fields)
}

/// Requests every response by a way, and then once more by several ways that must not reach the origin.
fn check(broken: &Broken, prefix: &str, way: &mut dyn Way, later: &mut [&mut dyn Way]) {
    check_responses(broken, &broken.responses(), prefix, (way, later));
}

fn check_responses(
    broken: &Broken,
    responses: &[BrokenResponse],
    prefix: &str,
    (way, later): (&mut dyn Way, &mut [&mut dyn Way]),
) {
    let mut faults = Vec::new();
    for response in responses {
        broken.origin.set(*response);
        let target = format!("{prefix}{response}");
        let found = way.get(&target, &[]);
        let is_whole = response.is_whole(broken.protocol.is_http2());
        let sent = &body(response.len)[..response.sent];
        let is_served = found.status == 200 && found.complete;
        let is_wrong = found.status == 200 && !sent.starts_with(&found.body);
        if is_served != is_whole || (is_served && found.body != sent) || is_wrong {
            faults.push(format!(
                "{target}: {} and {} octets, complete: {}",
                found.status,
                found.body.len(),
                found.complete
            ));
        }
    }
    let count = responses.len();
    assert!(faults.is_empty(), "{} of {count}:\n{}", faults.len(), faults.join("\n"));
    for response in responses {
        let target = format!("{prefix}{response}");
        let is_whole = response.is_whole(broken.protocol.is_http2());
        let sent = &body(response.len)[..response.sent];
        let mut is_stored = false;
        for way in later.iter_mut() {
            let found = way.get(&target, &[("cache-control", "only-if-cached")]);
            is_stored |= found.status == 200;
            if found.status == 200 && (!is_whole || found.body != sent) {
                faults.push(format!("{target} is stored: {} octets", found.body.len()));
            }
        }
        // A commit may take longer than the response.
        if is_whole && !is_stored {
            eventually(&format!("{target} is stored"), || {
                let found = later[0].get(&target, &[("cache-control", "only-if-cached")]);
                found.status == 200 && found.body == sent
            });
        }
    }
    assert!(faults.is_empty(), "{} of {count}:\n{}", faults.len(), faults.join("\n"));
}

struct Stored {
    proxy: RunningProxy,
    _store: Store,
    _home: TempDir,
}

/// Starts a proxy with a store.
fn stored(change: impl FnOnce(&mut ProxyConfig, &TempDir)) -> Stored {
    stored_in(256 << 20, change)
}

fn stored_in(store_bytes: u64, change: impl FnOnce(&mut ProxyConfig, &TempDir)) -> Stored {
    let home = tempfile::tempdir().unwrap();
    let store = Store::open(StoreOptions::new(home.path().join("store"), store_bytes)).unwrap();
    eventually("the store has loaded", || store.stats().loaded);
    let mut config = Fixture::config_to(([127, 0, 0, 1], 9).into());
    config.state_base = Some(home.path().join("state"));
    change(&mut config, &home);
    let proxy = Proxy::start(config, Some(store.clone())).unwrap();
    Stored { proxy, _store: store, _home: home }
}

impl Stored {
    fn address(&self) -> std::net::SocketAddr {
        self.proxy.local_addrs()[0]
    }

    /// Returns a figure of the tier.
    fn metric(&self, name: &str) -> u64 {
        let text = Connection::open_admin(self.proxy.admin_addr().unwrap()).request("GET", "/metrics", &[]).text();
        let value = text.lines().find_map(|line| line.strip_prefix(&format!("larder_tier_{name} ")));
        value.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
    }
}

fn check_clients(protocol: Protocol) {
    let broken = Broken::start(protocol);
    let proxy = stored(|config, _| broken.configure(config));
    check(&broken, "", &mut http1(proxy.address()), &mut [&mut http1(proxy.address()), &mut http2(proxy.address())]);
    let broken = Broken::start(protocol);
    let proxy = stored(|config, _| broken.configure(config));
    check(&broken, "", &mut http2(proxy.address()), &mut [&mut http2(proxy.address())]);
}

#[test]
fn part_from_an_origin_of_http1_is_never_the_whole() {
    check_clients(Protocol::Http1);
}

#[test]
fn part_from_an_origin_of_http2_is_never_the_whole() {
    check_clients(Protocol::Http2);
}

#[test]
fn part_from_an_origin_over_tls_is_never_the_whole() {
    check_clients(Protocol::Tls);
}

#[test]
fn part_from_an_origin_of_http2_over_tls_is_never_the_whole() {
    check_clients(Protocol::TlsHttp2);
}

/// Silence takes all the patience of a proxy, so each response has a proxy of its own, and many wait at once.
#[test]
fn silence_is_never_the_end_of_a_body() {
    let of = |protocol: Protocol| protocol.responses(&[Ending::Silence]).into_iter().map(move |each| (protocol, each));
    let all = [Protocol::Http1, Protocol::Http2, Protocol::Tls, Protocol::TlsHttp2];
    let cases: Vec<_> = all.into_iter().flat_map(of).collect();
    for some in cases.chunks(SILENT_AT_ONCE) {
        thread::scope(|scope| {
            for (number, (protocol, response)) in some.iter().enumerate() {
                scope.spawn(move || {
                    let broken = Broken::start(*protocol);
                    let proxy = stored_in(64 << 20, |config, _| broken.configure(config));
                    let address = proxy.address();
                    let mut way: Box<dyn Way> = match number % 2 {
                        0 => Box::new(http1(address)),
                        _ => Box::new(http2(address)),
                    };
                    check_responses(&broken, &[*response], "", (&mut *way, &mut [&mut http1(address)]));
                });
            }
        });
    }
}

#[test]
fn part_by_a_mirror_is_never_the_whole() {
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let broken = Broken::start(protocol);
        let stored = stored(|config, _| {
            broken.configure(config);
            config.default_origin = None;
            config.mirrors.push(Mirror::of_files("/m", broken.url()));
        });
        check(&broken, "/m", &mut http1(stored.address()), &mut [&mut http1(stored.address())]);
    }
}

#[test]
fn part_does_not_come_back_from_a_tier() {
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let broken = Broken::start(protocol);
        // Too small for the responses, so that most of them are evicted.
        let stored = stored_in(SMALL_STORE_BYTES, |config, home| {
            broken.configure(config);
            config.hot_bytes = 0;
            config.admin = Some("127.0.0.1:0".parse().unwrap());
            config.tier.folder = Some(home.path().join("tier"));
            config.tier.admits_all = true;
            config.tier.pack_age = Duration::from_millis(10);
            config.tier.timeout = PATIENCE;
            fs::create_dir(home.path().join("tier")).unwrap();
        });
        let mut way = http1(stored.address());
        let responses = broken.responses();
        let whole = BrokenResponse { framing: Framing::Length, len: MIB, sent: MIB, ending: Ending::Mark };
        for response in &responses {
            broken.origin.set(*response);
            way.get(&response.to_string(), &[]);
            // Evicts, and gives the tier time for what it got.
            broken.origin.set(whole);
            assert_eq!(way.get(&format!("/filler{response}"), &[]).body, body(MIB));
            eventually("the packs are stored", || stored.metric("waiting_entries") == 0);
        }
        let entries = stored.metric("entries");
        assert!(entries > responses.len() as u64 / 2, "{entries} of {} are in the tier", responses.len());
        for response in &responses {
            let found = way.get(&response.to_string(), &[("cache-control", "only-if-cached")]);
            let is_whole = response.is_whole(protocol.is_http2());
            assert!(found.status == 504 || is_whole, "{response}: {} octets", found.body.len());
            assert!(found.status == 504 || found.body == body(response.len)[..response.sent], "{response}");
        }
        assert!(stored.metric("hits_total") > 0, "some of them come back");
    }
}

#[test]
fn part_from_a_parent_or_through_one_is_never_the_whole() {
    // The parent itself breaks off.
    let broken = Broken::start(Protocol::Http1);
    let below = |address: std::net::SocketAddr| {
        stored(|config, _| {
            broken.configure(config);
            config.default_origin = None;
            config.forward = true;
            config.pseudonym = Some("child".into());
            config.parents = format!("http://{address}").parse::<Parent>().unwrap().into();
        })
    };
    let child = below(broken.origin.address);
    let site = "http://site.example";
    check(&broken, site, &mut http1(child.address()), &mut [&mut http1(child.address())]);
    // The parent's origin breaks off.
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let broken = Broken::start(protocol);
        let parent = stored(|config, _| broken.configure(config));
        let child = below(parent.address());
        check(
            &broken,
            site,
            &mut http1(child.address()),
            &mut [&mut http1(child.address()), &mut http1(parent.address())],
        );
    }
}

#[test]
fn part_through_a_sibling_is_never_the_whole() {
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let broken = Broken::start(protocol);
        let url = broken.url();
        let nodes = Nodes::with(
            |_, _| crate::support::Reply::default(),
            move |config| {
                config.default_origin = Some(url.clone());
                config.policy.limits.origin_response = PATIENCE_WITH_ORIGINS;
            },
        );
        // Each node is asked for keys of all nodes.
        let by = |node: usize| {
            let nodes = &nodes;
            move |target: &str, fields: &[(&str, &str)]| {
                let lines: Vec<String> = fields.iter().map(|(name, value)| format!("{name}: {value}")).collect();
                nodes.get(node, target, &lines.iter().map(String::as_str).collect::<Vec<_>>())
            }
        };
        check(&broken, "", &mut by(0), &mut [&mut by(0), &mut by(1), &mut by(2)]);
    }
}

const TOKEN: &str = "0123456789abcdef";

/// Sends a part of an upload over HTTP/2, and breaks it off.
fn upload_broken(
    (cache, certificate): (&Stored, &CertificateDer<'static>),
    target: &str,
    len: Option<usize>,
    (sent, ending): (&[u8], &str),
) {
    let authorization = format!("Bearer {TOKEN}");
    let length = len.unwrap_or(0).to_string();
    let fields_of = |method: &'static str, target| {
        let request = [(":method", method), (":scheme", "https"), (":authority", "site.example"), (":path", target)];
        [&request[..], &[("authorization", &*authorization)]].concat()
    };
    let mut fields = fields_of("PUT", target);
    if len.is_some() {
        fields.push(("content-length", &length));
    }
    let name = ServerName::try_from("site.example").unwrap();
    let tls = ClientConnection::new(client_config(&[certificate], &["h2"]), name).unwrap();
    let address = cache.proxy.local_addrs()[1];
    let mut client =
        RawHttp2::over(Connection::open(address).wrapped("site.example", |socket| StreamOwned::new(tls, socket)));
    let whole = client.request(&fields_of("PUT", "/c/whole"), "whole");
    assert!(matches!(whole, Outcome::Status(201 | 204)), "{whole:?}");
    client.begin(&fields, sent);
    match ending.strip_prefix("reset-") {
        Some(code) => {
            client.reset(code.parse().unwrap());
            // The connection goes on, so the server could go on with the upload.
            for _ in 0..3 {
                assert_eq!(client.request(&fields_of("GET", target), ""), Outcome::Status(404), "{target}");
            }
        }
        None if ending == "go-away" => client.go_away(),
        None => {}
    }
    client.close();
}

#[test]
fn upload_that_breaks_off_is_not_stored() {
    let directory = tempfile::tempdir().unwrap();
    let made = Made::new(directory.path(), "site", &["site.example"]);
    let cache = stored(|config, home| {
        config.listeners.push(Listener::tls("127.0.0.1:0".parse().unwrap()));
        config.identities.push(made.identity.clone());
        let path = home.path().join("tokens");
        fs::write(&path, format!("write {TOKEN}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        config.build_caches.push(BuildCache { tokens: Some(path), ..BuildCache::at("/c") });
    });
    let authorization = format!("Bearer {TOKEN}");
    let mut targets = Vec::new();
    for len in LENGTHS {
        for sent in [0, len / 2, MIB, len - 1, len] {
            for has_length in [true, false] {
                if sent > len || (has_length && sent == len) {
                    continue;
                }
                for ending in ["reset-0", "reset-2", "reset-8", "go-away", "close"] {
                    let target = format!("/c/h2/{len}/{sent}/{has_length}/{ending}");
                    upload_broken(
                        (&cache, &made.der),
                        &target,
                        has_length.then_some(len),
                        (&body(len)[..sent], ending),
                    );
                    targets.push(target);
                }
                let target = format!("/c/h1/{len}/{sent}/{has_length}");
                let framing =
                    if has_length { format!("Content-Length: {len}") } else { "Transfer-Encoding: chunked".to_owned() };
                let mut client = Connection::open(cache.address());
                client.send(request_text("PUT", &target, &[&framing, &format!("Authorization: {authorization}")]));
                let piece = &body(len)[..sent];
                if has_length {
                    client.send_if_open(piece);
                } else if sent > 0 {
                    client.send_if_open(&[format!("{sent:x}\r\n").as_bytes(), piece, b"\r\n"].concat());
                }
                client.end_sending();
                assert_ne!(client.try_read_head_or_end().map(|head| head.status), Some(201), "{target}");
                targets.push(target);
            }
        }
    }
    let mut client = Connection::open(cache.address());
    for target in targets {
        assert_eq!(client.request("GET", &target, &[]).status, 404, "{target}");
    }
}

const PATIENCE_WITH_ORIGINS: Duration = Duration::from_secs(1);
/// Responses that are silent at the same time, each with a proxy.
const SILENT_AT_ONCE: usize = 30;
const SMALL_STORE_BYTES: u64 = 24 << 20;
