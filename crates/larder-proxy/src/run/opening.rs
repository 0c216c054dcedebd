//! Messages to the threads of running workers.

use std::{
    io,
    net::TcpListener,
    os::unix::net::UnixStream,
    sync::{Arc, mpsc::Sender},
};

use tokio::sync::watch;

use crate::{
    door::connection::ListenerAccess,
    ground::handed::ClientConnection,
    run::{leaving::ListeningSocket, shared::ProxyState},
};

/// An order or question to a worker's thread.
pub(crate) enum WorkerMessage {
    /// Put the given configuration into force.
    Configuration(Box<NewConfiguration>),
    /// Serve a listener in addition to the configured ones.
    Listener(NewListener),
    /// Serve a connection through the control socket, which carries an operator's commands.
    Operator(UnixStream),
    /// Confirm that the worker responds. All earlier messages are processed first.
    Ping(Sender<()>),
    /// Start or stop sending `Connection: close` in HTTP/1 responses.
    Goodbye(bool),
    /// Stop accepting connections, and pass those without a current request to the next process through this queue.
    HandOver(Sender<ClientConnection>),
    /// Serve a connection that the previous process handed over.
    Connection(ClientConnection),
    /// Return second handles of the sockets of the worker's configured listeners.
    Sockets(Sender<io::Result<Vec<ListeningSocket>>>),
}

/// A configuration for a worker to put into force.
pub(crate) struct NewConfiguration {
    pub(crate) shared: Arc<ProxyState>,
    /// The new sockets of each listener. Empty for a listener whose address was already open before the reload.
    pub(crate) sockets: Vec<Vec<TcpListener>>,
}

/// A listener that is opened while the proxy runs, such as a session's.
pub(crate) struct NewListener {
    pub(crate) socket: TcpListener,
    pub(crate) door: Arc<ListenerAccess>,
    /// Ends the listener when its sender is dropped.
    pub(crate) open: watch::Receiver<()>,
}
