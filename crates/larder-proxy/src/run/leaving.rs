//! Hands a proxy over to its successor, which continues with the same sockets and the same store.
//!
//! Owns: the sockets, and the order of the handover. First, HTTP/1 responses announce that their connections close.
//! Second, no more connections are accepted. Third, the store is released. Last, the exchanges that need no store end.
//! Communication with the successor is elsewhere.
//!
//! Invariants: no request that has begun to arrive is refused. Changes of the store are complete before it is released.

use std::{
    io,
    net::{SocketAddr, TcpListener},
    sync::{Arc, mpsc},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use crate::{
    figures::metrics::WorkerMetrics,
    ground::handed::ClientConnection,
    operators::history::ClockMoment,
    run::{ProxyHandle, RunningProxy, StopOrder, opening::WorkerMessage},
};

/// A socket that already listens, and its configured address.
#[derive(Debug)]
pub struct ListeningSocket {
    /// The address in the configuration. Its port may be 0.
    pub address: SocketAddr,
    /// The socket.
    pub socket: TcpListener,
}

impl ListeningSocket {
    /// Wraps a listening socket. Its bound address stands for the configured one.
    ///
    /// # Errors
    /// The system does not return the socket's address.
    pub fn new(socket: TcpListener) -> io::Result<Self> {
        Ok(Self { address: socket.local_addr()?, socket })
    }

    /// Returns a second handle of the same socket.
    ///
    /// # Errors
    /// The system has no descriptor left.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { address: self.address, socket: self.socket.try_clone()? })
    }

    /// Returns whether the listener that is configured for `address` uses this socket.
    pub fn is_for(&self, address: SocketAddr) -> bool {
        self.address == address || self.socket.local_addr().is_ok_and(|local| local == address)
    }
}

/// A proxy that has stopped accepting connections but still finishes its exchanges.
pub struct Handover {
    proxy: RunningProxy,
    begun: Instant,
}

/// The work that remains after the store was released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemainingWork {
    /// All exchanges have ended.
    Nothing,
    /// This many connections are still open. None of them needs the store.
    Connections(u64),
}

impl ProxyHandle {
    /// Starts or stops sending `Connection: close` in HTTP/1 responses.
    ///
    /// Call it before a handover, so that clients reconnect to the new process. No connection closes while a request is
    /// in progress.
    pub fn say_goodbye(&self, says: bool) {
        // Sending fails only for a worker that has stopped, which has no connections left.
        self.openings.iter().for_each(|worker| drop(worker.send(WorkerMessage::Goodbye(says))));
    }
}

impl RunningProxy {
    /// Returns all sockets that this proxy listens on, including the admin listener's.
    ///
    /// # Errors
    /// `TimedOut` if a worker does not respond; otherwise the system's error.
    pub fn sockets(&self) -> io::Result<Vec<ListeningSocket>> {
        let (answer, answers) = mpsc::channel();
        for worker in &self.handle.openings {
            let stopped = |_| io::Error::new(io::ErrorKind::NotConnected, "the proxy has stopped");
            worker.send(WorkerMessage::Sockets(answer.clone())).map_err(stopped)?;
        }
        let mut sockets = Vec::new();
        for _ in &self.handle.openings {
            let late = |_| io::Error::new(io::ErrorKind::TimedOut, "a worker does not respond");
            sockets.extend(answers.recv_timeout(ANSWER_PATIENCE).map_err(late)??);
        }
        sockets.extend(self.admin_socket.as_ref().map(ListeningSocket::try_clone).transpose()?);
        Ok(sockets)
    }

    /// Stops accepting connections. Exchanges in progress continue.
    ///
    /// The next process accepts connections on the same sockets. The returned receiver yields the connections that it
    /// can continue: those without TLS, each after its current exchange. All other connections close, but those that
    /// were accepted recently may send one request first.
    pub fn leave(mut self) -> (Handover, mpsc::Receiver<ClientConnection>) {
        self.has_left = true;
        let (successor, connections) = mpsc::channel();
        for worker in &self.handle.openings {
            // Sending fails only for a worker that has stopped, which has no connections.
            let _ = worker.send(WorkerMessage::HandOver(successor.clone()));
        }
        self.handle.stop.send_replace(Some(StopOrder { grace: LEAVING_MAX, respite: RESPITE }));
        (Handover { proxy: self, begun: Instant::now() }, connections)
    }
}

