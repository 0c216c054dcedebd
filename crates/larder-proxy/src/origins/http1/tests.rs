//! A connection to an origin that sends exactly the octets of a test, piece by piece.

use std::{
    io::{ErrorKind, Read as _, Write as _},
    net::{Shutdown, TcpListener, TcpStream},
    pin::Pin,
    sync::Mutex,
    time::Duration,
};

use http::HeaderValue;

use crate::{
    ground::watch::WorkerDeadlines,
    origins::stream::{OriginStream, Transport},
};

use super::*;

const LIMITS: HeadLimits = HeadLimits { bytes_max: 16 << 10, field_count_max: 20 };

/// A connection, and the origin at its other end.
struct Link {
    connection: Http1Connection,
    origin: TcpStream,
    /// A second handle of the proxy's socket, to see which bytes were not read.
    unread: TcpStream,
}

/// The outcome of an exchange.
#[derive(Debug, Default, PartialEq)]
struct Received {
    interim: Vec<u16>,
    status: u16,
    fields: HeaderMap,
    body: Vec<u8>,
    trailers: HeaderMap,
    /// The result; `None` if the exchange still waits.
    ended: Option<Result<(), String>>,
    is_free: bool,
}

impl Link {
    #[expect(clippy::unused_async, reason = "a socket is registered with the runtime that this runs in")]
    async fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (origin, _) = listener.accept().unwrap();
        origin.set_nodelay(true).unwrap();
        socket.set_nonblocking(true).unwrap();
        let unread = socket.try_clone().unwrap();
        let socket = tokio::net::TcpStream::from_std(socket).unwrap();
        let watched = Arc::new(Arc::new(WorkerDeadlines::default()).register());
        let transport = Transport::Plain(socket);
        let stream = OriginStream::new(transport, watched, Duration::from_secs(60));
        Self { connection: Http1Connection::new(stream, LIMITS), origin, unread }
    }

    /// Sends a request. The origin then sends these pieces, and closes if `closes`.
    async fn exchange(&mut self, method: Method, pieces: &[&[u8]], closes: bool) -> Received {
        let interim = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&interim);
        let taker: InterimTaker = Arc::new(move |status, _| seen.lock().unwrap().push(status.as_u16()));
        let mut request = Request::new(RequestBody::none());
        *request.method_mut() = method;
        let mut received = Received::default();
        let exchange = self.connection.begin(request, Some(taker));
        let mut receiving = Some(Box::pin(receive(&mut self.connection, exchange, &mut received)));
        for piece in pieces {
            // The proxy may have closed.
            let _ = self.origin.write_all(piece);
            drive(&mut receiving, &self.unread).await;
        }
        if closes {
            self.origin.shutdown(Shutdown::Write).unwrap();
        }
        drive(&mut receiving, &self.unread).await;
        drop(receiving);
        received.interim = std::mem::take(&mut interim.lock().unwrap());
        received.is_free = received.ended == Some(Ok(())) && self.is_free().await;
        received
    }

    /// Returns the octets that the origin has received.
    fn read_requests(&mut self) -> String {
        self.origin.set_nonblocking(true).unwrap();
        let mut text = Vec::new();
        let ended = self.origin.read_to_end(&mut text);
        assert_eq!(ended.unwrap_err().kind(), ErrorKind::WouldBlock);
        self.origin.set_nonblocking(false).unwrap();
        String::from_utf8(text).unwrap()
    }

    /// Returns whether the connection is free, once the runtime has processed all sent data.
    async fn is_free(&mut self) -> bool {
        settle().await;
        self.connection.is_free()
    }
}

async fn receive(connection: &mut Http1Connection, mut exchange: Http1Exchange, received: &mut Received) {
    let ended = async {
        let response = std::future::poll_fn(|context| exchange.poll_response(connection, context)).await?;
        let (head, mut body) = response.into_parts();
        (received.status, received.fields) = (head.status.as_u16(), head.headers);
        while let Some(frame) = std::future::poll_fn(|context| body.poll_frame(Some(&mut *connection), context)).await {
            match frame?.into_data() {
                Ok(data) => received.body.extend_from_slice(&data),
                Err(frame) => received.trailers = frame.into_trailers().unwrap(),
            }
        }
        assert!(body.is_finished() && body.is_off_the_wire(), "a body that has ended says so");
        assert_eq!(body.end().map(|completed| completed.len()), Ok(received.body.len() as u64));
        Ok::<_, ExchangeFault>(())
    };
    let ended = ended.await;
    received.ended = Some(ended.map_err(|fault| fault.to_string()));
}

