//! One exchange of HTTP/1.1: the request's body on its way in, and the response on its way out.
//!
//! Owns: the request's body until it has ended, the 100 that the client may wait for, and the decision whether another
//! request may follow. Invariants: a 100 is sent only when somebody reads the body. After a body that was not read to
//! its end, or for which a client may still wait to be asked, no further request is read (RFC 9110 10.1.1, RFC 9112
//! 9.3). Cost: one allocation for a request with a body.

use std::{
    io,
    sync::Arc,
    task::{Context, Poll, ready},
};

use http::{Method, Request, Version};
use http_body::Frame;
use larder_http::interim::expects_continue;
use larder_wire::{BodyDecoder, DecodedPart, RequestHead, WireFault};

use super::{Http1Door, SocketLink, response::SendingResponse};
use crate::{
    figures::metrics::CountGuard,
    ground::{
        linked_body::{BodyLink, LinkedBody, ReaderState},
        received_body::{IncomingBody, ReceiveFault},
    },
    road::client::answer::{ClientAnswer, ClientResponse},
};

/// One request and its response, from the request's head to the end of the response.
pub(super) struct Exchange {
    terms: ResponseTerms,
    body: Option<BodyReceiver>,
    stage: ExchangeStage,
}

/// The properties of a request that determine how its response is sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct ResponseTerms {
    pub(super) is_head: bool,
    pub(super) is_connect: bool,
    pub(super) version: Version,
    pub(super) takes_trailers: bool,
    /// Whether the connection closes after the response.
    pub(super) closes: bool,
}

enum ExchangeStage {
    /// The exchange waits for the response to begin.
    Waiting {
        answer: ClientAnswer,
        counting: Option<CountGuard>,
    },
    Sending(SendingResponse),
    /// The response is being sent, and a task still reads the request's body.
    Receiving,
}

/// The next action of the connection, after an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExchangeOutcome {
    /// The connection reads the next request.
    Next,
    /// The connection closes.
    Close,
    /// The connection does nothing more, because another owner has taken the socket.
    Switched,
}

/// Receives a request's body and passes it to the body's reader.
struct BodyReceiver {
    link: Arc<BodyLink>,
    decoder: BodyDecoder,
    /// Whether the client may wait for a 100 (Continue) before it sends the body.
    awaits_continue: bool,
    has_ended: bool,
    /// Whether the remainder of the body cannot be read, because its framing is faulty or the connection broke.
    is_broken: bool,
}

impl Exchange {
    /// Begins the exchange of a request. If the parser refused its head, `fault` is the reason.
    pub(super) fn begin(
        link: &mut SocketLink<impl Http1Door>,
        head: RequestHead,
        fault: Option<WireFault>,
        context: &mut Context<'_>,
    ) -> Self {
        let terms = ResponseTerms {
            is_head: head.method == Method::HEAD,
            is_connect: head.method == Method::CONNECT,
            version: head.version,
            takes_trailers: head.takes_trailers(),
            closes: fault.is_some() || !head.persists(),
        };
        let RequestHead { method, target, version, fields, body: decoder, .. } = head;
        let (body, receiver) = if decoder.has_ended() {
            (LinkedBody::none(), None)
        } else {
            let (body, link) = LinkedBody::linked(decoder.remaining(), context);
            let awaits_continue = version == Version::HTTP_11 && expects_continue(&fields);
            (body, Some(BodyReceiver { link, decoder, awaits_continue, has_ended: false, is_broken: false }))
        };
        let mut request = Request::new(IncomingBody::Http1(body));
        *request.method_mut() = method;
        *request.uri_mut() = target;
        *request.version_mut() = version;
        *request.headers_mut() = fields;
        let mut exchange = Self { terms, body: receiver, stage: ExchangeStage::Receiving };
        let mut answer = link.door.answer(request, fault);
        exchange.stage = match answer.take_complete() {
            Some(response) => ExchangeStage::Sending(exchange.start(response, link, context)),
            None => ExchangeStage::Waiting { answer, counting: None },
        };
        exchange
    }

