//! `larder store serve`: serves a store to other programs of this machine.
//!
//! Owns: its flags, the options of the cache that keeps the values, and the order of starting and stopping.
//! `store_server` serves the clients. Invariant: the command ends with success only if the store is closed.

use crate::{
    commands::{self, store::LayoutFlags},
    ground::{
        failure::{Failure, page},
        open_files,
        output::tell,
        size,
        value::BadValue,
    },
    run::{
        service_manager,
        signals::SignalBursts,
        store_server::{ServerOptions, StoreServer},
        wiring::{CLOSE_PATIENCE, EXIT_CUT_SHORT},
    },
    settings::{
        store_path::make_private,
        tuning,
        volumes::{SIZE_BYTES_DEFAULT, fitting_size_bytes},
    },
};
use clap::Args;
use larder_cache::{Cache, Error};
use larder_store::{PathContent, Policy, StoreInfo, StoreOptions};
use std::{
    io,
    path::{Path, PathBuf},
    process,
    time::{Duration, Instant},
};
use tokio::{
    runtime,
    signal::unix::{Signal, SignalKind, signal},
    time::timeout,
};

pub(crate) const SERVE_EXAMPLES: &str = concat!(
    "\
Examples:
  larder store serve /var/cache/values
  larder store serve values --size 100GB --memory 1GB
  larder store serve values --policy hashcache-setmem --socket /run/v.sock

Programs use the store through the C client in clients/c (in the package: /usr/share/larder/c), or by the protocol in ",
    page!("reference/store-socket.md"),
    ". SIGTERM and SIGINT let running requests finish; a second signal exits at once."
);

/// Default name of the socket in the store's directory.
const SOCKET_NAME: &str = "larder.sock";
/// Name of the store file in the directory. The cache chooses this name, so both must agree.
const STORE_NAME: &str = "store.larder";
/// Maximum time for which the start waits until the index is loaded. Lookups of values whose index entries are not
/// loaded yet are misses.
const LOADING_PATIENCE: Duration = Duration::from_secs(10);

/// The flags of `larder store serve`.
#[derive(Debug, Args)]
pub(crate) struct ServeFlags {
    /// Directory of the store, which is created if it does not exist. It belongs to this command: a store of
    /// `larder run` has other content.
    directory: PathBuf,

    /// Path of the socket [default: larder.sock in the directory]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,

    /// Permissions of the socket, in octal. 600 admits only you, 660 also your group
    #[arg(long, value_name = "MODE", value_parser = parse_mode, default_value = "600")]
    socket_mode: u32,

    /// Maximum number of programs that are connected at the same time
    #[arg(long, value_name = "COUNT", default_value_t = 256, value_parser = clap::value_parser!(u16).range(1..))]
    connections: u16,

    /// Size of the store, such as 100GB [default: that of the existing store, or 1GB]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    size: Option<u64>,

    /// Memory for values, for those that wait to be written, and for the index of `log`
    #[arg(long, value_name = "SIZE", value_parser = size::parse, default_value = "64MiB")]
    memory: u64,

    #[arg(long, value_name = "POLICY", value_parser = tuning::parse_policy,
        help = "Storage policy; `larder help tuning` lists them [default: that of the existing store, or log]")]
    policy: Option<&'static Policy>,

    #[command(flatten)]
    layout: LayoutFlags,
}

/// Runs `larder store serve` until a signal to stop arrives.
///
/// # Errors
/// The store or the socket cannot be used, or the store could not be closed.
pub(crate) fn run(flags: &ServeFlags) -> Result<(), Failure> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build().map_err(system_failure)?;
    let mut signals = runtime.block_on(async { StopSignals::listen() }).map_err(system_failure)?;
    open_files::raise();
    create_private(&flags.directory)?;
    let opened = OpenedCache::open(flags)?;
    let OpenedCache { cache, size_bytes, policy } = &opened;
    // If loading takes longer than that, serving starts anyway, and lookups of values that are not loaded yet miss.
    let _ = runtime.block_on(async { timeout(LOADING_PATIENCE, cache.ready()).await });
    let socket = flags.socket.clone().unwrap_or_else(|| flags.directory.join(SOCKET_NAME));
    let options = ServerOptions { socket: &socket, mode: flags.socket_mode, connections_max: flags.connections.into() };
    let server = StoreServer::start(cache, options)?;
    tell!("larder {}", env!("CARGO_PKG_VERSION"));
    tell!("  store    {} of {}, policy {policy}", flags.directory.display(), size::show(*size_bytes));
    tell!("  socket   {}, permissions {:o}", socket.display(), flags.socket_mode);
    service_manager::tell_started();
    runtime.block_on(signals.next());
    service_manager::tell_stopping(CLOSE_PATIENCE);
    runtime.spawn(async move {
        signals.next().await;
        process::exit(EXIT_CUT_SHORT);
    });
    // The runtime keeps running while the server stops, so that a second signal can end the process.
    runtime.block_on(async {
        let stopped = tokio::task::spawn_blocking(move || server.stop());
        stopped.await.expect("stopping does not panic");
        close(cache).await
    })
}

