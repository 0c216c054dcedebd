//! The metrics in `/metrics`, and their documentation.

use std::{collections::BTreeSet, fs, path::Path};

use larder_proxy::ProxyConfig;

use crate::support::{Connection, Fixture, Reply, eventually};

fn fixture() -> Fixture {
    let secret = tempfile::NamedTempFile::new().unwrap();
    fs::write(secret.path(), "of both nodes of a fleet").unwrap();
    Fixture::with(
        |received, _| match received.target.as_str() {
            "/no" => Reply::ok(&["Cache-Control: no-store"], "12345"),
            "/gone" => Reply::head("404 Not Found", &["Content-Length: 0"]),
            _ => Reply::ok(&["Cache-Control: max-age=60"], "0123456789"),
        },
        |config: &mut ProxyConfig| {
            config.admin = Some("127.0.0.1:0".parse().unwrap());
            let folder = config.state_base.as_ref().unwrap().with_extension("packs");
            config.tier.folder = Some(folder);
            config.fleet.node = Some("node-a".into());
            config.fleet.nodes = ["node-a=127.0.0.1:1", "node-b=127.0.0.1:2"].map(|node| node.parse().unwrap()).into();
            config.fleet.secret_file = Some(secret.path().to_owned());
            config.fleet.shares_entries = true;
        },
    )
}

fn metrics(fixture: &Fixture) -> String {
    Connection::open_admin(fixture.proxy.admin_addr().unwrap()).request("GET", "/metrics", &[]).text()
}

/// Returns the value of the first series that begins with `series`.
fn value(metrics: &str, series: &str) -> f64 {
    let line = metrics.lines().find_map(|line| line.strip_prefix(series));
    line.unwrap_or_else(|| panic!("no {series} in {metrics}")).trim().parse().unwrap()
}

/// Reads a file of the repository.
fn text(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)).unwrap()
}

/// Returns `name type` of every metric in `/metrics`.
fn served() -> BTreeSet<String> {
    let metrics = metrics(&fixture());
    metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ").map(str::to_owned)).collect()
}

#[test]
fn every_metric_is_documented_and_every_one_that_is_documented_is_served() {
    let document = text("docs/reference/metrics.md");
    let is_metric = |row: &&str| row.starts_with("larder_") || row.starts_with("process_");
    let rows = document.lines().filter_map(|line| line.strip_prefix("| `")).filter(is_metric);
    let documented: BTreeSet<String> = rows.map(|row| row.splitn(3, '|').take(2).collect::<String>()).collect();
    let documented: BTreeSet<String> =
        documented.iter().map(|row| row.replace('`', "").trim().replace("  ", " ")).collect();
    let served = served();
    let missing: Vec<_> = served.difference(&documented).collect();
    let gone: Vec<_> = documented.difference(&served).collect();
    assert!(missing.is_empty() && gone.is_empty(), "not documented: {missing:#?}, not served: {gone:#?}");
}

#[test]
fn every_metric_has_the_help_of_its_documentation() {
    let document = text("docs/reference/metrics.md");
    let metrics = metrics(&fixture());
    let meanings: BTreeSet<(&str, &str)> = document.lines().filter_map(documented_meaning).collect();
    assert!(meanings.len() > 50, "the page has tables: {}", meanings.len());
    let helps: Vec<(&str, &str)> = metrics
        .lines()
        .filter_map(|line| line.strip_prefix("# HELP ")?.trim_end_matches('.').split_once(' '))
        .collect();
    let other: Vec<_> = helps.iter().filter(|help| !meanings.contains(*help)).collect();
    assert!(other.is_empty(), "not the meaning that docs/reference/metrics.md gives: {other:#?}");
}

/// Returns the name and the meaning of the metric in a row of a table.
fn documented_meaning(row: &str) -> Option<(&str, &str)> {
    let (name, rest) = row.strip_prefix("| `")?.split_once('`')?;
    Some((name, rest.trim_end_matches(" |").rsplit_once("| ")?.1))
}

