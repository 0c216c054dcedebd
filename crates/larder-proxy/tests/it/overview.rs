//! The dashboard's figures, over time and across restarts.

use larder_proxy::{Overview, ProxyConfig};

use crate::support::{Connection, Fixture, Reply, eventually};

fn with_admin(config: &mut ProxyConfig) {
    config.admin = Some("127.0.0.1:0".parse().unwrap());
}

fn overview(fixture: &Fixture) -> Overview {
    let mut admin = Connection::open_admin(fixture.proxy.admin_addr().unwrap());
    admin.send("GET /overview.json HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
    let response = admin.read_response("GET");
    assert_eq!((response.status, response.field("content-type")), (200, Some("application/json")));
    serde_json::from_str(&response.text()).unwrap()
}

#[test]
fn figures_count_on_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let base = folder.path().join("store");
    let keep = |config: &mut ProxyConfig| {
        with_admin(config);
        config.state_base = Some(base.clone());
    };
    let fixture = Fixture::with(
        |received, _| match received.target.as_str() {
            "/no" => Reply::ok(&["Cache-Control: no-store"], "12345"),
            _ => Reply::ok(&["Cache-Control: max-age=60"], "0123456789"),
        },
        keep,
    );
    fixture.get("/no", &[]);
    fixture.get_hit("/yes", &[]);
    let mut before = Overview::default();
    eventually("all is counted", || {
        before = overview(&fixture);
        before.ever.hits >= 1 && before.ever.client_bytes >= 25
    });
    assert_eq!((before.today, before.minute), (before.ever, before.ever));
    assert_eq!(before.ever.saved_bytes, before.ever.hits * 10);
    assert_eq!(before.by_second.iter().map(|second| second.hits).sum::<u64>(), before.ever.hits);
    let why: Vec<_> = before.misses_ever.iter().map(|reason| (reason.name.as_str(), reason.count)).collect();
    assert!(why.contains(&("no-store", 1)) && why.iter().any(|(name, _)| *name == "uri-miss"), "{why:?}");

    let fixture = fixture.restart_with(keep);
    let after = overview(&fixture);
    assert_eq!((after.ever, after.since_s), (before.ever, before.since_s));
    assert_eq!(after.misses_ever, before.misses_ever);
    assert_eq!(after.minute.hits, 0, "the last minute is this run's");
    fixture.get_hit("/yes", &[]);
    eventually("it counts on", || overview(&fixture).ever.hits > before.ever.hits);
    let mut admin = Connection::open_admin(fixture.proxy.admin_addr().unwrap());
    let metrics = admin.request("GET", "/metrics", &[]).text();
    let line =
        |name: &str| metrics.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().parse::<u64>().unwrap();
    assert!(line("larder_lifetime_hits_total") > line("larder_hits_total"));
}

#[test]
fn pages_of_other_sites_get_no_overview() {
    let fixture = Fixture::with(|_, _| Reply::ok(&[], "x"), with_admin);
    let mut admin = Connection::open_admin(fixture.proxy.admin_addr().unwrap());
    admin.send("GET /overview.json HTTP/1.1\r\nHost: evil.example:3180\r\n\r\n");
    assert_eq!(admin.read_response("GET").status, 421);
}

#[test]
fn the_dashboard_is_one_page_that_loads_nothing_from_elsewhere() {
    let fixture = Fixture::with(|_, _| Reply::ok(&[], "x"), with_admin);
    let mut admin = Connection::open_admin(fixture.proxy.admin_addr().unwrap());
    let mut get = |path: &str| {
        admin.send(format!("GET {path} HTTP/1.1\r\nHost: localhost:3180\r\n\r\n"));
        admin.read_response("GET")
    };
    for (path, kind) in [
        ("/", "text/html"),
        ("/dashboard.css", "text/css"),
        ("/dashboard.js", "text/javascript"),
        ("/queries.js", "text/javascript"),
    ] {
        let response = get(path);
        assert_eq!(response.status, 200, "{path}");
        assert!(response.field("content-type").unwrap().starts_with(kind), "{path}");
        let policy = response.field("content-security-policy").unwrap();
        assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
        let text = response.text();
        let elsewhere = text.split(['"', '\'', '(', ' ']).filter(|word| word.starts_with("http"));
        let elsewhere: Vec<&str> = elsewhere
            .filter(|word| !word.starts_with("http://www.w3.org/") && !word.starts_with("http://example.com/"))
            .collect();
        assert!(elsewhere.is_empty(), "{path}: {elsewhere:?}");
        for unsafe_way in
            ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", " onclick", "style=\""]
        {
            assert!(!text.contains(unsafe_way), "{path} has {unsafe_way}");
        }
    }
}

