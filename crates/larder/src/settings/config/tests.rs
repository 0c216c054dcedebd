//! Tests of the configuration file.

use super::*;
use crate::settings::DiskSettings;
use larder_http::TargetList;
use larder_http::{coding::ContentCoding, rules::RuledRequest, ruling::RedirectPolicy};
use larder_proxy::{CacheSettings, ProxyConfig};
use larder_proxy::{Direct, HostSent, Listener, Offline};
use std::time::Duration;

/// Returns the settings in `text`, or its first problem.
fn parse(text: &str) -> Result<RunSettings, ConfigProblem> {
    let mut settings = RunSettings::default();
    read_settings(text, &mut settings).into_iter().next().map_or(Ok(settings), Err)
}

/// A file with several mistakes must not need one run for each, and a consequence of a mistake is no mistake.
#[test]
fn all_problems_of_a_file_are_found_at_once() {
    let text = "\
liste = [\"127.0.0.1:1\"]
origin = \"ftp://a\"
preserve_host = true
allow_clients = [\"10.0.0.0/8\", \"lan\", \"::/129\"]
[store]
sise = \"1GB\"
policy = \"lru\"
[limits]
idle_timeout = \"soon\"
[[site]]
hosts = [\"a\"]
paths = \"app\"
origin = \"http://b\"
[[site]]
hosts = [\"a\"]
origin = \"c\"
[site.cache]
heuristic = 1
[[rule]]
name = \"nothing\"
[memory]
[memory.cash]
";
    let found = read_settings(text, &mut RunSettings::default());
    let places: Vec<&str> = found.iter().map(|problem| &text[problem.span.clone()]).collect();
    assert_eq!(
        places,
        [
            "liste",
            "\"ftp://a\"",
            "\"lan\"",
            "\"::/129\"",
            "sise",
            "\"lru\"",
            "\"soon\"",
            "\"app\"",
            "\"c\"",
            "heuristic",
            "[[rule]]",
            "cash",
        ]
    );
    assert!(found.iter().all(|problem| !problem.help.is_empty()));
}

#[test]
fn rate_limits_name_clients_and_rate() {
    let text =
        "[[rate_limit]]\nrate = \"2MB\"\nclients = [\"10.0.0.0/8\"]\nhosts = [\"*.example\"]\nfor = \"each client\"\n";
    let limit = parse(text).unwrap().proxy.rate_limits.remove(0);
    assert_eq!(limit.to_string(), "rate limit 1: 2 MB/s for each client of 10.0.0.0/8");
    for (text, place, problem) in [
        ("[[rate_limit]]\nname = \"x\"\n", "[[rate_limit]]", "rate"),
        ("[[rate_limit]]\nrate = \"0\"\n", "\"0\"", "not a rate"),
        ("[[rate_limit]]\nrate = \"1000\"\n", "[[rate_limit]]", "at least 1024"),
        ("[[rate_limit]]\nrate = \"1MB\"\nfor = \"each network\"\n", "[[rate_limit]]", "must name networks"),
        ("[[rate_limit]]\nrate = \"1MB\"\nfor = \"nobody\"\n", "\"nobody\"", "unknown value for `for`"),
    ] {
        let wrong = parse(text).unwrap_err();
        assert!(wrong.problem.contains(problem) && text[wrong.span].contains(place), "{text}: {}", wrong.problem);
    }
}

#[test]
fn wrong_statements_about_the_fleet_are_pointed_at() {
    for (text, place, problem) in [
        ("trusted_proxies = [\"10.0.0.1/33\"]", "\"10.0.0.1/33\"", "not a network"),
        ("trusted_proxies = [\"balancer\"]", "\"balancer\"", "not a network"),
        ("trusted_proxies = true", "true", "expected a network"),
        ("client_field = \"x-real-ip\"", "\"x-real-ip\"", "unknown field for the client's address"),
        ("ready_path = \"ready\"", "\"ready\"", "not a path: "),
        ("ready_path = \"/ready?deep\"", "\"/ready?deep\"", "not a path: "),
        ("ready_path = \"\"", "\"\"", "not a path: "),
        ("[fleet]\nnodes = [\"a\"]", "\"a\"", "the node has no port"),
        ("[fleet]\nnodes = true", "true", "expected a node"),
        ("[fleet]\nnode_timeout = \"soon\"", "\"soon\"", "duration"),
        ("[fleet]\nsecret = \"x\"", "secret", "unknown key"),
        ("[fleet]\nsiblings = \"yes\"", "\"yes\"", "true or false"),
        ("[fleet]\nnode_timeout = 60", "60", "duration"),
        ("[fleet]\nnodes = [\"a=h:70000\"]", "\"a=h:70000\"", "not a port"),
        ("[fleet]\ndns = \"10.0.0.1:80\"", "\"10.0.0.1:80\"", "never stands for several nodes"),
        ("[fleet]\ndns = \"larder.example\"", "\"larder.example\"", "it has no port"),
        ("[fleet]\nlog = \"kafka://h\"", "\"kafka://h\"", "none of redis://"),
        ("[fleet]\nlog = \"redis://h/a b\"", "\"redis://h/a b\"", "name of a stream"),
        ("[fleet]\nlog = [\"redis://h\"]", "[\"redis://h\"]", "expected"),
        ("node = \"cache a\"", "\"cache a\"", "not a name"),
        ("drain_notice = \"soon\"", "\"soon\"", "not a duration"),
        ("[[listener]]\naddress = \"127.0.0.1:1\"\norigin_form = 1", "1", "true or false"),
        ("trusted_proxy = []", "trusted_proxy", "unknown key"),
    ] {
        let wrong = parse(text).unwrap_err();
        assert!(wrong.problem.contains(problem), "{text}: {}", wrong.problem);
        assert!(!wrong.help.is_empty() && text[wrong.span].contains(place), "{text}");
    }
    let right = "trusted_proxies = [\"10.0.0.0/8\", \"fd00::/8\"]\nclient_field = \"Forwarded\"\nready_path = \"none\"\n\
                 node = \"cache-a\"\ndrain_notice = \"5s\"\n[fleet]\nnodes = [\"cache-a=a:1\", \"[::1]:80\"]\n\
                     secret_file = \"s\"\nnode_timeout = \"2m\"";
    let settings = parse(right).unwrap();
    let fleet = &settings.proxy.fleet;
    let names: Vec<&str> = fleet.nodes.iter().map(|node| &*node.name).collect();
    assert_eq!((names, fleet.secret_file.is_some()), (vec!["cache-a", "[::1]:80"], true));
    assert_eq!(fleet.node_timeout, Duration::from_secs(120));
    let larder_proxy::Fleet { trusted_proxies, client_field, ready_path, node, shows_node, .. } = settings.proxy.fleet;
    assert_eq!((trusted_proxies.len(), client_field), (2, larder_proxy::ClientField::Forwarded));
    assert_eq!((ready_path, node.as_deref(), shows_node), (None, Some("cache-a"), true));
    assert_eq!(settings.drain_notice, Duration::from_secs(5));
    assert_eq!(parse("").unwrap().proxy.fleet.ready_path, None);
    let named = parse("ready_path = \"/-/ready\"").unwrap();
    assert_eq!(named.proxy.fleet.ready_path.as_deref(), Some("/-/ready"));
}

#[test]
fn old_name_is_refused_like_any_unknown_key() {
    let old = parse("[limits]\nidle = \"1s\"").unwrap_err();
    assert_eq!((old.problem.as_str(), old.help.as_str()), ("unknown key `idle`", "did you mean `idle_timeout`?"));
}

#[test]
fn an_empty_file_changes_nothing() {
    let text = "[store]\n[memory]\n[forward]\n[log]\n[admin]\n[response]\n[limits]\n[cache]\n";
    for text in ["", text] {
        assert_eq!(format!("{:?}", parse(text).unwrap()), format!("{:?}", RunSettings::default()));
    }
}

#[test]
fn every_key_of_the_documentation_is_read() {
    let document = include_str!("../../../../../docs/reference/configuration.md");
    let (_, rest) = document.split_once("```toml\n").expect("the documentation has an example");
    let (example, rest) = rest.split_once("```").expect("the example ends");
    let (_, rest) = rest.split_once("```toml\n").expect("there is another for a reverse proxy");
    let (reverse, _) = rest.split_once("```").expect("the example ends");
    let RunSettings { proxy, forward, store, memory_cache, drain, intercept, registry_mirrors, .. } =
        parse(example).unwrap();
    assert_eq!(registry_mirrors.names, ["pypi", "npm", "oci"]);
    assert_eq!(registry_mirrors.registries[0].name, "registry.example.com:5000");
    assert_eq!(registry_mirrors.origins[0].url.to_string(), "https://npm.example.com:443");
    assert_eq!((proxy.mirrors.len(), proxy.mirrors[0].path.as_str()), (1, "/company"));
    assert_eq!(intercept.hosts.hosts, ["pypi.org", "*.debian.org"].map(|host| host.parse().unwrap()));
    assert_eq!(intercept.hosts.except, ["private.debian.org".parse().unwrap()]);
    assert_eq!(intercept.authority, Some("/var/lib/larder/ca".into()));
    let addresses = ["127.0.0.1:3128", "[::1]:3128", "192.168.0.1:443"].map(|address| address.parse().unwrap());
    let [first, second, third] = addresses;
    let proxied_by = vec!["10.2.0.0/24".parse().unwrap()];
    let behind = Listener { proxied_by, origin_form: true, ..Listener::tls("10.0.0.1:8443".parse().unwrap()) };
    assert_eq!(proxy.listeners, [Listener::plain(first), Listener::plain(second), Listener::tls(third), behind]);
    assert_eq!((proxy.add_x_forwarded, proxy.add_forwarded, proxy.origin_http2), (true, true, false));
    assert!(proxy.keep_underscores);
    assert_eq!(proxy.policy.cache.http.compression.codings, [ContentCoding::Brotli, ContentCoding::Gzip]);
    assert_eq!(
        (proxy.policy.cache.http.compression.types.len(), proxy.policy.cache.http.compression.size_min),
        (2, 2048)
    );
    assert_eq!(proxy.offline, Offline::Auto);
    assert!(proxy.pac.contain("www.example.com") && !proxy.pac.contain("intranet.example.com"));
    assert_eq!(proxy.passwords, Some("/etc/larder/passwords".into()));
    let files = proxy.identities.iter().map(|identity| (identity.certificate.clone(), identity.key.clone()));
    assert!(files.eq([("/etc/larder/example.pem".into(), "/etc/larder/example.key".into())]));
    assert_eq!(proxy.pseudonym.as_deref(), Some("cache-1.example"));
    assert_eq!((proxy.worker_count, drain), (2, Duration::from_secs(20)));
    assert_eq!(proxy.clients, ["192.168.0.0/16".parse().unwrap()]);
    let origin_url = |text: &str| text.parse::<OriginUrl>().unwrap();
    let default = origin_url("http://127.0.0.1:9000").with_host(HostSent::Client).with_proxy_header(true);
    assert_eq!(parse(reverse).unwrap().proxy.default_origin, Some(default));
    assert_eq!(proxy.origin_ca_file, Some("/etc/larder/origins.pem".into()));
    assert_eq!(store.disks, ["/var/cache/larder", "/dev/sdb"].map(|path| DiskSettings::At(path.into())));
    assert_eq!((store.row().unwrap().name, store.tuning.reinsertion_share), ("log", 0.5));
    assert_eq!(store.tuning.objective, larder_store::Objective::Bytes);
    assert_eq!(
        (store.sizes, store.mean_object_size_bytes),
        (vec![Some(100_000_000_000), Some(2_000_000_000_000)], Some(32 << 10))
    );
    assert_eq!(store.io, larder_store::IoChoice::Threads);
    assert_eq!((memory_cache, proxy.window_bytes), (Some(1_000_000_000), Some(128_000_000)));
    assert_eq!(forward, Some(true));
    assert_eq!(proxy.targets.allow, ["10.1.0.0/16".parse().unwrap()]);
    assert_eq!(proxy.targets.deny, ["10.1.9.0/24".parse().unwrap()]);
    assert_eq!(proxy.connect_ports, [443]);
    check_sites(&proxy);
    assert_eq!(proxy.access_log, Some(larder_proxy::AccessLogTarget::File("/var/log/larder/access.log".into())));
    assert_eq!(proxy.admin, Some("127.0.0.1:3180".parse().unwrap()));
    assert!(!proxy.add_via && !proxy.add_cache_status);
    check_cache(&proxy.policy.cache);
    check_limits(&proxy);
    check_rule(&proxy.rules);
}

fn check_cache(cache: &CacheSettings) {
    assert_eq!((cache.entry_bytes_max, cache.group_window), (8_000_000_000, Duration::from_secs(5)));
    let http = &cache.http;
    assert_eq!((http.heuristic_fraction, http.heuristic_max), (0.2, Duration::from_hours(12)));
    assert_eq!(http.heuristic_error_max, Duration::from_mins(1));
    assert_eq!(http.stale_if_error_max, Duration::from_hours(48));
    let negative = [(404, Duration::from_secs(10)), (410, Duration::from_mins(5))];
    assert_eq!(http.negative_lifetimes, negative);
    assert!(!http.honor_request_directives && !http.normalize_vary && http.normalize_language);
    assert!(http.heuristic_with_cookies && http.store_set_cookie);
    let targets = ["example-cache-control", "cdn-cache-control"].map(http::HeaderName::from_static);
    assert_eq!(http.targets, TargetList::new(targets));
    let key = |url: &str| http.key_rules.key("http", "mirror.example", url).unwrap();
    assert_eq!(key("/debian/a?utm_id=1"), b"Phttp://deb.example/debian/a");
}

fn check_limits(proxy: &ProxyConfig) {
    let ProxyConfig { limits, policy, .. } = proxy;
    let own = &policy.limits;
    assert_eq!((limits.header_bytes_max, limits.header_count_max), (32 << 10, 200));
    assert_eq!((limits.connection_count_max, limits.stream_count_max, limits.abandoned_count_max), (4096, 64, 100));
    assert_eq!((limits.control_count_max, own.origin_connection_count_max), (1000, 500));
    assert_eq!((own.origin_idle_count_max, limits.waiting_count_max), (32, 1000));
    assert_eq!((own.body_rate, own.body_grace), (1 << 10, Duration::from_secs(30)));
    let times =
        [limits.idle, limits.header, own.stall, limits.store, own.origin_connect, own.origin_response, own.origin_idle];
    assert_eq!(times.map(|time| time.as_secs()), [120, 10, 90, 2, 5, 30, 45]);
}

fn check_sites(proxy: &ProxyConfig) {
    let origin_url = |text: &str| text.parse::<OriginUrl>().unwrap();
    assert_eq!(proxy.parents.members[0].0.to_string(), "proxy.example:3128");
    assert_eq!(
        proxy.parents.except,
        [Direct::Hosts("*.intranet.example".parse().unwrap()), Direct::Network("10.0.0.0/8".parse().unwrap())]
    );
    assert_eq!(proxy.lists.block, [std::path::PathBuf::from("/etc/larder/hosts")]);
    assert_eq!((proxy.lists.allow.len(), proxy.lists.default_deny), (2, true));
    let sites: Vec<String> = proxy.sites.iter().map(|site| format!("{} {}", site.name, site.hosts.join(" "))).collect();
    let origins = |index: usize| proxy.sites[index].origins.as_ref().unwrap();
    let named = HostSent::Named("inner.example.com".parse().unwrap());
    let parent = "http://10.0.0.9:3128".parse().unwrap();
    assert_eq!(origins(0).members[0].0, origin_url("http://10.0.0.5:8080").with_host(named).by_parent(parent));
    assert_eq!(
        sites,
        [
            "example.com example.com www.example.com",
            "static.example.com static.example.com",
            "downloads *.downloads.example.com",
        ]
    );
    let downloads = &proxy.sites[2];
    assert_eq!((downloads.paths[0].as_str(), &downloads.listeners[0].to_string()[..]), ("/pub", "127.0.0.1:3128"));
    let own = downloads.policy.as_ref().unwrap();
    let cache = &own.cache;
    assert_eq!((cache.entry_bytes_max, cache.http.heuristic_fraction), (20_000_000_000, 0.5));
    assert_eq!(cache.http.heuristic_max, proxy.policy.cache.http.heuristic_max, "the rest is as [cache] says");
    assert_eq!((own.limits.origin_response, own.limits.stall), (Duration::from_mins(5), proxy.policy.limits.stall));
    let several = origins(1);
    let urls: Vec<String> = several.members.iter().map(|(url, weight)| format!("{url} {weight}")).collect();
    assert_eq!(urls, ["http://10.0.0.6:8080 1", "http://10.0.0.7:8080 2"]);
    assert_eq!((several.rules.balance, several.rules.failure_count_max), (larder_proxy::Balance::ConsistentHash, 5));
    assert_eq!(several.rules.out, Duration::from_secs(30));
    assert_eq!(several.rules.check, Some(("/health".to_owned(), Duration::from_secs(7))));
}

fn check_rule(rules: &Rules) {
    let request = RuledRequest {
        method: &http::Method::GET,
        scheme: "http",
        authority: "repo.example:80",
        path: "/a/b.jar?x",
        fields: &http::HeaderMap::new(),
    };
    let ruling = rules.find(&request, http::StatusCode::OK, &http::HeaderMap::new()).unwrap();
    for (path, cookie) in [("/a/b.jar?x&preview", ""), ("/a/b.jar", "wordpress_logged_in_1=ann")] {
        let fields = [(http::header::COOKIE, http::HeaderValue::from_static(cookie))].into_iter().collect();
        let other = RuledRequest { path, fields: &fields, ..request };
        assert!(rules.find(&other, http::StatusCode::OK, &http::HeaderMap::new()).is_none(), "{path} {cookie}");
    }
    assert_eq!((ruling.name.as_str(), ruling.fresh, ruling.immutable), ("jars", Some(Duration::from_hours(24)), true));
    assert_eq!((ruling.following, ruling.size_max), (RedirectPolicy::All, Some(1_000_000_000)));
    assert_eq!((ruling.varies.as_slice(), ruling.finishes_abandoned), (&["x-tenant".parse().unwrap()][..], Some(true)));
    assert!(ruling.checks_authorization && ruling.checks_digest);
    assert_eq!((ruling.is_never_stored, ruling.stale_if_error), (false, Some(Duration::from_hours(720))));
    assert_eq!(ruling.stale_while_revalidate, Some(Duration::from_mins(1)));
    assert!(ruling.ignored.client_directives && ruling.ignored.vary == ["user-agent"]);
}

#[test]
fn a_rule_that_says_nothing_or_what_cannot_be_is_pointed_at() {
    for (text, at, problem) in [
        ("[[rule]]\nhosts = [\"a\", \"b:http\"]\nfresh = \"1m\"", "\"b:http\"", "not valid in `hosts`: `b:http`"),
        ("preserve_host = true", "true", "`preserve_host` has no effect without `origin`"),
        ("proxy_protocol = \"v2\"", "\"v2\"", "`proxy_protocol` has no effect without `origin`"),
        ("origin = \"http://a\"\nproxy_protocol = \"v1\"", "\"v1\"", "only version 2 of the PROXY protocol is sent"),
        ("origin = \"http://a\"\nproxy_protocol = \"2\"", "\"2\"", "unknown version of the PROXY protocol: `2`"),
        (
            "[[site]]\nhosts = [\"a\"]\norigin = \"http://a\"\nproxy_protocol = \"v2\"\nparent = \"http://b:3128\"",
            "[[site]]",
            "a PROXY header cannot reach an origin through a parent: http://a:80",
        ),
        ("origin = \"http://a\"\npreserve_host = \"a b\"", "\"a b\"", "not a host: `a b`"),
        ("[[site]]\norigin = \"http://a\"", "[[site]]", "[[site]] has no `hosts`"),
        ("[[site]]\nhosts = [\"a\"]", "[[site]]", "[[site]] has no `origin`"),
        ("[[site]]\npaths = \"app\"\norigin = \"http://a\"", "\"app\"", "not a path: `app`"),
        (
            "[[site]]\nhosts = [\"a\"]\norigin = \"http://a\"\n[[site]]\nhosts = [\"a\"]\npaths = [\"/b\"]\norigin = \"http://b\"",
            "\"a\"",
            "two sites have the same host: `a`",
        ),
        (
            "[[site]]\nlisteners = [\"127.0.0.1:3128\"]\norigin = \"http://a\"",
            "[[site]]",
            "a site with `listeners` cannot have an origin",
        ),
        ("[[site]]\npaths = [\"/b\"]\n[site.cache]\nheuristic = 1", "heuristic", "unknown key `heuristic`"),
        ("[cache]\ncompress = [\"deflate\"]", "\"deflate\"", "unknown coding: `deflate`"),
        ("[cache]\ncompress_types = [\"text\"]", "\"text\"", "not a media type: `text`"),
        ("[[rule]]\npaths = \"a\"\nfresh = \"1m\"", "\"a\"", "not valid in `paths`: `a`"),
        ("[[rule]]\nignore = [\"cookies\"]", "\"cookies\"", "unknown value for `ignore`: `cookies`"),
        ("[[rule]]\nname = \"\"\nfresh = \"1m\"", "\"\"", "not a name: ``"),
        ("[[rule]]\nhosts = [\"a\"]", "[[rule]]", "[[rule]] has no `fresh`"),
        (
            "[[rule]]\nstore = false\nfresh = \"1m\"",
            "[[rule]]",
            "the rule gives a lifetime to responses that it does not store",
        ),
        ("[[rule]]\nauthorization = \"maybe\"", "\"maybe\"", "unknown value for `authorization`: `maybe`"),
        ("[[rule]]\nvary = [\"a b\"]", "\"a b\"", "not a field name: `a b`"),
        ("[[rule]]\nobject_size_max = \"1XB\"", "\"1XB\"", "unknown unit in size: `1XB`"),
        (
            "[[rule]]\ntypes = [\"image/*\"]\ncheck_digest = true",
            "[[rule]]",
            "a rule with `types` cannot check: the check comes before the response, and its type is not known yet",
        ),
        (
            "[[rule]]\nauthorization = \"check\"\nignore = [\"authorization\"]",
            "[[rule]]",
            "the rule both shares responses to requests with credentials and checks each client",
        ),
        ("[[mirror]]\nname = \"oci\"\nregistries = [\"company\"]", "\"company\"", "not a registry: `company`"),
        (
            "[[mirror]]\nname = \"npm\"\nregistries = [\"a.example\"]",
            "[[mirror]]",
            "only a mirror of containers has registries",
        ),
        ("parent = \"https://user:secret@a\"", "\"https://user:secret@a\"", "parent must begin with http://"),
        ("[[rule]]\nfrehs = \"1m\"\nimmutable = true", "frehs", "unknown key `frehs`"),
    ] {
        let found = parse(text).unwrap_err();
        assert_eq!((&text[found.span.clone()], found.problem.as_str()), (at, problem), "{text}");
    }
}

#[test]
fn one_disk_needs_no_list() {
    let store = parse("[store]\npath = \"a\"\nsize = \"1GB\"").unwrap().store;
    assert_eq!((store.disks, store.sizes), (vec![DiskSettings::At("a".into())], vec![Some(1_000_000_000)]));
}

#[test]
fn a_bad_member_of_a_list_is_pointed_at_alone() {
    for (text, at) in [
        ("listen = [\"3128\", \"x\"]", "\"x\""),
        ("[forward]\nallow_targets = [\"10.0.0.0/8\", \"lan\"]", "\"lan\""),
        ("[forward]\nconnect_ports = [443, 0]", "0"),
        ("[store]\nsize = [\"1GB\", \"1XB\"]", "\"1XB\""),
        ("[store]\npolicy = \"lru\"", "\"lru\""),
        ("[store.tuning]\nsorted_reads = 1", "1"),
        ("[[site]]\nhosts = [\"a\", \"http://b\"]\norigin = \"http://c\"", "\"http://b\""),
    ] {
        let found = parse(text).unwrap_err();
        assert_eq!(&text[found.span], at, "{text}");
    }
}

#[test]
fn origins_of_a_site_that_do_not_go_together_are_pointed_at() {
    let site = "drain_timeout = \"1s\"\n[[site]]\nhosts = [\"a\"]\norigin = \"http://b\"\n[[site.origins]]\n";
    for (more, problem) in [
        ("url = \"http://c\"\nweight = 101", "weight of http://c:80 must be from 1 to 100: 101"),
        ("url = \"http://c/d\"", "origins of one site must have the same base path: http://c:80/d"),
    ] {
        let text = format!("{site}{more}");
        let found = parse(&text).unwrap_err();
        assert_eq!((found.problem.as_str(), &text[found.span]), (problem, "[[site]]"));
    }
}

#[test]
fn a_host_that_has_a_site_already_is_pointed_at() {
    let site = |host: &str| format!("[[site]]\nhosts = [\"b\", \"{host}\"]\norigin = \"http://c\"\n");
    for (text, at) in [(site("B"), "\"B\""), (site("a") + &site("d"), "\"b\"")] {
        let found = parse(&text).unwrap_err();
        assert_eq!((found.problem.as_str(), &text[found.span.clone()]), ("two sites have the same host: `b`", at));
        assert_eq!(found.span.start, text.rfind(at).unwrap());
    }
}

#[test]
fn a_site_needs_hosts_and_an_origin() {
    assert_eq!(parse("[[site]]\norigin = \"http://a\"").unwrap_err().problem, "[[site]] has no `hosts`");
    assert_eq!(parse("[[site]]\nhosts = []\norigin = \"http://a\"").unwrap_err().problem, "[[site]] has no `hosts`");
    assert_eq!(parse("[[site]]\nhosts = [\"a\"]").unwrap_err().problem, "[[site]] has no `origin`");
}
