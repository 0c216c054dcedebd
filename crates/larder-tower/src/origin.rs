//! The seam to whatever sends a request: a tower service, or a chain of middleware.

use crate::origin_body::{BodyError, OriginBody};
use http::{Request, Response, StatusCode, request, response};
use http_body::Body;
use larder_cache::http::fetcher::RequestEdits;
use larder_http::{Ruling, fields::strip_own};

/// An extension of a response that prevents the cache from storing it, or from using it to update a stored response.
///
/// An [`Origin`] sets it if the response is not that of the requested resource, for example because it followed a
/// redirect.
#[derive(Clone, Copy, Debug)]
pub struct DoNotStore;

/// Sends requests to their origin.
pub trait Origin<B>: Send {
    /// The body of a response.
    type Body: Body<Error: Into<BodyError>> + Send + 'static;
    /// The error when there is no response.
    type Error;

    /// Sends one request. For one request of a client, the cache nearly always calls this once, and twice if the origin
    /// answers a validation with a 304 that does not fit the stored response.
    fn send(&mut self, request: Request<B>) -> impl Future<Output = Result<Response<Self::Body>, Self::Error>> + Send;
}

/// Sends one request, and removes the fields of its response that only the cache sets.
pub(crate) async fn ask<B, O: Origin<B>>(origin: &mut O, request: Request<B>) -> Result<Response<O::Body>, O::Error> {
    let mut response = origin.send(request).await?;
    strip_own(response.headers_mut());
    Ok(response)
}

/// A client's request, and the origin that can answer it.
pub(crate) struct OriginSender<'o, B, O> {
    head: request::Parts,
    /// The client's body, until it is sent.
    body: Option<B>,
    origin: &'o mut O,
}

impl<'o, B: Default + Send, O: Origin<B>> OriginSender<'o, B, O> {
    pub(crate) fn new(request: Request<B>, origin: &'o mut O) -> Self {
        let (head, body) = request.into_parts();
        Self { head, body: Some(body), origin }
    }

    /// Sends the request with these edits.
    pub(crate) async fn send(&mut self, edits: &RequestEdits) -> Result<(response::Parts, OriginBody), O::Error> {
        let answer = self.send_once(edits).await?;
        if answer.0.status == StatusCode::NOT_MODIFIED && !is_of_resource(&answer.0) {
            // It confirms the response of another resource.
            return self.send_once(&RequestEdits { added: Vec::new(), ..edits.clone() }).await;
        }
        Ok(answer)
    }

    async fn send_once(&mut self, edits: &RequestEdits) -> Result<(response::Parts, OriginBody), O::Error> {
        let mut head = self.head.clone();
        let removed: Vec<_> = head.headers.keys().filter(|name| edits.remove(name)).cloned().collect();
        for name in removed {
            head.headers.remove(name);
        }
        for (name, value) in &edits.added {
            head.headers.insert(name, value.clone());
        }
        let body = if edits.whole { B::default() } else { self.body.take().unwrap_or_default() };
        let (mut head, body) = ask(self.origin, Request::from_parts(head, body)).await?.into_parts();
        if !is_of_resource(&head) {
            let ruling = Ruling { name: "other-resource".to_owned(), is_never_stored: true, ..Ruling::default() };
            ruling.put(&mut head.headers);
        }
        let body = OriginBody::new(&head, body);
        Ok((head, body))
    }
}

/// Returns whether a response is that of the requested resource.
fn is_of_resource(head: &response::Parts) -> bool {
    head.extensions.get::<DoNotStore>().is_none()
}
