//! From settings to a running proxy, and back down when a signal comes.
//!
//! Owns: the order of things. Nothing is created before everything that can be checked was checked; on the way down the
//! proxy finishes its exchanges before the store is closed. Does not: serve or store. Invariant: `run` returns only
//! when all that was committed is on the device, or with a failure that says it is not.

use crate::{
    automatic,
    control::{About, ControlPath, server::ControlServer},
    failure::Failure,
    open_files,
    output::tell,
    reload::{Read, Reloader},
    report::{Report, StoreReport},
    service_manager,
    settings::{Disk, Settings},
    size, store_path, volumes,
};
use larder_proxy::{Listener, Proxy, ProxyConfig, ProxyHandle, RunningProxy};
use larder_store::Store;
use std::{
    io::{self, IsTerminal},
    net::TcpListener,
    os::unix::net::UnixListener,
    process,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{
    runtime::{self, Handle, Runtime},
    signal::unix::{Signal, SignalKind, signal},
    sync::oneshot,
    task, time,
};

/// Code of a process that was told to stop and did not finish its work.
const EXIT_CUT_SHORT: i32 = 1;

/// How long the start lines wait for the store to be loaded.
const LOADING_PATIENCE: Duration = Duration::from_millis(250);

/// How long a command that is to find what is stored waits for that.
const SESSIONS_PATIENCE: Duration = Duration::from_secs(5);

/// How long the store may take to close, once exchanges are over: an index of a terabyte is written in seconds, and a disk
/// that does not answer never lets it end.
const CLOSE_PATIENCE: Duration = Duration::from_secs(60);

/// How long such a process waits for the access log to have the lines of the exchanges that were cut short.
const CUT_PATIENCE: Duration = Duration::from_secs(1);

/// The sessions that a proxy is there for alone.
pub(crate) struct Sessions<'a> {
    /// Where they are asked for.
    pub(crate) listener: UnixListener,
    /// Has nobody find the listener any more.
    pub(crate) remove: &'a dyn Fn(),
}

/// Runs until a signal says stop. `read` reads the settings again when that is asked for.
///
/// # Errors
/// A failure to start, or to close the store.
pub(crate) fn run(settings: &Settings, read: Read) -> Result<(), Failure> {
    serve(settings, read, None)
}

/// Runs until the last session has ended, or a signal says stop.
///
/// # Errors
/// As [`run`].
pub(crate) fn run_for(settings: &Settings, sessions: Sessions<'_>) -> Result<(), Failure> {
    let same = settings.clone();
    serve(settings, Box::new(move || Ok(same.clone())), Some(sessions))
}

fn serve(read_settings: &Settings, read: Read, sessions: Option<Sessions<'_>>) -> Result<(), Failure> {
    let mut settings = read_settings.clone();
    let automatic = automatic::choose(&mut settings)?;
    let index_bytes = read_settings.proxy.hot_bytes.saturating_sub(settings.proxy.hot_bytes);
    let mut config = settings.proxy_config();
    let sockets = service_manager::sockets()?;
    check_addresses(&config, &sockets)?;
    let runtime = signal_runtime().map_err(system_failure)?;
    let mut signals = runtime.block_on(async { Signals::listen() }).map_err(system_failure)?;
    let open_files = open_files::raise();
    let opened = volumes::open(&settings.store)?;
    let store = opened.as_ref().map(|opened| opened.store.clone());
    let path = store.as_ref().and_then(|store| store.volumes().next().map(|volume| volume.path.to_owned()));
    config.state_base = path.and_then(|path| store_path::state_base(&path));
    let running = Proxy::start_on(config.clone(), store.clone(), sockets).map_err(start_failure)?;
    if let Some(store) = &store {
        await_loading(&runtime, store, if sessions.is_some() { SESSIONS_PATIENCE } else { LOADING_PATIENCE });
    }
    // Before it says that it runs, so that who waits for that finds it.
    let reloader = Arc::new(Reloader::new(read, running.handle(), read_settings.clone(), index_bytes));
    let control = control(&settings, &running, &reloader, sessions.is_some());
    let place = listen_for_commands(&runtime, &control, sessions.as_ref(), &settings)?;
    let report = Report {
        config: &config,
        listeners: running.local_addrs(),
        admin: running.admin_addr(),
        store: opened.as_ref().map(StoreReport::of),
        automatic,
        open_files: open_files.filter(|_| open_files::is_low(open_files, config.limits.connection_count_max)),
    };
    tell!("{report}");
    service_manager::tell_ready(&running.handle());
    drop((report, opened));
    runtime.block_on(async {
        let handle = running.handle();
        tokio::select! {
            () = signals.stop(&handle, &control) => {}
            () = control.idle(), if sessions.is_some() => {}
        }
        sessions.iter().for_each(|sessions| (sessions.remove)());
        place.iter().for_each(ControlPath::remove);
        tell!(
            "stopping: running exchanges have {} s to finish; a second signal ends at once",
            reloader.drain().as_secs()
        );
        let drain = reloader.drain();
        service_manager::tell_stopping(drain + CLOSE_PATIENCE);
        // On a thread of its own, so that the second signal is heard whatever the device does.
        let (ended, has_ended) = oneshot::channel();
        let stopped = task::spawn_blocking(move || stop(running, store, drain, ended));
        match await_end(stopped, signals.stop(&handle, &control), drain + CLOSE_PATIENCE).await {
            End::Stopped(outcome) => outcome,
            End::Signal => {
                handle.cut_short();
                // However it goes, the process ends.
                let _ = time::timeout(CUT_PATIENCE, has_ended).await;
                tell!("stopped at once: exchanges were cut short, and the last second of what was stored may be lost");
                process::exit(EXIT_CUT_SHORT)
            }
            End::Overdue => {
                tell!(
                    "stopped without its store, which did not close within {} s: the last second of what was stored may be \
                     lost, and the next start takes longer",
                    CLOSE_PATIENCE.as_secs()
                );
                process::exit(EXIT_CUT_SHORT)
            }
        }
    })
}

