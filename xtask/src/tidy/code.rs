//! Rules about words in a source: `unsafe` in one file only, no unfinished work, no sleeping tests, only the glossary's
//! words, and no code in `lib.rs`.

use super::{Finding, source::Source};

/// The only file that may contain `unsafe`.
const UNSAFE_FILE: &str = "crates/larder-device/src/uring.rs";

/// The only file that may decide what happens to a lock after a panic.
const POISON_FILE: &str = "crates/larder-device/src/ignore_poison.rs";

/// Folders whose code must not put a fact of ours into a message's extensions. The files in `EXTENSIONS_FILES` may put
/// the values there that `h2` reads.
const WITHOUT_EXTENSIONS: [&str; 2] = ["crates/larder-proxy/src/", "crates/larder-wire/src/"];
const EXTENSIONS_FILES: [&str; 2] =
    ["crates/larder-proxy/src/door/http2.rs", "crates/larder-proxy/src/origins/other_protocol.rs"];

/// Marks of unfinished work in code or comments. They are written in pieces, so that this file passes its own rule.
const MARKS: [&str; 3] = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];

/// Macros of unfinished work or of debugging.
const MACROS: [&str; 3] = ["dbg!", "todo!", "unimplemented!"];

/// Words that names must not contain, each with the glossary's word for it.
const WORDS: [(&str, &str); 4] =
    [("upstream", "origin"), ("backend", "origin"), ("cacheable", "storable"), ("coalesce", "collapse")];

/// Names from libraries, such as plotters, that contain one of [`WORDS`].
const LIBRARY_NAMES: [&str; 7] =
    ["bitmapbackend", "drawingbackend", "resp_cacheable", "respcacheable", "svgbackend", "upstream_peer", "upstreams"];

/// Returns the places in a source with words or statements that this project does not use.
pub(crate) fn check(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (position, line) in source.lines.iter().enumerate() {
        let mut add = |problem: String| findings.push(Finding::new(&source.path, position + 1, problem));
        let words = || words(&line.code);
        if source.path != UNSAFE_FILE && words().any(|word| word == "unsafe") {
            add(format!("`unsafe` is allowed in {UNSAFE_FILE} only"));
        }
        for mark in MARKS {
            if words().chain(self::words(&line.comment)).any(|word| word == mark) {
                add(format!("{mark}: finish it, or open an issue"));
            }
        }
        for name in MACROS {
            if ends_word(&line.code, name) {
                add(format!("`{name}` does not belong in a commit"));
            }
        }
        for (word, better) in WORDS {
            let is_foreign = |found: &str| found.contains(word) && !LIBRARY_NAMES.contains(&found);
            if words().any(|found| is_foreign(&found.to_lowercase())) {
                add(format!("`{word}` in a name: the glossary's word is `{better}`"));
            }
        }
        if is_packed(&line.code) {
            add("one `let` names several values: give each a statement of its own".to_owned());
        }
        if source.path != POISON_FILE && words().any(|word| word == "PoisonError") {
            add(format!("call `ignore_poison()` of {POISON_FILE}"));
        }
        if carries_in_extensions(&source.path, &line.code) {
            add("a fact in a request's extensions: pass it as an argument, or as a field of `Target`".to_owned());
        }
        if line.code.contains("#[ignore") {
            add("an ignored test checks nothing: make it pass or delete it".to_owned());
        }
        if source.is_test_line(position) && words().any(|word| word == "sleep") {
            add("a test that sleeps is slow or flaky: wait for what it is about".to_owned());
        }
    }
    if source.path.ends_with("/lib.rs") {
        findings.extend(check_lib(source));
    }
    findings
}

