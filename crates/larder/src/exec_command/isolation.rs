//! A network for the command of `larder exec --offline` from which nothing can be reached but the proxy.
//!
//! Owns: starting the command in it, and carrying its connections to the proxy. Does not: make the network, which the
//! process does that becomes the command (see `isolated`). Invariant: it warns where there is no such network.

use crate::{cli::EXEC_ISOLATED, output::tell, passing};
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

/// The command's network.
pub(super) struct Isolation {
    line: UnixListener,
    path: PathBuf,
    proxy: SocketAddr,
}

impl Isolation {
    /// Prepares a network in which the command reaches the proxy. It needs a folder of its own, and a runtime.
    ///
    /// # Errors
    /// The folder cannot be used.
    pub(super) fn new(folder: &Path, proxy: SocketAddr) -> io::Result<Self> {
        let path = folder.join("network.sock");
        Ok(Self { line: UnixListener::bind(&path)?, path, proxy })
    }

    /// Returns what starts a program in the network.
    ///
    /// # Errors
    /// The program that runs is not found.
    pub(super) fn command(&self, program: &OsString, arguments: &[OsString]) -> io::Result<Command> {
        let mut command = Command::new(env::current_exe()?);
        command.env(ALLOCATOR_VARIABLE, one_thread(env::var_os(ALLOCATOR_VARIABLE)));
        command.arg(EXEC_ISOLATED).arg(&self.path).arg(self.proxy.to_string()).arg("--").arg(program).args(arguments);
        Ok(command)
    }

    /// Serves the command from its start until it runs; returns whether its program was found.
    ///
    /// # Errors
    /// The process that was started broke off.
    pub(super) async fn serve_start(&self) -> io::Result<bool> {
        let (line, _) = self.line.accept().await?;
        loop {
            let mut octets = [0; 2];
            match receive(&line, &mut octets).await? {
                // The pipe closes when the program runs.
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

/// Returns settings of the allocator under which it has no thread of its own: only a process with one thread may make a
/// user namespace (unshare(2)).
fn one_thread(before: Option<OsString>) -> OsString {
    let mut settings = before.unwrap_or_default();
    if !settings.is_empty() {
        settings.push(",");
    }
    settings.push(ONE_THREAD);
    settings
}

/// Gives a command the settings of the allocator that there were before: other programs have this allocator, too.
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

/// Carries connections to a listener in the command's network on to the proxy.
async fn carry_all(listener: StdListener, proxy: SocketAddr) {
    let Ok(listener) = listener.set_nonblocking(true).and_then(|()| TcpListener::from_std(listener)) else { return };
    loop {
        let Ok((mut client, _)) = listener.accept().await else {
            // Out of descriptors: wait for others to end instead of spinning.
            time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        tokio::spawn(async move {
            if let Ok(mut socket) = TcpStream::connect(proxy).await {
                // A connection that breaks off is closed at both ends.
                let _ = copy_bidirectional(&mut client, &mut socket).await;
            }
        });
    }
}

/// Holds settings of jemalloc, as it is built for Rust.
const ALLOCATOR_VARIABLE: &str = "_RJEM_MALLOC_CONF";
/// Goes behind others, which it overrides.
const ONE_THREAD: &str = "background_thread:false";
/// First octet of the message with which the listener in the network comes.
pub(super) const LISTENER: u8 = b'L';
/// First octet of the message that there is no such network; the error's number is the second.
pub(super) const NO_NAMESPACE: u8 = b'N';
/// The message that the program cannot be run.
pub(super) const NOT_RUN: u8 = b'X';
const UNBOUND: &str = "ssh, rsync, ping, docker and database clients could reach the network";
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
