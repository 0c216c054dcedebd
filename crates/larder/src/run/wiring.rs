//! Starts a proxy from settings, and stops it when a signal arrives.
//!
//! Owns: the order of steps. Everything that can be checked is checked before anything is created. On a stop, the proxy
//! finishes its exchanges before the store is closed. Serving and storing are elsewhere. Invariant: `run` returns only
//! when all committed data is on the device, or with a failure that says that it is not.

use crate::{
    ground::{
        failure::{Failure, page},
        open_files,
        output::tell,
        size,
    },
    run::{
        automatic,
        control::{ControlPath, ControlSummary, server::ControlServer},
        reload::{Reloader, SettingsReader},
        report::{Report, StoreReport},
        service_manager,
        signals::Signals,
        upgrade::{HandedOver, RejectedHandover, Successor, Takeover, TakeoverTurn, UpgradeRequest},
    },
    settings::{
        RunSettings,
        memory_plan::{self, FittedMemory},
        store_path, volumes,
    },
};
use larder_proxy::{ClientConnection, Listener, ListeningSocket, Proxy, ProxyConfig, RunningProxy};
use larder_store::Store;
use std::{
    io,
    net::TcpListener,
    os::unix::net::UnixListener,
    process,
    sync::{Arc, mpsc::Receiver},
    thread,
    time::{Duration, Instant},
};
use tokio::{
    runtime::{self, Handle, Runtime},
    sync::{mpsc, oneshot},
    task, time,
};

/// Exit code of a process that could not finish its work after a signal to stop.
pub(crate) const EXIT_CUT_SHORT: i32 = 1;

/// Time that the start lines wait for the store to be loaded.
const LOADING_PATIENCE: Duration = Duration::from_millis(250);

/// Time that a Larder that serves only sessions waits for its store to be loaded, before it serves.
const SESSIONS_PATIENCE: Duration = Duration::from_secs(5);

/// Maximum time for the store to close after the exchanges have ended.
///
/// Writing the index of a terabyte takes seconds, but closing could wait forever for a disk that does not respond.
pub(crate) const CLOSE_PATIENCE: Duration = Duration::from_secs(60);

/// Time to wait for the access log to contain the exchanges that were cut off.
const CUT_PATIENCE: Duration = Duration::from_secs(1);

/// The sessions of a Larder that `larder exec` started. The Larder ends with the last of them.
pub(crate) struct OwnSessions<'a> {
    /// The control socket on which sessions are opened.
    pub(crate) listener: UnixListener,
    /// Removes the socket, so that no further client finds it.
    pub(crate) remove: &'a dyn Fn(),
}

/// Runs a proxy until a signal to stop arrives, or until another process has replaced this one.
///
/// `read` reads the settings again for a reload. `taking` is the handover from the process that this one replaces, if
/// any.
///
/// # Errors
/// The proxy does not start, or the store cannot be closed.
pub(crate) fn run(settings: &RunSettings, read: SettingsReader, taking: Option<&Takeover>) -> Result<(), Failure> {
    serve(settings, &read, taking, None)
}

/// Runs a proxy until the last session has ended or a signal to stop arrives.
///
/// # Errors
/// Returns the same errors as [`run`].
pub(crate) fn run_for(settings: &RunSettings, sessions: OwnSessions<'_>) -> Result<(), Failure> {
    let same = settings.clone();
    let read: SettingsReader = Arc::new(move || Ok(same.clone()));
    serve(settings, &read, None, Some(&sessions))
}

