//! Keeps tests within bounds: every test has a time limit, and no test names an absolute path that a machine may have.
//!
//! Owns: the folders of a machine, and the paths in them that every system has. A path in a test's text is compared as
//! written; one that is put together from parts is not seen.

use super::{Finding, source::Source, source::Tree};

/// The configuration that makes cargo run test programs with a time limit.
pub(crate) const CARGO_CONFIG: &str = ".cargo/config.toml";
const RUNNER: &str = "runner = \"xtask/time_limit.sh\"";

/// Folders that machines have, and names that tests have used for folders that no machine should have.
const FOLDERS: [&str; 21] = [
    "bin",
    "boot",
    "dev",
    "etc",
    "home",
    "lib",
    "lib64",
    "media",
    "mnt",
    "nonexistent",
    "nowhere",
    "opt",
    "proc",
    "root",
    "run",
    "sbin",
    "srv",
    "sys",
    "tmp",
    "usr",
    "var",
];

/// Paths that every system has, or that none can have. A path that ends with a slash stands for everything below it.
const ALLOWED: [&str; 15] = [
    "/bin",
    "/bin/bash",
    "/bin/sh",
    "/bin/true",
    // This folder has numbers only.
    "/dev/fd/disk",
    "/dev/full",
    "/dev/null",
    // Nothing can be below a device.
    "/dev/null/",
    // A connection in scripts of bash.
    "/dev/tcp/",
    "/proc",
    "/proc/",
    "/sbin",
    "/usr/bin",
    "/usr/bin/env",
    "/usr/sbin",
];

/// Tests that read paths as text, or have a root file system of their own.
const ALLOWED_IN: [&str; 6] = [
    // Replaces the paths in the documented configurations.
    "crates/larder/tests/it/documents.rs",
    // Runs the documented commands in a mount namespace.
    "crates/larder/tests/it/documents/console.rs",
    // Compares the parsed example of the documentation.
    "crates/larder/src/settings/config/tests.rs",
    // Parses the text of a mount table.
    "crates/larder-proxy/src/ground/machine_memory.rs",
    // Replaces the path in a script.
    "crates/larder/tests/it/package.rs",
    // The tests of this rule.
    "xtask/src/tidy/test_bounds.rs",
];

/// Returns the absolute paths in tests, and the manifests and settings because of which tests have no time limit.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings: Vec<Finding> = tree.sources.iter().flat_map(check_paths).collect();
    if !tree.text(CARGO_CONFIG).unwrap_or_default().lines().any(|line| line == RUNNER) {
        findings.push(Finding::new(CARGO_CONFIG, 1, format!("tests have no time limit: it must contain `{RUNNER}`")));
    }
    for manifest in &tree.manifests {
        let own_harness = manifest.text.lines().position(|line| line.starts_with("harness = false"));
        findings.extend(own_harness.map(|position| {
            let problem = "a harness of its own does not report slow tests, so they would have no time limit";
            Finding::new(&manifest.path, position + 1, problem)
        }));
    }
    findings
}

/// Returns the absolute paths that a machine may have in the test code of one source.
fn check_paths(source: &Source) -> Vec<Finding> {
    if ALLOWED_IN.contains(&source.path.as_str()) {
        return Vec::new();
    }
    let lines = source.lines.iter().enumerate().filter(|(position, _)| source.is_test_line(*position));
    let texts = lines.flat_map(|(position, line)| line.literals().map(move |text| (position, text)));
    let paths = texts.flat_map(|(position, text)| paths(text).map(move |path| (position, path)));
    let find = |(position, path): (usize, &str)| {
        let problem = format!("a machine may have `{path}`: use a path in a temporary folder of the test");
        Finding::new(&source.path, position + 1, problem)
    };
    paths.map(find).collect()
}

/// Returns the absolute paths in `text` that may exist on a machine.
fn paths(text: &str) -> impl Iterator<Item = &str> {
    let is_part = |c: char| c.is_alphanumeric() || "/._-".contains(c);
    text.split(move |c| !is_part(c)).filter(|word| is_of_machine(word))
}

fn is_of_machine(word: &str) -> bool {
    let Some(path) = word.strip_prefix('/') else { return false };
    let folder = path.split(['/', '.']).next().unwrap_or_default();
    let is_allowed = |allowed: &&str| word == *allowed || allowed.ends_with('/') && word.starts_with(allowed);
    FOLDERS.contains(&folder) && !ALLOWED.iter().any(is_allowed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::source::Text;

    fn tree(sources: Vec<Source>, config: &str) -> Tree {
        let texts = vec![Text { path: CARGO_CONFIG.to_owned(), text: config.to_owned() }];
        Tree { sources, texts, ..Tree::default() }
    }

    fn check_one(path: &str, text: &str) -> Vec<String> {
        let found = check(&tree(vec![Source::new(path, text)], RUNNER));
        found.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn paths_that_a_machine_may_have_are_found_in_tests_only() {
        for text in
            ["/nonexistent", "/nonexistent.pem", "--disk=/tmp/x", "path = \\\"/var/a\\\"", "/dev/sdb", "a /etc/b"]
        {
            let code = format!("a(\"b\", \"{text}\")");
            assert_eq!(check_one("crates/a/src/b.rs", &code), Vec::<String>::new());
            assert_eq!(check_one("crates/a/tests/it/b.rs", &code).len(), 1, "{text}");
            let unit = format!("#[cfg(test)]\nmod tests {{\n    {code}\n}}");
            assert!(check_one("crates/a/src/b.rs", &unit)[0].starts_with("crates/a/src/b.rs:3: a machine may have `/"));
        }
    }

    #[test]
    fn system_paths_and_paths_of_urls_pass() {
        for text in
            ["/dev/null", "/dev/null/a", "/proc/self/status", "/bin/sh -c", "/library", "/a/tmp", "http://lib/a"]
        {
            assert_eq!(check_one("crates/a/tests/it/b.rs", &format!("a(\"{text}\")")), Vec::<String>::new(), "{text}");
        }
    }

    #[test]
    fn tests_without_a_time_limit_are_found() {
        assert_eq!(check(&tree(Vec::new(), RUNNER)).len(), 0);
        assert!(check(&tree(Vec::new(), "[alias]")).first().is_some_and(|found| found.path == CARGO_CONFIG));
        let manifest = Text { path: "crates/a/Cargo.toml".to_owned(), text: "[[test]]\nharness = false\n".to_owned() };
        let own = Tree { manifests: vec![manifest], ..tree(Vec::new(), RUNNER) };
        assert_eq!(check(&own).len(), 1);
    }
}
