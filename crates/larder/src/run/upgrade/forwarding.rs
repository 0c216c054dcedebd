//! Passes clients' connections from the old process to its successor.
//!
//! Owns: the thread that passes them. Other modules choose the connections. Invariant: a connection is either passed or
//! stays in the queue, which is returned if the successor does not take over.

use super::line::{HandoverLine, HandoverMessage};
use larder_proxy::ClientConnection;
use std::{
    os::fd::AsFd as _,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc::{Receiver, RecvTimeoutError},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

/// A thread that passes connections to the successor.
pub(crate) struct ConnectionForwarder {
    thread: JoinHandle<Receiver<ClientConnection>>,
    ends: Arc<AtomicBool>,
}

impl ConnectionForwarder {
    /// Starts to pass the connections from `connections` over `line`, until either of them closes.
    pub(super) fn start(line: &Arc<HandoverLine>, connections: Receiver<ClientConnection>) -> Self {
        let line = Arc::clone(line);
        let ends = Arc::new(AtomicBool::new(false));
        let is_ended = Arc::clone(&ends);
        let thread = thread::spawn(move || {
            loop {
                match connections.recv_timeout(LOOK_INTERVAL) {
                    Ok(ClientConnection { listener, client, socket }) => {
                        let message = HandoverMessage::Connection { listener, client };
                        // If sending fails, the successor has ended, and its clients' connections end too.
                        let _ = line.send_socket(&message, socket.as_fd());
                    }
                    Err(RecvTimeoutError::Timeout) if !is_ended.load(Relaxed) => {}
                    Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return connections,
                }
            }
        });
        Self { thread, ends }
    }

    /// Waits until the last connection was passed. The old proxy must have ended. Blocks.
    pub(crate) fn finish(self) {
        self.ends.store(true, Relaxed);
        let _ = self.thread.join();
    }

    /// Stops passing connections, and returns those that were not passed. Blocks.
    pub(super) fn give_back(self) -> Receiver<ClientConnection> {
        self.ends.store(true, Relaxed);
        self.thread.join().expect("the thread does not panic")
    }
}

/// Interval at which the thread checks whether to stop.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
