//! A container registry behind a mirror: each client has its own token, and no client receives what only others may
//! read.

use larder_http::{
    Rules, Ruling,
    key_rules::KeyRule,
    rules::{MatchTexts, Rule},
};
use larder_proxy::{Mirror, ProxyConfig};

use crate::support::{Fixture, Received, Reply};

/// The SHA-256 of `body`.
const DIGEST: &str = "sha256:230d8358dc8e8890b4c58deeb62912ee2f20357ae92a5cc861b98e68fe31acb5";

/// Mirrors a registry at `/v2` and `/v2/r.example`, as the program does for the mirror `oci`.
fn mirrored(handle: impl Fn(&Received, usize) -> Reply + Send + Sync + 'static) -> Fixture {
    Fixture::with(handle, |config: &mut ProxyConfig| {
        let origin = format!("{}/v2", config.default_origin.take().unwrap().to_short_string());
        for path in ["/v2", "/v2/r.example"] {
            let mirror = Mirror::of_files(path, origin.parse().unwrap());
            config.mirrors.push(Mirror { is_registry: true, ..mirror });
        }
        config.policy.cache.http.key_rules.push(KeyRule::joining_blobs(&origin).unwrap());
        let rule = |path: &str, ruling: Ruling| {
            let ruling = Ruling { name: path.into(), checks_authorization: true, checks_digest: true, ..ruling };
            Rule::new(&MatchTexts { paths: vec![path.into()], ..MatchTexts::default() }, ruling).unwrap()
        };
        config.rules = Rules::new(vec![
            rule("/v2/**/blobs/*", Ruling { immutable: true, ..Ruling::default() }),
            rule("/v2/**", Ruling { fresh: Some(std::time::Duration::ZERO), ..Ruling::default() }),
        ]);
    })
}

/// Answers for a registry and its token server: `team/app` is for users a and c, `open/app` for everyone with a token.
fn registry(received: &Received, _: usize) -> Reply {
    let host = received.field("host").unwrap();
    let (path, query) = received.target.split_once('?').unwrap_or((&received.target, ""));
    if path == "/auth" {
        let user = match received.field("authorization") {
            None => "nobody",
            Some("Basic YTph") => "a",
            Some("Basic Yjpi") => "b",
            Some("Basic Yzpj") => "c",
            Some(_) => return Reply::status("401 Unauthorized", &[], "{}"),
        };
        assert!(query.contains("service=reg"), "{query}");
        return Reply::ok(&["Content-Type: application/json"], format!("{{\"token\":\"t-{user}\"}}"));
    }
    let token = received.field("authorization").and_then(|value| value.strip_prefix("Bearer t-")).unwrap_or_default();
    let may = if path.contains("/team/") { matches!(token, "a" | "c") } else { !token.is_empty() };
    if !may {
        let challenge = format!(
            "WWW-Authenticate: Bearer realm=\"http://{host}/auth\",service=\"reg\",scope=\"repository:team/app:pull\""
        );
        return Reply::status("401 Unauthorized", &[&challenge], "");
    }
    match received.method.as_str() {
        "HEAD" => Reply::head("200 OK", &["Content-Length: 4"]),
        _ => Reply::ok(&["ETag: \"1\""], "body"),
    }
}

