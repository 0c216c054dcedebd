//! Finds the user whose process opened a connection from this machine.
//!
//! Owns: the query to the kernel (sock_diag(7)), and the lists in /proc/net for systems without it. Invariant: the
//! result is the user of a socket that a process still has open. The kernel reports user 0, which is root, for a socket
//! that was closed, so an inode number must prove that it is open.
//!
//! Cost: one message to the kernel. The lists are read only if the kernel does not answer; their length grows with the
//! machine's sockets.

use std::{
    collections::HashMap,
    fs, io,
    net::{IpAddr, SocketAddr},
};

use http::uri::Authority;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType,
    netlink::{self, SocketAddrNetlink},
    recv, sendto, socket_with,
};
use tokio::net::TcpStream;

/// The two addresses of a connection over the loopback interface.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NearEnds {
    peer: SocketAddr,
    local: SocketAddr,
}

impl NearEnds {
    /// Returns the addresses of a client's connection, or `None` if it did not come from this machine over loopback.
    pub(crate) fn of(socket: &TcpStream, client: SocketAddr) -> Option<Self> {
        // The client's address is compared first, which saves the system call for other connections.
        let peer = Some(client).filter(|client| client.ip().to_canonical().is_loopback())?;
        Some(Self { peer, local: socket.local_addr().ok()? })
    }

    /// Returns whether `authority` names this proxy's end of the connection.
    pub(crate) fn is_called(self, authority: &Authority) -> bool {
        let host = authority.host().trim_matches(['[', ']']);
        let is_local = host.parse::<IpAddr>().map_or(host.eq_ignore_ascii_case("localhost"), |ip| ip.is_loopback());
        is_local && authority.port_u16().unwrap_or(80) == self.local.port()
    }

    /// Returns the user whose process has the client's end open. `None` if no process has, or if the system does not
    /// report it.
    pub(crate) fn user(self) -> Option<u32> {
        user_of(self.peer, self.local)
    }
}

fn user_of(peer: SocketAddr, local: SocketAddr) -> Option<u32> {
    let [peer, local] = [peer, local].map(|end| SocketAddr::new(end.ip().to_canonical(), end.port()));
    asked_user(peer, local).ok().or_else(|| listed_user(peer, local))
}

/// Returns whether `user` is root or the user that runs this process.
pub(crate) fn is_own_or_root(user: u32) -> bool {
    user == 0 || user == rustix::process::geteuid().as_raw()
}

/// Returns whether `user` runs a process that descends from the process `ancestor`. Reads the list of all processes.
pub(crate) fn has_descendant_of(ancestor: u32, user: u32) -> bool {
    // The kernel reports parent 0 for a process in another namespace, and for the first process.
    if ancestor == 0 {
        return false;
    }
    let mut children: HashMap<u32, Vec<ProcessFacts>> = HashMap::new();
    let names =
        fs::read_dir("/proc").into_iter().flatten().filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    for process in names.filter_map(|name| ProcessFacts::read(name.parse().ok()?)) {
        children.entry(process.parent).or_default().push(process);
    }
    // Each process is taken out of the map once. So the loop ends even if numbers were reused while the list was read.
    let mut left = vec![ancestor];
    while let Some(parent) = left.pop() {
        for child in children.remove(&parent).unwrap_or_default() {
            if child.users.contains(&user) {
                return true;
            }
            left.push(child.id);
        }
    }
    false
}

struct ProcessFacts {
    id: u32,
    parent: u32,
    /// The real, effective, saved and file system user numbers.
    users: Vec<u32>,
}

impl ProcessFacts {
    fn read(id: u32) -> Option<Self> {
        let text = fs::read_to_string(format!("/proc/{id}/status")).ok()?;
        let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
        let parent = value("PPid:")?.trim().parse().ok()?;
        let users = value("Uid:")?.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        Some(Self { id, parent, users })
    }
}

