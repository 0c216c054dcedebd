//! Passes sockets from one process to another over a Unix socket (`SCM_RIGHTS`, unix(7)).

use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
        recvmsg, sendmsg,
    },
};
use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
};

/// Sends octets over a Unix socket, and a descriptor together with them if `socket` is given.
///
/// # Errors
/// The other end is gone.
pub(crate) fn send(line: impl AsFd, octets: &[u8], socket: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let sockets: Vec<_> = socket.into_iter().collect();
    if !sockets.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(&sockets)), "there is room for one");
    }
    sendmsg(line, &[IoSlice::new(octets)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives octets over a Unix socket, and the descriptor that was sent with them. Returns 0 octets at the end.
///
/// # Errors
/// `WouldBlock` if nothing arrived within the connection's timeout.
pub(crate) fn receive(line: impl AsFd, octets: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        match recvmsg(&line, &mut [IoSliceMut::new(octets)], &mut control, RecvFlags::CMSG_CLOEXEC) {
            // The system reports this once if the peer ended without reading everything. Its earlier messages can still
            // be received.
            Err(rustix::io::Errno::INTR | rustix::io::Errno::CONNRESET) => {}
            received => break received?,
        }
    };
    let socket = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut sockets) => sockets.next(),
        _ => None,
    });
    Ok((received.bytes, socket))
}
