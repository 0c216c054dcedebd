//! Replaces the running process with a newer program, which gets the same flags.
//!
//! Owns: starting that process, and the order in which sockets and store are handed over. Starting a proxy is
//! elsewhere. Invariants: nothing changes until the successor has reported that it can start. Clients that connect in
//! the meantime wait and are served: by the successor or, if that does not start, by this process.

mod forwarding;
mod line;
mod taking;

use crate::{
    ground::{failure::Failure, output::tell},
    run::service_manager,
};
pub(crate) use forwarding::ConnectionForwarder;
use larder_proxy::{ClientConnection, Handover, ListeningSocket, ProxyHandle, RemainingWork, RunningProxy};
use larder_store::Store;
use line::{HandoverLine, HandoverMessage};
use std::{
    env,
    ffi::OsString,
    fs, io,
    os::{fd::AsFd, unix::fs::FileTypeExt},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{Arc, mpsc::Receiver},
    time::{Duration, Instant},
};
pub(crate) use taking::{Takeover, TakeoverTurn};
use tokio::sync::oneshot;

/// The flag with which a process is started to replace a running one.
pub(crate) const TAKE_OVER: &str = "--take-over";

/// An operator's request to upgrade the program.
pub(crate) struct UpgradeRequest {
    /// The program to start. `None`: the file from which this process was started.
    pub(crate) program: Option<PathBuf>,
    /// Whether only to check that the new program would start.
    pub(crate) is_check: bool,
    /// Receives the result for the operator.
    pub(crate) answer: oneshot::Sender<Result<String, Failure>>,
    /// Completes when the operator has received the result.
    pub(crate) is_told: oneshot::Receiver<()>,
}

/// A process that was started to replace this one, and is ready.
pub(crate) struct Successor {
    child: Child,
    line: Arc<HandoverLine>,
    sockets: Vec<ListeningSocket>,
}

/// The remaining work of a proxy after its successor has taken over.
pub(crate) struct HandedOver {
    pub(crate) leaving: Handover,
    /// Passes connections to the successor as their exchanges end.
    pub(crate) forwarding: ConnectionForwarder,
    /// The message about the result, for the operator.
    pub(crate) told: String,
}

/// A handover that failed, because the successor did not start. This process must serve again.
pub(crate) struct RejectedHandover {
    pub(crate) leaving: Handover,
    /// The sockets on which the proxy listened, to be used again.
    pub(crate) sockets: Vec<ListeningSocket>,
    /// Connections that were meant for the successor.
    pub(crate) connections: Receiver<ClientConnection>,
    pub(crate) failure: Failure,
}

impl Successor {
    /// Starts the successor, and waits until it reports that it can replace `running`. Blocks.
    ///
    /// # Errors
    /// The successor does not start; the failure says why. Nothing has changed.
    pub(crate) fn start(program: Option<PathBuf>, running: &RunningProxy) -> Result<Self, Failure> {
        let failed = |error| failure("cannot hand over the sockets", &error);
        let sockets = running.sockets().map_err(failed)?;
        let (line, other) = HandoverLine::pair().map_err(failed)?;
        // The program is started by its original name, because a newer file may have replaced the running one.
        let program = program.map(OsString::from).or_else(|| env::args_os().next()).unwrap_or_else(|| "larder".into());
        let mut command = Command::new(&program);
        command.args(env::args_os().skip(1).filter(|argument| argument != TAKE_OVER)).arg(TAKE_OVER);
        // These variables describe this process and would mislead the successor.
        for name in ["LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "WATCHDOG_PID"] {
            command.env_remove(name);
        }
        let child = command.stdin(Stdio::from(other)).spawn();
        drop(command);
        let child = child.map_err(|error| failure(&format!("cannot start {}", program.display()), &error))?;
        let mut successor = Self { child, line: Arc::new(line), sockets };
        match successor.introduce() {
            Ok(()) => Ok(successor),
            Err(failure) => {
                successor.end();
                Err(failure)
            }
        }
    }

    /// Tells the successor not to take over, and waits for its end.
    pub(crate) fn cancel(mut self) {
        let told =
            self.line.send(&HandoverMessage::Cancel).and_then(|()| self.line.receive(Some(CANCEL_PATIENCE)).map(drop));
        match told {
            // The process has ended, which closed its end of the connection.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => drop(self.child.wait()),
            _ => self.end(),
        }
    }

    /// Makes responses say that their connections will close, and waits for [`GOODBYE`]. Blocks.
    ///
    /// # Errors
    /// The successor has ended meanwhile. Nothing has changed.
    pub(crate) fn say_goodbye(self, handle: &ProxyHandle) -> Result<Self, Failure> {
        handle.say_goodbye(true);
        let failure = match self.line.receive(Some(GOODBYE)) {
            Err(error) if error.kind() == io::ErrorKind::TimedOut => return Ok(self),
            Err(error) => self.silent(&error),
            Ok(received) => refused(received.message),
        };
        handle.say_goodbye(false);
        self.end();
        Err(failure)
    }

