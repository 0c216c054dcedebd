//! A client's connection that moves to the next process.
//!
//! Owns: the parts of a connection that the next process needs. Sending is elsewhere. Invariant: no byte of a request
//! was read from it, so the next process reads the request from its start.

use std::net::{SocketAddr, TcpStream};

/// A client's connection without TLS on which no request is under way.
#[derive(Debug)]
pub struct ClientConnection {
    /// The listener that the client came through, by its address in the configuration.
    pub listener: SocketAddr,
    /// The client's address; `None` if nothing was read yet, not even a PROXY header.
    pub client: Option<SocketAddr>,
    /// The client's socket.
    pub socket: TcpStream,
}
