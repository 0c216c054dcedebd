//! Turns an accepted socket into a connection with a known protocol: the PROXY header, the TLS handshake, and HTTP/1.1
//! or HTTP/2.
//!
//! Serving is done elsewhere. Invariant: no byte from the client is lost. The chosen protocol reads the bytes again
//! that were read to detect it. Cost: on a plain connection, one short copy of the first bytes; no buffer before they
//! arrive.

use std::{io, net::SocketAddr, sync::Arc};

use bytes::{Bytes, BytesMut};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use crate::{
    door::{certificates::CertificateSet, proxied},
    ground::{
        config::Listener,
        target::is_within,
        tls_provider::{self, ALPN_PROTOCOLS},
    },
    road::client::socket::{ClientProtocol, ClientSocket},
    run::worker::Worker,
};

/// A connection whose protocol is known.
pub(crate) struct OpenedConnection {
    /// The client's address: the socket's peer, or the address in a PROXY header.
    pub(crate) peer: SocketAddr,
    /// Whether a load balancer opened the connection and named the client in a PROXY header.
    pub(crate) is_proxied: bool,
    pub(crate) socket: ClientSocket,
    /// Bytes that were read to detect the protocol. They are the first bytes of the connection.
    pub(crate) first: Bytes,
    pub(crate) protocol: ClientProtocol,
}

/// A client's address, as far as it is known when the connection is opened.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PeerAddress {
    /// The address of the socket's peer. If that is a load balancer, a PROXY header may name the client.
    Accepted(SocketAddr),
    /// The client's address, as the process that handed the connection over had determined it.
    Known(SocketAddr),
}

impl PeerAddress {
    pub(crate) fn address(self) -> SocketAddr {
        match self {
            Self::Accepted(address) | Self::Known(address) => address,
        }
    }
}

/// Opens a connection: reads the PROXY header, does the TLS handshake, and detects the HTTP version.
///
/// Returns `None` if the client disconnected without sending anything.
///
/// # Errors
/// The connection or its handshake failed.
pub(crate) async fn open(
    worker: &Worker,
    listener: &Listener,
    mut socket: TcpStream,
    peer: PeerAddress,
) -> io::Result<Option<OpenedConnection>> {
    let mut peer = match peer {
        PeerAddress::Known(client) => {
            // The previous process read the PROXY header, if there was one. Only then does the address differ from the
            // socket's peer.
            let is_proxied = socket.peer_addr().ok() != Some(client);
            return Ok(listen_first(socket, client).await?.map(|opened| OpenedConnection { is_proxied, ..opened }));
        }
        PeerAddress::Accepted(address) => address,
    };
    let from = peer.ip().to_canonical();
    let must_name_client = listener.proxied_by.iter().any(|network| network.contains(&from));
    let may_name_client = || is_within(&worker.shared.config.fleet.trusted_proxies, from);
    let is_proxied = must_name_client || may_name_client() && proxied::is_next(&socket).await?;
    if is_proxied {
        peer = proxied::read(&mut socket).await?.unwrap_or(peer);
    }
    let opened = negotiate(worker, listener, socket, peer).await?;
    Ok(opened.map(|opened| OpenedConnection { is_proxied, ..opened }))
}

/// Detects the protocol of a connection, after its PROXY header, if any, was read.
async fn negotiate(
    worker: &Worker,
    listener: &Listener,
    socket: TcpStream,
    peer: SocketAddr,
) -> io::Result<Option<OpenedConnection>> {
    let acceptor = match listener.for_nodes {
        true => worker.shared.fleet.as_ref().and_then(|link| link.tls.as_ref()).map(|tls| tls.acceptor()),
        false => worker.shared.acceptor.as_ref(),
    };
    match (listener.tls, acceptor) {
        (true, Some(acceptor)) => {
            let stream = Box::new(acceptor.accept(socket).await?);
            let protocol = ClientProtocol::agreed(stream.get_ref().1.alpn_protocol());
            let socket = ClientSocket::Tls(stream);
            Ok(Some(OpenedConnection { peer, is_proxied: false, socket, first: Bytes::new(), protocol }))
        }
        (true, None) => Err(io::Error::other("the certificates of this listener are not loaded")),
        (false, _) => listen_first(socket, peer).await,
    }
}

/// Creates the TLS acceptor for clients, which offers HTTP/1.1 and HTTP/2.
///
/// # Errors
/// The TLS library refuses its own defaults.
pub(crate) fn acceptor(certificates: Arc<CertificateSet>) -> Result<TlsAcceptor, rustls::Error> {
    let provider = Arc::new(tls_provider::default_provider());
    let builder = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let mut config = builder.with_no_client_auth().with_cert_resolver(certificates);
    config.alpn_protocols = ALPN_PROTOCOLS.map(<[u8]>::to_vec).to_vec();
    // Tickets are encrypted and kept by the clients, so that they can resume on any worker.
    config.ticketer = tls_provider::Ticketer::new()?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Reads until it is clear whether the client sends the preface of HTTP/2 (RFC 9113 3.4).
async fn listen_first(socket: TcpStream, peer: SocketAddr) -> io::Result<Option<OpenedConnection>> {
    let mut first = BytesMut::new();
    loop {
        socket.readable().await?;
        match read_some(&socket, &mut first) {
            Ok(0) => return Ok(None),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) => return Err(error),
        }
        if let Some(protocol) = told(&first) {
            return Ok(Some(OpenedConnection {
                peer,
                is_proxied: false,
                socket: ClientSocket::Plain(socket),
                first: first.freeze(),
                protocol,
            }));
        }
    }
}

/// Reads what has arrived. Not `async`, so that the buffer does not enlarge the future that waits for more.
fn read_some(socket: &TcpStream, first: &mut BytesMut) -> io::Result<usize> {
    let mut buffer = [0; FIRST_BYTES_MAX];
    let count = socket.try_read(&mut buffer)?;
    first.extend_from_slice(&buffer[..count]);
    Ok(count)
}

/// Returns the protocol that a client's first bytes belong to, or `None` while both are possible.
fn told(first: &[u8]) -> Option<ClientProtocol> {
    let compared = first.len().min(PREFACE.len());
    match first[..compared] == PREFACE[..compared] {
        true if compared == PREFACE.len() => Some(ClientProtocol::Http2),
        true => None,
        false => Some(ClientProtocol::Http1),
    }
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Maximum bytes read at once before the protocol is known.
const FIRST_BYTES_MAX: usize = 4 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protocols_are_told_apart_by_the_whole_preface() {
        assert_eq!(told(PREFACE), Some(ClientProtocol::Http2));
        assert_eq!(told(&[PREFACE, b"more"].concat()), Some(ClientProtocol::Http2));
        for end in 0..PREFACE.len() {
            assert_eq!(told(&PREFACE[..end]), None);
        }
        for text in ["GET / HTTP/1.1\r\n", "PROPFIND / HTTP/1.1\r\n", "PRI * HTTP/2.0\r\n\r\nXX", "P\r", "\r\n"] {
            assert_eq!(told(text.as_bytes()), Some(ClientProtocol::Http1), "{text}");
        }
    }
}
