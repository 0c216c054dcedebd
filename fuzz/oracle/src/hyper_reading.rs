//! Reads streams by hyper, over a socket in memory that gives the pieces as they were cut.

use std::{
    cell::RefCell,
    collections::VecDeque,
    convert::Infallible,
    error::Error as _,
    future::{Future, poll_fn},
    io,
    pin::{Pin, pin},
    rc::Rc,
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body::Body;
use hyper::{
    body::Incoming,
    client, ext,
    rt::{Read, ReadBufCursor, Write},
    server,
    service::service_fn,
};

use crate::{
    transcript::{BodyEnd, Message, Transcript, sorted},
    wire::{LIMITS, Side},
};

/// Reads a stream that arrives in these pieces.
pub(crate) fn read<'a>(side: Side, pieces: impl IntoIterator<Item = &'a [u8]>) -> Transcript {
    let pieces = pieces.into_iter().filter(|piece| !piece.is_empty()).map(Bytes::copy_from_slice).collect();
    let socket = Pieces { pieces, is_open: side == Side::Client };
    match side {
        Side::Client => read_requests(socket),
        Side::Origin { is_head } => read_response(socket, is_head),
    }
}

/// A socket from which pieces can be read. It takes whatever is written.
struct Pieces {
    pieces: VecDeque<Bytes>,
    /// Whether the peer sends. An origin does so once it has a request.
    is_open: bool,
}

impl Read for Pieces {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, mut out: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        if !self.is_open {
            return Poll::Pending;
        }
        if let Some(piece) = self.pieces.front_mut() {
            let part = piece.split_to(piece.len().min(out.remaining()));
            out.put_slice(&part);
            if piece.is_empty() {
                self.pieces.pop_front();
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl Write for Pieces {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, octets: &[u8]) -> Poll<io::Result<usize>> {
        self.is_open = true;
        Poll::Ready(Ok(octets.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// A body without octets.
struct NoBody;

impl Body for NoBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Infallible>>> {
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        true
    }
}

fn read_requests(socket: Pieces) -> Transcript {
    let messages = Rc::new(RefCell::new(Vec::new()));
    let service = service_fn(|request: Request<Incoming>| {
        let messages = Rc::clone(&messages);
        async move {
            let (head, body) = request.into_parts();
            messages.borrow_mut().push(Message {
                subject: head.method.to_string(),
                target: head.uri.to_string(),
                version: format!("{:?}", head.version),
                fields: sorted(&head.headers),
                ..Message::default()
            });
            receive(body, |change| change(messages.borrow_mut().last_mut().expect("it was added"))).await;
            Ok::<_, Infallible>(Response::new(NoBody))
        }
    });
    let mut builder = server::conn::http1::Builder::new();
    builder.half_close(true).max_headers(LIMITS.field_count_max).max_buf_size(LIMITS.bytes_max);
    let served = run(builder.serve_connection(socket, service));
    let refusal = served.and_then(|served| served.err()).and_then(|error| refusal_of(&error));
    let messages = messages.take();
    Transcript { messages, refusal }
}

fn read_response(socket: Pieces, is_head: bool) -> Transcript {
    let interims = Arc::new(Mutex::new(Vec::new()));
    let mut request = Request::new(NoBody);
    if is_head {
        *request.method_mut() = Method::HEAD;
    }
    let noted = Arc::clone(&interims);
    ext::on_informational(&mut request, move |interim| {
        noted.lock().expect("nothing panics here").push(Message {
            subject: interim.status().as_str().to_owned(),
            version: format!("{:?}", interim.version()),
            fields: sorted(interim.headers()),
            end: BodyEnd::Whole,
            ..Message::default()
        });
    });
    let received = RefCell::new(None);
    let refusal = RefCell::new(None);
    run(async {
        let mut builder = client::conn::http1::Builder::new();
        builder.max_headers(LIMITS.field_count_max).max_buf_size(LIMITS.bytes_max);
        let Ok((mut sender, connection)) = builder.handshake(socket).await else { return };
        let mut connection = pin!(connection);
        let mut exchange = pin!(async {
            match sender.send_request(request).await {
                Ok(response) => {
                    let (head, body) = response.into_parts();
                    received.replace(Some(Message {
                        subject: head.status.as_str().to_owned(),
                        version: format!("{:?}", head.version),
                        fields: sorted(&head.headers),
                        ..Message::default()
                    }));
                    receive(body, |change| change(received.borrow_mut().as_mut().expect("it was set"))).await;
                }
                Err(error) => *refusal.borrow_mut() = refusal_of(&error),
            }
        });
        let mut is_open = true;
        poll_fn(|context| {
            is_open = is_open && connection.as_mut().poll(context).is_pending();
            exchange.as_mut().poll(context)
        })
        .await;
    });
    let mut messages = std::mem::take(&mut *interims.lock().expect("nothing panics here"));
    messages.extend(received.take());
    Transcript { messages, refusal: refusal.take() }
}

/// Receives a body into a message.
async fn receive(body: Incoming, mut change: impl FnMut(Box<dyn FnOnce(&mut Message)>)) {
    let mut body = pin!(body);
    loop {
        let end = match poll_fn(|context| body.as_mut().poll_frame(context)).await {
            Some(Ok(frame)) => {
                match frame.into_data() {
                    Ok(data) => change(Box::new(move |message| message.body.extend_from_slice(&data))),
                    Err(frame) => {
                        let trailers = frame.into_trailers().unwrap_or_default();
                        change(Box::new(move |message| message.trailers = sorted(&trailers)));
                    }
                }
                continue;
            }
            Some(Err(error)) => refusal_of(&error).map_or(BodyEnd::Cut, BodyEnd::Refused),
            None => BodyEnd::Whole,
        };
        change(Box::new(|message| message.end = end));
        return;
    }
}

/// Returns why hyper refused the octets, unless they only ended too early.
fn refusal_of(error: &hyper::Error) -> Option<String> {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<io::Error>());
    let is_cut = error.is_incomplete_message()
        || error.is_canceled()
        || error.is_closed()
        || cause.is_some_and(|cause| cause.kind() == io::ErrorKind::UnexpectedEof);
    (!is_cut).then(|| cause.map_or_else(|| error.to_string(), ToString::to_string))
}

/// Polls a future that waits for nothing but itself. Returns `None` if it makes no progress.
fn run<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..POLLS_MAX {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return Some(output);
        }
    }
    None
}

/// Maximum number of polls of a connection. hyper yields after a few reads.
const POLLS_MAX: usize = 200_000;