impl Handover {
    /// Waits until no exchange needs the store any more, and writes the files next to the store. Blocks the thread.
    ///
    /// If the wait takes longer than `drain`, all remaining exchanges are cut off.
    pub fn free_store(&self, drain: Duration) -> RemainingWork {
        let sum =
            |counted: fn(&WorkerMetrics) -> u64| self.proxy.metrics.iter().map(|worker| counted(worker)).sum::<u64>();
        loop {
            let changes = sum(|worker| worker.changes_open.value());
            let connections = sum(|worker| worker.connections_open.value());
            let tunnels = sum(|worker| worker.tunnels_open.value());
            let passed = self.begun.elapsed();
            let has_left = sum(|worker| worker.has_left.value()) >= self.proxy.metrics.len() as u64;
            let unmovable = sum(|worker| worker.connections_unmovable.value());
            let patience = if unmovable > 0 { PATIENCE } else { EXCHANGE_PATIENCE };
            if has_left && changes == 0 && (connections <= tunnels || passed >= patience) {
                self.save();
                return if connections == 0 { RemainingWork::Nothing } else { RemainingWork::Connections(connections) };
            }
            if passed >= drain.max(PATIENCE) {
                // After the handover, a request that changes something at its origin could not invalidate stored
                // responses. So all must end now.
                self.end_within(Duration::ZERO);
                self.save();
                return RemainingWork::Nothing;
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Waits until all exchanges have ended. Cuts off those that take longer than `patience`. Blocks the thread.
    pub fn end_within(&self, patience: Duration) {
        let begun = Instant::now();
        let is_over = || self.proxy.threads.iter().all(JoinHandle::is_finished);
        while !is_over() {
            if begun.elapsed() >= patience {
                self.proxy.handle.cut_short();
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Waits until all exchanges have ended, for at most an hour. Blocks the thread.
    pub fn finish(mut self) {
        self.proxy.join();
    }

    /// Returns a handle by which the remaining exchanges can be cut off.
    pub fn handle(&self) -> ProxyHandle {
        self.proxy.handle()
    }

    fn save(&self) {
        if let Some(shared) = self.proxy.handle.in_force.get() {
            let missing = Arc::clone(&shared.missing);
            let history = Arc::clone(&shared.history);
            // The successor reads the record of purges when it starts, so nothing may be added from here on.
            shared.cache.purges.hand_over();
            if let Some(tier) = &shared.cache.tier {
                tier.stop(TIER_PATIENCE);
            }
            missing.save();
            history.note(ClockMoment::now());
            history.save();
        }
    }
}

/// Maximum time that a worker may take to respond.
const ANSWER_PATIENCE: Duration = Duration::from_secs(10);
/// Maximum time for which a connection that was just accepted may wait with its first request.
const RESPITE: Duration = Duration::from_secs(1);
/// Time to wait for exchanges that do not need the store, if no new request can begin.
const EXCHANGE_PATIENCE: Duration = Duration::from_millis(50);
/// Time to wait for exchanges that do not need the store, if requests can still begin on connections that the next
/// process cannot continue.
///
/// It exceeds [`RESPITE`], so that requests that may change something at their origin have arrived and are counted.
const PATIENCE: Duration = Duration::from_millis(1250);
/// Maximum time for exchanges that continue after the handover.
const LEAVING_MAX: Duration = Duration::from_hours(1);
/// Maximum time to store the last pack of entries in the second tier.
pub(super) const TIER_PATIENCE: Duration = Duration::from_secs(2);
const POLL_INTERVAL: Duration = Duration::from_millis(2);
