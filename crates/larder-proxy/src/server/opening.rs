//! What is on its way to a worker's thread while it runs.

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
    /// Nothing but a question whether the worker goes on; it is answered after all that was sent before it.
    Ping(Sender<()>),
    /// Whether answers are to say that their connections close.
    Goodbye(bool),
    /// The queue for connections without a request, once the proxy stops accepting.
    HandOver(Sender<ClientConnection>),
    /// A connection that another proxy handed over.
    Connection(ClientConnection),
    /// A question for the sockets that the configuration has it listen on.
    Sockets(Sender<io::Result<Vec<ListeningSocket>>>),
}

/// A configuration that is to be in force.
pub(crate) struct NewConfiguration {
    pub(crate) shared: Arc<ProxyState>,
    /// For each of its listeners: the sockets; none if its address was listened on before.
    pub(crate) sockets: Vec<Vec<TcpListener>>,
}

/// A listener that is opened while the proxy runs.
pub(crate) struct NewListener {
    pub(crate) socket: TcpListener,
    pub(crate) door: Arc<ListenerAccess>,
    /// Closed at the other end when the listener is to close.
    pub(crate) open: watch::Receiver<()>,
}
