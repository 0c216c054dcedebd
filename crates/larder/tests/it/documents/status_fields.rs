//! Compares docs/reference/cache-status.md with the errors and reasons that the proxy's responses can carry.

use super::root;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

/// Returns the words in code spans of the tables of a section.
fn listed(page: &str, section: &str) -> BTreeSet<String> {
    let (_, rest) = page.split_once(&format!("\n## {section}\n")).unwrap();
    let text = rest.split("\n## ").next().unwrap();
    let rows = text.lines().filter(|line| line.starts_with("| "));
    rows.flat_map(|row| row.split('`').skip(1).step_by(2)).map(str::to_owned).collect()
}

/// Returns the variants and tokens of an enum's `=> "token"` lines.
fn tokens(source: &str) -> BTreeMap<String, String> {
    let arms = source.lines().filter_map(|line| line.trim().strip_prefix("Self::")?.split_once(" => \""));
    arms.map(|(variant, rest)| (variant.to_owned(), rest.split('"').next().unwrap().to_owned())).collect()
}

/// Returns whether a source file below `folder` contains `text`.
fn occurs(folder: &Path, text: &str) -> bool {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).any(|path| {
        if path.is_dir() {
            occurs(&path, text)
        } else {
            fs::read_to_string(&path).is_ok_and(|file| file.contains(text))
        }
    })
}

#[test]
fn every_error_and_reason_in_responses_is_documented() {
    let page = read("docs/reference/cache-status.md");
    let errors = tokens(&read("crates/larder-http/src/proxy_status.rs"));
    let sources = root().join("crates/larder-proxy/src");
    // The limit on connections to an origin appears only in a log line. The response to a waiting request is a 503.
    let sent = errors.iter().filter(|(variant, _)| *variant != "ConnectionLimitReached");
    let used = sent.filter(|(variant, _)| occurs(&sources, &format!("ProxyError::{variant}")));
    let documented = listed(&page, "Proxy-Status");
    let missing: Vec<_> = used.map(|(_, token)| token).filter(|token| !documented.contains(*token)).collect();
    assert!(missing.is_empty(), "docs/reference/cache-status.md does not explain the errors {missing:?}");

    let documented = listed(&page, "Cache-Status");
    let reasons = tokens(&read("crates/larder-http/src/reason.rs"));
    let missing: Vec<_> = reasons.values().filter(|token| !documented.contains(*token)).collect();
    assert!(reasons.len() > 20, "{reasons:?}");
    assert!(missing.is_empty(), "docs/reference/cache-status.md does not explain the reasons {missing:?}");
}
