//! The quick check during work: `cargo xtask quick [CRATE..]`.
//!
//! Owns: the choice of crates and checks. Formatting and house rules are checked in all crates, lints and unit tests
//! only in the chosen ones. It does not replace the gate, because it leaves out integration tests and seeds. Cost:
//! under a minute after a change of one line, once dependencies are built.

use crate::{cargo, tidy};
use std::{path::Path, process::Command, time::Instant};

/// Checks `crates`, or the crates with uncommitted changes if `crates` is empty.
pub(crate) fn run(root: &Path, crates: &[&str]) -> bool {
    let start = Instant::now();
    let crates: Vec<String> = match crates {
        [] => changed(root),
        named => named.iter().map(|name| (*name).to_owned()).collect(),
    };
    if let Some(unknown) = crates.iter().find(|name| directory_of(root, name).is_none()) {
        eprintln!("quick: no crate of this workspace: {unknown}");
        return false;
    }
    println!("quick: {}", if crates.is_empty() { "no crate has changed".to_owned() } else { crates.join(", ") });
    let passed = cargo::succeeds(root, &["fmt", "--all", "--check"], &[])
        && tidy::run(root)
        && crates.iter().all(|name| {
            let clippy = ["clippy", "--quiet", "--package", name, "--all-targets", "--locked", "--", "-D", "warnings"];
            cargo::succeeds(root, &clippy, &[]) && cargo::succeeds(root, &unit_tests(root, name), &[])
        });
    println!("quick: {} in {} s", if passed { "passed" } else { "failed" }, start.elapsed().as_secs());
    passed
}

/// Returns cargo's arguments for the unit tests of a crate: those of its library, or of its program if it has no
/// library.
fn unit_tests<'a>(root: &Path, name: &'a str) -> Vec<&'a str> {
    let has_library = directory_of(root, name).is_some_and(|directory| directory.join("src/lib.rs").is_file());
    vec!["test", "--quiet", "--package", name, "--locked", if has_library { "--lib" } else { "--bins" }]
}

/// Returns the folder of a crate of this workspace.
fn directory_of(root: &Path, name: &str) -> Option<std::path::PathBuf> {
    let directory = if name == "xtask" { root.join("xtask") } else { root.join("crates").join(name) };
    (!name.is_empty() && directory.join("Cargo.toml").is_file()).then_some(directory)
}

/// Returns the crates with uncommitted changes, from git.
fn changed(root: &Path) -> Vec<String> {
    let status =
        Command::new("git").args(["status", "--porcelain", "--untracked-files=all"]).current_dir(root).output();
    let text = status.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let mut crates: Vec<String> = text.lines().filter_map(|line| crate_of(line.get(3..)?)).collect();
    crates.sort_unstable();
    crates.dedup();
    crates
}

/// Returns the crate that a path of the repository belongs to.
fn crate_of(path: &str) -> Option<String> {
    // For a moved file, git prints both paths.
    let path = path.rsplit(" -> ").next()?;
    let mut parts = path.split('/');
    match parts.next()? {
        "xtask" => Some("xtask".to_owned()),
        "crates" => parts.next().filter(|_| parts.next().is_some()).map(str::to_owned),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_belong_to_crates() {
        for (path, expected) in [
            ("crates/larder-http/src/lib.rs", Some("larder-http")),
            ("crates/a/src/b.rs -> crates/larder/src/c.rs", Some("larder")),
            ("xtask/src/main.rs", Some("xtask")),
            ("docs/internals/format.md", None),
            ("crates/loose-file", None),
        ] {
            assert_eq!(crate_of(path).as_deref(), expected, "{path}");
        }
    }
}