/// Polls until all received data is read.
async fn drive(receiving: &mut Option<Pin<Box<impl Future<Output = ()>>>>, unread: &TcpStream) {
    for _ in 0..TURN_COUNT_MAX {
        settle().await;
        let Some(future) = receiving else { return };
        if std::future::poll_fn(|context| Poll::Ready(future.as_mut().poll(context).is_ready())).await {
            *receiving = None;
        }
        if matches!(unread.peek(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock) {
            return;
        }
    }
    panic!("octets are left unread");
}

/// Lets the runtime process received data.
async fn settle() {
    for _ in 0..3 {
        tokio::task::yield_now().await;
    }
}

/// Runs an exchange on a new connection.
fn exchange(method: Method, pieces: &[&[u8]], closes: bool) -> Received {
    run(async { Link::open().await.exchange(method, pieces, closes).await })
}

fn run<T>(test: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap().block_on(test)
}

/// Responses, each with its body.
const RESPONSES: [(&str, &str); 6] = [
    ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nA: 1\r\n\r\nhello", "hello"),
    ("HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n", ""),
    ("HTTP/1.1 204 No Content\r\nA: b\r\n\r\n", ""),
    ("HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n", ""),
    ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2;x\r\nlo\r\n0\r\nT: 1\r\n\r\n", "hello"),
    (
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nLink: <a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx",
        "x",
    ),
];

#[test]
fn response_is_the_same_however_it_is_split() {
    for (text, body) in &RESPONSES {
        let whole = exchange(Method::GET, &[text.as_bytes()], false);
        assert_eq!((String::from_utf8_lossy(&whole.body).as_ref(), &whole.ended), (*body, &Some(Ok(()))), "{text}");
        assert!(whole.is_free, "{text}");
        run(async {
            for split in 1..text.len() {
                let (first, second) = text.as_bytes().split_at(split);
                let received = Link::open().await.exchange(Method::GET, &[first, second], false).await;
                assert_eq!(received, whole, "{text:?} split at {split}");
            }
        });
        let octets: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
        assert_eq!(exchange(Method::GET, &octets, false), whole, "{text:?} octet by octet");
    }
}

#[test]
fn response_that_breaks_off_is_an_error_at_every_octet() {
    for (text, _) in &RESPONSES {
        run(async {
            for len in 0..text.len() {
                let received = Link::open().await.exchange(Method::GET, &[&text.as_bytes()[..len]], true).await;
                assert!(matches!(received.ended, Some(Err(_))), "{text:?} cut at {len}: {received:?}");
            }
        });
    }
}

#[test]
fn interim_responses_are_told_and_their_fields_are_not_kept() {
    let received = exchange(Method::GET, &[RESPONSES[5].0.as_bytes()], false);
    assert_eq!((received.interim, received.status), (vec![100, 103], 200));
    assert!(!received.fields.contains_key("link"));
    let flood = "HTTP/1.1 102 Processing\r\n\r\n".repeat(INTERIM_COUNT_MAX + 1);
    assert!(matches!(exchange(Method::GET, &[flood.as_bytes()], false).ended, Some(Err(_))));
}

#[test]
fn trailers_follow_the_body() {
    let received = exchange(Method::GET, &[RESPONSES[4].0.as_bytes()], false);
    assert_eq!(received.trailers["t"], HeaderValue::from_static("1"));
}

#[test]
fn body_without_a_length_ends_with_the_connection() {
    let text = "HTTP/1.1 200 OK\r\n\r\nuntil the end";
    for split in 1..text.len() {
        let (first, second) = text.as_bytes().split_at(split);
        let received = exchange(Method::GET, &[first, second], true);
        assert_eq!((&received.body[..], received.ended), (&b"until the end"[..], Some(Ok(()))), "{split}");
        assert!(!received.is_free);
    }
    assert_eq!(exchange(Method::GET, &[text.as_bytes()], false).ended, None, "more may come");
}

#[test]
fn response_to_head_has_no_body_whatever_its_fields_say() {
    for fields in ["Content-Length: 5", "Transfer-Encoding: chunked", "A: b"] {
        let text = format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n");
        let received = exchange(Method::HEAD, &[text.as_bytes()], false);
        assert_eq!((received.body.len(), received.ended, received.is_free), (0, Some(Ok(())), true), "{fields}");
    }
}

#[test]
fn ambiguous_length_is_an_error() {
    for fields in [
        "Content-Length: 5\r\nTransfer-Encoding: chunked",
        "Content-Length: 5\r\nContent-Length: 6",
        "Content-Length: 5, 5",
        "Content-Length: +5",
        "Content-Length: 99999999999999999999",
        "Content-Length: ",
        "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding: chunked, gzip",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: xchunked",
    ] {
        let text = format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n5\r\nhello\r\n0\r\n\r\n");
        let received = exchange(Method::GET, &[text.as_bytes()], true);
        assert!(matches!(received.ended, Some(Err(_))) && received.status == 0, "{fields}: {received:?}");
    }
    let old = "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    assert!(matches!(exchange(Method::GET, &[old.as_bytes()], true).ended, Some(Err(_))));
}

#[test]
fn head_beyond_the_limits_is_an_error_before_it_has_ended() {
    let endless = format!("HTTP/1.1 200 OK\r\nA: {}", "x".repeat(LIMITS.bytes_max));
    let many = format!("HTTP/1.1 200 OK\r\n{}", "A: b\r\n".repeat(LIMITS.field_count_max + 1));
    for text in [endless, many] {
        let pieces: Vec<&[u8]> = text.as_bytes().chunks(5000).collect();
        let received = exchange(Method::GET, &pieces, false);
        let ended = received.ended.unwrap_or_else(|| Err("it waits".into()));
        // Fields are counted where the head ends.
        assert!(ended.is_err());
    }
}

#[test]
fn octets_after_a_response_belong_to_nobody() {
    for (text, body) in &RESPONSES {
        for garbage in ["x", "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"] {
            let together = [text, garbage].concat();
            let text = text.as_bytes();
            for pieces in [&[together.as_bytes()][..], &[text, garbage.as_bytes()]] {
                let received = exchange(Method::GET, pieces, false);
                assert_eq!((String::from_utf8_lossy(&received.body).as_ref(), &received.ended), (*body, &Some(Ok(()))));
                assert!(!received.is_free, "{received:?}");
            }
        }
    }
}

#[test]
fn connection_carries_one_exchange_after_the_other_until_either_side_ends_it() {
    run(async {
        let mut link = Link::open().await;
        for (text, _) in &RESPONSES {
            assert!(link.exchange(Method::GET, &[text.as_bytes()], false).await.is_free, "{text}");
        }
        let requests = link.read_requests();
        assert_eq!(requests, "GET / HTTP/1.1\r\n\r\n".repeat(6));
        link.origin.shutdown(Shutdown::Write).unwrap();
        assert!(!link.is_free().await);
        for fields in ["Connection: close", "Connection: a, Close", "Connection: keep-alive, close"] {
            let text = format!("HTTP/1.1 200 OK\r\n{fields}\r\nContent-Length: 0\r\n\r\n");
            assert!(!Link::open().await.exchange(Method::GET, &[text.as_bytes()], false).await.is_free, "{fields}");
        }
    });
}

#[test]
fn response_that_comes_before_the_request_is_sent_ends_the_connection_and_counts() {
    run(async {
        let mut link = Link::open().await;
        let request = Request::post("/").body(RequestBody::whole(vec![7; 32 << 20].into())).unwrap();
        let exchange = link.connection.begin(request, None);
        let mut received = Received::default();
        let mut receiving = Some(Box::pin(receive(&mut link.connection, exchange, &mut received)));
        drive(&mut receiving, &link.unread).await;
        link.origin.write_all(b"HTTP/1.1 413 No\r\nContent-Length: 2\r\n\r\nno").unwrap();
        drive(&mut receiving, &link.unread).await;
        drop(receiving);
        assert_eq!((received.status, &received.body[..]), (413, &b"no"[..]));
        assert!(!link.is_free().await);
    });
}

#[test]
fn long_body_is_whole_and_sent_on_in_pieces_of_bounded_size() {
    let body: Vec<u8> = (0..3 << 20).map(|at: u32| (at % 251) as u8).collect();
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
    let chunk = [format!("{:x}\r\n", body.len()).as_bytes(), &body, b"\r\n0\r\n\r\n"].concat();
    let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (head, framed) in [(head.as_bytes(), &body), (&chunked[..], &chunk)] {
        let pieces: Vec<&[u8]> = std::iter::once(head).chain(framed.chunks(100_000)).collect();
        let received = exchange(Method::GET, &pieces, false);
        assert_eq!(received.ended, Some(Ok(())));
        assert!(received.body == body && received.is_free);
    }
}

const TURN_COUNT_MAX: usize = 1000;