#[test]
fn cumulative_metrics_are_counters() {
    let served = served();
    for name in ["log_lines_dropped", "pins_refused", "store_aborts", "range_fills", "store_timeouts"] {
        assert!(served.contains(&format!("larder_{name}_total counter")), "{name} in {served:#?}");
    }
}

#[test]
fn dashboards_and_alerts_ask_for_metrics_that_there_are() {
    let served = served();
    let mut names: BTreeSet<String> = BTreeSet::new();
    for line in served {
        let (name, kind) = line.split_once(' ').unwrap();
        let suffixes: &[&str] = if kind == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
        names.extend(suffixes.iter().map(|suffix| format!("{name}{suffix}")));
    }
    for file in ["packaging/grafana-dashboard.json", "packaging/prometheus-alerts.yml"] {
        let text = text(file);
        let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
        let asked: BTreeSet<&str> =
            words.filter(|word| word.starts_with("larder_") || word.starts_with("process_")).collect();
        let unknown: Vec<_> = asked.iter().filter(|name| !names.contains(**name)).collect();
        assert!(asked.len() > 5 && unknown.is_empty(), "{file} asks for {unknown:?}");
    }
}

#[test]
fn exchanges_are_counted_by_result_status_site_and_time() {
    let fixture = fixture();
    for target in ["/no", "/no", "/gone"] {
        fixture.get(target, &[]);
    }
    fixture.get_hit("/yes", &[]);
    let of = |metrics: &str, result: &str, status: &str| {
        value(metrics, &format!("larder_responses_total{{result=\"{result}\",status=\"{status}\"}}"))
    };
    let mut told = String::new();
    eventually("all is counted", || {
        told = metrics(&fixture);
        told.contains("larder_responses_total{result=\"hit\"")
            && told.contains("status=\"4xx\"")
            && of(&told, "miss", "2xx") >= 3.0
    });
    assert_eq!(of(&told, "miss", "4xx"), 1.0);
    for family in ["larder_first_byte_seconds", "larder_response_seconds"] {
        assert_eq!(value(&told, &format!("{family}_count{{result=\"hit\"}}")), of(&told, "hit", "2xx"));
        let all = format!("{family}_bucket{{le=\"+Inf\",result=\"miss\"}}");
        assert_eq!(value(&told, &all), of(&told, "miss", "2xx") + 1.0, "{told}");
    }
    assert_eq!(value(&told, "larder_origin_first_byte_seconds_count"), value(&told, "larder_origin_requests_total"));
    assert_eq!(value(&told, "larder_misses_total{reason=\"no-store\"}"), 2.0);
    assert_eq!(
        value(&told, "larder_site_requests_total{site=\"other\",result=\"miss\"}"),
        of(&told, "miss", "2xx") + 1.0
    );
    assert!(!told.contains("site.example"), "a site that was hardly asked for has no label");
    assert!(value(&told, "process_open_fds") > 1.0 && value(&told, "process_start_time_seconds") > 1e9);
}

#[test]
fn a_site_that_is_asked_for_often_gets_a_label_and_counts_on_from_there() {
    let fixture = fixture();
    let mut connection = fixture.connect();
    let mut told = String::new();
    let label = "larder_site_requests_total{site=\"site.example\",result=\"hit\"}";
    eventually("it gets a label", || {
        (0..60).for_each(|_| assert_eq!(connection.request("GET", "/yes", &[]).status, 200));
        told = metrics(&fixture);
        told.contains(label)
    });
    eventually("it is counted", || {
        assert_eq!(connection.request("GET", "/yes", &[]).status, 200);
        told = metrics(&fixture);
        value(&told, label) > 0.0
    });
    assert!(value(&told, "larder_site_saved_bytes_total{site=\"site.example\"}") > 0.0);
    assert!(value(&told, "larder_site_client_bytes_total{site=\"other\"}") > 0.0);
}
