//! Reasons why a path cannot be a store, with advice for the user.
//!
//! Owns: the wording. No disk is changed. Invariants: the error names the path at fault, and its advice works.

use super::{MissingDisk, free_bytes};
use crate::ground::{failure::Failure, size};
use larder_store::{Error, ErrorKind, PathContent, Policy, StoreOptions};
use std::{
    error::Error as _,
    io,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::{Path, PathBuf},
};

/// Refuses a path that cannot hold the store that `options` describe. `asked` is the given policy, if any.
///
/// # Errors
/// A failure that names what is at the path, and gives advice.
pub(super) fn check(options: &StoreOptions, there: &PathContent, asked: Option<&Policy>) -> Result<(), Failure> {
    let path = options.path.display();
    let refused = |what: String, help: String| {
        Err(Failure::runtime(format!("cannot use {path} as the store: {what}"), format!("nothing was changed; {help}")))
    };
    match there {
        PathContent::OtherFile => refused(
            "it exists and is not a Larder store".to_owned(),
            format!("give another --disk path, or move {path} away, and larder creates a store in its place"),
        ),
        PathContent::OtherDevice { what, .. } => refused(
            format!("it holds {what}"),
            format!("give another --disk path; larder store format {path} --force destroys the device's content"),
        ),
        PathContent::Nothing if is_device_path(&options.path) => refused(
            "no such device".to_owned(),
            "lsblk lists the devices; a store in a file cannot be under /dev".to_owned(),
        ),
        PathContent::Store(info) => {
            let policy = info.policy.map_or("unknown to this version", |policy| policy.name);
            let anew =
                |flags: &str| format!("or replace it with an empty one: larder store format {path} {flags} --force");
            if let Some(asked) = asked.filter(|asked| info.policy.is_none_or(|there| there != *asked)) {
                let help =
                    format!("start without --policy (the store has its own), {}", anew(&format!("--policy {asked}")));
                return refused(format!("it is a store of policy {policy}, not {asked}"), help);
            }
            let keeps_files = info.policy.is_some_and(|policy| policy.layout.keeps_files());
            if !keeps_files && info.size_bytes != options.size_bytes {
                let there = info.size_bytes;
                let asked = options.size_bytes;
                let what = format!(
                    "it is a store of {} ({there} bytes), not {} ({asked} bytes)",
                    size::show(there),
                    size::show(asked)
                );
                let help =
                    format!("start without --size (the store has its own), {}", anew(&format!("--size {asked}")));
                return refused(what, help);
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Returns whether a path is that of a device, and not of a file that could be created.
fn is_device_path(path: &Path) -> bool {
    path.starts_with("/dev") && !path.starts_with("/dev/shm")
}

/// Describes a disk without a store, while other disks have one.
///
/// The disk may not be mounted. Creating a new store would hide that.
pub(super) fn missing(path: PathBuf) -> MissingDisk {
    let shown = path.display();
    let why = if is_device_path(&path) {
        "no such device".to_owned()
    } else {
        format!("there is no store; mount the disk, or create one with larder store format {shown} if the disk is new")
    };
    MissingDisk { path, why }
}

/// Returns the failure for a disk that is given under two names.
pub(super) fn twice(first: &Path, second: &Path) -> Failure {
    Failure::usage(
        format!("a disk is given twice: {} is {}", second.display(), first.display()),
        "give each disk once; the store places one share of the keys on each",
    )
}

/// Returns the failure for a store that cannot be opened, with advice.
pub(crate) fn open_failure(error: &Error, options: &StoreOptions) -> Failure {
    let shown = options.path.display();
    let problem = format!("cannot use {shown} as the store: {error}");
    if let Some(kind) = unusable_kind(&options.path) {
        let help = "give a file, a directory or a block device with --disk, or --disk none for memory only";
        return Failure::runtime(format!("cannot use {shown} as the store: it is {kind}"), help);
    }
    match error.kind() {
        ErrorKind::Invalid if !options.path.exists() => invalid_options(error, options),
        ErrorKind::Invalid => Failure::runtime(
            problem,
            format!(
                "nothing was changed; if this is your store, start without --size and --policy (the store has its \
                 own), or replace it with an empty one: larder store format {shown} --force. Otherwise choose \
                 another --disk path"
            ),
        ),
        ErrorKind::Corrupt => Failure::runtime(
            problem,
            format!(
                "nothing was changed; the store is unreadable: move {shown} away, and larder creates a new one in \
                 its place"
            ),
        ),
        ErrorKind::InUse => Failure::store_in_use(
            problem,
            format!("stop the process that uses it (fuser -v {shown} names it); {ELSEWHERE}"),
        ),
        ErrorKind::Full => no_room(options, 0, ELSEWHERE),
        _ if is_full(error) => no_room(options, 0, ELSEWHERE),
        _ => Failure::runtime(problem, unavailable_help(error, options)),
    }
}

/// Returns the failure for a store that `larder store format` cannot create, with advice.
pub(crate) fn format_failure(error: &Error, options: &StoreOptions) -> Failure {
    let shown = options.path.display();
    match error.kind() {
        ErrorKind::Invalid => invalid_options(error, options),
        ErrorKind::InUse => Failure::store_in_use(
            format!("cannot format {shown}: {error}"),
            format!("stop the process that uses it (fuser -v {shown} names it), and run the command again"),
        ),
        ErrorKind::Full => no_room(options, 0, ANOTHER_PATH),
        _ if is_full(error) => no_room(options, 0, ANOTHER_PATH),
        _ => Failure::runtime(
            format!("cannot format {shown}: {error}"),
            "check the path, and that you may read and write it",
        ),
    }
}

/// Returns the failure for a size, mean size or constant that makes no valid store.
fn invalid_options(error: &Error, options: &StoreOptions) -> Failure {
    let mean = size::show(options.mean_entry_bytes);
    let size = size::show(options.size_bytes);
    let ranges = format!(
        "--size is {size} and can be from 64MiB to 16TiB; --mean-object-size is {mean} and can be from 512B (tiny: \
         64B) to 1MiB"
    );
    Failure::usage(format!("cannot use {} as the store: {error}", options.path.display()), ranges)
}

/// Returns the kind of an existing path that can never be a store, such as "a character device". `None` for other
/// paths.
pub(crate) fn unusable_kind(path: &Path) -> Option<&'static str> {
    let kind = path.metadata().ok()?.file_type();
    match kind {
        _ if kind.is_char_device() => Some("a character device"),
        _ if kind.is_fifo() => Some("a pipe"),
        _ if kind.is_socket() => Some("a socket"),
        _ => None,
    }
}

/// Advice to choose another path on the command line of `larder store format`.
const ANOTHER_PATH: &str = "or give another path";

/// Advice to choose another path on the command line of `larder run`.
const ELSEWHERE: &str = "or choose another --disk path";

/// Returns advice for an error of the disk, by its cause.
fn unavailable_help(error: &Error, options: &StoreOptions) -> String {
    let shown = options.path.display();
    let folder = folder_of(options);
    match cause(error) {
        Some(io::ErrorKind::ReadOnlyFilesystem) => {
            "the file system is read-only: choose a place on another one with --disk PATH, or use --disk none for \
             memory only"
                .to_owned()
        }
        Some(io::ErrorKind::PermissionDenied) => {
            let user = rustix::process::geteuid().as_raw();
            format!("let the user that runs larder (uid {user}) read and write {shown} and its directory; {ELSEWHERE}")
        }
        Some(io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            format!("check that {} is a directory in which files can be created; {ELSEWHERE}", folder.display())
        }
        _ => format!("check the disk of {shown} (dmesg shows its errors); {ELSEWHERE}"),
    }
}

/// Returns the kind of the system's error that caused an error. `None` if the system caused none.
fn cause(error: &Error) -> Option<io::ErrorKind> {
    error.source().and_then(|source| source.downcast_ref::<io::Error>()).map(|error| error.kind())
}

/// Returns whether an error means that the file system has no room for the store.
fn is_full(error: &Error) -> bool {
    matches!(
        cause(error),
        Some(io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge)
    )
}

/// Refuses a new store for which the file system has no room, before anything is destroyed for it.
///
/// # Errors
/// A failure with the largest size that fits.
pub(crate) fn check_room(options: &StoreOptions) -> Result<(), Failure> {
    let there = options.path.metadata().ok();
    // Block devices have their own size, and the files in a directory are not counted.
    if there.as_ref().is_some_and(|there| !there.is_file()) {
        return Ok(());
    }
    // A file that the store will replace gives its space back.
    let there_bytes = there.map_or(0, |there| there.blocks() * 512);
    match free_bytes(&options.path) {
        Some(free_bytes) if free_bytes + there_bytes < options.size_bytes => {
            Err(no_room(options, there_bytes, ANOTHER_PATH))
        }
        _ => Ok(()),
    }
}

/// Returns the failure for a store for which the file system has no room.
///
/// The failure names the largest size that would fit. `more_bytes` become free when the store replaces an existing
/// file.
fn no_room(options: &StoreOptions, more_bytes: u64, elsewhere: &str) -> Failure {
    let size = size::show(options.size_bytes);
    let folder = folder_of(options).display();
    let free_bytes = free_bytes(&options.path).map(|free| free + more_bytes);
    let problem = format!(
        "cannot use {} as the store: a store of {size} does not fit{}",
        options.path.display(),
        free_bytes.map_or_else(String::new, |free| format!(", only {} are free", size::show(free)))
    );
    // In whole megabytes, and two less, for the files that Larder keeps next to the store.
    let largest_mb = free_bytes.map(|free| (free / MEGABYTE).saturating_sub(2));
    let help = match largest_mb {
        Some(mb) if mb * MEGABYTE >= options.size_bytes => {
            format!("a quota or a limit on the length of files is reached: give a smaller --size, {elsewhere}")
        }
        Some(mb) if mb * MEGABYTE >= *size::STORE_BYTES.start() => {
            format!("give --size {mb}MB or less, make room (df -h {folder} shows the free space), {elsewhere}")
        }
        Some(_) => format!(
            "no store fits there, the smallest has 64 MiB: make room (df -h {folder} shows the free space), {elsewhere}"
        ),
        None => format!("give a smaller --size, make room for {size}, {elsewhere}"),
    };
    Failure::runtime(problem, help)
}

const MEGABYTE: u64 = 1_000_000;

fn folder_of(options: &StoreOptions) -> &Path {
    options.path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guards against an operator who frees disk space, although the real problem is that another larder uses the
    /// store.
    #[test]
    fn each_cause_has_its_own_remedy() {
        let options = StoreOptions::new("/t/s.larder", 16 << 40);
        let of = |kind: io::ErrorKind| Error::io(ErrorKind::Unavailable, "cannot write", kind.into());
        let in_use = Error::new(ErrorKind::InUse, "the volume is busy: x");
        let full = Error::new(ErrorKind::Full, "no room for the volume");
        for (error, remedy) in [
            (full, "(df -h /t shows"),
            (in_use, "stop the process that uses it (fuser -v /t/s.larder names it)"),
            (of(io::ErrorKind::PermissionDenied), "let the user that runs larder"),
            (of(io::ErrorKind::StorageFull), "(df -h /t shows"),
            (of(io::ErrorKind::NotFound), "check that /t is a directory"),
            (of(io::ErrorKind::Other), "dmesg shows its errors"),
        ] {
            let failure = open_failure(&error, &options);
            let (_, help) = failure.told();
            assert!(help.contains(remedy) && help.ends_with("choose another --disk path"), "{help}");
        }
    }

    /// Guards against an operator who has to try sizes until one fits.
    #[test]
    fn full_disk_is_answered_with_the_largest_size_that_fits() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.larder");
        let options = StoreOptions::new(&path, 16 << 40);
        let full = Error::new(ErrorKind::Full, "no room for the volume");
        let failure = open_failure(&full, &options);
        let (problem, help) = failure.told();
        let free_mb = free_bytes(&path).unwrap() / MEGABYTE;
        assert!(problem.contains("a store of 17.6 TB does not fit, only "), "{problem}");
        if free_mb <= 70 {
            assert!(help.starts_with("no store fits there, the smallest has 64 MiB"), "{help}");
            return;
        }
        let told: u64 = help.strip_prefix("give --size ").unwrap().split("MB").next().unwrap().parse().unwrap();
        // Other programs write to the same file system meanwhile.
        assert!(told.abs_diff(free_mb) < 10_000, "{told} of {free_mb}");
    }
}
