//! An HTTP/1.1 connection, for the client and for the origin.
//!
//! Owns: the socket, and the octets that were received and are not used yet. `larder_wire` parses and frames messages.

use bytes::{Bytes, BytesMut};
use larder_wire::{BodyDecoder, DecodedPart, HeadLimits, RequestHead, ResponseHead, parse_request, parse_response};
use std::io;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

/// An HTTP/1.1 connection.
pub(crate) struct WireStream {
    socket: TcpStream,
    received: Bytes,
}

impl WireStream {
    pub(crate) fn new(socket: TcpStream) -> Self {
        Self { socket, received: Bytes::new() }
    }

    /// Sends octets on the connection.
    pub(crate) async fn send(&mut self, octets: &[u8]) -> io::Result<()> {
        self.socket.write_all(octets).await
    }

    /// Receives the head of a request. `None` if the peer closed the connection.
    pub(crate) async fn request(&mut self) -> io::Result<Option<RequestHead>> {
        loop {
            let parsed = parse_request(&self.received, 0, false, HEAD_LIMITS);
            match parsed.map_err(|refused| io::Error::other(refused.fault))? {
                Some((head, len)) => {
                    drop(self.received.split_to(len));
                    return Ok(Some(head));
                }
                None if self.receive().await? => {}
                None => return Ok(None),
            }
        }
    }

    /// Receives the head of a final response. Skips informational ones (1xx).
    pub(crate) async fn response(&mut self) -> io::Result<ResponseHead> {
        loop {
            match parse_response(&self.received, 0, HEAD_LIMITS).map_err(io::Error::other)? {
                Some((head, len)) => {
                    drop(self.received.split_to(len));
                    if !head.status.is_informational() {
                        return Ok(head);
                    }
                }
                None if self.receive().await? => {}
                None => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
        }
    }

    /// Receives the next piece of a body. `None` is the end of the body.
    pub(crate) async fn piece(&mut self, body: &mut BodyDecoder) -> io::Result<Option<Bytes>> {
        loop {
            match body.next(&mut self.received).map_err(io::Error::other)? {
                DecodedPart::Data(data) => return Ok(Some(data)),
                DecodedPart::Trailers(_) => {}
                DecodedPart::End => return Ok(None),
                DecodedPart::More if self.receive().await? => {}
                DecodedPart::More if matches!(body, BodyDecoder::UntilClose) => return Ok(None),
                DecodedPart::More => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
        }
    }

    /// Receives more octets. Returns `false` if the peer closed the connection.
    async fn receive(&mut self) -> io::Result<bool> {
        let mut octets = BytesMut::with_capacity(self.received.len() + PIECE_BYTES);
        octets.extend_from_slice(&self.received);
        let count = self.socket.read_buf(&mut octets).await?;
        self.received = octets.freeze();
        Ok(count > 0)
    }
}

pub(crate) const HEAD_LIMITS: HeadLimits = HeadLimits { bytes_max: 64 << 10, field_count_max: 100 };
/// Maximum number of octets in one receive operation.
const PIECE_BYTES: usize = 64 << 10;
