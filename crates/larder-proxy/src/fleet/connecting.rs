//! Opens connections to other nodes.

use std::{io, time::Duration};

use tokio::net::{TcpStream, lookup_host};

/// Connects to the first address of a host that accepts a connection.
///
/// # Errors
/// The name has no address, or none of its addresses accepts a connection in time.
pub(super) async fn connect(host: &str, port: u16) -> io::Result<TcpStream> {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let found = tokio::time::timeout(RESPONSE_PATIENCE, lookup_host((host, port))).await?;
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "its name has no address");
    for address in found? {
        match tokio::time::timeout(CONNECT_PATIENCE, TcpStream::connect(address)).await {
            Ok(Ok(socket)) => {
                socket.set_nodelay(true)?;
                return Ok(socket);
            }
            Ok(Err(error)) => failure = error,
            Err(_) => failure = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(failure)
}

/// Maximum time for another machine to accept a connection.
pub(super) const CONNECT_PATIENCE: Duration = Duration::from_secs(1);
/// Maximum time for another machine to respond, in addition to the time that it may wait for a purge.
pub(super) const RESPONSE_PATIENCE: Duration = Duration::from_secs(5);
