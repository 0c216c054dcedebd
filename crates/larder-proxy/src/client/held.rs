//! The exchange of an HTTP/1.1 client whose response is not complete. The client's connection owns it.
//!
//! Owns: the exchange, and the properties of its request that its response depends on. `waiting` releases the HTTP
//! library while the exchange waits. Invariant: the request has no body and is not an upgrade.

use std::{future::Future, pin::Pin};

use bytes::Bytes;
use http::{
    Method, Request, Response, Version,
    header::{CONNECTION, TE, UPGRADE},
};
use http_body::Body as _;
use larder_http::fields::has_token;

use crate::{client::response_body::ResponseBody, received_body::IncomingBody};

/// The exchange that a connection holds.
#[derive(Default)]
pub(super) enum HeldState {
    #[default]
    Nothing,
    Waiting(HeldExchange),
    /// The response to a request that waited without the HTTP library.
    Answered(Box<Response<ResponseBody>>),
}

/// An exchange whose response is not complete yet.
pub(crate) struct HeldExchange {
    pub(super) future: ResponseFuture,
    pub(super) shape: RequestShape,
}

/// A future that produces a response.
pub(crate) type ResponseFuture = Pin<Box<dyn Future<Output = Response<ResponseBody>> + Send>>;

/// The properties of a request that determine how its response is framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequestShape {
    is_head: bool,
    closes: bool,
    takes_trailers: bool,
}

impl HeldExchange {
    pub(crate) fn new(future: ResponseFuture, shape: RequestShape) -> Self {
        Self { future, shape }
    }
}

impl RequestShape {
    /// Returns the shape of a request, or `None` if its exchange needs the connection's own instance of the library.
    pub(crate) fn of(request: &Request<IncomingBody>) -> Option<Self> {
        let fields = request.headers();
        let is_plain = request.version() == Version::HTTP_11
            && matches!(*request.method(), Method::GET | Method::HEAD)
            && request.body().is_end_stream()
            && !fields.contains_key(UPGRADE);
        let is_head = request.method() == Method::HEAD;
        is_plain.then(|| Self {
            is_head,
            closes: has_token(fields, &CONNECTION, "close"),
            takes_trailers: has_token(fields, &TE, "trailers"),
        })
    }

    /// Returns a request of this shape. Its response is the last of the connection if `closes`.
    pub(super) fn request(self, closes: bool) -> Bytes {
        let method = if self.is_head { "HEAD" } else { "GET" };
        let closes = if closes || self.closes { "Connection: close\r\n" } else { "" };
        let trailers = if self.takes_trailers { "TE: trailers\r\n" } else { "" };
        format!("{method} / HTTP/1.1\r\n{closes}{trailers}\r\n").into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_of_a_shape_frames_its_response_like_the_first_one() {
        let shape = |is_head, closes, takes_trailers| RequestShape { is_head, closes, takes_trailers };
        for (shape, closes, text) in [
            (shape(false, false, false), false, "GET / HTTP/1.1\r\n\r\n"),
            (shape(true, true, false), false, "HEAD / HTTP/1.1\r\nConnection: close\r\n\r\n"),
            (shape(false, false, true), true, "GET / HTTP/1.1\r\nConnection: close\r\nTE: trailers\r\n\r\n"),
        ] {
            assert_eq!(shape.request(closes), text);
        }
    }
}
