//! Checks the dependencies with cargo-deny: known vulnerabilities, yanked versions, licenses and sources (`deny.toml`).
//!
//! Owns: the source of the advisories. It is no part of the gate, because it needs a tool and data that the project
//! does not have. cargo-deny fetches the advisories with git. Git takes them from a snapshot, if there is one.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

use crate::cargo;

/// Environment variable with the path of a clone of the advisories, for machines that cannot fetch them.
const SNAPSHOT: &str = "LARDER_ADVISORY_DB";
/// URL from which cargo-deny fetches the advisories.
const ORIGIN: &str = "https://github.com/RustSec/advisory-db";
const GET_TOOL: &str = "audit: needs cargo-deny: cargo install --locked cargo-deny";

/// Checks the dependencies with cargo-deny. If the tool or the clone of the advisories is missing, prints what is
/// needed.
pub(crate) fn run(root: &Path) -> bool {
    if !cargo::has_command(root, "deny") {
        eprintln!("{GET_TOOL}");
        return false;
    }
    let Some(snapshot) = env::var_os(SNAPSHOT).map(PathBuf::from) else {
        println!("audit: fetches the advisories; {SNAPSHOT}=FOLDER names a clone of {ORIGIN} instead");
        return cargo::succeeds(root, &["deny", "--locked", "check"], &[]);
    };
    let Some((date, redirect)) = date_of(&snapshot).zip(redirect_to(&snapshot)) else {
        eprintln!("audit: {SNAPSHOT}={}: no clone of {ORIGIN}", snapshot.display());
        return false;
    };
    println!("audit: advisories of {date}");
    let environment =
        [("GIT_CONFIG_COUNT", "1"), ("GIT_CONFIG_KEY_0", redirect.as_str()), ("GIT_CONFIG_VALUE_0", ORIGIN)];
    cargo::succeeds(root, &["deny", "--locked", "check"], &environment)
}

/// Returns the key of a git setting that makes git read the folder `snapshot` instead of a URL.
fn redirect_to(snapshot: &Path) -> Option<String> {
    let folder = snapshot.canonicalize().ok()?;
    Some(format!("url.file://{}.insteadOf", folder.display()))
}

/// Returns the date of the newest commit of a clone.
fn date_of(folder: &Path) -> Option<String> {
    let shown = Command::new("git").arg("-C").arg(folder).args(["log", "-1", "--format=%cs"]).output().ok()?;
    let date = String::from_utf8_lossy(&shown.stdout).trim().to_owned();
    Some(date).filter(|date| !date.is_empty())
}
