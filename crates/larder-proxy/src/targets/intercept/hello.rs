//! Reads a client's first bytes in a tunnel, to determine whether a TLS handshake begins that could lead to HTTP.
//!
//! The module sends nothing. Invariants: every byte read is kept, so that other protocols are forwarded unchanged. At
//! most a handshake's first message is read.

use std::{io, time::Duration};

use bytes::BytesMut;
use larder_http::steps;
use rustls::server::{Accepted, Acceptor};
use tokio::io::{AsyncRead, AsyncReadExt as _};

use crate::{
    ground::{config::normal_host, tls_provider::ALPN_PROTOCOLS},
    targets::intercept::bypass::BypassReason,
};

/// The protocol that the first bytes of a client inside a tunnel show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FirstBytes {
    /// The client began a TLS handshake. `name` is the host that it requests, if it names one.
    Tls { name: Option<String> },
    /// The client sent bytes that cannot lead to HTTP over TLS, or none in time. The tunnel is passed on undecrypted,
    /// for this reason.
    Other(BypassReason),
    /// The client sent nothing before it closed the tunnel.
    Nothing,
}

/// Returns how long the client of a tunnel to `port` may send nothing before the server is expected to speak first.
///
/// `None` on the ports of `https://`, where a slow client would otherwise bypass the cache. On these ports, only the
/// deadline of the whole handshake ends the wait.
pub(crate) fn silence_limit(port: u16) -> Option<Duration> {
    if HTTPS_PORTS.contains(&port) { None } else { Some(SILENCE) }
}

/// Reads the first bytes of a tunnel into `read`, which must be empty, and classifies them.
///
/// Waits at most `silence` for the first byte.
///
/// # Errors
/// The connection failed.
pub(crate) async fn listen(
    stream: &mut (impl AsyncRead + Unpin),
    read: &mut BytesMut,
    silence: Option<Duration>,
) -> io::Result<FirstBytes> {
    let mut acceptor = Acceptor::default();
    loop {
        let before = read.len();
        read.reserve(READ_BYTES);
        let reading = stream.read_buf(read);
        let count = match silence.filter(|_| before == 0) {
            Some(silence) => match tokio::time::timeout(silence, reading).await {
                Ok(count) => count?,
                Err(_) => return Ok(FirstBytes::Other(BypassReason::Silence)),
            },
            None => reading.await?,
        };
        if count == 0 {
            return Ok(if before == 0 { FirstBytes::Nothing } else { FirstBytes::Other(BypassReason::NotTls) });
        }
        if read[0] != HANDSHAKE || read.len() > HELLO_BYTES_MAX {
            return Ok(FirstBytes::Other(BypassReason::NotTls));
        }
        let mut rest = &read[before..];
        while !rest.is_empty() {
            steps::take(rest.len());
            if !acceptor.read_tls(&mut rest).is_ok_and(|taken| taken > 0) {
                return Ok(FirstBytes::Other(BypassReason::NotTls));
            }
            match acceptor.accept() {
                Ok(None) => {}
                Ok(Some(accepted)) => return Ok(of_hello(&accepted)),
                Err(_) => return Ok(FirstBytes::Other(BypassReason::NotTls)),
            }
        }
    }
}

fn of_hello(accepted: &Accepted) -> FirstBytes {
    let hello = accepted.client_hello();
    let speaks_http = hello.alpn().is_none_or(|mut offered| offered.any(|name| ALPN_PROTOCOLS.contains(&name)));
    if !speaks_http {
        return FirstBytes::Other(BypassReason::NotHttp);
    }
    FirstBytes::Tls { name: hello.server_name().map(normal_host) }
}

