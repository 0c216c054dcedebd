//! The steps of requests, in the access log and in explanations. Guards against an operator who is told something else
//! than what happens.

use std::{
    collections::{HashMap, HashSet},
    fs,
    path::Path,
    sync::Arc,
};

use larder_proxy::{AccessLogTarget, BuildCache, LocalWriters, Mirror, ProxyConfig, Site};
use tempfile::TempDir;

use crate::support::{Connection, Fixture, Received, Reply, eventually};

/// The resources of the origin, and the verdict of the cache once their response is stored.
const RESOURCES: [(&str, &[&str], &str); 5] = [
    ("fresh", &["Cache-Control: max-age=1000", "ETag: \"v1\""], "memory=hit"),
    ("stale", &["Cache-Control: max-age=10", "Age: 20", "ETag: \"v1\""], "cache=validate"),
    (
        "meanwhile",
        &["Cache-Control: max-age=10, stale-while-revalidate=1000", "Age: 20", "ETag: \"v1\""],
        "cache=stale",
    ),
    ("various", &["Cache-Control: max-age=1000", "Vary: X-Kind"], "memory=hit"),
    ("private", &["Cache-Control: no-store", "ETag: \"v1\""], ""),
];

/// A proxy with everything that a request can be for, and its access log.
struct Observed {
    fixture: Fixture,
    directory: TempDir,
}

/// A request as a client sends it, and its URL.
#[derive(Debug)]
struct Sent {
    method: &'static str,
    target: String,
    host: String,
    url: String,
    fields: Vec<String>,
}

impl Observed {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let block = directory.path().join("block");
        fs::write(&block, "ads.example\n").unwrap();
        let log = AccessLogTarget::File(directory.path().join("access.log"));
        let fixture = Fixture::with(respond, |config: &mut ProxyConfig| {
            let url = config.default_origin.take().unwrap();
            let origin = url.to_short_string();
            config.sites = vec![Site::of_host("site.example", Arc::new(url.into()))];
            config.mirrors.push(Mirror::of_files("/m", origin.parse().unwrap()));
            let registry = Mirror::of_files("/v2", format!("{origin}/v2").parse().unwrap());
            config.mirrors.push(Mirror { is_registry: true, ..registry });
            config.build_caches.push(BuildCache { local_writers: LocalWriters::All, ..BuildCache::at("/c") });
            config.lists.block = vec![block];
            config.connect_ports.push(origin.rsplit(':').next().unwrap().parse().unwrap());
            (config.forward, config.access_log) = (true, Some(log));
            config.log_format = "%{X-Number}i %{steps}x".parse().unwrap();
            config.admin = Some(([127, 0, 0, 1], 0).into());
        });
        Self { fixture, directory }
    }

    /// Returns the steps in the explanation of a request.
    fn explain(&self, admin: &mut Connection, sent: &Sent) -> String {
        let method = format!("Larder-Method: {}", sent.method);
        let fields: Vec<&str> = sent.fields.iter().map(String::as_str).chain([&*method]).collect();
        let told = admin.request("EXPLAIN", &sent.url, &fields);
        assert_eq!(told.status, 200, "{sent:?}: {}", told.text());
        let text = told.text();
        let steps = text.lines().find_map(|line| line.strip_prefix("steps    "));
        steps.unwrap_or_else(|| panic!("{sent:?}: {text}")).to_owned()
    }

    /// Sends a request with this number, and returns the status of the response.
    fn send(&self, number: usize, sent: &Sent) -> u16 {
        let Sent { method, target, host, fields, .. } = sent;
        let mut connection = self.fixture.connect();
        let fields: String = fields.iter().map(|field| format!("{field}\r\n")).collect();
        connection.send(format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\nX-Number: {number}\r\n{fields}\r\n"));
        if *method == "CONNECT" { connection.read_head().status } else { connection.read_response(method).status }
    }

    /// Returns the steps of the first `count` requests in the log, by their numbers.
    fn logged(&self, count: usize) -> HashMap<usize, String> {
        let path = self.directory.path().join("access.log");
        let numbered = |line: String| line.split_once(' ').and_then(|(n, steps)| Some((n.parse().ok()?, steps.into())));
        let logged = || -> HashMap<usize, String> { read(&path).into_iter().filter_map(numbered).collect() };
        eventually("all requests are logged", || logged().len() >= count);
        logged()
    }
}

fn read(path: &Path) -> Vec<String> {
    fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
}

