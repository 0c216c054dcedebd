//! Checks that a control socket can be trusted: only its owner can write to its directory, and a Larder of that owner
//! listens.
//!
//! Owns: creating and checking such a directory, and connecting to a socket in it. The messages are elsewhere.

use crate::ground::{failure::Failure, output::tell};
use rustix::{
    fs::{Access, access},
    net::sockopt::socket_peercred,
    process::geteuid,
};
use std::{
    fs::{self, Metadata},
    io,
    os::unix::{
        fs::{DirBuilderExt, MetadataExt},
        net::UnixStream,
    },
    path::{Path, PathBuf},
};

/// Creates `folder` and its parents for their owner alone, unless it exists.
///
/// # Errors
/// The directory cannot be created, belongs to another user, or other users may write to it.
pub(super) fn make(folder: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let own = geteuid().as_raw();
    // The metadata is that of a symbolic link itself, because another user's link could lead to this user's directory.
    let fault = fault_of(&fs::symlink_metadata(folder)?, |owner| owner == own);
    if let Some(fault) = fault {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, fault));
    }
    // The directory may be on a read-only file system.
    Ok(access(folder, Access::WRITE_OK)?)
}

/// Connects to a control socket. `None` if no process listens on it, or if this user must not connect.
///
/// # Errors
/// The socket or its directory belongs to another user, or other users may write to the directory.
pub(super) fn connect(socket: &Path) -> Result<Option<UnixStream>, Refusal> {
    let refused = |fault: String| Refusal { socket: socket.to_owned(), fault };
    let folder = socket.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let (Ok(data), Ok(_)) = (fs::symlink_metadata(folder), fs::symlink_metadata(socket)) else { return Ok(None) };
    let service = (folder == Path::new(SERVICE_FOLDER)).then(|| data.uid());
    let trusted = TrustedUsers { own: geteuid().as_raw(), service };
    if let Some(fault) = fault_of(&data, |owner| trusted.includes(owner)) {
        return Err(refused(fault));
    }
    let Ok(stream) = UnixStream::connect(socket) else { return Ok(None) };
    // This checks the process that listens, even if the path has changed since the directory was checked.
    let peer =
        socket_peercred(&stream).map_err(|error| refused(format!("cannot find out who listens there: {error}")))?;
    match peer.uid.as_raw() {
        user if trusted.includes(user) => Ok(Some(stream)),
        user => Err(refused(format!("another user listens on it (uid {user})"))),
    }
}

/// The users whose Larder is trusted to be a command's proxy, and to name the CA.
struct TrustedUsers {
    own: u32,
    /// The user of the service. Only root can have created the service's directory.
    service: Option<u32>,
}

impl TrustedUsers {
    fn includes(&self, user: u32) -> bool {
        user == 0 || user == self.own || Some(user) == self.service
    }
}

fn fault_of(data: &Metadata, is_trusted: impl Fn(u32) -> bool) -> Option<String> {
    match data {
        data if !data.is_dir() => Some("not a directory".to_owned()),
        data if !is_trusted(data.uid()) => Some(format!("the directory belongs to another user (uid {})", data.uid())),
        data if data.mode() & OTHERS != 0 => {
            Some(format!("other users may write to the directory (mode {:03o})", data.mode() & 0o7777))
        }
        _ => None,
    }
}

/// Why a control socket is not trusted, in words for the user.
#[derive(Debug)]
pub(super) struct Refusal {
    socket: PathBuf,
    fault: String,
}

impl Refusal {
    /// Prints a warning that the socket is ignored.
    pub(super) fn warn(&self) {
        tell!("larder: warning: {}; {}", self.problem(), self.help());
    }

    pub(super) fn failure(&self) -> Failure {
        Failure::runtime(self.problem(), self.help())
    }

    fn problem(&self) -> String {
        format!("the control socket {} is not trusted: {}", self.socket.display(), self.fault)
    }

    fn help(&self) -> String {
        let folder = self.socket.parent().unwrap_or(&self.socket).display();
        format!(
            "remove {folder}, or make it accessible only to you (chmod 700), or set XDG_RUNTIME_DIR to a directory \
             that is"
        )
    }
}

/// The directory of the packaged service: `RuntimeDirectory=larder` in its unit.
pub(super) const SERVICE_FOLDER: &str = "/run/larder";
/// Permission bits that let other users write.
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
        assert_eq!((data.mode() & 0o777, fault_of(&data, |owner| owner == data.uid())), (0o700, None));
        assert!(fault_of(&data, |_| false).unwrap().contains("another user"));
        symlink(&folder, scratch.path().join("link")).unwrap();
        fs::write(scratch.path().join("file"), "").unwrap();
        assert!(make(&scratch.path().join("link")).is_err() && make(&scratch.path().join("file")).is_err());
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o770)).unwrap();
        assert!(make(&folder).unwrap_err().to_string().contains("(mode 770)"));
    }

    #[test]
    fn only_root_the_user_and_the_service_are_trusted() {
        let of_user = TrustedUsers { own: 1000, service: None };
        assert_eq!([0, 1000, 999].map(|user| of_user.includes(user)), [true, true, false]);
        let of_service = TrustedUsers { own: 0, service: Some(999) };
        assert_eq!([0, 999, 1000].map(|user| of_service.includes(user)), [true, true, false]);
    }
}
