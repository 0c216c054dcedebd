//! A body that the HTTP library receives: of a client's request, or of an origin's response over HTTP/2.
//!
//! Owns: the judgment whether the body is complete. Invariant: the end is reported only for a complete body, and an
//! error for any other. The library ends a stream of HTTP/2 that was reset with NO_ERROR without an error, but
//! `is_end_stream` stays false. Over HTTP/1 it reports an error unless it has received the last chunk, the whole length
//! or, in a response that announces neither, the end of the connection.

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::{HeaderMap, Request, Version};
use http_body::{Body as _, Frame};
use hyper::body::Incoming;
use larder_http::framing::{BodyMeter, CompletedBody, IncompleteBody};

/// A body that is being received.
pub(crate) struct ReceivedBody {
    incoming: Incoming,
    meter: BodyMeter,
}

/// Why a body does not arrive whole.
#[derive(Debug)]
pub(crate) enum ReceiveFault {
    Library(hyper::Error),
    Incomplete(IncompleteBody),
}

impl ReceivedBody {
    /// Takes the body of a request.
    pub(crate) fn of_request(request: Request<Incoming>) -> Self {
        let (head, body) = request.into_parts();
        Self::new(body, (head.version, &head.headers), true)
    }

    /// Creates the body of a message with this version and these fields. Without `has_content`, its fields describe
    /// another body, as in a response to HEAD.
    pub(crate) fn new(incoming: Incoming, (version, fields): (Version, &HeaderMap), has_content: bool) -> Self {
        let len = incoming.size_hint().exact().filter(|_| has_content);
        let len = if incoming.is_end_stream() { Some(0) } else { len };
        Self { incoming, meter: BodyMeter::of_message(version, fields, len) }
    }

    /// Returns the next bytes or the trailers, or `None` at the end of a complete body.
    pub(crate) fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ReceiveFault>>> {
        let frame = ready!(Pin::new(&mut self.incoming).poll_frame(context));
        Poll::Ready(match frame {
            Some(Ok(frame)) => {
                self.meter.take(frame.data_ref().map_or(0, Bytes::len) as u64);
                Some(Ok(frame))
            }
            Some(Err(error)) => Some(Err(ReceiveFault::Library(error))),
            None => self.end().err().map(|incomplete| Err(ReceiveFault::Incomplete(incomplete))),
        })
    }

    /// Returns the proof that the body is complete, once the library has reported its end.
    pub(crate) fn end(&self) -> Result<CompletedBody, IncompleteBody> {
        self.meter.end_reported(self.incoming.is_end_stream())
    }

    /// Returns whether the message's end was received with the last bytes.
    pub(crate) fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    /// Returns the number of bytes still to come, if the message announced the length.
    pub(crate) fn remaining(&self) -> Option<u64> {
        self.meter.remaining()
    }
}

impl fmt::Display for ReceiveFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Library(error) => error.fmt(f),
            Self::Incomplete(incomplete) => incomplete.fmt(f),
        }
    }
}

impl std::error::Error for ReceiveFault {}
