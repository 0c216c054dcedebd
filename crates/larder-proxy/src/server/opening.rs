//! Messages to a worker's thread while it runs.

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
    /// Another configuration.
    Configuration(Box<NewConfiguration>),
    /// A listener in addition to the configured ones.
    Listener(NewListener),
    /// A connection of the operator's own commands.
    Operator(UnixStream),
    /// A check whether the worker responds; answered after all earlier messages.
    Ping(Sender<()>),
    /// Starts or stops sending `Connection: close`.
    Goodbye(bool),
    /// The queue for connections without a request, once the proxy stops accepting.
    HandOver(Sender<ClientConnection>),
    /// A connection that another proxy handed over.
    Connection(ClientConnection),
    /// Asks for the sockets of its configured listeners.
    Sockets(Sender<io::Result<Vec<ListeningSocket>>>),
}

/// A configuration to be put into force.
pub(crate) struct NewConfiguration {
    pub(crate) shared: Arc<ProxyState>,
    /// The sockets of each of its listeners; empty if its address was open before.
    pub(crate) sockets: Vec<Vec<TcpListener>>,
}

/// A listener that is opened while the proxy runs.
pub(crate) struct NewListener {
    pub(crate) socket: TcpListener,
    pub(crate) door: Arc<ListenerAccess>,
    /// Closed at the other end when the listener is to close.
    pub(crate) open: watch::Receiver<()>,
}
