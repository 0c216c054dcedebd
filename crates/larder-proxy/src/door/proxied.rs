//! Reads the header of the PROXY protocol, versions 1 and 2. A load balancer sends it before all other bytes, to name
//! the client.
//!
//! Owns: reading exactly the header and nothing after it. The configuration says which peers may send one, see
//! [`Listener`]. Invariant: where a header is required, a connection without a valid one is closed. Cost: version 1 has
//! no length, so it is read octet by octet; version 2 takes three reads.
//!
//! [`Listener`]: crate::ground::config::Listener

use std::{
    io,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use larder_http::steps;
use ppp::{v1, v2};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _},
    net::TcpStream,
};

/// Reads the PROXY header and returns the client's address.
///
/// Returns `None` if the load balancer itself is the client, as in a health check.
///
/// # Errors
/// There is no header, or it is malformed.
pub(crate) async fn read(socket: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<SocketAddr>> {
    let mut header = vec![0; SIGNATURE.len()];
    socket.read_exact(&mut header).await?;
    if header == SIGNATURE {
        header.resize(FIXED_BYTES, 0);
        socket.read_exact(&mut header[SIGNATURE.len()..]).await?;
        let length = usize::from(u16::from_be_bytes([header[FIXED_BYTES - 2], header[FIXED_BYTES - 1]]));
        if length > VERSION_2_BYTES_MAX {
            return Err(malformed("a PROXY header is too long"));
        }
        header.resize(FIXED_BYTES + length, 0);
        socket.read_exact(&mut header[FIXED_BYTES..]).await?;
        return source_2(&header);
    }
    if !header.starts_with(VERSION_1) {
        return Err(malformed("no PROXY header from a network that must send one"));
    }
    while !header.ends_with(b"\r\n") {
        if header.len() == VERSION_1_BYTES_MAX {
            return Err(malformed("a PROXY header is too long"));
        }
        steps::take(1);
        header.push(socket.read_u8().await?);
    }
    source_1(&header)
}

/// Returns whether a trusted proxy's connection begins with a PROXY header.
///
/// Where the header is optional, each trusted load balancer must add one. If it forwards a client's bytes as they are,
/// the client can forge the header.
///
/// # Errors
/// The connection failed.
pub(crate) async fn is_next(socket: &TcpStream) -> io::Result<bool> {
    let mut first = [0; START_BYTES];
    loop {
        let count = socket.peek(&mut first).await?;
        let begins = |header: &[u8]| header.starts_with(&first[..count]);
        if !begins(SIGNATURE) && !begins(VERSION_1) {
            return Ok(false);
        }
        if count == START_BYTES || count == 0 {
            return Ok(count > 0);
        }
        // One letter has arrived, with which both versions can begin. Peeking again would return at once with the same
        // letter.
        tokio::time::sleep(PEEK_INTERVAL).await;
    }
}

fn source_1(header: &[u8]) -> io::Result<Option<SocketAddr>> {
    steps::take(header.len());
    let header = v1::Header::try_from(header).map_err(|_| malformed("a PROXY header is malformed"))?;
    Ok(match header.addresses {
        v1::Addresses::Unknown => None,
        v1::Addresses::Tcp4(ends) => Some(SocketAddr::new(IpAddr::V4(ends.source_address), ends.source_port)),
        v1::Addresses::Tcp6(ends) => Some(SocketAddr::new(IpAddr::V6(ends.source_address), ends.source_port)),
    })
}

fn source_2(header: &[u8]) -> io::Result<Option<SocketAddr>> {
    steps::take(header.len());
    let header = v2::Header::try_from(header).map_err(|_| malformed("a PROXY header is malformed"))?;
    Ok(match (header.command, header.addresses) {
        (v2::Command::Local, _) | (_, v2::Addresses::Unspecified | v2::Addresses::Unix(_)) => None,
        (_, v2::Addresses::IPv4(ends)) => Some(SocketAddr::new(IpAddr::V4(ends.source_address), ends.source_port)),
        (_, v2::Addresses::IPv6(ends)) => Some(SocketAddr::new(IpAddr::V6(ends.source_address), ends.source_port)),
    })
}

fn malformed(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

const VERSION_1: &[u8] = b"PROXY ";
const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// Number of bytes that suffice to distinguish a PROXY header from a request and from a TLS handshake.
const START_BYTES: usize = VERSION_1.len();
const PEEK_INTERVAL: Duration = Duration::from_millis(5);
/// Length of the fixed part of a version 2 header.
const FIXED_BYTES: usize = 16;
/// Maximum length of the variable part of a version 2 header: addresses and extensions, in bytes.
const VERSION_2_BYTES_MAX: usize = 2 << 10;
/// Maximum length of a version 1 header, including the line end, in bytes.
const VERSION_1_BYTES_MAX: usize = 107;

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the client that a header names, and the bytes after the header.
    async fn taken(bytes: &[u8]) -> io::Result<(Option<String>, Vec<u8>)> {
        let mut rest = bytes;
        let source = read(&mut rest).await?;
        Ok((source.map(|source| source.to_string()), rest.to_vec()))
    }

    fn version_2(command: u8, family: u8, addresses: &[u8]) -> Vec<u8> {
        let length = u16::try_from(addresses.len()).unwrap().to_be_bytes();
        [SIGNATURE, &[0x20 | command, family], &length, addresses, b"GET"].concat()
    }

    #[tokio::test]
    async fn source_is_taken_and_nothing_behind_the_header() {
        let text = b"PROXY TCP4 192.0.2.1 198.51.100.1 56324 443\r\nGET";
        assert_eq!(taken(text).await.unwrap(), (Some("192.0.2.1:56324".into()), b"GET".to_vec()));
        let text = b"PROXY TCP6 2001:db8::1 2001:db8::2 1 2\r\nGET";
        assert_eq!(taken(text).await.unwrap(), (Some("[2001:db8::1]:1".into()), b"GET".to_vec()));
        assert_eq!(taken(b"PROXY UNKNOWN\r\nGET").await.unwrap(), (None, b"GET".to_vec()));
        let v4 = [192, 0, 2, 7, 198, 51, 100, 1, 0, 80, 1, 187];
        assert_eq!(taken(&version_2(1, 0x11, &v4)).await.unwrap(), (Some("192.0.2.7:80".into()), b"GET".to_vec()));
        assert_eq!(taken(&version_2(0, 0, &[])).await.unwrap(), (None, b"GET".to_vec()));
    }

    #[tokio::test]
    async fn what_is_no_header_is_refused() {
        let long = format!("PROXY TCP4 {}\r\n", "1".repeat(200));
        let odd = version_2(1, 0x11, &[1, 2, 3]);
        let huge = [SIGNATURE, &[0x21, 0x11, 0xff, 0xff]].concat();
        for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"PROXY", long.as_bytes(), b"PROXY TCP4 x y 1 2\r\n", &odd, &huge]
        {
            assert!(taken(bytes).await.is_err(), "{}", String::from_utf8_lossy(bytes));
        }
    }
}
