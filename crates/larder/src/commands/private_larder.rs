//! Finds the Larder for a command: the user's running one, or one that is started for the command.
//!
//! Owns: finding and starting it. `exec_server` serves. Invariant: if two commands find none at the same time, one of
//! them starts it, and both use it.

use crate::{
    commands::exec_server::EXEC_SERVER,
    ground::{failure::Failure, output::tell, value},
    run::control::{Control, ControlAnswer, ControlPath, ControlRequest},
    settings::store_path,
};
use clap::Args;
use ipnet::IpNet;
use std::{
    env,
    ffi::OsStr,
    fs::File,
    io,
    net::SocketAddr,
    os::{fd::OwnedFd, unix::process::CommandExt},
    path::Path,
    process::{Command, Stdio},
};

/// The flag that permits target networks that a private Larder refuses by default.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct AllowedTargets {
    /// Loopback, link-local or private network that may be requested, as in larder run (repeatable)
    #[arg(long = "allow-target", value_name = "NETWORK", value_parser = value::network)]
    pub(crate) networks: Vec<IpNet>,
}

impl AllowedTargets {
    /// Returns the networks as texts, as the request to open a session contains them.
    pub(crate) fn shown(&self) -> Vec<String> {
        self.networks.iter().map(ToString::to_string).collect()
    }
}

/// Opens a session with this user's running forward proxy. If none runs, starts one on the store at `disk`, or on the
/// default store. If the default store is unusable, that proxy keeps responses in memory only.
///
/// # Errors
/// No Larder runs, and none can be started.
pub(crate) fn open(ask: &ControlRequest, disk: Option<&Path>) -> Result<(Control, SocketAddr, String), Failure> {
    let path = ControlPath::find()?;
    ControlPath::warn_of_strangers();
    for _ in 0..ATTEMPT_COUNT_MAX {
        let control = match ControlPath::connect_own() {
            Some(control) => Some(control),
            None => {
                let is_beside = path.connect().is_some_and(|mut control| control.serves_sites_only());
                start(&path, disk, targets_of(ask), is_beside)?
            }
        };
        let Some(mut control) = control else { continue };
        match control.ask(ask) {
            Ok(ControlAnswer::Opened { proxy, certificate }) => return Ok((control, proxy, certificate)),
            Ok(ControlAnswer::Refused { problem, help }) => return Err(Failure::runtime(problem, help)),
            Ok(_) => break,
            // The Larder that answered was about to end. The next attempt starts a new one.
            Err(_) => {}
        }
    }
    let help = format!("see its log: {}", path.log().display());
    Err(Failure::runtime("no larder responds, and none could be started", help))
}

/// Starts a Larder, and connects to it. Returns `None` if it does not accept connections yet.
///
/// `is_beside` is true if the usual control socket belongs to another Larder of this user that is not a forward proxy.
fn start(
    path: &ControlPath,
    disk: Option<&Path>,
    targets: &[String],
    is_beside: bool,
) -> Result<Option<Control>, Failure> {
    let failed = |error: io::Error| {
        let help = "it needs a directory of yours: set XDG_RUNTIME_DIR or XDG_CACHE_HOME to one that you may write to";
        Failure::runtime(format!("cannot start larder: {error}: {}", path.folder().display()), help)
    };
    let own = if is_beside { &path.of_commands() } else { path };
    let lock = path.lock().map_err(failed)?;
    if let Some(control) = own.connect() {
        return Ok(Some(control));
    }
    let listener = own.bind().map_err(failed)?;
    let log = File::create(path.log()).map_err(failed)?;
    let fault = if disk.is_none() { store_path::default_fault(is_beside) } else { None };
    if let Some(fault) = &fault {
        tell!("larder: warning: responses are kept in memory only, because the store cannot be used: {fault}");
    }
    let disk = disk.map(Path::as_os_str).or(fault.is_some().then_some(OsStr::new("none")));
    // The Larder gets its own process group, so that signals from the terminal reach only the user's command.
    Command::new(env::current_exe().map_err(failed)?)
        .arg(EXEC_SERVER)
        .args(disk.iter().flat_map(|disk| [OsStr::new("--disk"), disk]))
        .args(targets.iter().flat_map(|target| ["--allow-target", target]))
        .stdin(Stdio::from(OwnedFd::from(listener)))
        .stdout(Stdio::null())
        .stderr(Stdio::from(log))
        .process_group(0)
        .spawn()
        .map_err(failed)?;
    let control = own.connect();
    drop(lock);
    Ok(control)
}

/// Returns the target networks that the session needs.
fn targets_of(ask: &ControlRequest) -> &[String] {
    if let ControlRequest::Open { allow_targets, .. } = ask { allow_targets } else { &[] }
}

/// Maximum number of attempts to find or start a Larder. An attempt fails if the Larder found is about to end.
const ATTEMPT_COUNT_MAX: usize = 5;
