//! Guards against a client whose request changes the cached response for another client.

use crate::support::{Connection, Fixture, Gate, Received, Reply, http2::Http2, request_text};

/// Answers with every request field.
fn echo(received: &Received, _: usize) -> Reply {
    let told: Vec<String> = received
        .fields
        .iter()
        .filter(|(name, _)| !["via", "cdn-loop"].contains(&name.as_str()))
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    let body = format!("{} {} {} {}", received.method, received.target, told.join(" "), received.body.len());
    Reply::ok(&["Cache-Control: max-age=60"], body)
}

/// Starts a proxy in front of an origin whose responses depend on every request field.
fn echoing() -> Fixture {
    Fixture::new(echo)
}

fn name_of(field: &str) -> String {
    field.split(':').next().unwrap_or_default().to_ascii_lowercase()
}

#[test]
fn fields_that_origins_trust_change_nothing_for_others() {
    let fixture = echoing();
    for (number, field) in [
        "X-Forwarded-Host: evil.example",
        "X-Forwarded-Proto: nothttps",
        "X-Forwarded-Scheme: http",
        "X-Forwarded-Prefix: /evil",
        "X-Forwarded-Port: 1337",
        "X-Host: evil.example",
        "X-Original-URL: /evil",
        "X-Rewrite-URL: /evil",
        "X-HTTP-Method-Override: DELETE",
        "X-Method-Override: POST",
        "X-Original-Host: evil.example",
        "X-Forwarded-Server: evil.example",
        "X-Forwarded-SSL: off",
        "X-Original-URI: /evil",
        "X-Url-Scheme: nothttps",
        "X-Forwarded-Anything: evil",
        "X-Envoy-Original-Path: /evil",
        "X-Middleware-Subrequest: evil",
        "RSC: 1",
        "Next-Router-Prefetch: 1",
    ]
    .iter()
    .enumerate()
    {
        let target = format!("/{number}");
        assert!(fixture.get(&target, &[field]).text().contains(&name_of(field)), "the origin is told");
        let plain = format!("GET {target} host=site.example 0");
        assert_eq!(fixture.get(&target, &[]).text(), plain, "{field}");
        assert_eq!(fixture.get_hit(&target, &[]).text(), plain, "{field}");
        // Nor does the field prevent a hit.
        assert!(fixture.get(&target, &[field]).is_hit(), "{field}");
    }
}

/// Protects programs behind WSGI, CGI or Rack, for which an underscore in the name of a field is a hyphen.
#[test]
fn fields_with_underscores_are_not_for_the_origin() {
    let fixture = echoing();
    let mut http2 = Http2::plain(fixture.proxy.local_addrs()[0]);
    for (number, name) in
        ["X_Forwarded_Host", "x-forwarded_host", "Content_Length", "transfer_encoding", "_", "a_"].iter().enumerate()
    {
        let target = format!("/{number}");
        let second = format!("/{number}/2");
        let plain = format!("GET {target} host=site.example 0");
        assert_eq!(fixture.get(&target, &[&format!("{name}: evil")]).text(), plain, "{name}");
        assert_eq!(fixture.get_hit(&target, &[]).text(), plain, "{name}");
        let evil = http2.get(&format!("http://site.example{second}"), &[(&name.to_lowercase(), "evil")]);
        assert_eq!(evil.text(), format!("GET {second} host=site.example 0"), "{name}");
    }
}

#[test]
fn fields_with_underscores_that_are_kept_change_nothing_for_others() {
    let fixture = Fixture::with(echo, |config| config.keep_underscores = true);
    for (number, name) in ["X_Forwarded_Host", "x_http-method_override"].iter().enumerate() {
        let target = format!("/{number}");
        let field = format!("{name}: evil");
        assert!(fixture.get(&target, &[&field]).text().contains(&name_of(&field)), "the origin is told");
        assert_eq!(fixture.get(&target, &[]).text(), format!("GET {target} host=site.example 0"), "{name}");
    }
    let told = fixture.get("/others", &["Api_Key: a", "Content_Length: 5", "Transfer_Encoding: chunked"]).text();
    assert_eq!(told, "GET /others host=site.example api_key=a 0", "these two are never kept");
}

