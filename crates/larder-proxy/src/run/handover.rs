//! Takes over clients' connections from the process that this one replaces.

use std::os::fd::AsRawFd as _;

use crate::{
    ground::handed::ClientConnection,
    run::{ProxyHandle, opening::WorkerMessage},
};

impl ProxyHandle {
    /// Serves a connection that the previous process handed over. Closes the connection if its listener no longer
    /// exists.
    pub fn adopt(&self, connection: ClientConnection) {
        // Descriptor numbers distribute connections evenly over the workers. If the worker has stopped, the connection
        // closes.
        let number = usize::try_from(connection.socket.as_raw_fd()).unwrap_or(0);
        let _ = self.openings[number % self.openings.len()].send(WorkerMessage::Connection(connection));
    }
}
