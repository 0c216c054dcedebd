//! Passes clients' connections from the old proxy to its successor.
//!
//! Owns: the thread that passes them. Which ones are passed is decided elsewhere. Invariant: a connection is either
//! passed or stays in the queue, which is given back if the successor does not take over.

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

/// A thread that sends connections to the new process.
pub(crate) struct ConnectionForwarder {
    thread: JoinHandle<Receiver<ClientConnection>>,
    ends: Arc<AtomicBool>,
}

impl ConnectionForwarder {
    /// Carries what comes out of `connections` by `line`, until the last is gone or the other end is.
    pub(super) fn start(line: &Arc<HandoverLine>, connections: Receiver<ClientConnection>) -> Self {
        let (line, ends) = (Arc::clone(line), Arc::new(AtomicBool::new(false)));
        let is_ended = Arc::clone(&ends);
        let thread = thread::spawn(move || {
            loop {
                match connections.recv_timeout(LOOK_INTERVAL) {
                    Ok(ClientConnection { listener, client, socket }) => {
                        let message = HandoverMessage::Connection { listener, client };
                        // If the other has ended, so do its clients' connections.
                        let _ = line.send_socket(&message, socket.as_fd());
                    }
                    Err(RecvTimeoutError::Timeout) if !is_ended.load(Relaxed) => {}
                    Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return connections,
                }
            }
        });
        Self { thread, ends }
    }

    /// Waits until the last connection has been carried; the proxy that leaves has to have ended. Blocks.
    pub(crate) fn finish(self) {
        self.ends.store(true, Relaxed);
        let _ = self.thread.join();
    }

    /// Carries no more, and gives back what has not been carried. Blocks.
    pub(super) fn give_back(self) -> Receiver<ClientConnection> {
        self.ends.store(true, Relaxed);
        self.thread.join().expect("the thread does not panic")
    }
}

/// Time between two looks whether to end.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