const USERS: [&str; 8] = [
    "Client-Cert",
    "Client-Cert-Chain",
    "X-Auth-Request-Email",
    "Remote-User",
    "X-Remote-Group",
    "Cf-Access-Jwt-Assertion",
    "X-Amzn-Oidc-Identity",
    "CF-IPCountry",
];

/// Guards against a client that names itself the user whom only a proxy may name.
#[test]
fn fields_that_name_the_user_are_believed_of_trusted_proxies_alone() {
    let fixture = Fixture::with(echo, |config| {
        config.fleet.trusted_proxies = vec!["127.0.0.2/32".parse().unwrap()];
    });
    let address = fixture.proxy.local_addrs()[0];
    let mut proxy = Connection::open_from("127.0.0.2".parse().unwrap(), address);
    for name in USERS {
        let target = format!("/{name}");
        let told = |who: &str| format!("{}={who}", name.to_lowercase());
        let ann = format!("{name}: ann");
        let bob = format!("{name}: bob");
        let plain = format!("GET {target} host=site.example 0");
        assert_eq!(fixture.get(&target, &[&ann]).text(), plain, "{name}");
        assert_eq!(fixture.get_hit(&target, &[&ann]).text(), plain, "{name}");
        // What is stored for all is not for a user whom a proxy names, and what is stored for one is not for another.
        for (field, who) in [(&ann, "ann"), (&bob, "bob"), (&ann, "ann")] {
            let own = proxy.request("GET", &target, &[field]);
            assert!(own.text().contains(&told(who)), "{name} {who}: {own:?}");
        }
        let hit = proxy.request("GET", &target, &[&bob]);
        assert!(hit.is_hit() && hit.text().contains(&told("bob")), "{name}: {hit:?}");
        assert_eq!(fixture.get(&target, &[]).text(), plain, "{name}");
        assert_eq!(proxy.request("GET", &target, &[]).text(), plain, "{name}");
        // Those whom nobody names displace no user's response, nor the other way round.
        assert_eq!(fixture.get_hit(&target, &[]).text(), plain, "{name}");
        for (field, who) in [(&ann, "ann"), (&bob, "bob")] {
            let own = proxy.request("GET", &target, &[field]);
            assert!(own.is_hit() && own.text().contains(&told(who)), "{name} {who}: {own:?}");
        }
    }
}

#[test]
fn flight_of_one_user_is_not_for_another() {
    let gate = Gate::default();
    let waiting = gate.clone();
    let fixture = Fixture::with(
        move |received, _| {
            let who = received.field("remote-user").unwrap_or("none").to_owned();
            let length = format!("Content-Length: {}", who.len());
            Reply::head("200 OK", &["Cache-Control: max-age=60", &length]).wait(&waiting).send(who)
        },
        |config| config.fleet.trusted_proxies = vec!["127.0.0.1/32".parse().unwrap()],
    );
    let mut connections = ["none", "ann", "bob"].map(|who| (who, fixture.connect()));
    for (who, connection) in &mut connections {
        let field = format!("Remote-User: {who}");
        let fields: &[&str] = if *who == "none" { &[] } else { &[&field] };
        connection.send(request_text("GET", "/", fields));
        let head = connection.read_head();
        assert_eq!(head.status, 200, "{who}");
    }
    gate.open();
    for (who, connection) in &mut connections {
        let mut body = [0; 4];
        std::io::Read::read_exact(&mut connection.reader, &mut body[..who.len()]).unwrap();
        assert_eq!(&body[..who.len()], who.as_bytes());
    }
}

#[test]
fn host_and_scheme_in_forwarded_change_nothing_for_others() {
    let fixture = echoing();
    let told =
        ["for=192.0.2.1;host=evil.example", "for=a, for=b;PROTO=nothttps", "host=\"evil.example", "for=x;Host = y"];
    for (number, told) in told.iter().enumerate() {
        let target = format!("/{number}");
        let field = format!("Forwarded: {told}");
        assert!(fixture.get(&target, &[&field]).text().contains("forwarded="), "the origin is told");
        let plain = format!("GET {target} host=site.example 0");
        assert_eq!(fixture.get(&target, &[]).text(), plain, "{field}");
        assert_eq!(fixture.get_hit(&target, &[]).text(), plain, "{field}");
        assert!(fixture.get(&target, &[&field]).is_hit(), "{field}");
    }
}

