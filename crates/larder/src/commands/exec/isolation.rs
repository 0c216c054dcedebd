//! A network for the command of `larder exec --offline`, from which only the proxy can be reached.
//!
//! Owns: starting the command in it, and forwarding its connections to the proxy. The process that becomes the command
//! creates the network (see `isolated`). Invariant: if there is no such network, a warning is printed.

use crate::{commands::cli::EXEC_ISOLATED, ground::output::tell, run::passing};
use std::{
    env,
    ffi::OsString,
    io,
    net::{SocketAddr, TcpListener as StdListener},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};
use tokio::{
    io::{Interest, copy_bidirectional},
    net::{TcpListener, TcpStream, UnixListener, UnixStream},
    time,
};

/// Starts the user's command in a network of its own, and connects that network with the proxy.
pub(super) struct Isolation {
    line: UnixListener,
    path: PathBuf,
    proxy: SocketAddr,
}

impl Isolation {
    /// Prepares the socket over which the process in the isolated network passes its listener. `folder` must not be
    /// used for anything else. Requires a tokio runtime.
    ///
    /// # Errors
    /// The socket cannot be created in the folder.
    pub(super) fn new(folder: &Path, proxy: SocketAddr) -> io::Result<Self> {
        let path = folder.join("network.sock");
        Ok(Self { line: UnixListener::bind(&path)?, path, proxy })
    }

    /// Returns the command that starts `program` in its own network.
    ///
    /// # Errors
    /// The path of this program is unknown.
    pub(super) fn command(&self, program: &OsString, arguments: &[OsString]) -> io::Result<Command> {
        let mut command = Command::new(env::current_exe()?);
        command.env(ALLOCATOR_VARIABLE, one_thread(env::var_os(ALLOCATOR_VARIABLE)));
        command.arg(EXEC_ISOLATED).arg(&self.path).arg(self.proxy.to_string()).arg("--").arg(program).args(arguments);
        Ok(command)
    }

    /// Receives the messages of the isolated process until that process becomes the user's program. Returns whether the
    /// program was found.
    ///
    /// # Errors
    /// The connection broke off.
    pub(super) async fn serve_start(&self) -> io::Result<bool> {
        let (line, _) = self.line.accept().await?;
        loop {
            let mut octets = [0; 2];
            match receive(&line, &mut octets).await? {
                // The connection closes when the process becomes the user's program.
                (0, _) => return Ok(true),
                (_, Some(listener)) if octets[0] == LISTENER => {
                    tokio::spawn(carry_all(StdListener::from(listener), self.proxy));
                }
                _ if octets[0] == NOT_RUN => return Ok(false),
                _ => {
                    let error = io::Error::from_raw_os_error(i32::from(octets[1]));
                    tell!("larder: warning: --offline binds only programs that use the proxy: {error}; {UNBOUND}");
                }
            }
        }
    }
}

/// Returns settings for jemalloc that keep it from starting a thread. Only a process with one thread may create a user
/// namespace (unshare(2)).
fn one_thread(before: Option<OsString>) -> OsString {
    let mut settings = before.unwrap_or_default();
    if !settings.is_empty() {
        settings.push(",");
    }
    settings.push(ONE_THREAD);
    settings
}

/// Restores jemalloc's settings in the command's environment, because the command may use jemalloc, too.
pub(super) fn restore_allocator(command: &mut Command) {
    let settings = env::var(ALLOCATOR_VARIABLE).unwrap_or_default();
    let Some(before) = settings.strip_suffix(ONE_THREAD) else { return };
    match before.strip_suffix(',') {
        Some(before) => command.env(ALLOCATOR_VARIABLE, before),
        None => command.env_remove(ALLOCATOR_VARIABLE),
    };
}

async fn receive(line: &UnixStream, octets: &mut [u8]) -> io::Result<(usize, Option<std::os::fd::OwnedFd>)> {
    loop {
        line.readable().await?;
        match line.try_io(Interest::READABLE, || passing::receive(line, octets)) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            received => return received,
        }
    }
}

/// Accepts connections on `listener`, which is in the command's network, and forwards them to the proxy.
async fn carry_all(listener: StdListener, proxy: SocketAddr) {
    let Ok(listener) = listener.set_nonblocking(true).and_then(|()| TcpListener::from_std(listener)) else { return };
    loop {
        let Ok((mut client, _)) = listener.accept().await else {
            // The process is probably out of descriptors. A retry makes sense only after some connections have ended.
            time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        tokio::spawn(async move {
            if let Ok(mut socket) = TcpStream::connect(proxy).await {
                // If either side fails, both connections are closed, which the two peers notice.
                let _ = copy_bidirectional(&mut client, &mut socket).await;
            }
        });
    }
}

/// The environment variable with jemalloc's settings. Rust's builds of jemalloc prefix its name.
const ALLOCATOR_VARIABLE: &str = "_RJEM_MALLOC_CONF";
/// A setting of jemalloc that keeps it from starting a thread. It comes last, so that it overrides the user's settings.
const ONE_THREAD: &str = "background_thread:false";
/// First octet of the message with which the isolated process passes its listener.
pub(super) const LISTENER: u8 = b'L';
/// First octet of the message that no network namespace can be created. The second octet is the number of the system's
/// error.
pub(super) const NO_NAMESPACE: u8 = b'N';
/// The message that the program cannot be run.
pub(super) const NOT_RUN: u8 = b'X';
const UNBOUND: &str = "ssh, rsync, ping, docker and database clients could reach the network";
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
