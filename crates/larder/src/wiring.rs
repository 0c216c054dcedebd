//! From settings to a running proxy, and back down when a signal comes.
//!
//! Owns: the order of things. Nothing is created before everything that can be checked was checked; on the way down the
//! proxy finishes its exchanges before the store is closed. Does not: serve or store. Invariant: `run` returns only
//! when all that was committed is on the device, or with a failure that says it is not.

use crate::{
    failure::Failure,
    open_files,
    report::Report,
    settings::{Settings, Store as StoreSettings},
    size, store_path,
};
use larder_proxy::{Proxy, ProxyConfig, RunningProxy};
use larder_store::{Error, ErrorKind, Store, StoreOptions};
use std::{fs, io, net::TcpListener, path::Path, process, time::Duration};
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
    let config = settings.proxy_config();
    check_addresses(&config)?;
    let runtime = signal_runtime().map_err(system_failure)?;
    let mut signals = runtime.block_on(async { Signals::listen() }).map_err(system_failure)?;
    let path = store_path::find(&settings.store.disk)?;
    let open_files = open_files::raise();
    let store = path.as_deref().map(|path| open_store(path, &settings.store)).transpose()?;
    let running = Proxy::start(config.clone(), store.clone()).map_err(start_failure)?;
    let stats = store.as_ref().map(Store::stats);
    let report = Report {
        config: &config,
        listeners: running.local_addrs(),
        admin: running.admin_addr(),
        store: path.as_deref().zip(stats.as_ref()),
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
    for (address, flag) in
        config.listeners.iter().map(|address| (address, "--listen")).chain(config.admin.iter().map(|a| (a, "--admin")))
    {
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

fn open_store(path: &Path, settings: &StoreSettings) -> Result<Store, Failure> {
    let options = StoreOptions {
        mean_entry_size_bytes: settings.mean_object_size_bytes,
        io: settings.io,
        ..StoreOptions::new(path, settings.size_bytes)
    };
    let length = fs::metadata(path).map(|file| file.len());
    Store::open(options).map_err(|error| open_failure(&error, path, settings, length.ok()))
}

/// What the user can do about a store that does not open. `length_bytes` is that of the file, if there is one.
fn open_failure(error: &Error, path: &Path, settings: &StoreSettings, length_bytes: Option<u64>) -> Failure {
    let shown = path.display();
    let problem = format!("cannot use {shown} as the store: {error}");
    match (error.kind(), length_bytes) {
        (ErrorKind::Invalid, None) => {
            let (size, mean) = (size::show(settings.size_bytes), size::show(settings.mean_object_size_bytes));
            let ranges = format!(
                "--size is {size} and can be from 64MiB to 16TiB; --mean-object-size is {mean} and can be from 512B to 1MiB"
            );
            Failure::usage(problem, ranges)
        }
        (ErrorKind::Invalid, Some(length)) => Failure::runtime(
            problem,
            format!(
                "nothing was changed; if this is your store, start it with the size it was made with (--size {length}); \
                 if it is something else, choose another --disk path"
            ),
        ),
        (ErrorKind::Corrupt, _) => Failure::runtime(
            problem,
            format!(
                "nothing was changed; it cannot be read any more: move it away or delete it (rm {shown}), and a new one is made"
            ),
        ),
        _ => Failure::runtime(
            problem,
            format!(
                "check that {shown} can be read and written, that its disk has room for {}, and that no other larder \
                 uses it; or choose another --disk path",
                size::show(settings.size_bytes)
            ),
        ),
    }
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