#[test]
fn only_the_dashboard_itself_may_purge_by_post() {
    let fixture = Fixture::with(|_, _| Reply::ok(&["Cache-Control: max-age=60"], "x"), with_admin);
    let address = fixture.proxy.admin_addr().unwrap();
    let post = |fields: &[&str]| {
        let mut admin = Connection::open(address);
        let lines: String = fields.iter().map(|field| format!("{field}\r\n")).collect();
        admin.send(format!("POST /purge HTTP/1.1\r\nContent-Length: 0\r\n{lines}\r\n"));
        admin.read_response("POST").status
    };
    let host = format!("Host: {address}");
    let operator = "Larder-Operator: dashboard";
    let url = "Operator-Url: http://site.example/a";
    fixture.get_hit("/a", &[]);
    let own = format!("Origin: http://{address}");
    let other = "Origin: http://evil.example";
    for (fields, status) in [
        (vec![&*host, url], 403),
        (vec![&*host, operator, url, other], 403),
        (vec![&*host, operator, url, "Origin: null"], 403),
        (vec![&*host, operator, url, "Sec-Fetch-Site: cross-site"], 403),
        (vec![&*host, operator, url, "Sec-Fetch-Site: same-site"], 403),
        (vec!["Host: evil.example", operator, url], 421),
        (vec![&*host, operator], 400),
        (vec![&*host, operator, "Operator-Url: /a"], 400),
        (vec![&*host, operator, "Operator-Url: ftp://site.example/a"], 400),
        (vec![&*host, operator, url, "Purge-Scope: moon"], 400),
    ] {
        assert_eq!(post(&fields), status, "{fields:?}");
        assert!(fixture.get("/a", &[]).is_hit(), "{fields:?} purged");
    }
    // A browser's preflight request for such a field from another site is refused.
    let mut admin = Connection::open(address);
    admin.send(format!("OPTIONS /purge HTTP/1.1\r\n{host}\r\n{other}\r\nAccess-Control-Request-Method: POST\r\n\r\n"));
    let asked_before = admin.read_response("OPTIONS");
    assert!(asked_before.status == 403 && asked_before.field("access-control-allow-origin").is_none());
    assert_eq!(post(&[&host, operator, url, &own, "Sec-Fetch-Site: same-origin"]), 200);
    assert!(!fixture.get("/a", &[]).is_hit());
}

#[test]
fn the_overview_lists_what_is_asked_for_and_where_it_lies() {
    let fixture = Fixture::with(|_, _| Reply::ok(&["Cache-Control: max-age=60"], "0123456789"), with_admin);
    fixture.get_hit("/a?token=secret", &[]);
    fixture.get("/%3Cscript%3E\"b\"", &[]);
    let mut seen = Overview::default();
    eventually("all is listed", || {
        seen = overview(&fixture);
        seen.objects.len() == 2
    });
    let names: Vec<&str> = seen.objects.iter().map(|object| object.name.as_str()).collect();
    assert!(names.contains(&"http://site.example/a?..."), "{names:?}");
    assert_eq!((seen.sites.len(), &*seen.sites[0].name), (1, "site.example"));
    assert!(seen.sites[0].counted.saved_bytes >= 10);
    let volume = &seen.volumes[0];
    assert!(volume.loaded && !volume.out && volume.size_bytes == 256 << 20 && volume.policy == "log", "{volume:?}");
    assert_eq!((&*seen.line.mode, seen.line.offline), ("off", false));
    assert!(seen.try_with.starts_with("curl http://127.0.0.1:"), "{}", seen.try_with);
    let latency = seen.latencies.iter().find(|latency| latency.name == "origin").unwrap();
    assert!(latency.count >= 2 && latency.half_ms > 0.0 && latency.p99_ms >= latency.half_ms, "{latency:?}");
    assert!(seen.memory.iter().any(|part| part.name == "popular" && part.count > 0));
    assert_eq!((seen.metric("larder_flights_total"), seen.metric("larder_store_loaded")), (2, 1), "{:?}", seen.metrics);
}

