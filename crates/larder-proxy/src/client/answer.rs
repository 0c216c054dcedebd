//! The response to a request, in the form that the HTTP library awaits.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use http::Response;

use crate::client::{
    held::{HeldExchange, ResponseFuture},
    peer::Client,
    response_body::ResponseBody,
};

/// A complete response, or a future that produces one.
#[expect(clippy::large_enum_variant, reason = "the larger one is the usual one, and is taken at once")]
pub(crate) enum ClientAnswer {
    /// A complete response. The first poll takes it.
    Ready(Option<Response<ResponseBody>>),
    /// A response that is not complete yet.
    Later(ResponseFuture),
    /// The same, held by the client's connection, which can drop the HTTP library's state while it waits.
    Held(HeldAnswer),
}

/// Polls the response that the client's connection holds. Dropped early, the exchange is abandoned.
pub(crate) struct HeldAnswer(Arc<Client>);

impl ClientAnswer {
    /// Waits for the response.
    pub(crate) fn poll_response(&mut self, context: &mut Context<'_>) -> Poll<Response<ResponseBody>> {
        match self {
            Self::Ready(response) => response.take().map_or(Poll::Pending, Poll::Ready),
            Self::Later(future) => future.as_mut().poll(context),
            Self::Held(held) => held.poll(context),
        }
    }
}

impl Future for ClientAnswer {
    type Output = Result<Response<ResponseBody>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.poll_response(context).map(Ok)
    }
}

impl HeldAnswer {
    /// Lets a client's connection hold an exchange.
    pub(crate) fn new(client: &Arc<Client>, exchange: HeldExchange) -> Self {
        client.hold_exchange(exchange);
        client.expect_rest();
        Self(Arc::clone(client))
    }

    fn poll(&self, context: &mut Context<'_>) -> Poll<Response<ResponseBody>> {
        // Taken out, because the exchange itself uses the client.
        let Some(mut exchange) = self.0.take_exchange() else { return Poll::Pending };
        let polled = exchange.future.as_mut().poll(context);
        if polled.is_pending() {
            self.0.hold_exchange(exchange);
        }
        polled
    }
}

impl Drop for HeldAnswer {
    fn drop(&mut self) {
        drop(self.0.take_exchange());
    }
}
