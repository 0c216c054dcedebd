//! Messages to the threads of running workers.

use std::{
    io,
    net::TcpListener,
    os::unix::net::UnixStream,
    sync::{Arc, mpsc::Sender},
};

use tokio::sync::watch;

use crate::{
    client::{connection::ListenerAccess, handed::ClientConnection},
    server::leaving::ListeningSocket,
    shared::ProxyState,
};

/// A message to a worker's thread.
pub(crate) enum WorkerMessage {
    /// Adopt another configuration.
    Configuration(Box<NewConfiguration>),
    /// Serve a listener in addition to the configured ones.
    Listener(NewListener),
    /// Serve a connection that carries the operator's commands.
    Operator(UnixStream),
    /// Confirm that the worker responds. Answered after all earlier messages.
    Ping(Sender<()>),
    /// Start or stop sending `Connection: close`.
    Goodbye(bool),
    /// Stop accepting, and send connections without a request to this queue.
    HandOver(Sender<ClientConnection>),
    /// Serve a connection that another proxy handed over.
    Connection(ClientConnection),
    /// Return the sockets of the worker's configured listeners.
    Sockets(Sender<io::Result<Vec<ListeningSocket>>>),
}

/// A configuration to adopt.
pub(crate) struct NewConfiguration {
    pub(crate) shared: Arc<ProxyState>,
    /// The sockets of each listener. Empty if its address was already open.
    pub(crate) sockets: Vec<Vec<TcpListener>>,
}

/// A listener that is opened while the proxy runs.
pub(crate) struct NewListener {
    pub(crate) socket: TcpListener,
    pub(crate) door: Arc<ListenerAccess>,
    /// Closed when the listener must close.
    pub(crate) open: watch::Receiver<()>,
}
