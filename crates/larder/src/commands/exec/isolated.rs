//! The process of `larder exec --offline` that leaves the network and then becomes the command (network_namespaces(7)).
//!
//! Owns: creating the namespace, its loopback interface, and the listener in it that stands for the proxy. The process
//! that started this one serves the listener (see `isolation`). Invariant: the command runs without any network except
//! that listener. If that is impossible, `isolation` is sent the reason.

use super::{
    child::not_run,
    isolation::{LISTENER, NO_NAMESPACE, NOT_RUN, restore_allocator},
};
use crate::{ground::failure::Failure, run::passing};
use clap::Args;
use rustix::{
    io::Errno,
    net::{
        AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink::SocketAddrNetlink, recv, sendto,
        socket_with,
    },
    process::{getegid, geteuid},
    thread::UnshareFlags,
};
use std::{
    ffi::OsString,
    fs, io,
    net::{SocketAddr, TcpListener},
    os::{
        fd::AsFd,
        unix::{net::UnixStream, process::CommandExt},
    },
    path::PathBuf,
    process::{Command, ExitCode},
};

/// The arguments of the hidden command that `larder exec --offline` starts.
#[derive(Debug, Args)]
pub(crate) struct IsolatedFlags {
    /// The Unix socket to the process that started this one
    line: PathBuf,

    /// The address of the proxy
    proxy: SocketAddr,

    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

/// Isolates the network of this process, and then replaces the process by the user's command. Returns only if the
/// command cannot be run.
pub(crate) fn run(flags: &IsolatedFlags) -> ExitCode {
    let failed = |error: io::Error| {
        let help = "run it without --offline, or see network_namespaces(7)";
        Failure::runtime(format!("cannot create a network namespace for the command: {error}"), help).report()
    };
    let line = match prepare(flags) {
        Ok(line) => line,
        Err(error) => return failed(error),
    };
    let (program, arguments) = flags.command.split_first().expect("the command line asks for one");
    let mut command = Command::new(program);
    restore_allocator(&mut command);
    let error = command.args(arguments).exec();
    // An error means that the process that started this one has ended, so nobody waits for the message.
    let _ = passing::send(&line, &[NOT_RUN], None);
    not_run(program, &error)
}

/// Moves this process to its own network if that is possible, and sends the result to the process that started this
/// one. Returns the connection to that process.
fn prepare(flags: &IsolatedFlags) -> io::Result<UnixStream> {
    let line = UnixStream::connect(&flags.line)?;
    match leave_network() {
        Ok(()) => {
            raise_loopback()?;
            let listener = TcpListener::bind(flags.proxy)?;
            passing::send(&line, &[LISTENER], Some(listener.as_fd()))?;
        }
        Err(error) => passing::send(&line, &[NO_NAMESPACE, error.raw_os_error() as u8], None)?,
    }
    Ok(line)
}

/// Moves this process to its own network namespace. Only root may do so directly. Other users also need a new user
/// namespace, in which only their user and group exist.
fn leave_network() -> Result<(), Errno> {
    match unshare(UnshareFlags::NEWNET) {
        Err(Errno::PERM) => {}
        done => return done,
    }
    let user = geteuid();
    let group = getegid();
    unshare(UnshareFlags::NEWUSER | UnshareFlags::NEWNET)?;
    let map = |file: &str, text: String| {
        fs::write(format!("/proc/self/{file}"), text)
            .map_err(|error| error.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error))
    };
    map("setgroups", "deny".to_owned())?;
    map("uid_map", format!("{user} {user} 1", user = user.as_raw()))?;
    map("gid_map", format!("{group} {group} 1", group = group.as_raw()))
}

#[expect(deprecated, reason = "it is unsound for descriptors alone (FILES), which stay shared here")]
fn unshare(flags: UnshareFlags) -> Result<(), Errno> {
    assert!(!flags.contains(UnshareFlags::FILES), "descriptors stay shared");
    rustix::thread::unshare(flags)
}

/// Activates the loopback interface of a new network namespace, with a message of rtnetlink(7).
fn raise_loopback() -> io::Result<()> {
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    let mut message = Vec::with_capacity(LINK_MESSAGE_BYTES);
    message.extend((LINK_MESSAGE_BYTES as u32).to_ne_bytes());
    message.extend(RTM_NEWLINK.to_ne_bytes());
    message.extend((NLM_F_REQUEST | NLM_F_ACK).to_ne_bytes());
    // The message's sequence number and sender.
    message.extend([0; 8]);
    // The interface's address family and type.
    message.extend([0; 4]);
    message.extend(LOOPBACK_INDEX.to_ne_bytes());
    message.extend(IFF_UP.to_ne_bytes());
    message.extend(IFF_UP.to_ne_bytes());
    assert_eq!(message.len(), LINK_MESSAGE_BYTES, "a head and an interface");
    sendto(&socket, &message, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    let mut answer = [0; ANSWER_BYTES];
    let (length, _) = recv(&socket, &mut answer, RecvFlags::empty())?;
    let code = answer.get(MESSAGE_HEAD_BYTES..length).and_then(|rest| rest.first_chunk::<4>());
    match code.map(|code| i32::from_ne_bytes(*code)) {
        Some(0) => Ok(()),
        Some(code) => Err(io::Error::from_raw_os_error(-code)),
        None => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

const MESSAGE_HEAD_BYTES: usize = 16;
const LINK_MESSAGE_BYTES: usize = MESSAGE_HEAD_BYTES + 16;
const ANSWER_BYTES: usize = 256;
const RTM_NEWLINK: u16 = 16;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
/// Index of the loopback interface. It is the first interface of every network namespace.
const LOOPBACK_INDEX: i32 = 1;
const IFF_UP: u32 = 1;
