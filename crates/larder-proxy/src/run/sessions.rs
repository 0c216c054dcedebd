//! Sessions: listeners that are opened and closed while the proxy runs.
//!
//! Owns: opening them on every worker. `session` has the special rules for their clients. Invariant: a session's
//! listener is reachable from this machine only, serves its owner only (`road::client::peer_user`), and closes when its
//! owner drops it.

use std::{io, net::Ipv4Addr, os::unix::net::UnixStream, sync::Arc, time::Duration};

use tokio::sync::watch;

use crate::{
    door::connection::ListenerAccess,
    ground::config::Listener,
    road::client::session::{Session, SessionOptions, SessionState},
    run::{
        ProxyHandle,
        opening::{NewListener, WorkerMessage},
        sockets::bind,
    },
    targets::{authority::Authority, intercept::Interceptor},
};

impl ProxyHandle {
    /// Opens a session: a listener on a free loopback port. The session's clients have rules of their own and trust the
    /// session's CA.
    ///
    /// # Errors
    /// `InvalidInput` if this is not a forward proxy; otherwise the system's error for a socket or random numbers.
    pub fn open_session(&self, options: SessionOptions) -> io::Result<Session> {
        let stopped = || io::Error::new(io::ErrorKind::NotConnected, "the proxy has stopped");
        let shared = self.in_force.get().ok_or_else(stopped)?;
        if !shared.config.forward {
            let why = "sessions need a forward proxy, and this one serves sites only";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let authority = Authority::generate(&options.hosts.hosts, AUTHORITY_LIFETIME)?;
        let interceptor = Arc::new(Interceptor::new(options.hosts.clone(), authority)?);
        let state = Arc::new(SessionState::new(interceptor, options));
        let (open, closes) = watch::channel(());
        let mut address = (Ipv4Addr::LOCALHOST, 0).into();
        for opening in &self.openings {
            let socket = bind(address, self.openings.len() > 1)?;
            address = socket.local_addr()?;
            let door =
                Arc::new(ListenerAccess { listener: Listener::plain(address), session: Some(Arc::clone(&state)) });
            opening
                .send(WorkerMessage::Listener(NewListener { socket, door, open: closes.clone() }))
                .map_err(|_| stopped())?;
        }
        Ok(Session { state, address, _open: open })
    }

    /// Answers admin requests on a connection. The caller must have verified that the peer is the operator.
    ///
    /// # Errors
    /// `NotConnected` if the proxy has stopped.
    pub fn serve_operator(&self, stream: UnixStream) -> io::Result<()> {
        let stopped = || io::Error::new(io::ErrorKind::NotConnected, "the proxy has stopped");
        let first = self.openings.first().ok_or_else(stopped)?;
        first.send(WorkerMessage::Operator(stream)).map_err(|_| stopped())
    }
}

/// Lifetime of a session's CA, longer than any command runs.
const AUTHORITY_LIFETIME: Duration = Duration::from_hours(30 * 24);