fn serve(
    read_settings: &RunSettings,
    read: &SettingsReader,
    taking: Option<&Takeover>,
    sessions: Option<&OwnSessions<'_>>,
) -> Result<(), Failure> {
    open_files::raise();
    let mut settings = read_settings.clone();
    let automatic = automatic::choose(&mut settings)?;
    let memory = memory_plan::fit(&mut settings, taking.and_then(Takeover::predecessor))?;
    let config = settings.proxy_config();
    let mut sockets = match taking {
        Some(taking) => taking.sockets(&config),
        None => service_manager::sockets()?,
    };
    check_addresses(&config, &sockets)?;
    let runtime = signal_runtime().map_err(system_failure)?;
    let mut signals = runtime.block_on(async { Signals::listen() }).map_err(system_failure)?;
    if let Some(taking) = taking {
        volumes::check_in_use(&settings.store)?;
        if let TakeoverTurn::Cancelled = taking.await_turn()? {
            return Ok(());
        }
    }
    let plan = StartPlan { read_settings, settings: &settings, read, automatic, memory, sessions };
    let mut taking = taking;
    let mut connections = None;
    loop {
        let started = StartedProxy::start(&runtime, &plan, sockets, taking)?;
        taking.take().inspect(|taking| taking.tell_serving());
        started.adopt(connections.take());
        service_manager::tell_ready(&started.running.handle());
        match started.go_on(&runtime, &mut signals, sessions)? {
            RunEnd::Ended => return Ok(()),
            RunEnd::GoesOn(inherited, left) => (sockets, connections) = (inherited, Some(left)),
        }
    }
}

/// Everything that is needed to start a proxy.
struct StartPlan<'a> {
    /// The settings as they were read from file and flags.
    read_settings: &'a RunSettings,
    /// The settings with the program's own choices filled in, such as the policy.
    settings: &'a RunSettings,
    read: &'a SettingsReader,
    automatic: Option<String>,
    memory: FittedMemory,
    sessions: Option<&'a OwnSessions<'a>>,
}

/// A running proxy with its store and its control socket.
struct StartedProxy {
    running: RunningProxy,
    store: Option<Store>,
    reloader: Arc<Reloader>,
    control: Arc<ControlServer>,
    commands: CommandServer,
    upgrades: mpsc::UnboundedReceiver<UpgradeRequest>,
}

/// Why a proxy stopped serving.
enum RunEnd {
    /// The proxy has ended as intended.
    Ended,
    /// The successor failed, so this process must continue on these sockets and with these connections.
    GoesOn(Vec<ListeningSocket>, Receiver<ClientConnection>),
}

impl StartedProxy {
    fn start(
        runtime: &Runtime,
        plan: &StartPlan<'_>,
        sockets: Vec<ListeningSocket>,
        taking: Option<&Takeover>,
    ) -> Result<Self, Failure> {
        let StartPlan { settings, sessions, .. } = *plan;
        let mut config = settings.proxy_config();
        let opened = volumes::open(&settings.store)?;
        let store = opened.as_ref().map(|opened| opened.store.clone());
        let path = store.as_ref().and_then(|store| store.volumes().next().map(|volume| volume.path.to_owned()));
        config.state_base = path.and_then(|path| store_path::state_base(&path));
        let running = Proxy::start_on(config.clone(), store.clone(), sockets).map_err(start_failure)?;
        taking.inspect(|taking| taking.tell_accepting(running.handle()));
        if let Some(store) = &store {
            await_loading(runtime, store, if sessions.is_some() { SESSIONS_PATIENCE } else { LOADING_PATIENCE });
        }
        // The control socket is served before the proxy reports that it runs, so that waiting clients find it.
        let read = Arc::clone(plan.read);
        let read_settings = plan.read_settings.clone();
        let reloader = Arc::new(Reloader::new(read, running.handle(), read_settings, plan.memory.plan));
        let (wants, upgrades) = mpsc::unbounded_channel();
        let about = ControlSummary::of(settings, running.local_addrs());
        let control = ControlServer::new(running.handle(), about, Arc::clone(&reloader), wants, sessions.is_some());
        let commands = listen_for_commands(runtime, &control, sessions)?;
        let wanted_count = settings.proxy.limits.connection_count_max;
        let is_low = config.limits.connection_count_max < wanted_count;
        let report = Report {
            config: &config,
            listeners: running.local_addrs(),
            admin: running.admin_addr(),
            store: opened.as_ref().map(StoreReport::of),
            automatic: plan.automatic.clone(),
            memory: &plan.memory,
            connections_wanted: is_low.then_some(wanted_count),
        };
        tell!("{report}");
        drop(report);
        Ok(Self { running, store, reloader, control, commands, upgrades })
    }

    /// Continues connections that another process passes to this one, as they arrive.
    fn adopt(&self, connections: Option<Receiver<ClientConnection>>) {
        let proxy = self.running.handle();
        connections.map(|connections| thread::spawn(move || connections.into_iter().for_each(|one| proxy.adopt(one))));
    }