/// The first byte of a TLS record that carries a handshake (RFC 8446 5.1).
const HANDSHAKE: u8 = 0x16;
/// Maximum length of a handshake's first message, in bytes. A longer message is not examined further.
const HELLO_BYTES_MAX: usize = 64 << 10;
const READ_BYTES: usize = 4 << 10;
/// Ports on which clients speak first and use TLS.
const HTTPS_PORTS: [u16; 2] = [443, 8443];
/// Maximum time that a client on another port may send nothing before the server is expected to speak first.
const SILENCE: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::{ClientConfig, ClientConnection, RootCertStore, pki_types::ServerName};

    use super::*;

    /// Returns the first message of a TLS client that requests the host `name` and offers the protocols `alpn`.
    fn hello(name: &str, alpn: &[&str]) -> Vec<u8> {
        let provider = Arc::new(crate::ground::tls_provider::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let mut config = builder.with_root_certificates(RootCertStore::empty()).with_no_client_auth();
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let mut written = Vec::new();
        ClientConnection::new(Arc::new(config), name).unwrap().write_tls(&mut written).unwrap();
        written
    }

    /// Returns the result of reading the bytes `sent` from a client, and the number of bytes read.
    async fn found(sent: &[u8], piece_bytes: usize) -> (FirstBytes, usize) {
        let (mut near, mut far) = tokio::io::duplex(piece_bytes);
        let sent = sent.to_vec();
        let sending = tokio::spawn(async move {
            // The reader may stop before the end, so the write may fail.
            let _ = tokio::io::AsyncWriteExt::write_all(&mut far, &sent).await;
            far
        });
        let mut read = BytesMut::new();
        let first = listen(&mut near, &mut read, None).await.unwrap();
        drop(near);
        drop(sending.await);
        (first, read.len())
    }

    #[tokio::test]
    async fn handshakes_for_http_are_known_however_they_come_in_pieces() {
        let tls = |name: Option<&str>| FirstBytes::Tls { name: name.map(str::to_owned) };
        for (name, alpn, expected) in [
            ("Site.Example", &["h2", "http/1.1"][..], tls(Some("site.example"))),
            ("site.example", &[], tls(Some("site.example"))),
            ("127.0.0.1", &["http/1.1"], tls(None)),
            ("site.example", &["imap"], FirstBytes::Other(BypassReason::NotHttp)),
        ] {
            let sent = hello(name, alpn);
            for piece_bytes in [1, 7, 64 << 10] {
                assert_eq!(found(&sent, piece_bytes).await, (expected.clone(), sent.len()), "{name} {alpn:?}");
            }
        }
    }

    #[tokio::test]
    async fn what_is_no_handshake_is_something_else_at_once() {
        let mut broken = hello("site.example", &[]);
        broken[5] = 0xff;
        let endless = [&[HANDSHAKE, 3, 1, 0x40, 0, 1, 0xff, 0xff, 0xff][..], &[0; 200 << 10]].concat();
        for sent in [&b"SSH-2.0-x\r\n"[..], b"GET / HTTP/1.1\r\n\r\n", &[0], &broken, &endless, &[HANDSHAKE, 3]] {
            let sent = [sent, &[]].concat();
            let (mut near, mut far) = tokio::io::duplex(1 << 20);
            tokio::io::AsyncWriteExt::write_all(&mut far, &sent).await.unwrap();
            drop(far);
            let mut read = BytesMut::new();
            let first = listen(&mut near, &mut read, None).await.unwrap();
            assert_eq!(first, FirstBytes::Other(BypassReason::NotTls), "{sent:?}");
            assert!(sent.starts_with(&read) && read.len() <= HELLO_BYTES_MAX + READ_BYTES + 1);
        }
        let (mut near, far) = tokio::io::duplex(1);
        drop(far);
        assert_eq!(listen(&mut near, &mut BytesMut::new(), None).await.unwrap(), FirstBytes::Nothing);
    }

    /// Guards against a client on a busy machine whose first bytes arrive late. Its host must be cached all the same.
    #[tokio::test]
    async fn silent_client_is_waited_for_on_ports_of_https_and_tunneled_on_others() {
        assert_eq!([443, 8443, 22, 9418].map(silence_limit), [None, None, Some(SILENCE), Some(SILENCE)]);
        let (mut near, mut far) = tokio::io::duplex(64 << 10);
        let at_once = Some(Duration::ZERO);
        assert_eq!(
            listen(&mut near, &mut BytesMut::new(), at_once).await.unwrap(),
            FirstBytes::Other(BypassReason::Silence)
        );
        let listening = tokio::spawn(async move { listen(&mut near, &mut BytesMut::new(), None).await.unwrap() });
        tokio::task::yield_now().await;
        assert!(!listening.is_finished(), "nothing has come yet");
        tokio::io::AsyncWriteExt::write_all(&mut far, &hello("site.example", &[])).await.unwrap();
        assert_eq!(listening.await.unwrap(), FirstBytes::Tls { name: Some("site.example".to_owned()) });
    }
}
