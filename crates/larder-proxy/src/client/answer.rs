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
    /// A response that is not complete yet.
    Later(Pin<Box<dyn Future<Output = Response<ResponseBody>> + Send>>),
}

impl ClientAnswer {
    /// Waits for the response.
    pub(crate) fn poll_response(&mut self, context: &mut Context<'_>) -> Poll<Response<ResponseBody>> {
        match self {
            Self::Ready(response) => response.take().map_or(Poll::Pending, Poll::Ready),
            Self::Later(future) => future.as_mut().poll(context),
        }
    }
}