async fn close(cache: &Cache) -> Result<(), Failure> {
    let help = "values of the last seconds may be lost; check the disk";
    match timeout(CLOSE_PATIENCE, cache.close()).await {
        Ok(closed) => closed.map_err(|error| Failure::runtime(format!("cannot close the store: {error}"), help)),
        Err(_) => Err(Failure::runtime("the store did not close: its disk does not respond", help)),
    }
}

/// An open cache, and the store that it uses.
struct OpenedCache {
    cache: Cache,
    size_bytes: u64,
    policy: &'static Policy,
}

impl OpenedCache {
    fn open(flags: &ServeFlags) -> Result<Self, Failure> {
        let path = flags.directory.join(STORE_NAME);
        let there = existing(&path)?;
        let size_there = there.as_ref().map(|info| info.size_bytes);
        let fitting = || fitting_size_bytes(&path, SIZE_BYTES_DEFAULT);
        let size_bytes = flags.size.or(size_there).unwrap_or_else(fitting);
        let policy = flags.policy.or(there.and_then(|info| info.policy)).unwrap_or_else(Policy::default_policy);
        let layout = flags.layout.clone();
        let configure = move |options: &mut StoreOptions| {
            options.policy = policy;
            options.room_wait = ROOM_WAIT;
            options.waits_for_index = false;
            layout.apply(options);
        };
        let builder = Cache::builder(&flags.directory).disk(size_bytes).memory(flags.memory);
        let cache = builder.configure_store(configure).open().map_err(|error| open_failure(&path, &error))?;
        Ok(Self { cache, size_bytes, policy })
    }
}

/// Maximum time that a client's write waits for a slow disk. The default is shorter, because it suits a proxy, which
/// delays a response meanwhile.
const ROOM_WAIT: Duration = Duration::from_secs(30);

/// Returns the description of the store at `path`. `None` if there is nothing at that path.
fn existing(path: &Path) -> Result<Option<StoreInfo>, Failure> {
    match commands::store::look(path)? {
        PathContent::Store(info) => Ok(Some(info)),
        PathContent::Nothing => Ok(None),
        _ => {
            let help = "choose another directory, or move the file away";
            Err(Failure::runtime(format!("{} exists and is not a Larder store", path.display()), help))
        }
    }
}

fn open_failure(path: &Path, error: &Error) -> Failure {
    let help = "check the flags: size and policy must be those of an existing store; no other larder may be using it";
    Failure::runtime(format!("cannot open the store {}: {error}", path.display()), help)
}

fn create_private(directory: &Path) -> Result<(), Failure> {
    make_private(directory).map_err(|error| {
        let help = "choose a directory that you may write";
        Failure::runtime(format!("cannot create directory {}: {error}", directory.display()), help)
    })
}

/// Parses the permissions of the socket, in octal. The owner must be able to read and write.
fn parse_mode(text: &str) -> Result<u32, BadValue> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| mode & !0o777 == 0 && mode & 0o600 == 0o600);
    let help = "three octal digits, the first of them 6 or 7: 600 admits only you, 660 also your group, 666 everybody";
    mode.ok_or_else(|| BadValue::new(format!("not the permissions of a socket: `{text}`"), help))
}

fn system_failure(error: io::Error) -> Failure {
    Failure::runtime(format!("the system refused a thread or a signal handler: {error}"), "raise its limits")
}

/// The signals that end the command: SIGTERM, SIGINT and SIGHUP.
struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
    bursts: SignalBursts,
}

impl StopSignals {
    fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
            bursts: SignalBursts::default(),
        })
    }

    /// Waits for a signal to stop. Signals that follow another one at once are ignored, because they come from the same
    /// event.
    async fn next(&mut self) {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => {}
                _ = self.interrupt.recv() => {}
                _ = self.hangup.recv() => {}
            }
            if self.bursts.is_new(Instant::now()) {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_are_octal_and_include_the_owner() {
        assert_eq!(parse_mode("600").unwrap(), 0o600);
        assert_eq!(parse_mode("0660").unwrap(), 0o660);
        for wrong in ["", "060", "1600", "888", "-600", "rw"] {
            assert!(parse_mode(wrong).is_err(), "{wrong}");
        }
    }
}
