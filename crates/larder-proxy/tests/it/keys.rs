//! Keys name the origin that answered: whatever Host a client sends, it never receives another origin's response.

use std::{fmt::Write as _, sync::Arc};

use larder_proxy::{Mirror, OriginUrl, Site};

use crate::support::{Connection, Fixture, Origin, Reply};

/// Starts an origin that includes its name and the request in each response.
fn telling(name: &'static str) -> Origin {
    Origin::start(move |received, _| Reply::ok(&["Cache-Control: max-age=600"], format!("{name} {}", received.target)))
}

fn url(origin: &Origin) -> OriginUrl {
    format!("http://{}", origin.address).parse().unwrap()
}

/// A proxy with a default origin, a site with paths only, a site with a host, and two mirrors.
struct Stage {
    fixture: Fixture,
    by_path: Origin,
    by_host: Origin,
    mirrors: [Origin; 2],
}

impl Stage {
    fn new(forward: bool) -> Self {
        let by_path = telling("by-path");
        let by_host = telling("by-host");
        let mirrors = [telling("m0"), telling("m1")];
        let fixture = Fixture::with(
            |received, _| Reply::ok(&["Cache-Control: max-age=600"], format!("default {}", received.target)),
            |config| {
                let at = |origin: &Origin| Some(Arc::new(url(origin).into()));
                let by_path = Site { paths: vec!["/app".into()], origins: at(&by_path), ..Site::default() };
                let by_host = Site::of_host("h.example", at(&by_host).unwrap());
                config.sites = vec![by_path, by_host];
                config.mirrors = vec![
                    Mirror::of_files("/m0", url(&mirrors[0])),
                    Mirror::of_files("/m1", format!("{}/app", url(&mirrors[1]).to_short_string()).parse().unwrap()),
                ];
                config.forward = forward;
            },
        );
        Self { fixture, by_path, by_host, mirrors }
    }

    /// Returns Host names that a client may send, including those of the servers behind the mirrors and sites.
    fn hosts(&self) -> Vec<String> {
        let addresses = [&self.by_path, &self.by_host, &self.mirrors[0], &self.mirrors[1], &self.fixture.origin];
        let addresses = addresses.map(|origin| origin.address.to_string());
        addresses.into_iter().chain(["site.example".into(), "h.example".into(), "H.Example:80".into()]).collect()
    }

    /// Returns the expected response to a request to the reverse proxy itself.
    fn own(host: &str, path: &str) -> String {
        let is_below = |start: &str| path == start || path.starts_with(&format!("{start}/"));
        if is_below("/app") {
            format!("by-path {path}")
        } else if host.to_ascii_lowercase().starts_with("h.example") {
            format!("by-host {path}")
        } else if is_below("/m0") {
            format!("m0 {}", &path[3..])
        } else if is_below("/m1") {
            format!("m1 /app{}", &path[3..])
        } else {
            format!("default {path}")
        }
    }

    /// Returns the expected response to a request for a server through the forward proxy.
    fn forwarded(&self, host: &str, path: &str) -> String {
        let own = Self::own(host, path);
        if own.starts_with("by-") {
            return own;
        }
        let named = [&self.by_path, &self.by_host, &self.mirrors[0], &self.mirrors[1], &self.fixture.origin];
        let names = ["by-path", "by-host", "m0", "m1", "default"];
        let at = named.iter().position(|origin| origin.address.to_string() == host).expect("it can be reached");
        format!("{} {path}", names[at])
    }
}

/// Requests a few paths under many names in random order. Returns the wrong responses and the number of hits.
fn ask(stage: &Stage, forward: bool, count: usize, seed: u64) -> (Vec<String>, usize) {
    let mut state = seed;
    let hosts = stage.hosts();
    let paths = ["/a", "/app/a", "/m0/a", "/m0/app/a", "/m1/a", "/m1/app/a", "/b?c=d"];
    // SplitMix64.
    let mut pick = |count: usize| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) as usize % count
    };
    let mut connection = stage.fixture.connect();
    let mut wrong = Vec::new();
    let mut hits = 0;
    for _ in 0..count {
        let host = &hosts[pick(hosts.len())];
        let path = paths[pick(paths.len())];
        let is_through = forward && pick(2) == 0 && host.parse::<std::net::SocketAddr>().is_ok();
        let mut text = String::new();
        let (target, expected) = match is_through {
            // The target counts, not Host (RFC 9112 3.2.2).
            true => (format!("http://{host}{path}"), stage.forwarded(host, path)),
            false => (path.to_owned(), Stage::own(host, path)),
        };
        let sent = if is_through { &hosts[pick(hosts.len())] } else { host };
        write!(text, "GET {target} HTTP/1.1\r\nHost: {sent}\r\n\r\n").unwrap();
        connection.send(text);
        let response = connection.read_response("GET");
        hits += usize::from(response.is_hit());
        if response.text() != expected {
            wrong.push(format!("{target} with Host {sent}: {} in place of {expected}", response.text()));
        }
    }
    (wrong, hits)
}

#[test]
fn none_of_thousands_of_requests_under_any_host_gets_another_origins_response() {
    for forward in [false, true] {
        let stage = Stage::new(forward);
        let (wrong, hits) = ask(&stage, forward, 4_000, 30);
        assert!(wrong.is_empty(), "{} wrong, the first: {}", wrong.len(), wrong[0]);
        assert!(hits > 3_000, "{hits} hits");
        println!("forward {forward}: 4000 requests, {} wrong, {hits} hits", wrong.len());
    }
}

#[test]
fn origin_that_takes_anothers_place_answers_for_itself() {
    let first = telling("first");
    let fixture = Fixture::with(
        |received, _| Reply::ok(&["Cache-Control: max-age=600"], format!("second {}", received.target)),
        |config| config.default_origin = Some(url(&first)),
    );
    fixture.get("/", &[]);
    assert_eq!(fixture.get_hit("/", &[]).text(), "first /");
    let fixture = fixture.restart();
    assert_eq!(fixture.get("/", &[]).text(), "second /");
}

#[test]
fn operators_find_what_any_origin_answered_by_its_url() {
    let mirrored = telling("mirrored");
    let fixture = Fixture::with(
        |received, _| Reply::ok(&["Cache-Control: max-age=600"], format!("default {}", received.target)),
        |config| {
            config.mirrors = vec![Mirror::of_files("/m", url(&mirrored))];
            config.admin = Some(([127, 0, 0, 1], 0).into());
        },
    );
    let host = mirrored.address.to_string();
    let get = |path: &str| {
        let mut connection = fixture.connect();
        connection.send(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        connection.read_response("GET")
    };
    let store = |path: &str, expected: &str| {
        assert_eq!(get(path).text(), expected);
        crate::support::eventually("it is a hit", || get(path).is_hit());
    };
    store("/a", "default /a");
    store("/m/a", "mirrored /a");
    let mut admin = Connection::open_admin(fixture.proxy.admin_addr().unwrap());
    let both = format!("http://{host}/a");
    let told = admin.request("EXPLAIN", &both, &[]).text();
    let keys: Vec<&str> = told.lines().filter_map(|line| line.strip_prefix("key      ")).collect();
    let own = format!("{both} @http://{}", fixture.origin.address);
    assert_eq!(keys, [both.clone(), own], "{told}");
    assert_eq!(admin.request("PURGE", &both, &[]).text(), "purged\n");
    assert!(!get("/a").is_hit() && !get("/m/a").is_hit());
}