fn respond(received: &Received, _: usize) -> Reply {
    let found = RESOURCES.iter().find(|(name, ..)| received.target.contains(name));
    let fields = found.map_or(&["Cache-Control: no-store"][..], |(_, fields, _)| fields);
    if received.method == "HEAD" {
        return Reply::head("200 OK", &[fields, &["Content-Length: 5"]].concat());
    }
    Reply::ok(fields, "hello")
}

/// A sequence of numbers that looks random.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % limit
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

impl Sent {
    fn random(numbers: &mut Numbers, origin: &str, own: &str) -> Self {
        let name = numbers.one_of(&RESOURCES).0;
        let path = format!("/{name}{}", numbers.below(3));
        let usual =
            ["GET", "GET", "GET", "GET", "GET", "GET", "HEAD", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "TRACE"];
        let mut method = numbers.one_of(&usual);
        let to_us = |path: String| (path.clone(), own.to_owned(), format!("http://{own}{path}"));
        let through = |host: &str, path: &str| {
            let url = format!("http://{host}{path}");
            (url.clone(), host.to_owned(), url)
        };
        let (target, host, url) = match numbers.below(16) {
            0..5 => (path.clone(), "site.example".to_owned(), format!("http://site.example{path}")),
            5..8 => through(origin, &path),
            8..10 => to_us(format!("/m{path}")),
            10 => to_us(numbers.one_of(&["/v2/", "/v2/a/manifests/fresh", "/v2/a/blobs/stale"]).to_owned()),
            11 => to_us(format!("/c{path}")),
            12 => through("ads.example", &path),
            13 => through("10.1.2.3", &path),
            14 => to_us(numbers.one_of(&["/proxy.pac", "/wpad.dat", "/none"]).to_owned()),
            _ => {
                method = "CONNECT";
                let target = numbers.one_of(&[origin, "ads.example:443", "site.example:444", "10.1.2.3:443"]);
                (target.to_owned(), target.to_owned(), format!("http://{target}/"))
            }
        };
        let mut fields = Vec::new();
        for _ in 0..numbers.below(3) {
            let field = numbers.one_of(&[
                "Range: bytes=1-2",
                "Range: bytes=-3",
                "If-None-Match: \"v1\"",
                "If-None-Match: \"v0\"",
                "If-Match: \"v0\"",
                "Cache-Control: no-cache",
                "Cache-Control: no-store",
                "Cache-Control: only-if-cached",
                "Cache-Control: max-age=0",
                "Cache-Control: max-stale",
                "X-Kind: 1",
                "Accept-Encoding: gzip",
                "Authorization: Basic YTph",
                "Max-Forwards: 0",
            ]);
            let name = field.split(':').next().unwrap();
            if !fields.iter().any(|known: &String| known.starts_with(name)) {
                fields.push(field.to_owned());
            }
        }
        Self { method, target, host, url, fields }
    }

    /// Returns the GET that finds what a fetch for this request stores, and its verdict.
    fn stored(&self) -> Option<(Self, &'static str)> {
        let verdict = RESOURCES.iter().find(|(name, ..)| self.url.contains(name))?.2;
        let fields = self.fields.iter().filter(|field| field.starts_with("X-Kind")).cloned().collect();
        let get =
            Self { method: "GET", target: self.target.clone(), host: self.host.clone(), url: self.url.clone(), fields };
        (!verdict.is_empty()).then_some((get, verdict))
    }
}

#[test]
fn explanations_foretell_the_steps_of_a_thousand_requests() {
    let observed = Observed::new();
    let origin = observed.fixture.origin.address.to_string();
    let own = observed.fixture.proxy.local_addrs()[0].to_string();
    let mut admin = Connection::open_admin(observed.fixture.proxy.admin_addr().unwrap());
    let mut numbers = Numbers(0x9E37_79B9_7F4A_7C15);
    let mut foretold = Vec::new();
    for number in 0..1000 {
        let sent = Sent::random(&mut numbers, &origin, &own);
        let steps = observed.explain(&mut admin, &sent);
        observed.send(number, &sent);
        // A shared cache stores no response to a request with credentials.
        let is_personal = sent.fields.iter().any(|field| field.starts_with("Authorization"));
        let is_fetched = steps.contains(",fetch,") && !steps.contains("cache=validate") && !is_personal;
        if let Some((get, verdict)) = sent.stored().filter(|_| is_fetched) {
            let what = format!("the response is stored: {steps} for {sent:?}");
            eventually(&what, || observed.explain(&mut admin, &get).contains(verdict));
        }
        foretold.push((sent, steps));
    }
    let logged = observed.logged(foretold.len());
    let wrong: Vec<_> = foretold
        .iter()
        .enumerate()
        .filter(|(number, (_, steps))| logged[number] != *steps)
        .map(|(number, (sent, steps))| format!("{sent:?}\n  told   {steps}\n  logged {}", logged[&number]))
        .collect();
    assert!(wrong.is_empty(), "{} of 1000 differ:\n{}", wrong.len(), wrong.join("\n"));
    let kinds: HashSet<&String> = logged.values().collect();
    assert!(kinds.len() >= 25, "the requests take many ways: {kinds:#?}");
}

