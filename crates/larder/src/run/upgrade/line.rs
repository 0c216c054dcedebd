//! The connection between a running process and its successor.
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

/// A message between a running process and its successor.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum HandoverMessage {
    /// A listening socket, which is attached to the message, and its configured address.
    Socket { address: SocketAddr },
    /// All listening sockets were sent.
    AllSockets,
    /// The successor has checked everything that it can check, and could start.
    Ready,
    /// The successor must not start, because this was only a check.
    Cancel,
    /// The old process accepts no more connections, and has released the store.
    StoreFree,
    /// The successor accepts connections, and will continue connections that are sent from now on.
    Accepting,
    /// A client's connection, whose socket is attached to the message. The message names the listener that accepted it,
    /// and the client's address if it is known.
    Connection { listener: SocketAddr, client: Option<SocketAddr> },
    /// Commands can find the successor.
    Serving,
    /// The service manager knows that the successor is the main process.
    InCharge,
    /// The successor does not start, for this reason.
    Failed { problem: String, help: String },
}

/// One end of the connection between a process and its successor.
pub(crate) struct HandoverLine(OwnedFd);

/// A message that was received, with the socket that was attached to it.
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

    /// Returns the end that this process inherited as standard input.
    pub(super) fn of_stdin() -> io::Result<Self> {
        Ok(Self(io::stdin().as_fd().try_clone_to_owned()?))
    }

    pub(super) fn send(&self, message: &HandoverMessage) -> io::Result<()> {
        self.send_with(message, None)
    }

    /// Sends a message with a socket attached.
    pub(super) fn send_socket(&self, message: &HandoverMessage, socket: BorrowedFd<'_>) -> io::Result<()> {
        self.send_with(message, Some(socket))
    }

    fn send_with(&self, message: &HandoverMessage, socket: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let text = serde_json::to_vec(message)?;
        assert!(text.len() <= MESSAGE_BYTES_MAX, "a message has a bound");
        passing::send(&self.0, &text, socket)
    }

    /// Waits for a message. With `patience`, waits no longer than that.
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

/// Maximum length of a message, in bytes.
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
