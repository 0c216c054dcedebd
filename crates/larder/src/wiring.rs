//! From settings to a running proxy, and back down when a signal comes.
//!
//! Owns: the order of things. Nothing is created before everything that can be checked was checked; on the way down the
//! proxy finishes its exchanges before the store is closed. Does not: serve or store. Invariant: `run` returns only
//! when all that was committed is on the device, or with a failure that says it is not.

use crate::{
    automatic,
    failure::Failure,
    open_files,
    report::{Report, StoreReport},
    settings::Settings,
    volumes,
};
use larder_proxy::{Listener, Proxy, ProxyConfig, RunningProxy};
use larder_store::Store;
use std::{io, net::TcpListener, process, time::Duration};
use tokio::{
    runtime::{self, Handle, Runtime},
    signal::unix::{Signal, SignalKind, signal},
    task,
};

/// Code of a process that was told twice to stop and did not finish its work.
const EXIT_CUT_SHORT: i32 = 1;

/// Runs until a signal says stop.
///
/// # Errors
/// A failure to start, or to close the store.
pub(crate) fn run(settings: &Settings) -> Result<(), Failure> {
    let mut settings = settings.clone();
    let automatic = automatic::choose(&mut settings)?;
    let config = settings.proxy_config();
    check_addresses(&config)?;
    let runtime = signal_runtime().map_err(system_failure)?;
    let mut signals = runtime.block_on(async { Signals::listen() }).map_err(system_failure)?;
    let open_files = open_files::raise();
    let store = volumes::open(&settings.store)?;
    let running = Proxy::start(config.clone(), store.clone()).map_err(start_failure)?;
    let report = Report {
        config: &config,
        listeners: running.local_addrs(),
        admin: running.admin_addr(),
        store: store.as_ref().map(|store| StoreReport::of(store, settings.store.disks.len())),
        automatic,
        open_files: open_files.filter(|_| open_files::is_low(open_files, config.limits.connection_count_max)),
    };
    eprintln!("{report}");
    runtime.block_on(async {
        signals.next().await;
        eprintln!("stopping: running exchanges have {} s to finish; a second signal ends at once", settings.drain.as_secs());
        let drain = settings.drain;
        // On a thread of its own, so that the second signal is heard whatever the device does.
        let stopped = task::spawn_blocking(move || stop(running, store, drain));
        tokio::select! {
            done = stopped => done.expect("stopping does not panic"),
            () = signals.next() => {
                eprintln!("stopped at once: exchanges were cut short, and the last second of what was stored may be lost");
                process::exit(EXIT_CUT_SHORT)
            }
        }
    })
}

/// Finds out whether the addresses can be had before a store is made that nobody would use.
fn check_addresses(config: &ProxyConfig) -> Result<(), Failure> {
    let flag = |listener: &Listener| if listener.tls { "--listen-tls" } else { "--listen" };
    let listeners = config.listeners.iter().map(|listener| (listener.address, flag(listener)));
    for (address, flag) in listeners.chain(config.admin.map(|address| (address, "--admin"))) {
        TcpListener::bind(address).map_err(|error| {
            let help = match error.kind() {
                io::ErrorKind::AddrInUse => {
                    format!("another program has this port, maybe another larder; give a free one with {flag}")
                }
                io::ErrorKind::PermissionDenied => {
                    format!("ports below 1024 are for root; give a higher one with {flag}")
                }
                io::ErrorKind::AddrNotAvailable => format!("give an address of this machine with {flag}"),
                _ => format!("give another address with {flag}"),
            };
            Failure::runtime(format!("cannot listen on {address}: {error}"), help)
        })?;
    }
    Ok(())
}

fn start_failure(error: io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::InvalidInput => {
            Failure::usage(format!("cannot start: {error}"), "correct this setting; see docs/configuration.md")
        }
        _ => Failure::runtime(
            format!("cannot start: {error}"),
            "correct what the system complains about, and start again",
        ),
    }
}

fn system_failure(error: io::Error) -> Failure {
    Failure::runtime(format!("cannot wait for signals: {error}"), "the limit on open files may be too low (ulimit -n)")
}

/// Lets exchanges finish, then writes what is dirty and closes the store.
fn stop(running: RunningProxy, store: Option<Store>, grace: Duration) -> Result<(), Failure> {
    running.shutdown(grace);
    let Some(store) = store else { return Ok(()) };
    Handle::current().block_on(store.close()).map_err(|error| {
        let help = "what was stored last may be lost; the next start finds what is on the disk";
        Failure::runtime(format!("cannot close the store: {error}"), help)
    })
}

/// The signals that mean stop.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn listen() -> io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

fn signal_runtime() -> io::Result<Runtime> {
    runtime::Builder::new_current_thread().enable_all().build()
}
