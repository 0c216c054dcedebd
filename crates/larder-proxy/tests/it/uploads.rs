//! Bodies of requests that are still arriving while the origin responds, over HTTP/1.1.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    thread::{JoinHandle, spawn},
};

use larder_proxy::RunningProxy;

use crate::support::{Connection, body, scripted_origin::proxy_to_script};

/// Far more than the sockets between client and origin hold.
const LONG: usize = 24 << 20;

/// As [`proxy_to_script`], with a reader of lines.
fn proxy_to<T: Send + 'static>(
    script: impl FnOnce(String, BufReader<TcpStream>) -> T + Send + 'static,
) -> (RunningProxy, JoinHandle<T>) {
    proxy_to_script(|head, socket| script(head, BufReader::new(socket)))
}

#[test]
fn client_may_send_everything_before_it_reads_a_response_that_begins_at_once() {
    let (proxy, origin) = proxy_to(|_, mut reader| {
        let mut socket = reader.get_ref().try_clone().unwrap();
        let responding = spawn(move || {
            socket.write_all(format!("HTTP/1.1 200 OK\r\nContent-Length: {LONG}\r\n\r\n").as_bytes()).unwrap();
            socket.write_all(&body(LONG)).unwrap();
        });
        let mut received = vec![0; LONG];
        reader.read_exact(&mut received).unwrap();
        responding.join().unwrap();
        received
    });
    let mut client = Connection::open(proxy.local_addrs()[0]);
    client.send(format!("POST /p HTTP/1.1\r\nHost: site.example\r\nContent-Length: {LONG}\r\n\r\n"));
    client.send(body(LONG));
    let response = client.read_response("POST");
    assert_eq!(response.status, 200);
    assert!(response.body == body(LONG), "the response is whole");
    assert!(origin.join().unwrap() == body(LONG), "the request is whole");
}

#[test]
fn rest_of_a_body_reaches_an_origin_whose_response_has_ended() {
    let (proxy, origin) = proxy_to(|_, mut reader| {
        reader.get_mut().write_all(b"HTTP/1.1 202 Accepted\r\nContent-Length: 2\r\n\r\nok").unwrap();
        let mut received = vec![0; LONG];
        reader.read_exact(&mut received).unwrap();
        received
    });
    let mut client = Connection::open(proxy.local_addrs()[0]);
    client.send(format!("POST /p HTTP/1.1\r\nHost: site.example\r\nContent-Length: {LONG}\r\n\r\n"));
    client.send(body(LONG));
    assert_eq!(client.read_response("POST").text(), "ok");
    assert!(origin.join().unwrap() == body(LONG), "the request is whole");
}

#[test]
fn body_that_breaks_off_is_never_ended_at_the_origin() {
    for (framing, first) in [("Content-Length: 10", "hello"), ("Transfer-Encoding: chunked", "5\r\nhello\r\n")] {
        for responds_first in [false, true] {
            let (proxy, origin) = proxy_to(move |_, mut reader| {
                if responds_first {
                    reader.get_mut().write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n").unwrap();
                }
                let mut received = Vec::new();
                // The connection may end with a reset.
                let _ = reader.read_to_end(&mut received);
                String::from_utf8(received).unwrap()
            });
            let mut client = Connection::open(proxy.local_addrs()[0]);
            client.send(format!("POST /p HTTP/1.1\r\nHost: site.example\r\n{framing}\r\n\r\n{first}"));
            if responds_first {
                assert_eq!(client.read_head().status, 200);
            }
            drop(client);
            let received = origin.join().unwrap();
            assert!(received.is_empty() || received.trim_end() == first.trim_end(), "{framing}: {received:?}");
        }
    }
}

#[test]
fn chunks_pass_with_the_trailers_that_the_head_announces() {
    let (proxy, origin) = proxy_to(|head, mut reader| {
        assert!(head.to_ascii_lowercase().contains("\r\ntransfer-encoding: chunked\r\n"), "{head}");
        let mut chunks = String::new();
        while !chunks.ends_with("\r\n\r\n") {
            assert!(reader.read_line(&mut chunks).unwrap() > 0, "{chunks}");
        }
        reader.get_mut().write_all(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap();
        chunks
    });
    let mut client = Connection::open(proxy.local_addrs()[0]);
    let head = "POST /p HTTP/1.1\r\nHost: site.example\r\nTransfer-Encoding: chunked\r\nTrailer: x-sum, host\r\n\r\n";
    client.send(head);
    client.send("2\r\nhe\r\n");
    client.send("3\r\nllo\r\n0\r\nX-Sum: 7\r\nX-Other: 1\r\nHost: elsewhere\r\n\r\n");
    assert_eq!(client.read_response("POST").status, 204);
    let chunks = origin.join().unwrap();
    assert!(chunks.ends_with("llo\r\n0\r\nx-sum: 7\r\n\r\n"), "{chunks}");
}
