//! The response to a request, which may not be complete yet.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use http::Response;

use crate::client::response_body::ResponseBody;

/// A complete response, or a future that produces one.
#[expect(clippy::large_enum_variant, reason = "the larger one is the usual one, and is taken at once")]
pub(crate) enum ClientAnswer {
    /// A complete response. The first poll takes it.
    Ready(Option<Response<ResponseBody>>),
    /// No response: the stream is reset, because its request is malformed (RFC 9113 8.1.1).
    Reset,
    /// A response that is not complete yet.
    Later(ResponseFuture),
}

/// A future that produces a response.
pub(crate) type ResponseFuture = Pin<Box<dyn Future<Output = Response<ResponseBody>> + Send>>;

impl ClientAnswer {
    /// Waits for the response.
    pub(crate) fn poll_response(&mut self, context: &mut Context<'_>) -> Poll<Response<ResponseBody>> {
        match self {
            Self::Ready(response) => response.take().map_or(Poll::Pending, Poll::Ready),
            Self::Reset => Poll::Pending,
            Self::Later(future) => future.as_mut().poll(context),
        }
    }
}

impl Future for ClientAnswer {
    type Output = Result<Response<ResponseBody>, h2::Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut *self {
            Self::Reset => Poll::Ready(Err(h2::Reason::PROTOCOL_ERROR.into())),
            answer => answer.poll_response(context).map(Ok),
        }
    }
}