    /// Serves until a signal to stop arrives, the last session ends, or another process replaces this one.
    fn go_on(
        mut self,
        runtime: &Runtime,
        signals: &mut Signals,
        sessions: Option<&OwnSessions<'_>>,
    ) -> Result<RunEnd, Failure> {
        let handle = self.running.handle();
        loop {
            let wanted = runtime.block_on(async {
                tokio::select! {
                    () = signals.stop(&handle, &self.control) => None,
                    () = self.control.idle(), if sessions.is_some() => None,
                    wanted = self.upgrades.recv() => wanted,
                }
            });
            let Some(UpgradeRequest { program, is_check, answer, is_told }) = wanted else {
                return self.stop(runtime, signals, sessions).map(|()| RunEnd::Ended);
            };
            let prepared = meanwhile(runtime, || {
                let successor = Successor::start(program, &self.running)?;
                if is_check {
                    successor.cancel();
                    return Ok(None);
                }
                successor.say_goodbye(&handle).map(Some)
            });
            let refused = match prepared {
                Ok(Some(successor)) => {
                    return Ok(self.hand_over(runtime, signals, successor, (answer, is_told)));
                }
                Ok(None) => Ok("a new larder could take over: configuration and formats fit".to_owned()),
                Err(failure) => Err(failure),
            };
            // If sending fails, the requester is gone.
            let _ = answer.send(refused);
        }
    }

    /// Hands over to the successor, and waits for the exchanges that end in this process.
    fn hand_over(
        self,
        runtime: &Runtime,
        signals: &mut Signals,
        successor: Successor,
        (answer, is_told): (oneshot::Sender<Result<String, Failure>>, oneshot::Receiver<()>),
    ) -> RunEnd {
        let Self { running, store, reloader, control, commands, .. } = self;
        tell!("a new process takes over");
        let drain = reloader.drain();
        match meanwhile(runtime, || successor.hand_over(running, store, drain, || commands.end())) {
            Ok(HandedOver { leaving, forwarding, told }) => {
                tell!("{told}");
                let _ = answer.send(Ok(told));
                let handle = leaving.handle();
                runtime.block_on(async {
                    let _ = time::timeout(CUT_PATIENCE, is_told).await;
                    let mut finished = task::spawn_blocking(move || leaving.finish());
                    tokio::select! {
                        _ = &mut finished => return,
                        () = signals.stop(&handle, &control) => handle.cut_short(),
                    }
                    let _ = finished.await;
                });
                forwarding.finish();
                RunEnd::Ended
            }
            Err(rejected) => {
                let RejectedHandover { leaving, sockets, connections, failure } = *rejected;
                tell!("no new process takes over: {failure}; this one continues");
                let _ = answer.send(Err(failure));
                runtime.spawn_blocking(move || leaving.finish());
                RunEnd::GoesOn(sockets, connections)
            }
        }
    }

    /// Lets exchanges finish, and closes the store.
    fn stop(self, runtime: &Runtime, signals: &mut Signals, sessions: Option<&OwnSessions<'_>>) -> Result<(), Failure> {
        let Self { running, store, reloader, control, commands, .. } = self;
        let handle = running.handle();
        sessions.iter().for_each(|sessions| (sessions.remove)());
        commands.remove();
        let notice = reloader.drain_notice();
        let drain = reloader.drain();
        if !notice.is_zero() {
            handle.announce_stop();
            tell!("health checks fail from now on; in {} s no more connections are accepted", notice.as_secs_f32());
        }
        tell!("stopping: running exchanges have {} s to finish; a second signal exits at once", drain.as_secs());
        service_manager::tell_stopping(notice + drain + CLOSE_PATIENCE);
        runtime.block_on(async {
            // On a thread of its own, so that a second signal is handled even if the disk blocks.
            let (ended, has_ended) = oneshot::channel();
            let stopped = task::spawn_blocking(move || {
                thread::sleep(notice);
                stop(running, store, drain, ended)
            });
            match await_end(stopped, signals.stop(&handle, &control), notice + drain + CLOSE_PATIENCE).await {
                StopEnd::Stopped(outcome) => outcome,
                StopEnd::Signal => {
                    handle.cut_short();
                    // The result does not matter, because the process ends in any case.
                    let _ = time::timeout(CUT_PATIENCE, has_ended).await;
                    tell!("stopped at once: exchanges were cut short, and the entries of the last second may be lost");
                    process::exit(EXIT_CUT_SHORT)
                }
                StopEnd::Overdue => {
                    tell!(
                        "stopped without closing the store, which took longer than {} s: the entries of the last \
                         second may be lost, and the next start takes longer",
                        CLOSE_PATIENCE.as_secs()
                    );
                    process::exit(EXIT_CUT_SHORT)
                }
            }
        })
    }
}