/// Returns the identifiers of `code`.
pub(super) fn words(code: &str) -> impl Iterator<Item = &str> {
    code.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// Returns whether `code` is `let (a, b) = (x, y)`. Patterns that may fail to match are not counted.
fn is_packed(code: &str) -> bool {
    let Some(rest) = code.trim_start().strip_prefix("let (") else { return false };
    let Some((names, value)) = rest.split_once(") = ") else { return false };
    names.contains(',') && (value.is_empty() || value.starts_with('(')) && !names.contains('(') && {
        let mut depth = 0;
        let closes = value.char_indices().find(|&(_, c)| {
            depth += i32::from(c == '(') - i32::from(c == ')');
            depth == 0
        });
        closes.is_none_or(|(at, _)| value[at + 1..].starts_with(';'))
    }
}

/// Returns whether `code` uses the extensions of a message, other than for the protocol of an extended CONNECT.
fn carries_in_extensions(path: &str, code: &str) -> bool {
    let is_bound = WITHOUT_EXTENSIONS.iter().any(|folder| path.starts_with(folder));
    let is_for_h2 = EXTENSIONS_FILES.contains(&path) && words(code).any(|word| word == "Protocol");
    let uses =
        || [".extensions", "extensions(", "extensions_mut(", "Extensions"].iter().any(|word| code.contains(word));
    is_bound && !is_for_h2 && uses()
}

/// Returns whether `name` occurs in `code` as a whole word or at the end of a path.
fn ends_word(code: &str, name: &str) -> bool {
    code.match_indices(name).any(|(at, _)| {
        let before = code[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || c == '_')
    })
}

/// Checks that `lib.rs` contains only documentation, modules and re-exports, so that the code of a crate is found by
/// name.
fn check_lib(source: &Source) -> Option<Finding> {
    let mut statement_begins = true;
    for (position, line) in source.lines.iter().enumerate() {
        let code = line.code.trim();
        if code.is_empty() || code.starts_with("#[") || code.starts_with("#![") {
            continue;
        }
        let item = code.strip_prefix("pub(crate) ").or_else(|| code.strip_prefix("pub ")).unwrap_or(code);
        if statement_begins && !item.starts_with("mod ") && !item.starts_with("use ") {
            let problem = "code in lib.rs: it holds documentation, `mod` and `use` only";
            return Some(Finding::new(&source.path, position + 1, problem));
        }
        statement_begins = code.ends_with(';');
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_one(path: &str, text: &str) -> Vec<String> {
        check(&Source::new(path, text)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn unsafe_is_found_in_code_and_only_there() {
        assert_eq!(check_one("crates/a/src/b.rs", "// unsafe\nlet a = \"unsafe\";\n#![deny(unsafe_code)]").len(), 0);
        let found = check_one("crates/a/src/b.rs", "//! b\nunsafe { a() }\n");
        assert!(found[0].starts_with("crates/a/src/b.rs:2: `unsafe`"), "{found:?}");
        assert_eq!(check_one(UNSAFE_FILE, "unsafe { a() }").len(), 0);
    }

    #[test]
    fn marks_of_unfinished_work_are_found() {
        for mark in MARKS {
            assert_eq!(check_one("crates/a/src/b.rs", &format!("// {mark}: later")).len(), 1);
            assert_eq!(check_one("crates/a/src/b.rs", &format!("// {mark}S are none")).len(), 0);
        }
        for name in MACROS {
            assert_eq!(check_one("crates/a/src/b.rs", &format!("{name}()")).len(), 1);
            assert_eq!(check_one("crates/a/src/b.rs", &format!("a_{name}()")).len(), 0);
        }
    }

    #[test]
    fn several_values_in_one_let_are_found() {
        for packed in ["let (a, b) = (c, d);", "    let (mut a, b) = (c(e), d);", "let (a, b) = (c(", "let (a, b) = "] {
            assert_eq!(check_one("crates/a/src/b.rs", packed).len(), 1, "{packed}");
        }
        for one in ["let (a, b) = c(d);", "let (a, b) = (c + d).of(e);", "let (Some(a), b) = (c, d) else { e };"] {
            assert_eq!(check_one("crates/a/src/b.rs", one).len(), 0, "{one}");
        }
        assert_eq!(check_one("crates/a/src/b.rs", "use std::sync::PoisonError;").len(), 1);
    }

    #[test]
    fn facts_in_extensions_are_found() {
        let exempt = EXTENSIONS_FILES[0];
        for path in ["crates/larder-proxy/src/a.rs", "crates/larder-wire/src/a.rs", exempt] {
            for line in [
                "a.extensions_mut().insert(b);",
                "a.extensions().get::<B>()",
                "head.extensions.remove()",
                "b: Extensions",
            ] {
                assert_eq!(check_one(path, line).len(), 1, "{path}: {line}");
            }
        }
        assert_eq!(check_one(exempt, "head.extensions.remove::<Protocol>()").len(), 0);
        assert_eq!(check_one("crates/larder-proxy/src/a.rs", "head.extensions.remove::<Protocol>()").len(), 1);
        assert_eq!(
            check_one("crates/larder-proxy/src/a.rs", "let b = extensions.concat(); // its extensions()").len(),
            0
        );
        assert_eq!(check_one("crates/larder-tower/src/a.rs", "a.extensions().get::<B>()").len(), 0);
    }

    #[test]
    fn foreign_words_are_found_in_names() {
        let found = check_one("crates/a/src/b.rs", "struct UpstreamPool;\n// an upstream\n");
        assert_eq!(found, ["crates/a/src/b.rs:1: `upstream` in a name: the glossary's word is `origin`"]);
    }

    #[test]
    fn tests_neither_sleep_nor_are_ignored() {
        assert_eq!(check_one("crates/a/src/b.rs", "tokio::time::sleep(a)").len(), 0);
        assert_eq!(check_one("crates/a/src/b.rs", "#[cfg(test)]\nmod tests {\n    thread::sleep(a);\n}").len(), 1);
        assert_eq!(check_one("crates/a/tests/b.rs", "thread::sleep(a)").len(), 1);
        assert_eq!(check_one("crates/a/tests/b.rs", concat!("#[", "ignore]")).len(), 1);
    }

    #[test]
    fn lib_holds_no_code() {
        let good = "//! a\n#![warn(a)]\npub mod b;\nmod c;\npub use c::{\n    D, E,\n};\n#[cfg(test)]\nmod tests;\n";
        assert_eq!(check_one("crates/a/src/lib.rs", good).len(), 0);
        let found = check_one("crates/a/src/lib.rs", "//! a\nmod b;\n\npub fn c() {}\n");
        assert!(found[0].starts_with("crates/a/src/lib.rs:4: code in lib.rs"), "{found:?}");
    }
}
