//! Addresses that are known before a server listens on them.

use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener},
    process,
    sync::atomic::{AtomicU16, Ordering::Relaxed},
};

/// Ports that the system gives neither to connections nor to servers that ask for any port. Otherwise other tests could
/// take a port before the server listens on it.
const PORTS: std::ops::Range<u16> = 10_000..32_000;

/// Returns an address of this machine on which nothing listens. No other call returns it.
pub(crate) fn free_address() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let count = PORTS.end - PORTS.start;
    // Other test processes begin elsewhere.
    let first = process::id().wrapping_mul(997) as u16 % count;
    let mut candidates = (0..count).map(|_| {
        let port = PORTS.start + (first + NEXT.fetch_add(1, Relaxed) % count) % count;
        SocketAddr::from((Ipv4Addr::LOCALHOST, port))
    });
    candidates.find(|address| TcpListener::bind(address).is_ok()).expect("some port is free")
}
