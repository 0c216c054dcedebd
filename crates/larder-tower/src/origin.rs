//! The seam to whatever sends a request: a tower service, or a chain of middleware.

use crate::BodyError;
use http::{Request, Response};
use http_body::Body;
use larder_http::fields::strip_own;

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

    /// Sends one request. For one request of a client, the cache calls this at most twice: the second time if the
    /// origin answers a validation with a 304 that does not fit the stored response.
    fn send(&mut self, request: Request<B>) -> impl Future<Output = Result<Response<Self::Body>, Self::Error>> + Send;
}

/// Sends one request, and removes the fields of its response that only the cache sets.
pub(crate) async fn ask<B, O: Origin<B>>(origin: &mut O, request: Request<B>) -> Result<Response<O::Body>, O::Error> {
    let mut response = origin.send(request).await?;
    strip_own(response.headers_mut());
    Ok(response)
}