/// Asks the kernel for the user of the socket between two addresses.
fn asked_user(peer: SocketAddr, local: SocketAddr) -> io::Result<u32> {
    let no_answer = || io::Error::from(io::ErrorKind::NotFound);
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, Some(netlink::SOCK_DIAG))?;
    sendto(&socket, &request(peer, local), SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    let mut answer = [0; ANSWER_BYTES];
    // The kernel has queued its response before `send` returns, so this does not wait.
    let (length, _) = recv(&socket, &mut answer, RecvFlags::DONTWAIT)?;
    owner_in(&answer[..length], peer.port(), local.port()).ok_or_else(no_answer)
}

fn request(peer: SocketAddr, local: SocketAddr) -> Vec<u8> {
    let mut message = Vec::with_capacity(REQUEST_BYTES);
    message.extend((REQUEST_BYTES as u32).to_ne_bytes());
    message.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    message.extend(NLM_F_REQUEST.to_ne_bytes());
    // Sequence number and sender, both 0.
    message.extend([0; 8]);
    let family = if peer.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    message.extend([family.as_raw() as u8, IPPROTO_TCP, 0, 0]);
    let all_states = u32::MAX;
    message.extend(all_states.to_ne_bytes());
    [peer, local].iter().for_each(|end| message.extend(end.port().to_be_bytes()));
    for end in [peer, local] {
        let octets = match end.ip() {
            IpAddr::V4(ip) => ip.octets().to_vec(),
            IpAddr::V6(ip) => ip.octets().to_vec(),
        };
        message.extend(octets.iter().chain(&[0; 16]).take(16));
    }
    // Any interface, and no socket cookie.
    message.extend([0; 4]);
    message.extend([0xff; 8]);
    assert_eq!(message.len(), REQUEST_BYTES, "a head and an inet_diag_req_v2");
    message
}

/// Returns the user in a response of the kernel, if it describes an open socket with these two ports.
fn owner_in(answer: &[u8], peer: u16, local: u16) -> Option<u32> {
    let word = |at: usize| answer.get(at..at + 4).map(|word| u32::from_ne_bytes(word.try_into().expect("four bytes")));
    let half = |at: usize| answer.get(at..at + 2).and_then(|half| half.try_into().ok());
    let is_socket = half(4).map(u16::from_ne_bytes) == Some(SOCK_DIAG_BY_FAMILY);
    // A listener at the same port has no remote port, so it is not mistaken for the connection.
    let ports = [ID_OFFSET, ID_OFFSET + 2].map(|at| half(at).map(u16::from_be_bytes));
    let is_open = word(INODE_OFFSET).is_some_and(|inode| inode != 0);
    (is_socket && ports == [Some(peer), Some(local)] && is_open).then(|| word(USER_OFFSET)).flatten()
}

/// Looks for the user of the socket in /proc/net. An IPv6 socket can carry an IPv4 connection, so both lists are
/// searched.
fn listed_user(peer: SocketAddr, local: SocketAddr) -> Option<u32> {
    let in_list = |name: &str, shown: fn(SocketAddr) -> String| {
        let text = fs::read_to_string(format!("/proc/self/net/{name}")).ok()?;
        text.lines().find_map(|line| owner_on_line(line, &shown(peer), &shown(local)))
    };
    in_list("tcp", shown_short).or_else(|| in_list("tcp6", shown_long))
}

fn owner_on_line(line: &str, peer: &str, local: &str) -> Option<u32> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let user = words.get(7)?;
    let inode = words.get(9)?;
    (words[1] == peer && words[2] == local && *inode != "0").then(|| user.parse().ok())?
}

/// Returns an address as /proc/net/tcp shows it: in hexadecimal words of the processor's byte order.
fn shown_short(end: SocketAddr) -> String {
    match end.ip() {
        IpAddr::V4(ip) => shown_words(&ip.octets(), end.port()),
        IpAddr::V6(_) => String::new(),
    }
}

/// Returns an address as /proc/net/tcp6 shows it.
fn shown_long(end: SocketAddr) -> String {
    let ip = match end.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    shown_words(&ip.octets(), end.port())
}