/// Runs blocking `work` on another thread, while commands are still answered.
fn meanwhile<T: Send>(runtime: &Runtime, work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let (done, is_done) = oneshot::channel();
        scope.spawn(move || drop(done.send(work())));
        runtime.block_on(is_done).expect("the work does not panic")
    })
}

/// The event that ended the wait for a stop.
#[derive(Debug)]
enum StopEnd {
    /// The stop was completed, with this result.
    Stopped(Result<(), Failure>),
    /// Another signal arrived before the stop was completed.
    Signal,
    /// The time limit passed, because the disk does not respond.
    Overdue,
}

/// Waits until the stop is completed, another signal arrives, or `patience` has passed.
async fn await_end(
    stopped: task::JoinHandle<Result<(), Failure>>,
    signal: impl Future<Output = ()>,
    patience: Duration,
) -> StopEnd {
    tokio::select! {
        done = stopped => StopEnd::Stopped(done.expect("stopping does not panic")),
        () = signal => StopEnd::Signal,
        () = time::sleep(patience) => StopEnd::Overdue,
    }
}

/// Waits up to `patience` for the store to be loaded, so that the start lines can describe it.
///
/// If loading takes longer, prints a line when it is done.
fn await_loading(runtime: &Runtime, store: &Store, patience: Duration) {
    let is_loaded = runtime.block_on(async { time::timeout(patience, store.ready()).await.is_ok() });
    if !is_loaded {
        let store = store.clone();
        let begun = Instant::now();
        runtime.spawn(async move {
            store.ready().await;
            let entries = size::show_count(store.stats().entries);
            let passed_s = begun.elapsed().as_secs_f64();
            tell!("the store is loaded: {entries} entries, after {passed_s:.1} s");
        });
    }
}

/// The control socket that is being served, and the task that serves it.
struct CommandServer {
    place: Option<ControlPath>,
    answering: Option<task::JoinHandle<()>>,
}

impl CommandServer {
    /// Removes the socket, so that no further client finds this process.
    fn remove(&self) {
        self.place.iter().for_each(ControlPath::remove);
    }

    /// Removes the socket, and stops answering commands.
    fn end(&self) {
        self.remove();
        self.answering.iter().for_each(task::JoinHandle::abort);
    }
}

/// Starts to serve the control socket.
fn listen_for_commands(
    runtime: &Runtime,
    control: &Arc<ControlServer>,
    sessions: Option<&OwnSessions<'_>>,
) -> Result<CommandServer, Failure> {
    let (place, listener) = match sessions {
        Some(sessions) => (None, Some(sessions.listener.try_clone().map_err(system_failure)?)),
        None => ControlServer::bind().unzip(),
    };
    let answering = listener.map(|listener| {
        let control = Arc::clone(control);
        runtime.spawn(async move {
            if let Err(error) = control.serve(listener).await {
                tell!("larder exec and larder env do not find this proxy: {error}");
            }
        })
    });
    Ok(CommandServer { place, answering })
}