#[test]
fn clients_that_forwarded_names_share_what_is_stored() {
    let fixture = Fixture::new(|_, number| Reply::ok(&["Cache-Control: max-age=60"], number.to_string()));
    for target in ["/plain", "/told"] {
        let told = if target == "/told" { ";host=site.example;proto=https" } else { "" };
        let first = fixture.get(target, &[&format!("Forwarded: for=192.0.2.1{told}")]);
        let hit = fixture.get_hit(target, &[&format!("Forwarded: for=\"[2001:db8::1]:4711\"{told}")]);
        assert_eq!(hit.body, first.body, "{target}");
    }
}

#[test]
fn confirmation_for_one_who_tells_more_changes_nothing_for_others() {
    let fixture = Fixture::new(|received, number| {
        let host = received.field("x-forwarded-host").unwrap_or("site.example");
        let link = format!("Link: <//{host}/a.css>");
        match number {
            0 => Reply::ok(&["Cache-Control: max-age=10", "Age: 100", "ETag: \"v1\"", &link], "x"),
            _ if received.field("if-none-match").is_some() => {
                Reply::status("304 Not Modified", &["Cache-Control: max-age=60", "ETag: \"v1\"", &link], "")
            }
            _ => Reply::ok(&["Cache-Control: max-age=60", "ETag: \"v1\"", &link], ""),
        }
    });
    fixture.get("/", &[]);
    let mut connection = fixture.connect();
    for method in ["GET", "HEAD"] {
        let told = connection.request(method, "/", &["X-Forwarded-Host: evil.example"]);
        assert_eq!(told.field("link"), Some("<//evil.example/a.css>"), "{method}");
        let forwarded = connection.request(method, "/", &["Forwarded: host=evil.example"]);
        assert_eq!(forwarded.field("link"), Some("<//site.example/a.css>"), "{method}");
    }
    let plain = fixture.get("/", &[]);
    assert!(!plain.is_hit(), "what others were told has renewed nothing: {plain:?}");
    for response in [plain, fixture.get_hit("/", &[])] {
        assert_eq!(response.field("link"), Some("<//site.example/a.css>"), "{response:?}");
    }
}

#[test]
fn fields_named_by_connection_select_no_variant_of_others() {
    let fixture = Fixture::new(|received, _| {
        let language = received.field("accept-language").unwrap_or("none").to_owned();
        Reply::ok(&["Cache-Control: max-age=60", "Vary: Accept-Language"], language)
    });
    for name in ["Accept-Language", "accept-language, Cookie, Authorization, Host"] {
        let target = format!("/{}", name.len());
        let abused = fixture.get(&target, &["Accept-Language: de", &format!("Connection: {name}")]);
        assert_eq!(abused.text(), "none");
        assert_eq!(fixture.get(&target, &["Accept-Language: de"]).text(), "de");
        assert_eq!(fixture.get_hit(&target, &["Accept-Language: de"]).text(), "de");
    }
}

#[test]
fn credentials_hidden_by_connection_are_not_sent_and_the_answer_is_nobodys_own() {
    let fixture = Fixture::new(|received, _| {
        let who = received.field("authorization").unwrap_or("nobody").to_owned();
        Reply::ok(&["Cache-Control: max-age=60"], who)
    });
    let hidden = fixture.get("/", &["Authorization: Basic YTpi", "Connection: Authorization"]);
    assert_eq!(hidden.text(), "nobody");
    assert_eq!(fixture.get_hit("/", &[]).text(), "nobody");
    assert_eq!(fixture.get("/own", &["Authorization: Basic YTpi"]).text(), "Basic YTpi");
    assert_eq!(fixture.get("/own", &[]).text(), "nobody");
}