/// The walks are declared in the rows of `request::steps`. A health check and a request for the log of purges also lead
/// from `resolve` to `own`, but are not logged.
#[test]
fn requests_of_every_kind_take_their_declared_steps() {
    let observed = Observed::new();
    let origin = observed.fixture.origin.address;
    let site = "HTTP/1.1\r\nHost: site.example\r\n";
    let connect = format!("CONNECT {origin} HTTP/1.1\r\nHost: {origin}\r\n");
    let long = format!("GET /{} {site}", "x".repeat(20_000));
    let websocket = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x3JJHMbDL1EzLkh9GBhXDw==\r\n";
    let cases = [
        ("GET / HTTP/1.1\r\nHost: a b\r\n", "gate=failed,deliver"),
        ("GET /c/../x HTTP/1.1\r\nHost: larder\r\n", "gate,resolve=failed,deliver"),
        (&format!("GET /fresh {site}"), "gate,resolve,memory=miss,admit,cache=miss,fetch,deliver"),
        (&format!("GET /fresh {site}"), "gate,resolve,memory=hit,deliver"),
        ("GET /m/fresh HTTP/1.1\r\nHost: larder\r\n", "gate,resolve=mirror,memory=miss,admit,cache=miss,fetch,deliver"),
        ("GET /v2/ HTTP/1.1\r\nHost: larder\r\n", "gate,resolve=registry,memory=unsuited,own,deliver"),
        ("GET /c/a HTTP/1.1\r\nHost: larder\r\n", "gate,resolve=build-cache,memory=miss,admit,cache=offline,deliver"),
        ("PUT /c/a HTTP/1.1\r\nHost: larder\r\n", "gate,resolve=build-cache,memory=unsuited,admit,own,deliver"),
        ("GET /proxy.pac HTTP/1.1\r\nHost: larder\r\n", "gate,resolve,memory=unsuited,own,deliver"),
        (&format!("GET /a {site}{websocket}"), "gate,resolve,memory=miss,switch,deliver"),
        (&connect, "gate,resolve,memory=unsuited,tunnel"),
        ("CONNECT ads.example:443 HTTP/1.1\r\nHost: a\r\n", "gate,resolve,memory=unsuited,tunnel=failed,deliver"),
        ("GET http://ads.example/ HTTP/1.1\r\nHost: a\r\n", "gate,resolve,memory=unsuited,admit=failed,deliver"),
        (&long, "gate,resolve,memory=unsuited,admit,pass,deliver"),
        (&format!("POST /fresh {site}"), "gate,resolve,memory=unsuited,admit,change,deliver"),
        (&format!("OPTIONS / {site}Max-Forwards: 0\r\n"), "gate,resolve,memory=unsuited,admit,own,deliver"),
        (
            &format!("GET /b {site}Cache-Control: only-if-cached\r\n"),
            "gate,resolve,memory=miss,admit,cache=only-if-cached,deliver",
        ),
        (
            &format!("GET /b {site}Cache-Control: no-store\r\n"),
            "gate,resolve,memory=miss,admit,cache=bypass,pass,deliver",
        ),
    ];
    for (number, (head, _)) in cases.iter().enumerate() {
        let mut connection = observed.fixture.connect();
        connection.send(format!("{head}X-Number: {number}\r\n\r\n"));
        let head = connection.read_head();
        assert!(head.status >= 200, "{head:?}");
        if number == 2 {
            observed.fixture.wait_for_hit("/fresh", &[]);
        }
    }
    let logged = observed.logged(cases.len());
    let logged = cases.iter().enumerate().map(|(number, (head, _))| (*head, logged[&number].as_str()));
    let logged: Vec<_> = logged.collect();
    assert_eq!(logged, cases);
}