/// How a stop that was begun ends.
#[derive(Debug)]
enum End {
    /// By itself.
    Stopped(Result<(), Failure>),
    /// Not before there was another signal.
    Signal,
    /// Not in time: the disk does not answer.
    Overdue,
}

/// Waits until a stop has ended, somebody insists, or `patience` is over.
async fn await_end(
    stopped: task::JoinHandle<Result<(), Failure>>,
    signal: impl Future<Output = ()>,
    patience: Duration,
) -> End {
    tokio::select! {
        done = stopped => End::Stopped(done.expect("stopping does not panic")),
        () = signal => End::Signal,
        () = time::sleep(patience) => End::Overdue,
    }
}

/// Waits a moment for the store to be loaded, so that the start lines can say what is in it; tells of it later if it
/// takes longer.
fn await_loading(runtime: &Runtime, store: &Store, patience: Duration) {
    let is_loaded = runtime.block_on(async { time::timeout(patience, store.ready()).await.is_ok() });
    if !is_loaded {
        let (store, begun) = (store.clone(), Instant::now());
        runtime.spawn(async move {
            store.ready().await;
            let (entries, passed_s) = (size::show_count(store.stats().entries), begun.elapsed().as_secs_f64());
            tell!("the store is loaded: {entries} entries, after {passed_s:.1} s");
        });
    }
}

/// What answers the commands of this user.
fn control(
    settings: &Settings,
    running: &RunningProxy,
    reloader: &Arc<Reloader>,
    is_for_sessions: bool,
) -> Arc<ControlServer> {
    let about = About::of(settings, running.local_addrs());
    ControlServer::new(running.handle(), about, Arc::clone(reloader), is_for_sessions)
}

/// Has commands answered; tells where, if that is to be removed at the end.
fn listen_for_commands(
    runtime: &Runtime,
    control: &Arc<ControlServer>,
    sessions: Option<&Sessions<'_>>,
    settings: &Settings,
) -> Result<Option<ControlPath>, Failure> {
    let (place, listener) = match sessions {
        Some(sessions) => (None, Some(sessions.listener.try_clone().map_err(system_failure)?)),
        None => ControlServer::bind(settings.store.disks == [Disk::UserCache]).unzip(),
    };
    if let Some(listener) = listener {
        let control = Arc::clone(control);
        runtime.spawn(async move {
            if let Err(error) = control.serve(listener).await {
                tell!("larder exec and larder env do not find this proxy: {error}");
            }
        });
    }
    Ok(place)
}

