//! The connection between a running proxy and its successor.
//!
//! Owns: the messages, and the sockets that are sent with some of them. `upgrade` and `taking` define their order.
//! Invariant: a message arrives completely or not at all, together with its socket.

use crate::run::passing;
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
    /// A listening socket, which is sent with the message, and its configured address.
    Socket { address: SocketAddr },
    /// There are no more sockets.
    AllSockets,
    /// The successor has checked everything that it can check, and would start.
    Ready,
    /// Do not start: it was only a check.
    Cancel,
    /// The old process accepts no more connections, and the store is released.
    StoreFree,
    /// The successor accepts connections, and continues those sent from now on.
    Accepting,
    /// A client's connection, whose socket is sent with the message: its listener, and the client's address if known.
    Connection { listener: SocketAddr, client: Option<SocketAddr> },
    /// Commands can find the successor.
    Serving,
    /// The service manager knows the successor as the main process.
    InCharge,
    /// The successor does not start.
    Failed { problem: String, help: String },
}

/// One end of the connection.
pub(crate) struct HandoverLine(OwnedFd);

/// A received message.
pub(super) struct ReceivedMessage {
    pub(super) message: HandoverMessage,
    pub(super) socket: Option<OwnedFd>,
}

impl HandoverLine {
    /// Creates a connection and returns both ends.
    pub(super) fn pair() -> io::Result<(Self, OwnedFd)> {
        let (own, other) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok((Self(own), other))
    }

    /// Returns the end that this process inherited as its standard input.
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

    /// Waits for a message, for at most `patience` if it is given.
    ///
    /// # Errors
    /// `UnexpectedEof` if the other end is gone, `TimedOut` if nothing arrived, `InvalidData` for an invalid message.
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

    /// The received socket must be the one that was sent.
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
