//! One stream of a client: a request, and the response to it.
//!
//! Owns: the exchange, which ends when the client resets the stream. Invariant: an exchange is polled by one task only.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use h2::{Reason, RecvStream, SendStream, server::SendResponse};
use http::{
    HeaderValue, Request, Response,
    header::{CONTENT_LENGTH, DATE},
    request,
};
use http_body::Body as _;
use tokio::sync::oneshot;

use crate::{
    door::http2::turn::ResponseTurn,
    ground::{
        clock,
        http2::{
            pipe::OpeningPipe,
            reply::StreamReply,
            sending::{Http2Sending, SendProgress},
            strip_connection_fields,
        },
        received_body::{Http2Body, IncomingBody},
    },
    road::{
        client::{
            answer::{ClientAnswer, ClientResponse},
            peer::Client,
            response_body::ResponseBody,
        },
        steps,
    },
};

/// A stream whose request's head has arrived.
pub(super) struct OpenedStream {
    pub(super) head: request::Parts,
    pub(super) receiving: RecvStream,
    pub(super) reply: SendResponse<Bytes>,
    /// Whether the client sent a CONNECT, including one that stands for an upgrade.
    pub(super) is_connect: bool,
    pub(super) turn: ResponseTurn,
}

/// Answers the request of one stream.
struct StreamTask {
    turn: ResponseTurn,
    state: StreamState,
    reply: Arc<StreamReply>,
    /// Passes the sending half of the stream to a tunnel or upgrade, if the request was a CONNECT.
    opener: Option<oneshot::Sender<SendStream<Bytes>>>,
}

enum StreamState {
    Answering(ClientAnswer),
    Sending(Http2Sending<ResponseBody>),
}

/// Answers the request of a new stream. A CONNECT may turn the stream into a tunnel or an upgraded connection.
pub(super) fn start(client: &Arc<Client>, opened: OpenedStream, context: &mut Context<'_>) {
    let OpenedStream { head, receiving, reply, is_connect, turn } = opened;
    let reply = Arc::new(StreamReply::new(reply));
    let (body, opener) = if is_connect {
        let (opener, sending) = oneshot::channel();
        let pipe = OpeningPipe::new(receiving, sending, Arc::clone(&reply));
        (IncomingBody::Opaque(Some(Box::new(pipe))), Some(opener))
    } else {
        (IncomingBody::Http2(Http2Body::of_client(receiving, &head.headers, &reply)), None)
    };
    let answer = steps::answer(client, Request::from_parts(head, body), None);
    let is_at_hand =
        matches!(&answer, ClientAnswer::Ready(Some(ClientResponse::Fields(response))) if response.body().is_at_hand());
    let mut task = StreamTask { turn, state: StreamState::Answering(answer), reply, opener };
    // An exchange must stay in one task, because deadlines remember the task that first polled it.
    if !is_at_hand || Pin::new(&mut task).poll(context).is_pending() {
        tokio::spawn(task);
    }
}

impl StreamTask {
    /// Sends the head of the response. Returns the body if any of it remains to be sent.
    fn send_head(&mut self, response: Response<ResponseBody>) -> Result<Option<Http2Sending<ResponseBody>>, h2::Error> {
        let (mut head, body) = response.into_parts();
        strip_connection_fields(&mut head.headers);
        head.headers.entry(DATE).or_insert_with(clock::date);
        if let Some(opener) = self.opener.take().filter(|opener| !opener.is_closed()) {
            // The tunnel is gone if `send` fails. Dropping the stream then resets it.
            let _ = opener.send(self.reply.finish(Response::from_parts(head, ()), false)?);
            return Ok(None);
        }
        let is_whole = body.is_end_stream();
        if let (false, Some(len)) = (is_whole, body.size_hint().exact()) {
            head.headers.entry(CONTENT_LENGTH).or_insert_with(|| HeaderValue::from(len));
        }
        let stream = self.reply.finish(Response::from_parts(head, ()), is_whole)?;
        Ok((!is_whole).then(|| Http2Sending::new(stream, body, Reason::INTERNAL_ERROR)))
    }
}

impl Future for StreamTask {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if let StreamState::Answering(answer) = &mut self.state {
            let Poll::Ready(response) = answer.poll_response(context) else {
                // Drops the exchange when the client resets the stream.
                return self.reply.poll_reset(context);
            };
            let ClientResponse::Fields(response) = response else {
                unreachable!("heads are encoded for clients of HTTP/1.1 only");
            };
            match self.send_head(*response) {
                Ok(Some(sending)) => {
                    self.state = StreamState::Sending(sending);
                    self.turn.begin_sending();
                }
                Ok(None) => return Poll::Ready(()),
                Err(error) => {
                    tracing::debug!(%error, "cannot send a response: its HTTP/2 stream has ended");
                    return Poll::Ready(());
                }
            }
        }
        let task = &mut *self;
        let StreamState::Sending(sending) = &mut task.state else { return Poll::Pending };
        loop {
            let Poll::Ready(allowance) = task.turn.poll_turn(context) else { return sending.poll_reset(context) };
            match sending.advance(allowance, context) {
                SendProgress::Ended => return Poll::Ready(()),
                SendProgress::Waiting => return Poll::Pending,
                SendProgress::AllowanceUsed => {}
                SendProgress::NoneLeftOver => {
                    task.turn.await_room(context);
                    return Poll::Pending;
                }
            }
        }
    }
}

impl Drop for StreamTask {
    fn drop(&mut self) {
        self.reply.close();
    }
}