#[test]
fn body_of_a_get_changes_nothing_that_is_stored() {
    let fixture = echoing();
    let mut connection = fixture.connect();
    connection.send(request_text("GET", "/fat", &["Content-Length: 4"]) + "evil");
    assert!(connection.read_response("GET").text().ends_with(" 4"));
    let plain = "GET /fat host=site.example 0";
    assert_eq!(fixture.get("/fat", &[]).text(), plain);
    assert_eq!(fixture.get_hit("/fat", &[]).text(), plain);
    connection.send(request_text("GET", "/fat", &["Content-Length: 4"]) + "evil");
    assert!(!connection.read_response("GET").is_hit(), "a body is for the origin to see");
    assert_eq!(fixture.get_hit("/fat", &[]).text(), plain);
}

#[test]
fn origin_is_told_the_host_as_the_key_has_it() {
    let fixture = echoing();
    let mut connection = fixture.connect();
    for (number, host) in ["SITE.example", "site.example:80", "Site.Example:080", "site.example:"].iter().enumerate() {
        connection.send(format!("GET /{number} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        let told = connection.read_response("GET").text();
        assert_eq!(told, format!("GET /{number} host=site.example 0"), "{host}");
        assert!(fixture.get_hit(&format!("/{number}"), &[]).is_hit());
    }
    connection.send("GET /0 HTTP/1.1\r\nHost: site.example:81\r\n\r\n");
    assert_eq!(connection.read_response("GET").text(), "GET /0 host=site.example:81 0", "another port is another site");
}

#[test]
fn targets_that_an_origin_may_tell_apart_have_entries_of_their_own() {
    let fixture = echoing();
    let targets = [
        "/a/b",
        "/a%2fb",
        "/a%2Fb",
        "/a//b",
        "/a/./b",
        "/a/c/../b",
        "/A/b",
        "/a/b/",
        "/a/b?",
        "/a/b?x",
        "/a/b?X",
        "/a/b?x=1&y=2",
        "/a/b?y=2&x=1",
        "/a/b?x=1;y=2",
        "/a/b;x=1",
        "/a/%62",
        "/a/b%00",
        "/a/b%20",
        "/a/b+",
        "/a\\b",
        "/a/b?x=1&x=2",
        "/a/b?x=2",
        "/a/b%23x",
        "/a/b%3fx",
    ];
    for target in targets {
        let own = format!("GET {target} host=site.example 0");
        assert_eq!(fixture.get(target, &[]).text(), own, "{target}");
    }
    for target in targets {
        let own = format!("GET {target} host=site.example 0");
        assert_eq!(fixture.get_hit(target, &[]).text(), own, "{target}");
    }
}

#[test]
fn errors_that_one_request_provokes_are_not_stored_for_others() {
    let fixture = Fixture::new(|received, _| match received.field("x-evil") {
        Some("431") => Reply::status("431 Request Header Fields Too Large", &["Cache-Control: max-age=60"], "no"),
        Some("400") => Reply::status("400 Bad Request", &["Last-Modified: Tue, 15 Nov 1994 12:45:26 GMT"], "no"),
        Some("413") => Reply::status("413 Content Too Large", &["ETag: \"a\""], "no"),
        Some("416") => Reply::status("416 Range Not Satisfiable", &["Cache-Control: max-age=60"], "no"),
        Some("500") => Reply::status("500 Internal Server Error", &["ETag: \"a\""], "no"),
        _ => Reply::ok(&["Cache-Control: max-age=60"], "good"),
    });
    for status in [400, 413, 416, 431, 500] {
        let target = format!("/{status}");
        let evil = fixture.get(&target, &[&format!("X-Evil: {status}"), "Range: bytes=9999-"]);
        assert_eq!(evil.status, status);
        assert_eq!(fixture.get(&target, &[]).text(), "good");
        assert_eq!(fixture.get_hit(&target, &[]).text(), "good");
    }
}

#[test]
fn oversize_heads_reach_neither_origin_nor_cache() {
    let fixture = echoing();
    let long = format!("X-Long: {}", "x".repeat(70_000));
    assert_eq!(fixture.get("/", &[&long]).status, 431);
    assert_eq!(fixture.origin.count(), 0);
    assert_eq!(fixture.get("/", &[]).text(), "GET / host=site.example 0");
}
