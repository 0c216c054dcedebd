//! The connection between a running proxy and its successor.
//!
//! Owns: the messages, and the sockets that are sent with some. Their order is in `upgrade` and `taking`. Invariant: a
//! message arrives whole or not at all, and with the socket that was sent with it.

use crate::passing;
use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    net::{
        AddressFamily, SocketFlags, SocketType, socketpair,
        sockopt::{Timeout, set_socket_timeout},
    },
};
use serde::{Deserialize, Serialize};
use std::{io, net::SocketAddr, time::Duration};

/// A message of the handover.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum HandoverMessage {
    /// A socket, which comes with it, and the address for which it is configured.
    Socket { address: SocketAddr },
    /// There are no more sockets.
    AllSockets,
    /// The other has looked at all that can be looked at, and would start.
    Ready,
    /// Do not start: it was only a check.
    Cancel,
    /// Nothing is accepted any more, and the store is free.
    StoreFree,
    /// The new process accepts, and continues the connections that are sent from now on.
    Accepting,
    /// A client's connection, whose socket comes with the message: its listener, and the client's address if known.
    Connection { listener: SocketAddr, client: Option<SocketAddr> },
    /// The other can be found by commands.
    Serving,
    /// The other is known to the service manager as the one that runs.
    InCharge,
    /// The other does not start.
    Failed { problem: String, help: String },
}

/// One end of the line.
pub(crate) struct HandoverLine(OwnedFd);

/// A message as it came.
pub(super) struct ReceivedMessage {
    pub(super) message: HandoverMessage,
    pub(super) socket: Option<OwnedFd>,
}

impl HandoverLine {
    /// Returns both ends.
    pub(super) fn pair() -> io::Result<(Self, OwnedFd)> {
        let (own, other) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok((Self(own), other))
    }

    /// Returns the end that a process was started with as its standard input.
    pub(super) fn of_stdin() -> io::Result<Self> {
        Ok(Self(io::stdin().as_fd().try_clone_to_owned()?))
    }

    pub(super) fn send(&self, message: &HandoverMessage) -> io::Result<()> {
        self.send_with(message, None)
    }

    /// Sends a message and a socket.
    pub(super) fn send_socket(&self, message: &HandoverMessage, socket: BorrowedFd<'_>) -> io::Result<()> {
        self.send_with(message, Some(socket))
    }

    fn send_with(&self, message: &HandoverMessage, socket: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let text = serde_json::to_vec(message)?;
        assert!(text.len() <= MESSAGE_BYTES_MAX, "a message has a bound");
        passing::send(&self.0, &text, socket)
    }

    /// Waits for a message, for `patience` at most if that is said.
    ///
    /// # Errors
    /// `UnexpectedEof` if the other end is gone, `TimedOut` if nothing came, `InvalidData` for what is no message.
    pub(super) fn receive(&self, patience: Option<Duration>) -> io::Result<ReceivedMessage> {
        set_socket_timeout(&self.0, Timeout::Recv, patience)?;
        let mut text = [0; MESSAGE_BYTES_MAX];
        let (length, socket) = passing::receive(&self.0, &mut text).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
            _ => error,
        })?;
        if length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(ReceivedMessage { message: serde_json::from_slice(&text[..length])?, socket })
    }
}

/// Longest message, in bytes.
const MESSAGE_BYTES_MAX: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// At stake: a socket that arrives is another than was sent, or none.
    #[test]
    fn socket_arrives_with_its_message_and_the_end_is_told() {
        let (own, other) = HandoverLine::pair().unwrap();
        let other = HandoverLine(other);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        own.send_socket(&HandoverMessage::Socket { address }, listener.as_fd()).unwrap();
        own.send(&HandoverMessage::AllSockets).unwrap();
        drop((listener, own));
        let first = other.receive(None).unwrap();
        let arrived = TcpListener::from(first.socket.unwrap());
        assert_eq!(arrived.local_addr().unwrap(), address);
        let second = other.receive(None).unwrap();
        assert!(matches!(second.message, HandoverMessage::AllSockets) && second.socket.is_none());
        assert_eq!(other.receive(None).err().unwrap().kind(), io::ErrorKind::UnexpectedEof);
    }
}
