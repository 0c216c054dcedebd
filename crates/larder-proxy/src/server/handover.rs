//! Clients' connections on their way from a proxy that leaves to the one that goes on.
//!
//! Owns: which parts of a connection the other proxy needs. Does not: carry it there. Invariant: no request on such a connection has
//! begun to be read, so that the other proxy reads it from its first byte.

use std::{
    net::{SocketAddr, TcpStream},
    os::fd::AsRawFd as _,
};

use crate::server::{ProxyHandle, opening::Opening};

/// A client's connection without TLS on which no request is under way.
#[derive(Debug)]
pub struct ClientConnection {
    /// The listener that the client came through, by its address in the configuration.
    pub listener: SocketAddr,
    /// The client's address, unless nothing at all has been read yet, not even a PROXY header.
    pub client: Option<SocketAddr>,
    /// The connection itself.
    pub socket: TcpStream,
}

impl ProxyHandle {
    /// Serves a connection that another proxy handed over. It is closed if no listener has its address any more.
    pub fn adopt(&self, connection: ClientConnection) {
        // Descriptors are spread evenly; a worker that has stopped closes what it gets.
        let number = usize::try_from(connection.socket.as_raw_fd()).unwrap_or(0);
        let _ = self.openings[number % self.openings.len()].send(Opening::Connection(connection));
    }
}