/// Returns the token that a client gets for a repository by following the challenge.
fn token(fixture: &Fixture, repository: &str, user: Option<&str>) -> String {
    let ping = fixture.get("/v2/", &[]);
    assert_eq!(ping.status, 401);
    let realm = "Bearer realm=\"http://site.example/v2/token\",service=\"larder\"";
    assert_eq!(ping.field("www-authenticate"), Some(realm));
    let line = user.map(|user| format!("Authorization: Basic {user}"));
    let fields: Vec<&str> = line.iter().map(String::as_str).collect();
    let answer = fixture.get(&format!("/v2/token?service=larder&scope=repository:{repository}:pull"), &fields);
    assert_eq!((answer.status, answer.field("cache-control")), (200, Some("no-store")), "{}", answer.text());
    let text = answer.text();
    let token = text.split("\"token\":\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
    format!("Authorization: Bearer {token}")
}

/// Returns the number of requests for a whole body, or for a head.
fn count(fixture: &Fixture, method: &str, path: &str) -> usize {
    let is = |received: &&Received| {
        received.method == method && received.target == path && received.field("range").is_none()
    };
    fixture.origin.received().iter().filter(is).count()
}

#[test]
fn neither_of_two_users_gets_what_only_the_other_may_read() {
    let fixture = mirrored(registry);
    let [a, b, c] = ["YTph", "Yjpi", "Yzpj"].map(|user| token(&fixture, "team/app", Some(user)));
    let blob = format!("/v2/team/app/blobs/{DIGEST}");
    assert_eq!(fixture.get(&blob, &[&a]).text(), "body");
    assert_eq!(fixture.get_hit(&blob, &[&a]).text(), "body");
    for refused in
        [fixture.get(&blob, &[&b]), fixture.get(&blob, &[]), fixture.get(&blob, &["Authorization: Bearer x"])]
    {
        assert_eq!((refused.status, refused.text().as_str()), (401, ""));
        let challenge = refused.field("www-authenticate").unwrap();
        assert!(challenge.contains("realm=\"http://site.example/v2/token\""), "{challenge}");
        assert!(challenge.contains("scope=\"repository:team/app:pull\""), "{challenge}");
    }
    let asked = count(&fixture, "GET", &blob);
    assert!(fixture.get(&blob, &[&c]).is_hit(), "who may read it is given what is stored");
    assert_eq!(count(&fixture, "GET", &blob), asked);
    let manifest = "/v2/team/app/manifests/latest";
    assert_eq!(fixture.get(manifest, &[&a]).text(), "body");
    assert_eq!(fixture.get(manifest, &[&b]).status, 401);
    assert_eq!(fixture.connect().request("HEAD", manifest, &[&b]).status, 401);
}

#[test]
fn what_anybody_can_have_is_everybodys() {
    let fixture = mirrored(registry);
    let nobody = token(&fixture, "open/app", None);
    let blob = format!("/v2/open/app/blobs/{DIGEST}");
    assert_eq!(fixture.get(&blob, &[&nobody]).text(), "body");
    fixture.get_hit(&blob, &[&nobody]);
    let asked = fixture.origin.count();
    for fields in [&["Authorization: Bearer x"][..], &[]] {
        assert!(fixture.get(&blob, fields).is_hit());
    }
    assert_eq!(fixture.origin.count(), asked);
}

#[test]
fn registry_behind_its_name_is_told_its_own_names() {
    let fixture = mirrored(registry);
    let user = token(&fixture, "r.example/team/app", Some("YTph"));
    let auth = fixture.origin.received().pop().unwrap();
    assert!(auth.target.starts_with("/auth?service=reg&scope=repository:team/app:pull"), "{}", auth.target);
    assert_eq!(auth.field("authorization"), Some("Basic YTph"));
    let blob = format!("/v2/r.example/team/app/blobs/{DIGEST}");
    let refused = fixture.get(&blob, &[]);
    let challenge = refused.field("www-authenticate").unwrap();
    assert!(challenge.contains("scope=\"repository:r.example/team/app:pull\""), "{challenge}");
    assert_eq!(fixture.get(&blob, &[&user]).text(), "body");
    assert!(fixture.get_hit(&format!("/v2/team/app/blobs/{DIGEST}"), &[&user]).is_hit(), "by another way");
    assert!(fixture.get_hit(&format!("/v2/team/other/blobs/{DIGEST}"), &[&user]).is_hit(), "in another repository");
    assert_eq!(fixture.get("/v2/", &[&user]).status, 200);
}

#[test]
fn wrong_users_get_what_the_server_of_tokens_says() {
    let fixture = mirrored(registry);
    let answer = fixture.get("/v2/token?scope=repository:team/app:pull", &["Authorization: Basic eDp4"]);
    assert_eq!(answer.status, 401);
    assert_eq!(fixture.connect().request("POST", "/v2/token", &["Content-Length: 0"]).status, 405);
}

#[test]
fn registry_of_user_and_password_gets_them_and_an_open_one_nothing() {
    let fixture = mirrored(|received, _| match received.field("authorization") {
        None => Reply::status("401 Unauthorized", &["WWW-Authenticate: Basic realm=\"r\""], ""),
        Some("Basic YTph") if received.method == "HEAD" => Reply::head("200 OK", &["Content-Length: 4"]),
        Some("Basic YTph") => Reply::ok(&["ETag: \"1\""], "body"),
        Some(_) => Reply::status("401 Unauthorized", &["WWW-Authenticate: Basic realm=\"r\""], ""),
    });
    let user = token(&fixture, "app", Some("YTph"));
    assert_eq!(fixture.get("/v2/app/manifests/1", &[&user]).text(), "body");
    assert_eq!(fixture.get("/v2/app/manifests/1", &[&token(&fixture, "app", Some("eDp4"))]).status, 401);
    let open = mirrored(|received, _| {
        assert_eq!(received.field("authorization"), None);
        if received.method == "HEAD" { Reply::head("200 OK", &["Content-Length: 4"]) } else { Reply::ok(&[], "body") }
    });
    let nobody = token(&open, "app", None);
    assert_eq!(open.get(&format!("/v2/app/blobs/{DIGEST}"), &[&nobody]).text(), "body");
}
