//! A client's connection of HTTP/2, driven by the connection's task.
//!
//! Owns: h2's connection, and the start of each stream. Each stream's task owns its exchange. Cost: a whole hit needs
//! no task unless its window is shut.

use std::{
    future::Future as _,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use h2::{
    Reason, RecvStream,
    server::{Connection, Handshake, SendResponse},
};
use http::{Method, Request};

use crate::{
    door::{
        http2::{
            builder, is_malformed, put_upgrade,
            stream::{self, OpenedStream},
            turn::{ResponseTurn, UrgencyCounts},
        },
        stream::ClientStream,
    },
    road::client::peer::Client,
};

/// An HTTP/2 connection with a client.
pub(crate) struct Http2Connection {
    state: ConnectionState,
    /// The stream to which h2 writes.
    stream: ClientStream,
    client: Arc<Client>,
    urgencies: Arc<UrgencyCounts>,
    is_leaving: bool,
}

enum ConnectionState {
    /// The client's preface has not arrived yet (RFC 9113 3.4).
    Opening(Handshake<ClientStream, Bytes>),
    Open(Connection<ClientStream, Bytes>),
}

impl Http2Connection {
    pub(crate) fn new(client: Arc<Client>, stream: ClientStream) -> Self {
        let shared = &client.worker.shared;
        let limits = &shared.config.limits;
        let stream_count_max = shared.places.stream_count_max(limits.stream_count_max);
        let state = ConnectionState::Opening(builder(limits, stream_count_max).handshake(stream.clone()));
        Self { state, stream, client, urgencies: Arc::default(), is_leaving: false }
    }

    /// Refuses further streams (GOAWAY). The connection closes after its last stream.
    pub(crate) fn leave(&mut self) {
        self.is_leaving = true;
        if let ConnectionState::Open(connection) = &mut self.state {
            connection.graceful_shutdown();
        }
    }

    /// Drives the connection, and starts the streams that the client opens. Ready once the connection has ended.
    ///
    /// # Errors
    /// The connection is broken, or the client violates HTTP/2.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let ended = self.poll_streams(context).map_err(io::Error::other);
        match self.stream.poll_write_gathered(context) {
            Poll::Ready(Err(error)) if ended.is_pending() => Poll::Ready(Err(error)),
            _ => ended,
        }
    }

    /// Accepts and answers streams, until none is left. Ready once the connection has ended.
    fn poll_streams(&mut self, context: &mut Context<'_>) -> Poll<Result<(), h2::Error>> {
        if let ConnectionState::Opening(opening) = &mut self.state {
            let mut connection = ready!(Pin::new(opening).poll(context))?;
            if self.is_leaving {
                connection.graceful_shutdown();
            }
            self.state = ConnectionState::Open(connection);
        }
        loop {
            let ConnectionState::Open(connection) = &mut self.state else { return Poll::Pending };
            // Each call writes all output first. Streams are answered after several calls, so that their output leaves
            // together.
            let mut opened = Vec::new();
            let next = loop {
                match connection.poll_accept(context)? {
                    Poll::Ready(Some(stream)) if opened.len() < TOGETHER_COUNT_MAX => opened.push(stream),
                    next => break next,
                }
            };
            if let Poll::Ready(None) = next {
                return Poll::Ready(Ok(()));
            }
            for (request, reply) in opened {
                self.accept(request, reply, context);
            }
            let Poll::Ready(Some((request, reply))) = next else { return Poll::Pending };
            self.accept(request, reply, context);
        }
    }

    /// Starts to answer the request of a new stream.
    fn accept(&self, request: Request<RecvStream>, mut reply: SendResponse<Bytes>, context: &mut Context<'_>) {
        // Streams are counted before their requests are checked, so that a client that sends only malformed requests is
        // disconnected.
        self.client.begin();
        let is_connect = *request.method() == Method::CONNECT;
        let (mut head, receiving) = request.into_parts();
        if is_malformed(&head.headers) || !put_upgrade(&mut head) {
            self.client.end(true);
            return reply.send_reset(Reason::PROTOCOL_ERROR);
        }
        let turn = ResponseTurn::new(&self.client, &self.urgencies, &head.headers);
        let opened = OpenedStream { head, receiving, reply, is_connect, turn };
        stream::start(&self.client, opened, context);
    }
}

/// Maximum number of streams that are accepted before the first of them is answered.
const TOGETHER_COUNT_MAX: usize = 64;
