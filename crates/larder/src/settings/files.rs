//! Checks the files that the settings name, before anything is started or created.
//!
//! Owns: the list of files. `larder_proxy` checks their content. Invariants: nothing is changed. For every file, the
//! exit code is 1 if it is unreadable, and 2 if its content is invalid.

use crate::{
    ground::failure::{Failure, page},
    settings::RunSettings,
};
use larder_proxy::{AccessLogTarget, ProxyConfig};
use rustix::fs::Access;
use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

/// Refuses settings that name an unusable file.
///
/// # Errors
/// A failure that names every unreadable file. If all can be read, it names the first one with invalid content.
pub(crate) fn check(settings: &RunSettings) -> Result<(), Failure> {
    let ProxyConfig { identities, origin_ca_file, passwords, build_caches, access_log, .. } = &settings.proxy;
    let pairs =
        identities.iter().flat_map(|identity| [("certificate", &identity.certificate), ("private key", &identity.key)]);
    let tokens = build_caches.iter().filter_map(|cache| cache.tokens.as_ref());
    let files = pairs
        .chain(origin_ca_file.iter().map(|path| ("certificate authorities", path)))
        .chain(passwords.iter().map(|path| ("passwords", path)))
        .chain(tokens.map(|path| ("build cache tokens", path)));
    let are_valid = Failure::all(files.map(|(name, path)| check_readable(name, path))).and_then(|()| {
        settings.proxy.check_files().map_err(|error| {
            Failure::usage(
                format!("cannot start: {error}"),
                concat!("give another file, or correct this one; see ", page!("reference/configuration.md")),
            )
        })
    });
    let log = match access_log {
        Some(AccessLogTarget::File(path)) => check_folder(path),
        _ => Ok(()),
    };
    Failure::all([are_valid, log])
}

/// Refuses a directory for the second tier that cannot be written. It may be missing, because the tier creates it.
///
/// A start does not check this, because a network file system may be mounted later.
///
/// # Errors
/// A failure that names the directory.
pub(crate) fn check_tier(folder: &Path) -> Result<(), Failure> {
    let shown = folder.display();
    let is_there = folder.exists();
    let parent = folder.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let target = if is_there { folder } else { parent };
    if !target.is_dir() {
        return Err(if is_there {
            Failure::runtime(format!("the folder of the second tier is not one: {shown}"), "give a `folder` in [tier]")
        } else {
            let help = format!("create it first (mkdir -p {0}), or mount it", parent.display());
            Failure::runtime(format!("no such directory for the second tier: {}", parent.display()), help)
        });
    }
    rustix::fs::access(target, Access::WRITE_OK | Access::EXEC_OK).map_err(|error| {
        let help = "give the user that runs larder the right to write there, or another `folder` in [tier]";
        Failure::runtime(format!("cannot write the second tier: {}: {shown}", io::Error::from(error)), help)
    })
}

fn check_readable(what: &str, path: &Path) -> Result<(), Failure> {
    File::open(path).and_then(|mut file| file.read(&mut [0])).map(drop).map_err(|error| unreadable(what, path, &error))
}

/// Returns the failure for an unreadable file.
pub(crate) fn unreadable(what: &str, path: &Path, error: &io::Error) -> Failure {
    let help = "give the path of a file that exists and that this user may read";
    Failure::runtime(format!("cannot read {what}: {error}: {}", path.display()), help)
}

/// Checks that the directory of the access log exists. The log file itself is created if it is missing.
fn check_folder(log: &Path) -> Result<(), Failure> {
    match log.parent() {
        Some(folder) if !folder.as_os_str().is_empty() && !folder.is_dir() => Err(Failure::runtime(
            format!("no such directory for the access log: {}", folder.display()),
            format!("create it first (mkdir -p {}), or give another path", folder.display()),
        )),
        _ => Ok(()),
    }
}
