//! A proxy in front of an origin that runs a script on its only connection.

use std::{
    io::Read as _,
    net::{TcpListener, TcpStream},
    thread::JoinHandle,
};

use larder_proxy::RunningProxy;

use super::{Fixture, gate::PATIENCE};

/// Starts a proxy, and an origin that receives a head and passes it to `script`. Nothing after the head was read.
pub(crate) fn proxy_to_script<T: Send + 'static>(
    script: impl FnOnce(String, TcpStream) -> T + Send + 'static,
) -> (RunningProxy, JoinHandle<T>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let origin = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.set_write_timeout(Some(PATIENCE)).unwrap();
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            let mut octet = [0];
            socket.read_exact(&mut octet).unwrap();
            head.push(octet[0].into());
        }
        script(head, socket)
    });
    (Fixture::proxy_to(address, |_| {}), origin)
}
