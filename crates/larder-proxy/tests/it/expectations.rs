//! Expect: 100-continue (RFC 9110 10.1.1): the origin decides whether it wants a body.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    thread::JoinHandle,
};

use larder_proxy::RunningProxy;

use crate::support::{Connection, scripted_origin::proxy_to_script};

const PUT: &str = "PUT / HTTP/1.1\r\nHost: site.example\r\nContent-Length: 5\r\nExpect: 100-Continue\r\n\r\n";

/// Starts a proxy in front of an origin that runs this script after receiving a head with the expectation.
fn proxy_to(script: impl FnOnce(&mut TcpStream) + Send + 'static) -> (RunningProxy, JoinHandle<()>) {
    proxy_to_script(|head, mut socket| {
        assert!(head.to_ascii_lowercase().contains("\r\nexpect: 100-continue\r\n"), "{head}");
        script(&mut socket);
    })
}

fn read_body(socket: &mut TcpStream) {
    let mut body = [0; 5];
    socket.read_exact(&mut body).unwrap();
    assert_eq!(&body, b"hello");
    socket.write_all(b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n").unwrap();
}

#[test]
fn body_is_asked_for_once_the_origin_wants_it() {
    let (proxy, origin) = proxy_to(|socket| {
        socket.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").unwrap();
        read_body(socket);
    });
    let mut client = Connection::open(proxy.local_addrs()[0]);
    client.send(PUT);
    assert_eq!(client.read_head().status, 100);
    client.send("hello");
    let answer = client.read_response("PUT");
    assert_eq!((answer.status, answer.field("connection")), (201, None));
    origin.join().unwrap();
}

#[test]
fn body_that_the_origin_refuses_does_not_cross_the_line() {
    let (proxy, origin) = proxy_to(|socket| {
        socket.write_all(b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\n\r\nbig").unwrap();
        let mut rest = Vec::new();
        // The connection may end with a reset; only the bytes before it matter.
        let _ = socket.read_to_end(&mut rest);
        assert_eq!(rest, b"", "nothing of the body came, and the connection is not used again");
    });
    let mut client = Connection::open(proxy.local_addrs()[0]);
    client.send(PUT);
    let refused = client.read_response("PUT");
    assert_eq!((refused.status, refused.text().as_str()), (413, "big"), "and no 100 before it");
    assert_eq!(refused.field("connection"), Some("close"));
    assert!(client.is_closed());
    origin.join().unwrap();
}

#[test]
fn body_goes_to_an_origin_that_is_silent_about_it() {
    let (proxy, origin) = proxy_to(read_body);
    let mut client = Connection::open(proxy.local_addrs()[0]);
    client.send(PUT);
    assert_eq!(client.read_head().status, 100);
    client.send("hello");
    assert_eq!(client.read_response("PUT").status, 201);
    origin.join().unwrap();
}