fn shown_words(octets: &[u8], port: u16) -> String {
    let word = |word: &[u8]| u32::from_ne_bytes(word.try_into().expect("addresses are whole words"));
    let words: String = octets.chunks_exact(4).map(|octets| format!("{:08X}", word(octets))).collect();
    format!("{words}:{port:04X}")
}

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST: u16 = 1;
const IPPROTO_TCP: u8 = 6;
/// Length of the query: `nlmsghdr` and `inet_diag_req_v2`, in bytes.
const REQUEST_BYTES: usize = 16 + 56;
/// Offset of the socket's ports in a response: after `nlmsghdr` and the start of `inet_diag_msg`.
const ID_OFFSET: usize = 16 + 4;
const USER_OFFSET: usize = 16 + 64;
const INODE_OFFSET: usize = 16 + 68;
/// Size of the receive buffer, in bytes. A response without attributes is shorter.
const ANSWER_BYTES: usize = 512;

#[cfg(test)]
mod tests {
    use std::{
        net::{TcpListener, TcpStream},
        process::{Command, Stdio},
    };

    use super::*;

    /// Returns both ends of a connection, at the address through which the client connected.
    fn connected(listen: &str, connect: &str) -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind(format!("{listen}:0")).unwrap();
        let port = listener.local_addr().unwrap().port();
        let client = TcpStream::connect(format!("{connect}:{port}")).unwrap();
        (client, listener.accept().unwrap().0)
    }

    #[test]
    fn user_of_an_open_connection_is_known_and_that_of_a_closed_one_is_not() {
        let own = Some(rustix::process::geteuid().as_raw());
        for (listen, connect) in [("127.0.0.1", "127.0.0.1"), ("[::1]", "[::1]"), ("127.0.0.1", "[::ffff:127.0.0.1]")] {
            let (client, server) = connected(listen, connect);
            let peer = server.peer_addr().unwrap();
            let local = server.local_addr().unwrap();
            assert_eq!(user_of(peer, local), own, "{connect}");
            assert_eq!(listed_user(peer, local), own, "{connect}");
            let elsewhere = SocketAddr::new(local.ip(), local.port() ^ 1);
            assert_eq!(user_of(peer, elsewhere), None, "{connect}");
            drop(client);
            assert_eq!(user_of(peer, local), None, "a closed socket has root's number");
        }
    }

    #[test]
    fn answer_about_another_socket_or_a_closed_one_names_nobody() {
        let mut answer = vec![0; 88];
        answer[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
        answer[20..22].copy_from_slice(&7_u16.to_be_bytes());
        answer[22..24].copy_from_slice(&8_u16.to_be_bytes());
        answer[80..84].copy_from_slice(&1000_u32.to_ne_bytes());
        assert_eq!(owner_in(&answer, 7, 8), None, "it has no inode");
        answer[84] = 1;
        assert_eq!(owner_in(&answer, 7, 8), Some(1000));
        assert_eq!(owner_in(&answer, 7, 9), None);
        (0..answer.len()).for_each(|len| assert_eq!(owner_in(&answer[..len], 7, 8), None, "{len}"));
        let line =
            "  1: 0100007F:1F90 0100007F:0050 01 00000000:00000000 00:00000000 00000000  1000 0 77 1 0 20 4 30 10 -1";
        assert_eq!(owner_on_line(line, "0100007F:1F90", "0100007F:0050"), Some(1000));
        assert_eq!(owner_on_line(line, "0100007F:0050", "0100007F:1F90"), None);
        assert_eq!(owner_on_line(&line.replace(" 77 ", " 0 "), "0100007F:1F90", "0100007F:0050"), None);
        assert_eq!(owner_on_line("sl local_address", "", ""), None);
    }

    #[test]
    fn descendants_are_children_and_theirs() {
        let own = rustix::process::geteuid().as_raw();
        let mut shell = Command::new("/bin/sh");
        // The child of the shell ends with its input.
        let mut shell = shell.args(["-c", "cat; :"]).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        while !has_descendant_of(shell.id(), own) {
            std::thread::yield_now();
        }
        assert!(has_descendant_of(std::process::id(), own));
        assert!(!has_descendant_of(shell.id(), own.wrapping_add(1)));
        assert!(!has_descendant_of(0, own), "every process descends from no process");
        drop(shell.stdin.take());
        shell.wait().unwrap();
        assert!(!has_descendant_of(shell.id(), own));
    }
}
