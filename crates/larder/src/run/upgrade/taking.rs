//! The successor's side of an upgrade, which takes over from a running proxy.
//!
//! Owns: the wait until the successor may open the store, and the report of the outcome. Starting the proxy is
//! elsewhere. Invariant: nothing changes for the running proxy until this process has reported that it can start.

use super::line::{HandoverLine, HandoverMessage};
use crate::ground::failure::Failure;
use larder_proxy::{ClientConnection, ListeningSocket, ProxyConfig, ProxyHandle};
use std::{
    cell::Cell,
    io,
    net::{TcpListener, TcpStream},
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

/// The sockets that this process has received from the process that it replaces, and the connection to that process.
pub(crate) struct Takeover {
    line: Arc<HandoverLine>,
    sockets: Cell<Vec<ListeningSocket>>,
    /// Receives a message when the service manager knows this process as the main one. `None` before this process
    /// accepts connections.
    in_charge: Cell<Option<mpsc::Receiver<()>>>,
}

/// The running process's answer to the report that this process can start.
pub(crate) enum TakeoverTurn {
    /// The running process orders this one to start, because the store was released.
    Start,
    /// The running process orders this one not to start, because this was only a check.
    Cancelled,
}

impl Takeover {
    /// Receives the listening sockets from the process that started this one.
    ///
    /// # Errors
    /// No running proxy started this process.
    pub(crate) fn begin() -> Result<Self, Failure> {
        let line = Arc::new(HandoverLine::of_stdin().map_err(gone)?);
        let mut sockets = Vec::new();
        loop {
            let received = line.receive(Some(PATIENCE)).map_err(gone)?;
            match (received.message, received.socket) {
                (HandoverMessage::Socket { address }, Some(socket)) => {
                    sockets.push(ListeningSocket { address, socket: TcpListener::from(socket) });
                }
                (HandoverMessage::AllSockets, _) => {
                    return Ok(Self { line, sockets: Cell::new(sockets), in_charge: Cell::default() });
                }
                (other, _) => return Err(unexpected(&other)),
            }
        }
    }

    /// Returns the ID of the process that is being replaced, as long as it runs.
    pub(crate) fn predecessor(&self) -> Option<u32> {
        rustix::process::getppid().map(|parent| parent.as_raw_nonzero().get().unsigned_abs())
    }

    /// Returns the sockets for the addresses in a configuration. The other sockets are closed.
    pub(crate) fn sockets(&self, config: &ProxyConfig) -> Vec<ListeningSocket> {
        let addresses: Vec<_> = config.listeners.iter().map(|listener| listener.address).chain(config.admin).collect();
        let is_wanted = |socket: &ListeningSocket| addresses.iter().any(|address| socket.is_for(*address));
        self.sockets.take().into_iter().filter(is_wanted).collect()
    }

    /// Reports that this process can start, and waits for the answer.
    ///
    /// # Errors
    /// The running process is gone, or does not hand over.
    pub(crate) fn await_turn(&self) -> Result<TakeoverTurn, Failure> {
        self.line.send(&HandoverMessage::Ready).map_err(gone)?;
        match self.line.receive(None).map_err(gone)?.message {
            HandoverMessage::StoreFree => Ok(TakeoverTurn::Start),
            HandoverMessage::Cancel => Ok(TakeoverTurn::Cancelled),
            other => Err(unexpected(&other)),
        }
    }

    /// Reports that this process accepts connections. Then continues the connections that the old process sends.
    pub(crate) fn tell_accepting(&self, proxy: ProxyHandle) {
        // If the old process has ended meanwhile, there is nothing to continue.
        if self.line.send(&HandoverMessage::Accepting).is_err() {
            return;
        }
        let line = Arc::clone(&self.line);
        let (in_charge, is_in_charge) = mpsc::channel();
        self.in_charge.set(Some(is_in_charge));
        thread::spawn(move || {
            while let Ok(received) = line.receive(None) {
                match (received.message, received.socket) {
                    (HandoverMessage::Connection { listener, client }, Some(socket)) => {
                        proxy.adopt(ClientConnection { listener, client, socket: TcpStream::from(socket) });
                    }
                    // Without a free descriptor, this process cannot receive the socket, and the client's connection
                    // ends.
                    (HandoverMessage::Connection { .. }, None) => {}
                    (HandoverMessage::InCharge, _) => drop(in_charge.send(())),
                    // No other message can follow.
                    _ => return,
                }
            }
        });
    }

    /// Reports that commands can find this process. Waits until the service manager knows it as the main process.
    pub(crate) fn tell_serving(&self) {
        if self.line.send(&HandoverMessage::Serving).is_ok()
            && let Some(is_in_charge) = self.in_charge.take()
        {
            // An old process that has ended or does not respond no longer serves, so its answer does not matter.
            let _ = is_in_charge.recv_timeout(PATIENCE);
        }
    }

    /// Reports to the running process why this one does not start.
    pub(crate) fn tell_failed(&self, failure: &Failure) {
        let problem = failure.placed();
        let help = failure.told().1.to_owned();
        // If sending fails, the old process has ended.
        let _ = self.line.send(&HandoverMessage::Failed { problem, help });
    }
}

fn gone(error: io::Error) -> Failure {
    let help = "--take-over is used by larder upgrade only: run larder upgrade";
    Failure::runtime(format!("there is no larder to take over from: {error}"), help)
}

fn unexpected(message: &HandoverMessage) -> Failure {
    let help = "restart the service instead: systemctl restart larder, or stop larder and start it again";
    Failure::runtime(format!("the running larder uses another handover protocol: {message:?}"), help)
}

/// Maximum time to wait for an answer that should come at once.
const PATIENCE: Duration = Duration::from_secs(30);
