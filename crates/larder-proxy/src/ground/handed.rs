//! A client's connection that is handed over to the next process.
//!
//! Owns: the parts of the connection that the next process needs. Sending is elsewhere. Invariant: no byte of a request
//! was read from the socket, so the next process reads the request from its start.

use std::net::{SocketAddr, TcpStream};

/// A client's connection that the next process can continue: without TLS, and without a request in progress.
#[derive(Debug)]
pub struct ClientConnection {
    /// The listener that accepted the connection, by its address in the configuration.
    pub listener: SocketAddr,
    /// The client's address. `None` if nothing was read yet, because a PROXY header with another address may follow.
    pub client: Option<SocketAddr>,
    /// The client's socket.
    pub socket: TcpStream,
}