/// Finds out whether the addresses can be had before a store is made that nobody would use.
fn check_addresses(config: &ProxyConfig, handed_over: &[TcpListener]) -> Result<(), Failure> {
    let flag = |listener: &Listener| if listener.tls { "--listen-tls" } else { "--listen" };
    let listeners = config.listeners.iter().map(|listener| (listener.address, flag(listener)));
    for (address, flag) in listeners.chain(config.admin.map(|address| (address, "--admin"))) {
        if handed_over.iter().any(|socket| socket.local_addr().is_ok_and(|local| local == address)) {
            continue;
        }
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

/// Lets exchanges finish, says in `ended` that they have, then writes what is dirty and closes the store.
fn stop(
    running: RunningProxy,
    store: Option<Store>,
    grace: Duration,
    ended: oneshot::Sender<()>,
) -> Result<(), Failure> {
    running.shutdown(grace);
    // Nobody waits for it unless there was a second signal.
    let _ = ended.send(());
    store.map_or(Ok(()), |store| close(&store))
}

/// Writes what is dirty and closes the store. Blocks.
fn close(store: &Store) -> Result<(), Failure> {
    Handle::current().block_on(store.close()).map_err(|error| {
        let help = "what was stored last may be lost; the next start finds what is on the disk";
        Failure::runtime(format!("cannot close the store: {error}"), help)
    })
}

/// The signals that mean something here, and those that would end the process if nobody listened.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
    user1: Signal,
    _ignored: [Signal; 2],
    /// Whether standard error was a terminal at the start.
    has_terminal: bool,
}

impl Signals {
    fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
            user1: signal(SignalKind::user_defined1())?,
            _ignored: [signal(SignalKind::user_defined2())?, signal(SignalKind::alarm())?],
            has_terminal: io::stderr().is_terminal(),
        })
    }

    /// Waits for one that means stop; reads the configuration again, or opens files again, at those that ask for it.
    async fn stop(&mut self, handle: &ProxyHandle, control: &Arc<ControlServer>) {
        loop {
            let (name, reloads) = tokio::select! {
                _ = self.terminate.recv() => return,
                _ = self.interrupt.recv() => return,
                _ = self.hangup.recv() => ("SIGHUP", true),
                _ = self.user1.recv() => ("SIGUSR1", false),
            };
            // The terminal that it was started from is gone: nobody asks for anything any more.
            if self.has_terminal && !io::stderr().is_terminal() {
                return;
            }
            if reloads {
                match service_manager::tell_reloading(control.reload()).await {
                    Ok(told) => {
                        tell!("{name}: {told}");
                        continue;
                    }
                    // A log that was moved away is begun anew all the same.
                    Err(failure) => tell!("{name}: nothing changes\n{}", failure.shown()),
                }
            }
            let problems = handle.refresh();
            if problems.is_empty() {
                tell!("{name}: access log and certificates opened again");
            }
            problems.iter().for_each(|problem| tell!("{name}: {problem}: what was in use before still is"));
        }
    }
}

fn signal_runtime() -> io::Result<Runtime> {
    runtime::Builder::new_current_thread().enable_all().build()
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_store::{
        Hints, StoreOptions,
        device::{Device, MemoryDevice, Transfer},
    };
    use std::{
        future::{pending, ready},
        sync::{Arc, Mutex},
    };

    const STORE_BYTES: u64 = 16 << 20;

    /// A device that keeps what it is to do to itself, once it is told to.
    struct Silent {
        memory: MemoryDevice,
        kept: Mutex<Option<Vec<Transfer>>>,
    }

    impl Silent {
        fn fall_silent(&self) {
            *self.kept.lock().unwrap() = Some(Vec::new());
        }

        fn answer_again(&self) {
            let kept = self.kept.lock().unwrap().take();
            kept.into_iter().flatten().for_each(|transfer| self.memory.submit(transfer));
        }
    }

    impl Device for Silent {
        fn submit(&self, transfer: Transfer) {
            // A completion may submit again: no lock is held while the device works.
            if let Some(kept) = &mut *self.kept.lock().unwrap() {
                kept.push(transfer);
                return;
            }
            self.memory.submit(transfer);
        }

        fn len_bytes(&self) -> u64 {
            self.memory.len_bytes()
        }

        fn alignment_bytes(&self) -> u32 {
            self.memory.alignment_bytes()
        }

        fn name(&self) -> &'static str {
            "silent"
        }
    }

    /// At stake: a proxy that nothing but SIGKILL ends, because its disk does not answer.
    #[test]
    fn stop_ends_in_time_and_at_a_signal_although_the_disk_does_not_answer() {
        let device = Arc::new(Silent { memory: MemoryDevice::new(STORE_BYTES), kept: Mutex::new(None) });
        let options = StoreOptions { segment_size_bytes: 1 << 20, ..StoreOptions::new("memory", STORE_BYTES) };
        let store = Store::open_on(Arc::clone(&device) as _, &options).unwrap();
        let runtime = signal_runtime().unwrap();
        runtime.block_on(async {
            store.ready().await;
            device.fall_silent();
            let mut writer = store.insert(b"dirty", "head".into(), Hints::default()).unwrap();
            writer.write("body".into()).unwrap();
            writer.commit().await.unwrap();
            let closing = |store: Store| task::spawn_blocking(move || close(&store));
            let overdue = await_end(closing(store.clone()), pending(), Duration::from_millis(1)).await;
            assert!(matches!(overdue, End::Overdue), "{overdue:?}");
            let hung = task::spawn(pending());
            assert!(matches!(await_end(hung, ready(()), Duration::from_secs(3600)).await, End::Signal));
            device.answer_again();
            let done = await_end(closing(store.clone()), pending(), Duration::from_secs(3600)).await;
            assert!(matches!(done, End::Stopped(Ok(()))), "a disk that answers again is waited for: {done:?}");
        });
    }
}
