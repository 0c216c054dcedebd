//! Sockets that listen.

use std::{
    io,
    net::{SocketAddr, TcpListener},
};

use socket2::{Domain, Protocol, Socket, Type};

use crate::config::Listener;

/// Returns for each of `worker_count` workers a socket on the address of each listener: of those that were inherited, or a new one.
///
/// # Errors
/// `InvalidInput` for a socket that was inherited and is no listener's; else what the system says about one of them.
pub(super) fn bind_all(
    listeners: &[Listener],
    worker_count: usize,
    mut inherited: Vec<TcpListener>,
) -> io::Result<Vec<Vec<TcpListener>>> {
    let mut workers: Vec<Vec<TcpListener>> = (0..worker_count).map(|_| Vec::new()).collect();
    for address in listeners.iter().map(|listener| listener.address) {
        let is_on_it = |socket: &TcpListener| socket.local_addr().is_ok_and(|local| local == address);
        if let Some(at) = inherited.iter().position(is_on_it) {
            let socket = inherited.swap_remove(at);
            for sockets in &mut workers {
                sockets.push(socket.try_clone()?);
            }
            continue;
        }
        // Sockets that share a port also share it with another proxy of this user. Bind once without
        // sharing, so that an address in use is an error here as everywhere else.
        let probe = bind(address, false)?;
        let address = probe.local_addr()?;
        drop(probe);
        for sockets in &mut workers {
            sockets.push(bind(address, worker_count > 1)?);
        }
    }
    match inherited.first().map(TcpListener::local_addr) {
        None => Ok(workers),
        Some(local) => {
            let why = format!("a socket was handed over for which there is no listener: {}", local?);
            Err(io::Error::new(io::ErrorKind::InvalidInput, why))
        }
    }
}

/// Returns a socket that listens on an address, which others of this process may share.
///
/// # Errors
/// What the system says.
pub(super) fn bind(address: SocketAddr, share_port: bool) -> io::Result<TcpListener> {
    let open = || {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        socket.set_reuse_port(share_port)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        Ok(socket.into())
    };
    open().map_err(|error: io::Error| io::Error::new(error.kind(), format!("cannot listen: {error}: {address}")))
}

/// Connections that may wait to be accepted, per listener; the system may cap it.
const BACKLOG: i32 = 4096;
