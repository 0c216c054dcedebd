//! Folders to which only their owner writes.
//!
//! Owns: making one, and checking that nobody else can put anything into it. Does not: know what lies in it.

use std::{
    fs::{self, Metadata},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::Path,
};

/// Makes `folder` and what leads to it, unless it exists.
///
/// # Errors
/// It cannot be made, or is not this user's, or others may write to it.
pub(super) fn make(folder: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    check(folder)
}

/// Checks that `folder` is a directory of this user's that nobody else may write to.
///
/// # Errors
/// It is not, or there is no such folder.
pub(super) fn check(folder: &Path) -> io::Result<()> {
    // Not what a link leads to: somebody else's link could lead to a folder of ours.
    let data = fs::symlink_metadata(folder)?;
    let fault = fault_of(&data, rustix::process::geteuid().as_raw());
    fault.map_or(Ok(()), |fault| Err(io::Error::new(io::ErrorKind::PermissionDenied, fault)))
}

fn fault_of(data: &Metadata, user: u32) -> Option<&'static str> {
    match data {
        data if !data.is_dir() => Some("not a directory"),
        data if data.uid() != user => Some("the directory belongs to another user"),
        data if data.mode() & OTHERS != 0 => Some("others may write to the directory (chmod 700)"),
        _ => None,
    }
}

/// The bits of a mode that let others write.
const OTHERS: u32 = 0o022;

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn folder_of_others_or_open_to_others_is_refused() {
        let scratch = tempfile::tempdir().unwrap();
        let folder = scratch.path().join("a/b");
        make(&folder).unwrap();
        make(&folder).unwrap();
        let data = fs::symlink_metadata(&folder).unwrap();
        assert_eq!((data.mode() & 0o777, fault_of(&data, data.uid())), (0o700, None));
        assert!(fault_of(&data, data.uid() + 1).unwrap().contains("another user"));
        symlink(&folder, scratch.path().join("link")).unwrap();
        fs::write(scratch.path().join("file"), "").unwrap();
        assert!(check(&scratch.path().join("link")).is_err() && check(&scratch.path().join("file")).is_err());
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o770)).unwrap();
        assert!(make(&folder).unwrap_err().to_string().contains("chmod 700"));
    }
}
