//! The Larder that `larder exec` and `larder warm` start if none runs.
//!
//! It serves commands only, on the default store or the one named, and ends with the last of them. Owns: its settings,
//! and the reason that clients receive if it does not start. It inherits the control socket from its parent. Invariant:
//! each client that connected to the socket before the end gets a response or a closed connection.

use crate::{
    commands::{
        exec::{environment::certificates, proxy_before, trusted},
        private_larder::AllowedTargets,
    },
    ground::failure::Failure,
    run::{
        control::{ControlAnswer, ControlPath},
        wiring::{self, OwnSessions},
    },
    settings::{DiskSettings, RunSettings},
};
use clap::Args;
use larder_proxy::ProxyConfig;
use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, pem::PemObject as _},
};
use std::{
    io::{self, Write},
    os::{fd::AsFd, unix::net::UnixListener},
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};
use tempfile::NamedTempFile;

/// Name of the hidden command that starts the server.
pub(crate) const EXEC_SERVER: &str = "exec-server";

/// The flags of the hidden command that `larder exec` starts.
#[derive(Debug, Args)]
pub(crate) struct ExecServerFlags {
    /// The store [default: the one in your cache directory]
    #[arg(long, value_parser = DiskSettings::parse)]
    disk: Option<DiskSettings>,

    #[command(flatten)]
    targets: AllowedTargets,
}

/// Serves until the last session ends. The caller passes the control socket as standard input.
///
/// # Errors
/// The server does not start. Waiting clients receive the reason.
pub(crate) fn run(flags: &ExecServerFlags) -> Result<(), Failure> {
    let help = "this command is internal to larder exec; run larder exec -- COMMAND";
    let listener = io::stdin().as_fd().try_clone_to_owned().map(UnixListener::from);
    let listener = listener.and_then(|listener| listener.local_addr().map(|_| listener));
    let listener =
        listener.map_err(|error| Failure::usage(format!("standard input is not a control socket: {error}"), help))?;
    let socket = listener.local_addr().ok().and_then(|address| address.as_pathname().and_then(ControlPath::of_socket));
    let path = socket.ok_or_else(|| Failure::usage("standard input is not a control socket", help))?;
    // The file of CAs is kept as long as the server runs, because the server reads it again when its settings change.
    let authorities = authorities();
    let settings = settings(flags, authorities.as_ref().map(|file| file.path().to_owned()));
    let remove = || path.remove();
    let begun = Instant::now();
    loop {
        let control =
            listener.try_clone().map_err(|error| Failure::runtime(format!("cannot listen: {error}"), help))?;
        let ended = wiring::run_for(&settings, OwnSessions { listener: control, remove: &remove });
        match ended {
            // Another server may have just ended and may still be closing the store.
            Err(failure) if failure.is_store_in_use() && begun.elapsed() < PATIENCE => {
                thread::park_timeout(PAUSE);
            }
            Err(failure) => {
                remove();
                refuse_waiting(&listener, &failure);
                return Err(failure);
            }
            Ok(()) => return Ok(()),
        }
    }
}

/// Returns the settings of a server for the commands of one user. The server refuses the same targets as any Larder. It
/// also trusts the CAs in the file `authorities` to sign origins' certificates.
fn settings(flags: &ExecServerFlags, authorities: Option<PathBuf>) -> RunSettings {
    let mut settings = RunSettings::default();
    let proxy = ProxyConfig {
        listeners: vec!["127.0.0.1:0".parse().expect("it is an address")],
        connect_ports: (1..=u16::MAX).collect(),
        origin_ca_file: authorities,
        // The commands' requests must reach origins unchanged, as they would without the proxy.
        keep_underscores: true,
        ..settings.proxy
    };
    settings.proxy = proxy;
    settings.proxy.targets.allow.clone_from(&flags.targets.networks);
    settings.proxy.parents = proxy_before::find().and_then(|before| before.parents).unwrap_or_default();
    if let Some(disk) = &flags.disk {
        settings.store.disks = vec![disk.clone()];
    }
    // CI jobs save and restore the store file as a whole, so it should not be larger than its content.
    settings.store.is_sparse = true;
    // Processes that still use the proxy after the last command has ended were left behind by that command, so they are
    // not waited for.
    settings.drain = Duration::ZERO;
    settings
}

/// Writes a file with the CAs that the command's programs trust without Larder, such as the CA of a company's gateway.
///
/// Returns `None` if there are no such CAs, or if no file can be written. Requests to origins that need these CAs then
/// fail.
fn authorities() -> Option<NamedTempFile> {
    let texts = trusted::texts();
    let mut roots = RootCertStore::empty();
    let is_usable =
        |block: &&str| CertificateDer::from_pem_slice(block.as_bytes()).is_ok_and(|one| roots.add(one).is_ok());
    let blocks: Vec<&str> = texts.iter().flat_map(|text| certificates(text)).filter(is_usable).collect();
    if blocks.is_empty() {
        return None;
    }
    let mut file = tempfile::Builder::new().prefix("larder-exec-").suffix(".pem").tempfile().ok()?;
    file.write_all(blocks.join("\n").as_bytes()).ok()?;
    Some(file)
}

/// Sends `failure` to clients that have already connected.
fn refuse_waiting(listener: &UnixListener, failure: &Failure) {
    let (problem, help) = failure.told();
    let answer = ControlAnswer::Refused { problem: problem.to_owned(), help: help.to_owned() };
    let (Ok(mut text), Ok(())) = (serde_json::to_vec(&answer), listener.set_nonblocking(true)) else { return };
    text.push(b'\n');
    while let Ok((mut stream, _)) = listener.accept() {
        // An error means that the client has gone.
        let _ = stream.write_all(&text);
    }
}

/// Maximum wait for another process to close the store.
const PATIENCE: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(20);
