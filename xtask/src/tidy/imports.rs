//! Rules about who may know whom inside a crate: the engine's axes are strangers to one another, its
//! formats know nothing above them, and only the device and the clock touch the system.
//!
//! Cost of being simple: paths are followed as text, so an import renamed through a third module would
//! pass; the crate boundaries themselves are checked by the compiler and by the manifests' rule.

use super::{Finding, code::words, source::Source};

const ENGINE: &str = "crates/larder-store/src/";

/// A part of the engine, and the parts it must not name.
const STRANGERS: [(&str, &[&str]); 7] = [
    ("index", &["layout", "schedule", "eviction", "store"]),
    ("layout", &["index", "schedule", "eviction", "store"]),
    ("schedule", &["index", "layout", "eviction", "store"]),
    ("eviction", &["index", "layout", "schedule", "store"]),
    ("format", &["index", "layout", "schedule", "eviction", "store", "device"]),
    ("units", &["index", "layout", "schedule", "eviction", "store", "device", "format"]),
    ("device", &["index", "layout", "schedule", "eviction", "store", "format"]),
];

/// Paths into the system, and where in the engine they may stand.
const SYSTEM: [&str; 5] = ["std::fs", "std::net", "std::process", "SystemTime::now", "Instant::now"];
const SYSTEM_PARTS: [&str; 2] = ["device", "clock"];

/// Crates whose sources must not touch the system at all.
const PURE: [&str; 1] = ["crates/larder-http/src/"];

/// Checks one file.
pub(crate) fn check(source: &Source) -> Vec<Finding> {
    let part = source.path.strip_prefix(ENGINE).map(|rest| rest.split(['/', '.']).next().unwrap_or(rest));
    let mut findings = Vec::new();
    let strangers = STRANGERS.iter().find(|(name, _)| Some(*name) == part).map_or(&[][..], |(_, strangers)| strangers);
    let system_allowed =
        part.is_none_or(|part| SYSTEM_PARTS.contains(&part)) && !PURE.iter().any(|pure| source.path.starts_with(pure));
    for (first, last, statement) in statements(source) {
        for stranger in strangers.iter().filter(|stranger| names_crate_module(&statement, stranger)) {
            let problem = format!("`{}` must not know `{stranger}`: the axes meet in the store", part.unwrap_or(""));
            findings.push(Finding::new(&source.path, first + 1, problem));
        }
        for path in SYSTEM.iter().filter(|path| !system_allowed && statement.contains(**path)) {
            let line = (first..=last).find(|&at| source.lines[at].code.contains(path)).unwrap_or(first);
            let problem = format!("`{path}`: only a device or a clock touches the system; take it as an argument");
            findings.push(Finding::new(&source.path, line + 1, problem));
        }
    }
    findings
}

/// Product code cut at `;` and `{}` outside of `use` groups: first line, last line, text.
fn statements(source: &Source) -> Vec<(usize, usize, String)> {
    let mut found = Vec::new();
    let mut open: Option<(usize, String)> = None;
    for (position, line) in source.lines.iter().enumerate() {
        if source.is_test_line(position) {
            break;
        }
        let (first, mut text) = open.take().unwrap_or((position, String::new()));
        text.push_str(line.code.trim());
        let in_use = text.trim_start_matches("pub ").trim_start_matches("pub(crate) ").starts_with("use ");
        if in_use && !text.ends_with(';') {
            open = Some((first, text));
        } else if !text.is_empty() {
            found.push((first, position, text));
        }
    }
    found
}

/// Whether `statement` names the module `name` of its own crate: `crate::name`, or in a group `crate::{.., name::..}`.
fn names_crate_module(statement: &str, name: &str) -> bool {
    statement.match_indices("crate::").any(|(at, _)| {
        let rest = &statement[at + "crate::".len()..];
        match rest.strip_prefix('{') {
            None => words(rest).next() == Some(name),
            Some(group) => roots(group).any(|root| root == name),
        }
    })
}

/// The first names of a group's members: `a::{b, c}, d::e}` gives `a` and `d`.
fn roots(group: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_usize;
    let mut begin = 0;
    let mut members = Vec::new();
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => {
                members.push(&group[begin..at]);
                begin = group.len();
                break;
            }
            '}' => depth -= 1,
            ',' if depth == 0 => {
                members.push(&group[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    members.push(&group[begin..]);
    members.into_iter().filter_map(|member| words(member).next())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_one(path: &str, text: &str) -> Vec<String> {
        check(&Source::new(path, text)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn axes_do_not_know_one_another() {
        let path = "crates/larder-store/src/index/bucket.rs";
        assert_eq!(check_one(path, "use crate::units::ByteOffset;\nuse crate::{format::layouts, units};").len(), 0);
        for import in [
            "use crate::layout::Segment;",
            "use crate::{units, layout::{A, B}};",
            "use crate::{\n    units,\n    layout::A,\n};",
            "fn a(b: crate::layout::B) {}",
        ] {
            let found = check_one(path, import);
            assert!(found[0].contains("`index` must not know `layout`"), "{import}: {found:?}");
        }
        assert_eq!(check_one("crates/larder-store/src/store/open.rs", "use crate::layout::Segment;").len(), 0);
        assert_eq!(check_one("crates/larder-proxy/src/index.rs", "use crate::layout::Segment;").len(), 0);
    }

    #[test]
    fn members_of_inner_groups_are_no_modules_of_the_crate() {
        assert!(!names_crate_module("use crate::{units::{layout, b}, format};", "layout"));
        assert!(names_crate_module("use crate::{units::{a, b}, layout};", "layout"));
    }

    #[test]
    fn only_device_and_clock_touch_the_system() {
        let text = "let a = Instant::now();";
        assert_eq!(check_one("crates/larder-store/src/store/flush.rs", text).len(), 1);
        assert_eq!(check_one("crates/larder-http/src/age.rs", "use std::net::IpAddr;").len(), 1);
        assert_eq!(check_one("crates/larder-store/src/clock.rs", text).len(), 0);
        assert_eq!(check_one("crates/larder-store/src/device/threads.rs", "use std::fs::File;").len(), 0);
        assert_eq!(check_one("crates/larder-proxy/src/listener.rs", text).len(), 0);
        assert_eq!(
            check_one("crates/larder-store/src/a.rs", "//! a\n#[cfg(test)]\nmod tests {\nInstant::now()\n}").len(),
            0
        );
    }
}