    /// Drives the exchange to its end.
    ///
    /// # Errors
    /// The connection is broken, or the response cannot be completed.
    pub(super) fn poll(
        &mut self,
        link: &mut SocketLink<impl Http1Door>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<ExchangeOutcome>> {
        loop {
            match &mut self.stage {
                ExchangeStage::Waiting { answer, counting } => match answer.poll_response(context) {
                    Poll::Ready(response) => {
                        let sending = self.start(response, link, context);
                        self.stage = ExchangeStage::Sending(sending);
                        continue;
                    }
                    Poll::Pending => {
                        if counting.is_none() {
                            *counting = link.door.count_waiting();
                        }
                    }
                },
                ExchangeStage::Sending(sending) => {
                    if let Poll::Ready(sent) = sending.poll(link, context) {
                        sent?;
                        if sending.switches {
                            let first = std::mem::take(&mut link.received);
                            if let Some(socket) = link.socket.take() {
                                link.door.switch(socket, first);
                            }
                            return Poll::Ready(Ok(ExchangeOutcome::Switched));
                        }
                        self.terms.closes = sending.closes;
                        self.stage = ExchangeStage::Receiving;
                        continue;
                    }
                }
                ExchangeStage::Receiving => {
                    let is_whole = self.body.as_ref().is_none_or(|body| body.has_ended);
                    let is_read = self.body.as_ref().is_none_or(BodyReceiver::is_left);
                    if is_whole || is_read {
                        let closes = self.terms.closes || !is_whole;
                        return Poll::Ready(Ok(if closes { ExchangeOutcome::Close } else { ExchangeOutcome::Next }));
                    }
                }
            }
            if let Poll::Ready(received) = self.poll_rest(link, context) {
                received?;
                continue;
            }
            return Poll::Pending;
        }
    }

    /// Does what is due while the exchange waits: receives the body, writes interim responses, notices a broken
    /// connection.
    ///
    /// Ready when the exchange may make progress.
    fn poll_rest(&mut self, link: &mut SocketLink<impl Http1Door>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let is_waiting = matches!(self.stage, ExchangeStage::Waiting { .. });
        let has_received = match &mut self.body {
            Some(body) if !body.has_ended => body.poll_receive(link, is_waiting, context)?,
            _ => Poll::Pending,
        };
        if is_waiting && let Poll::Ready(Err(error)) = link.poll_interim(context) {
            return Poll::Ready(Err(error));
        }
        if has_received.is_ready() {
            return Poll::Ready(Ok(()));
        }
        if self.body.as_ref().is_none_or(|body| body.has_ended) {
            return link.poll_break(context).map(Err);
        }
        Poll::Pending
    }

    /// Begins to send the response, and decides whether the connection can stay open after it.
    fn start(
        &mut self,
        response: ClientResponse,
        link: &mut SocketLink<impl Http1Door>,
        context: &mut Context<'_>,
    ) -> SendingResponse {
        let is_unread = self.body.as_mut().is_some_and(|body| !body.can_end(link, context));
        let closes = self.terms.closes || link.is_last || is_unread;
        let terms = ResponseTerms { closes, ..self.terms };
        match response {
            ClientResponse::Fields(response) => SendingResponse::new(*response, terms),
            ClientResponse::Encoded(response) => SendingResponse::encoded(response, terms),
        }
    }
}

impl BodyReceiver {
    /// Returns whether nobody will read the remainder of the body.
    fn is_left(&self) -> bool {
        self.is_broken || self.link.reader() == ReaderState::Gone
    }

    /// Receives the next piece of the body, if the reader waits for one. Ready when the reader has received it.
    ///
    /// `may_ask` says that the response has not begun, so a 100 (Continue) may be sent.
    fn poll_receive(
        &mut self,
        link: &mut SocketLink<impl Http1Door>,
        may_ask: bool,
        context: &mut Context<'_>,
    ) -> io::Result<Poll<()>> {
        if self.is_broken || self.link.reader() != ReaderState::Waits {
            return Ok(Poll::Pending);
        }
        if may_ask && std::mem::take(&mut self.awaits_continue) {
            link.door.interim().push_continue();
        }
        let Poll::Ready(part) = self.poll_part(link, context) else { return Ok(Poll::Pending) };
        let piece = match part {
            Ok(DecodedPart::Data(data)) => Some(Ok(Frame::data(data))),
            Ok(DecodedPart::Trailers(fields)) => Some(Ok(Frame::trailers(fields))),
            Ok(DecodedPart::End | DecodedPart::More) => None,
            Err(fault) => {
                self.is_broken = true;
                if let ReceiveFault::Wire(fault) = fault {
                    link.door.note_fatal(fault);
                }
                Some(Err(fault))
            }
        };
        self.has_ended = !self.is_broken && self.decoder.is_exhausted();
        self.link.give(piece, self.has_ended);
        Ok(Poll::Ready(()))
    }

    /// Waits for the next part of the body.
    fn poll_part(
        &mut self,
        link: &mut SocketLink<impl Http1Door>,
        context: &mut Context<'_>,
    ) -> Poll<Result<DecodedPart, ReceiveFault>> {
        loop {
            match self.decoder.next(&mut link.received).map_err(ReceiveFault::Wire)? {
                DecodedPart::More => {}
                part => return Poll::Ready(Ok(part)),
            }
            let wanted = self.decoder.remaining().unwrap_or(u64::MAX);
            match ready!(link.poll_octets(context, wanted)) {
                Ok(octets) if octets.is_empty() => return Poll::Ready(Err(ReceiveFault::Closed)),
                Ok(octets) => link.received = octets,
                Err(_) => return Poll::Ready(Err(ReceiveFault::Closed)),
            }
        }
    }

    /// Returns whether the end of the request's body can be reached, so that the connection may stay open.
    ///
    /// One of three conditions suffices. The body has ended. Or it has a reader, and the client does not wait for a 100
    /// (Continue). Or its remainder has arrived already, and is dropped here.
    fn can_end(&mut self, link: &mut SocketLink<impl Http1Door>, context: &mut Context<'_>) -> bool {
        if self.has_ended {
            return true;
        }
        if !self.is_left() {
            return !self.awaits_continue;
        }
        let mut dropped_bytes = 0;
        while !self.is_broken && dropped_bytes <= DROPPED_BYTES_MAX {
            match self.poll_part(link, context) {
                Poll::Ready(Ok(DecodedPart::Data(data))) => dropped_bytes += data.len(),
                Poll::Ready(Ok(DecodedPart::Trailers(_) | DecodedPart::End | DecodedPart::More)) => {
                    self.has_ended = true;
                    return true;
                }
                Poll::Ready(Err(_)) => self.is_broken = true,
                Poll::Pending => break,
            }
        }
        false
    }
}

/// Maximum octets of an unread body that are dropped to keep the connection open.
const DROPPED_BYTES_MAX: usize = 64 << 10;
