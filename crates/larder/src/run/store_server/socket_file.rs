//! The file of a store's socket: its creation, permissions and removal.
//!
//! Owns: creating and removing it. Connections are served elsewhere. Invariants: at no moment can other users than the
//! permitted ones connect. A socket on which a process listens, and a file that is not a socket, are never removed.

use crate::ground::failure::Failure;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};
use std::{
    fs, io,
    os::unix::{
        fs::{FileTypeExt, MetadataExt, PermissionsExt},
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
};

/// Maximum number of connections that wait to be accepted.
const BACKLOG: i32 = 128;

/// A listening socket in the file system. Its file is removed when this is dropped.
pub(super) struct SocketFile {
    pub(super) listener: UnixListener,
    path: PathBuf,
    /// The inode number of the file. If the file at the path has another number at the end, it belongs to a later
    /// server and is kept.
    inode: u64,
}

impl SocketFile {
    /// Creates a socket with these permissions, and listens on it.
    ///
    /// # Errors
    /// A process listens there already, the path belongs to another kind of file, or the path cannot be used.
    pub(super) fn listen(path: &Path, mode: u32) -> Result<Self, Failure> {
        remove_dead(path)?;
        Self::create(path, mode).map_err(|error| {
            let help = "choose a path of at most 107 bytes with --socket, in a directory that you may write";
            Failure::runtime(format!("cannot create the socket {}: {error}", path.display()), help)
        })
    }

    fn create(path: &Path, mode: u32) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        bind(&socket, &SocketAddrUnix::new(path)?)?;
        // Connections are refused until `listen`, so nobody can connect before the permissions are set.
        fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
        listen(&socket, BACKLOG)?;
        let inode = fs::symlink_metadata(path)?.ino();
        Ok(Self { listener: UnixListener::from(socket), path: path.to_owned(), inode })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if fs::symlink_metadata(&self.path).is_ok_and(|there| there.ino() == self.inode) {
            // If the file remains, the next server recognizes it as dead.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Removes the socket of a server that was killed. Does nothing if no file exists.
///
/// # Errors
/// A process listens on the socket, or the file is not a socket.
fn remove_dead(path: &Path) -> Result<(), Failure> {
    let Ok(there) = fs::symlink_metadata(path) else { return Ok(()) };
    let shown = path.display();
    if !there.file_type().is_socket() {
        let help = "choose another path with --socket, or remove the file yourself";
        return Err(Failure::runtime(format!("{shown} exists and is not a socket"), help));
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path).map_err(|error| {
            let help = "remove it yourself, or choose another path with --socket";
            Failure::runtime(format!("cannot remove the old socket {shown}: {error}"), help)
        }),
        Ok(_) => {
            let help = "stop that process first, or choose another path with --socket";
            Err(Failure::runtime(format!("another process listens at {shown}"), help))
        }
        Err(error) => {
            let help = "choose another path with --socket, or remove the file yourself";
            Err(Failure::runtime(format!("cannot find out whether a process listens at {shown}: {error}"), help))
        }
    }
}
