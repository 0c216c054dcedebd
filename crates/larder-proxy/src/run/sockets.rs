//! Opens the listening sockets, and distributes inherited ones to workers.

use std::{
    io,
    net::{SocketAddr, TcpListener},
};

use socket2::{Domain, Protocol, Socket, Type};

use crate::{ground::config::Listener, run::leaving::ListeningSocket};

/// The sockets of one worker, in a list for each listener. A list has several if the sockets were inherited.
pub(super) type WorkerSockets = Vec<Vec<TcpListener>>;

/// Returns each worker's sockets for all listeners: inherited sockets if any match, otherwise new ones.
///
/// # Errors
/// `InvalidInput` for an inherited socket that belongs to no listener; otherwise the system's error.
pub(super) fn bind_all(
    listeners: &[Listener],
    worker_count: usize,
    mut inherited: Vec<ListeningSocket>,
) -> io::Result<Vec<WorkerSockets>> {
    let mut workers: Vec<WorkerSockets> = (0..worker_count).map(|_| Vec::new()).collect();
    for address in listeners.iter().map(|listener| listener.address) {
        let (taken, others) = inherited.into_iter().partition::<Vec<_>, _>(|socket| socket.is_for(address));
        inherited = others;
        if !taken.is_empty() {
            for (workers, sockets) in workers.iter_mut().zip(share(&taken, worker_count)?) {
                workers.push(sockets);
            }
            continue;
        }
        let mut address = address;
        if address.port() != 0 {
            // The workers' sockets share their port, which a second proxy of the same user could share too. A first
            // bind without sharing detects that the address is in use.
            drop(bind(address, false)?);
        }
        for sockets in &mut workers {
            let socket = bind(address, worker_count > 1)?;
            // For port 0, the system chooses a free port with the first socket. The other workers use the same port.
            address = socket.local_addr()?;
            sockets.push(vec![socket]);
        }
    }
    match inherited.first().map(|inherited| inherited.socket.local_addr()) {
        None => Ok(workers),
        Some(local) => {
            let why = format!("a socket was handed over without a listener for it: {}", local?);
            Err(io::Error::new(io::ErrorKind::InvalidInput, why))
        }
    }
}

/// Gives every worker at least one of the sockets, and every socket to at least one worker, so that no socket's waiting
/// connections are left unaccepted.
fn share(sockets: &[ListeningSocket], worker_count: usize) -> io::Result<WorkerSockets> {
    let of_worker = |worker: usize| match sockets.len() > worker {
        true => sockets.iter().skip(worker).step_by(worker_count).map(|shared| shared.socket.try_clone()).collect(),
        false => sockets[worker % sockets.len()].socket.try_clone().map(|socket| vec![socket]),
    };
    (0..worker_count).map(of_worker).collect()
}

/// Opens a listening socket. With `share_port`, other sockets of this process may have the same address.
///
/// # Errors
/// The system's error.
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

/// Maximum number of connections that wait to be accepted, per listener. The system may lower it.
const BACKLOG: i32 = 4096;