    /// Hands over from `running` to the successor. Blocks.
    ///
    /// `free` must release all other resources that only one process can have.
    ///
    /// # Errors
    /// The successor does not start. This process must then serve again, on the returned sockets.
    pub(crate) fn hand_over(
        self,
        running: RunningProxy,
        store: Option<Store>,
        drain: Duration,
        free: impl FnOnce(),
    ) -> Result<HandedOver, Box<RejectedHandover>> {
        let begun = Instant::now();
        let (leaving, connections) = running.leave();
        let mut remaining = leaving.free_store(drain);
        if store.as_ref().is_some_and(has_device) {
            // The successor cannot open a block device while this process has it open.
            leaving.end_within(drain);
            remaining = RemainingWork::Nothing;
        }
        if let Some(Err(error)) = store.as_ref().map(Store::release) {
            tell!("the store was not closed properly: {error}: the most recent entries may be lost");
        }
        drop(store);
        free();
        let accepting = self.await_accepting();
        let waited_ms = begun.elapsed().as_millis();
        let forwarding = match accepting {
            Ok(()) => ConnectionForwarder::start(&self.line, connections),
            Err(failure) => return Err(self.rejected(leaving, connections, failure)),
        };
        let serving = self.await_message(SERVING_PATIENCE, |message| matches!(message, HandoverMessage::Serving));
        if let Err(failure) = serving {
            return Err(self.rejected(leaving, forwarding.give_back(), failure));
        }
        service_manager::tell_successor(self.child.id());
        // If sending fails, the successor has ended meanwhile, and the service manager restarts it.
        let _ = self.line.send(&HandoverMessage::InCharge);
        let on = match remaining {
            RemainingWork::Nothing => String::new(),
            RemainingWork::Connections(1) => "; one connection stays with the old process until it ends".to_owned(),
            RemainingWork::Connections(count) => {
                format!("; {count} connections stay with the old process until they end")
            }
        };
        let id = self.child.id();
        let told = format!("process {id} took over; clients waited at most {waited_ms} ms{on}");
        Ok(HandedOver { leaving, forwarding, told })
    }

    fn introduce(&mut self) -> Result<(), Failure> {
        for ListeningSocket { address, socket } in &self.sockets {
            let sent = self.line.send_socket(&HandoverMessage::Socket { address: *address }, socket.as_fd());
            sent.map_err(|error| self.silent(&error))?;
        }
        self.line.send(&HandoverMessage::AllSockets).map_err(|error| self.silent(&error))?;
        self.await_message(READY_PATIENCE, |message| matches!(message, HandoverMessage::Ready))
    }

    fn await_accepting(&self) -> Result<(), Failure> {
        self.line.send(&HandoverMessage::StoreFree).map_err(|error| self.silent(&error))?;
        self.await_message(SERVING_PATIENCE, |message| matches!(message, HandoverMessage::Accepting))
    }

    fn await_message(&self, patience: Duration, is_it: impl Fn(&HandoverMessage) -> bool) -> Result<(), Failure> {
        match self.line.receive(Some(patience)) {
            Ok(received) if is_it(&received.message) => Ok(()),
            Ok(received) => Err(refused(received.message)),
            Err(error) => Err(self.silent(&error)),
        }
    }

    fn silent(&self, error: &io::Error) -> Failure {
        let why = match error.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => {
                "the new larder ended without giving a reason".to_owned()
            }
            io::ErrorKind::TimedOut => "the new larder does not respond".to_owned(),
            _ => format!("the new larder does not respond: {error}"),
        };
        Failure::runtime(
            why,
            format!("{BEFORE_RUNS}; the new process writes to the same standard error: see its messages there"),
        )
    }

    fn rejected(
        mut self,
        leaving: Handover,
        connections: Receiver<ClientConnection>,
        failure: Failure,
    ) -> Box<RejectedHandover> {
        let sockets = std::mem::take(&mut self.sockets);
        self.end();
        Box::new(RejectedHandover { leaving, sockets, connections, failure })
    }

    fn end(mut self) {
        // The process may have ended already, so errors are ignored.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns whether any volume of the store is a block device.
fn has_device(store: &Store) -> bool {
    let is_device = |path| fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_block_device());
    store.volumes().any(|volume| is_device(volume.path))
}

fn refused(message: HandoverMessage) -> Failure {
    match message {
        HandoverMessage::Failed { problem, help } => {
            Failure::runtime(format!("the new larder does not start: {problem}"), format!("{help}; {BEFORE_RUNS}"))
        }
        other => Failure::runtime(
            format!("the new larder uses another handover protocol: {other:?}"),
            "restart the service instead: systemctl restart larder, or stop larder and start it again",
        ),
    }
}

fn failure(what: &str, error: &io::Error) -> Failure {
    Failure::runtime(format!("{what}: {error}"), format!("{BEFORE_RUNS}; --program names another program"))
}

const BEFORE_RUNS: &str = "the running larder continues";

/// Time for which responses announce that connections close, before this process stops accepting.
///
/// Every active client has time to send one more request.
const GOODBYE: Duration = Duration::from_secs(1);
const READY_PATIENCE: Duration = Duration::from_secs(30);
/// Maximum time for the successor to open the store and to serve.
const SERVING_PATIENCE: Duration = Duration::from_secs(60);
const CANCEL_PATIENCE: Duration = Duration::from_secs(5);
