//! The middleware, which translates between reqwest's requests and those of `larder-tower`.

use crate::sync_body::SyncBody;
use http::Extensions;
use larder_cache::Cache;
use larder_tower::{DoNotStore, HttpCache, Origin};
use reqwest::{Body, Request, Response, ResponseBuilderExt, Url};
use reqwest_middleware::{Error, Middleware, Next, Result};

/// A middleware for [`reqwest_middleware`] that caches the responses of a client.
///
/// ```no_run
/// # fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use larder_reqwest::{Cache, CacheMiddleware};
/// use reqwest_middleware::ClientBuilder;
///
/// let cache = Cache::builder("/var/cache/example").disk("1GB").open()?;
/// let client = ClientBuilder::new(reqwest::Client::new()).with(CacheMiddleware::new(cache)).build();
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct CacheMiddleware {
    cache: HttpCache,
}

impl CacheMiddleware {
    /// Creates a middleware with a private cache. `cache` must not be used for anything else.
    ///
    /// Clients with different default credentials must not share a cache. To let them, use
    /// [`CacheMiddleware::from_http_cache`].
    pub fn new(cache: Cache) -> Self {
        Self::from_http_cache(HttpCache::private(cache))
    }

    /// Creates a middleware with settings of its own.
    ///
    /// ```no_run
    /// # fn example(headers: http::HeaderMap) -> Result<(), Box<dyn std::error::Error>> {
    /// use larder_reqwest::{Cache, CacheMiddleware, HttpCache};
    ///
    /// let cache = Cache::builder("/var/cache/example").disk("10GB").open()?;
    /// let client = reqwest::Client::builder().default_headers(headers.clone()).build()?;
    /// let cache = HttpCache::builder(cache).implied_fields(headers).build();
    /// let middleware = CacheMiddleware::from_http_cache(cache);
    /// let client = reqwest_middleware::ClientBuilder::new(client).with(middleware).build();
    /// # Ok(())
    /// # }
    /// ```
    pub fn from_http_cache(cache: HttpCache) -> Self {
        Self { cache }
    }

    /// Returns the HTTP cache, for example to remove stored responses.
    pub fn http_cache(&self) -> &HttpCache {
        &self.cache
    }
}

#[async_trait::async_trait]
impl Middleware for CacheMiddleware {
    async fn handle(&self, request: Request, extensions: &mut Extensions, next: Next<'_>) -> Result<Response> {
        let url = request.url().clone();
        let request = http::Request::<Body>::try_from(request)?;
        let mut origin = NextOrigin { extensions, next, url };
        let response = self.cache.respond(request, &mut origin).await?;
        let url = origin.url;
        let (head, body) = response.into_parts();
        // reqwest offers no other way than its builder extension to set the URL of a response.
        let with_url = http::Response::builder().url(url).body(()).expect("a response without fields");
        let mut response = http::Response::from_parts(head, Body::wrap(SyncBody::new(body)));
        response.extensions_mut().extend(with_url.into_parts().0.extensions);
        Ok(response.into())
    }
}

/// Sends requests to the remaining middleware of the client, and then to the server.
struct NextOrigin<'a> {
    extensions: &'a mut Extensions,
    next: Next<'a>,
    /// The URL of the last request. Once there is a response, the URL of the response, which differs after redirects.
    url: Url,
}

impl Origin<Body> for NextOrigin<'_> {
    type Body = Body;
    type Error = Error;

    async fn send(&mut self, request: http::Request<Body>) -> Result<http::Response<Body>> {
        let request = Request::try_from(request)?;
        let requested = without_fragment(request.url());
        let response = self.next.clone().run(request, self.extensions).await?;
        self.url = response.url().clone();
        let is_redirected = without_fragment(response.url()) != requested;
        let mut response = http::Response::<Body>::from(response);
        if is_redirected {
            // A redirect led to another resource. Its lifetime and validators must not be stored for the requested URL.
            response.extensions_mut().insert(DoNotStore);
        }
        Ok(response)
    }
}

fn without_fragment(url: &Url) -> Url {
    let mut url = url.clone();
    url.set_fragment(None);
    url
}
