//! Reasons why a place cannot be a store, with advice for the user.
//!
//! Owns: the wording. No disk is changed. Invariants: the error names the path at fault, and its advice works.

use super::MissingDisk;
use crate::{failure::Failure, size};
use larder_store::{Error, ErrorKind, PathContent, Policy, StoreOptions};
use std::path::{Path, PathBuf};

/// Refuses a path that cannot hold the store of `options`. `asked` is the policy given, if any.
///
/// # Errors
/// A failure that names the content of the path and gives advice.
pub(super) fn check(options: &StoreOptions, there: &PathContent, asked: Option<&Policy>) -> Result<(), Failure> {
    let path = options.path.display();
    let refused = |what: String, help: String| {
        Err(Failure::runtime(format!("cannot use {path} as the store: {what}"), format!("nothing was changed; {help}")))
    };
    match there {
        PathContent::OtherFile => refused(
            "it is there, and no store".to_owned(),
            format!("give another --disk path, or move {path} away yourself, and a store is made in its place"),
        ),
        PathContent::OtherDevice { what, .. } => refused(
            format!("it holds {what}"),
            format!("give another --disk path; larder store format {path} --force destroys what the device holds"),
        ),
        PathContent::Nothing if is_device_path(&options.path) => refused(
            "there is no such device".to_owned(),
            "lsblk lists the devices there are; a store in a file cannot be under /dev".to_owned(),
        ),
        PathContent::Store(info) => {
            let policy = info.policy.map_or("one that this larder does not know", |policy| policy.name);
            let anew =
                |flags: &str| format!("or replace it with an empty one: larder store format {path} {flags} --force");
            if let Some(asked) = asked.filter(|asked| info.policy.is_none_or(|there| there != *asked)) {
                let help =
                    format!("start it without --policy (it knows its own), {}", anew(&format!("--policy {asked}")));
                return refused(format!("it is a store of policy {policy}, but {asked} was asked for"), help);
            }
            let keeps_files = info.policy.is_some_and(|policy| policy.layout.keeps_files());
            if !keeps_files && info.size_bytes != options.size_bytes {
                let (there, asked) = (info.size_bytes, options.size_bytes);
                let what = format!(
                    "it is a store of {} ({there} bytes), but {} ({asked} bytes) were asked for",
                    size::show(there),
                    size::show(asked)
                );
                let help = format!("start it without --size (it knows its own), {}", anew(&format!("--size {asked}")));
                return refused(what, help);
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Returns whether a path leads to a device, rather than to a file that could be created.
fn is_device_path(path: &Path) -> bool {
    path.starts_with("/dev") && !path.starts_with("/dev/shm")
}

/// Describes a disk without a store although other disks have one. The disk may not be mounted, and creating a new
/// store would hide that.
pub(super) fn missing(path: PathBuf) -> MissingDisk {
    let shown = path.display();
    let why = if is_device_path(&path) {
        "there is no such device".to_owned()
    } else {
        format!("there is no store; mount it, or make one with larder store format {shown} if the disk is new")
    };
    MissingDisk { path, why }
}

/// Returns the failure for one disk under two names.
pub(super) fn twice(first: &Path, second: &Path) -> Failure {
    Failure::usage(
        format!("a disk is given twice: {} is {}", second.display(), first.display()),
        "give every disk once; a store takes one share of each",
    )
}

/// Returns the failure for a store that does not open, with advice.
pub(crate) fn open_failure(error: &Error, options: &StoreOptions) -> Failure {
    let shown = options.path.display();
    let problem = format!("cannot use {shown} as the store: {error}");
    match error.kind() {
        ErrorKind::Invalid if !options.path.exists() => {
            let (size, mean) = (size::show(options.size_bytes), size::show(options.mean_entry_bytes));
            let ranges = format!(
                "--size is {size} and can be from 64MiB to 16TiB; --mean-object-size is {mean} and can be from 512B to 1MiB"
            );
            Failure::usage(problem, ranges)
        }
        ErrorKind::Invalid => Failure::runtime(
            problem,
            format!(
                "nothing was changed; if this is your store, start it without --size and --policy (it knows its own), \
                 or replace it with an empty one: larder store format {shown} --force. Otherwise choose another --disk path"
            ),
        ),
        ErrorKind::Corrupt => Failure::runtime(
            problem,
            format!(
                "nothing was changed; it cannot be read any more: move {shown} away, and a store is made in its place"
            ),
        ),
        _ => Failure::runtime(
            problem,
            format!(
                "check that {shown} can be read and written, that its disk has room for {}, and that no other larder \
                 uses it; or choose another --disk path",
                size::show(options.size_bytes)
            ),
        ),
    }
}