/// Checks that the listening addresses are free, so that no store is created for a proxy that cannot listen.
fn check_addresses(config: &ProxyConfig, handed_over: &[ListeningSocket]) -> Result<(), Failure> {
    let flag = |listener: &Listener| if listener.tls { "--listen-tls" } else { "--listen" };
    let listeners = config.listeners.iter().map(|listener| (listener.address, flag(listener)));
    for (address, flag) in listeners.chain(config.admin.map(|address| (address, "--admin"))) {
        if handed_over.iter().any(|socket| socket.is_for(address)) {
            continue;
        }
        TcpListener::bind(address).map_err(|error| {
            let help = match error.kind() {
                io::ErrorKind::AddrInUse => {
                    format!("another program uses this port, perhaps another larder; choose a free one with {flag}")
                }
                io::ErrorKind::PermissionDenied => {
                    format!("ports below 1024 require root; choose a higher one with {flag}")
                }
                io::ErrorKind::AddrNotAvailable => format!("choose an address of this machine with {flag}"),
                _ => format!("choose another address with {flag}"),
            };
            Failure::runtime(format!("cannot listen on {address}: {error}"), help)
        })?;
    }
    Ok(())
}

fn start_failure(error: io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::InvalidInput => {
            let help = concat!("correct this setting; see ", page!("reference/configuration.md"));
            Failure::usage(format!("cannot start: {error}"), help)
        }
        _ => Failure::runtime(format!("cannot start: {error}"), "see the system's error above, and start again"),
    }
}

fn system_failure(error: io::Error) -> Failure {
    Failure::runtime(format!("cannot wait for signals: {error}"), "the limit on open files may be too low (ulimit -n)")
}

/// Lets exchanges finish, reports that through `ended`, and closes the store.
fn stop(
    running: RunningProxy,
    store: Option<Store>,
    grace: Duration,
    ended: oneshot::Sender<()>,
) -> Result<(), Failure> {
    running.shutdown(grace);
    // The receiver waits only after a second signal, so sending usually fails.
    let _ = ended.send(());
    store.map_or(Ok(()), |store| close(&store))
}

/// Writes pending data and closes the store. Blocks.
fn close(store: &Store) -> Result<(), Failure> {
    Handle::current().block_on(store.close()).map_err(|error| {
        let help = "the most recent entries may be lost; the next start loads the entries on the disk";
        Failure::runtime(format!("cannot close the store: {error}"), help)
    })
}

fn signal_runtime() -> io::Result<Runtime> {
    runtime::Builder::new_current_thread().enable_all().build()
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_device::{Device, MemoryDevice, Transfer};
    use larder_store::{Hints, StoreOptions};
    use std::{
        future::{pending, ready},
        sync::{Arc, Mutex},
    };

    const STORE_BYTES: u64 = 16 << 20;

    /// A device that stops completing operations when told to.
    struct SilentDevice {
        memory: MemoryDevice,
        kept: Mutex<Option<Vec<Transfer>>>,
    }

    impl SilentDevice {
        fn fall_silent(&self) {
            *self.kept.lock().unwrap() = Some(Vec::new());
        }

        fn answer_again(&self) {
            let kept = self.kept.lock().unwrap().take();
            kept.into_iter().flatten().for_each(|transfer| self.memory.submit(transfer));
        }
    }

    impl Device for SilentDevice {
        fn submit(&self, transfer: Transfer) {
            // A completion may submit a new operation, so no lock is held while the device works.
            if let Some(kept) = &mut *self.kept.lock().unwrap() {
                kept.push(transfer);
                return;
            }
            self.memory.submit(transfer);
        }

        larder_device::delegate_device!(memory);
    }

    /// A disk that does not respond must not leave SIGKILL as the only way to end the proxy.
    #[test]
    fn stop_ends_in_time_and_at_a_signal_although_the_disk_does_not_answer() {
        let device = Arc::new(SilentDevice { memory: MemoryDevice::new(STORE_BYTES), kept: Mutex::new(None) });
        let options = StoreOptions { segment_size_bytes: Some(1 << 20), ..StoreOptions::new("memory", STORE_BYTES) };
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
            assert!(matches!(overdue, StopEnd::Overdue), "{overdue:?}");
            let hung = task::spawn(pending());
            assert!(matches!(await_end(hung, ready(()), Duration::from_secs(3600)).await, StopEnd::Signal));
            device.answer_again();
            let done = await_end(closing(store.clone()), pending(), Duration::from_secs(3600)).await;
            assert!(matches!(done, StopEnd::Stopped(Ok(()))), "a disk that answers again is waited for: {done:?}");
        });
    }
}
