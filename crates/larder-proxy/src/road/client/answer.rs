//! The response to a request, which may not be complete yet.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use http::Response;

use crate::road::client::{encoded::EncodedResponse, response_body::ResponseBody};

/// A complete response, or a future that produces one.
#[expect(clippy::large_enum_variant, reason = "the larger one is the usual one, and is taken at once")]
pub(crate) enum ClientAnswer {
    /// A complete response, until [`Self::poll_response`] takes it.
    Ready(Option<ClientResponse>),
    /// A future that produces the response.
    Later(Pin<Box<dyn Future<Output = Box<Response<ResponseBody>>> + Send>>),
}

/// A response with its head as a map of fields, or encoded already.
#[expect(
    clippy::large_enum_variant,
    reason = "the larger one is a hit from memory, which would get one more allocation"
)]
pub(crate) enum ClientResponse {
    Fields(Box<Response<ResponseBody>>),
    /// A head that is encoded already. Only clients of HTTP/1.1 receive this form.
    Encoded(EncodedResponse),
}

impl ClientAnswer {
    /// Takes the response if it is complete, without waiting.
    pub(crate) fn take_complete(&mut self) -> Option<ClientResponse> {
        match self {
            Self::Ready(response) => response.take(),
            Self::Later(_) => None,
        }
    }

    /// Creates the answer that is a complete response.
    pub(crate) fn ready(response: Box<Response<ResponseBody>>) -> Self {
        Self::Ready(Some(ClientResponse::Fields(response)))
    }

    /// Waits for the response.
    pub(crate) fn poll_response(&mut self, context: &mut Context<'_>) -> Poll<ClientResponse> {
        match self {
            Self::Ready(response) => response.take().map_or(Poll::Pending, Poll::Ready),
            Self::Later(future) => future.as_mut().poll(context).map(ClientResponse::Fields),
        }
    }
}