fn queries(fixture: &Fixture) -> serde_json::Value {
    let mut admin = Connection::open_admin(fixture.proxy.admin_addr().unwrap());
    admin.send("GET /queries.json HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
    let response = admin.read_response("GET");
    assert_eq!((response.status, response.field("cache-control")), (200, Some("no-store")));
    serde_json::from_str(&response.text()).unwrap()
}

#[test]
fn the_query_log_lists_requests_with_their_results_and_without_queries() {
    let fixture = Fixture::with(
        |received, _| match received.target.as_str() {
            "/no" => Reply::ok(&["Cache-Control: no-store"], "12345"),
            _ => Reply::ok(&["Cache-Control: max-age=60"], "0123456789"),
        },
        with_admin,
    );
    fixture.get("/no?token=secret", &[]);
    fixture.get("/no", &[]);
    fixture.get_hit("/yes", &[]);
    let mut list = serde_json::Value::Null;
    eventually("all are finished", || {
        list = queries(&fixture);
        let rows = list["queries"].as_array().unwrap();
        rows.len() >= 4 && rows.iter().all(|row| row["result"] == "hit" || row["result"] == "miss")
    });
    let rows = list["queries"].as_array().unwrap();
    let latest = &rows[0];
    assert_eq!((&latest["url"], &latest["result"]), (&"http://site.example/yes".into(), &"hit".into()), "{rows:?}");
    assert_eq!((&latest["status"], &latest["sent_bytes"]), (&200.into(), &10.into()));
    assert_eq!((&latest["client"], &latest["method"]), (&"127.0.0.1".into(), &"GET".into()));
    let not_stored = rows.iter().find(|row| row["url"] == "http://site.example/no").unwrap();
    assert_eq!((&not_stored["result"], &not_stored["why"]), (&"miss".into(), &"no-store".into()), "{rows:?}");
    assert!(rows.iter().any(|row| row["url"] == "http://site.example/no?"), "{rows:?}");
    assert!(rows.windows(2).all(|pair| pair[0]["at_ms"].as_i64() >= pair[1]["at_ms"].as_i64()), "{rows:?}");
    assert!(!list.to_string().contains("secret"));
}

#[test]
fn a_query_log_that_is_turned_off_forgets_its_requests() {
    let fixture = Fixture::with(|_, _| Reply::ok(&["Cache-Control: max-age=60"], "x"), with_admin);
    let turn = |on| {
        let mut config = Fixture::config(&fixture.origin);
        with_admin(&mut config);
        config.query_log = on;
        fixture.proxy.handle().reload(config).unwrap();
    };
    fixture.get("/a", &[]);
    assert_eq!(queries(&fixture)["queries"].as_array().unwrap().len(), 1);
    turn(false);
    fixture.get("/b", &[]);
    assert_eq!(queries(&fixture), serde_json::json!({ "on": false, "queries": [] }));
    turn(true);
    assert_eq!(queries(&fixture), serde_json::json!({ "on": true, "queries": [] }));
}

#[test]
fn the_dashboard_explains_a_url_as_the_command_does() {
    let fixture = Fixture::with(|_, _| Reply::ok(&["Cache-Control: max-age=60"], "x"), with_admin);
    fixture.get_hit("/a", &[]);
    let address = fixture.proxy.admin_addr().unwrap();
    let ask = |request: &str, method: &str| {
        let mut admin = Connection::open(address);
        admin.send(request);
        admin.read_response(method)
    };
    let page = |fields: &str| {
        let head = format!("POST /explain HTTP/1.1\r\nHost: {address}\r\nContent-Length: 0\r\n");
        ask(&format!("{head}Cache-Control: no-cache\r\n{fields}\r\n"), "POST")
    };
    let url = "Operator-Url: http://site.example/a\r\n";
    let told = page(&format!("Larder-Operator: dashboard\r\n{url}")).text();
    assert!(told.contains("stored   in memory: status 200") && told.contains("outcome  from the cache"), "{told}");
    let command = format!("EXPLAIN http://site.example/a HTTP/1.1\r\nHost: {address}\r\n\r\n");
    assert_eq!(told, ask(&command, "EXPLAIN").text());
    assert_eq!(page(url).status, 403);
    assert_eq!(page("Larder-Operator: dashboard\r\n").status, 400);
}
