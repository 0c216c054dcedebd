//! A caching reverse proxy: `cargo run --example proxy -- 127.0.0.1:8080 127.0.0.1:9000 /tmp/larder-pingora`.

use async_trait::async_trait;
use larder_cache::Cache;
use larder_pingora::LarderStorage;
use pingora_cache::{
    CacheKey, CacheMetaDefaults, RespCacheable, cache_control::CacheControl, filters::resp_cacheable, lock::CacheLock,
};
use pingora_core::{server::Server, upstreams::peer::HttpPeer};
use pingora_error::Result;
use pingora_http::ResponseHeader;
use pingora_proxy::{ProxyHttp, Session, http_proxy_service};
use std::{error::Error, net::SocketAddr, path::Path, time::Duration};

/// A response without a lifetime of its own is not stored.
const DEFAULTS: CacheMetaDefaults = CacheMetaDefaults::new(|_| None, 0, 0);
/// Maximum time that a request waits for the fetch of another request.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);

/// A proxy in front of one origin.
struct CachingProxy {
    origin: SocketAddr,
    storage: &'static LarderStorage,
    lock: &'static CacheLock,
}

#[async_trait]
impl ProxyHttp for CachingProxy {
    type CTX = ();

    fn new_ctx(&self) {}

    async fn upstream_peer(&self, _session: &mut Session, _ctx: &mut ()) -> Result<Box<HttpPeer>> {
        Ok(Box::new(HttpPeer::new(self.origin, false, String::new())))
    }

    fn request_cache_filter(&self, session: &mut Session, _ctx: &mut ()) -> Result<()> {
        if matches!(session.req_header().method.as_str(), "GET" | "HEAD") {
            session.cache.enable(self.storage, None, None, Some(self.lock), None);
        }
        Ok(())
    }

    fn cache_key_callback(&self, session: &Session, _ctx: &mut ()) -> Result<CacheKey> {
        let head = session.req_header();
        let host = head.headers.get("host").map_or(&b""[..], |host| host.as_bytes());
        Ok(CacheKey::new([host, b"\n", head.uri.to_string().as_bytes()].concat(), ""))
    }

    fn response_cache_filter(
        &self,
        session: &Session,
        response: &ResponseHeader,
        _ctx: &mut (),
    ) -> Result<RespCacheable> {
        let control = CacheControl::from_resp_headers(response);
        let has_credentials = session.req_header().headers.contains_key("authorization");
        Ok(resp_cacheable(control.as_ref(), response.clone(), has_credentials, &DEFAULTS))
    }

    async fn response_filter(&self, session: &mut Session, response: &mut ResponseHeader, _ctx: &mut ()) -> Result<()> {
        response.insert_header("x-cache", session.cache.phase().as_str())
    }
}

/// Returns a server with the proxy.
pub(crate) fn server(
    listen: &str,
    origin: SocketAddr,
    directory: &Path,
) -> Result<(Server, Cache), Box<dyn Error + Send + Sync>> {
    let cache = Cache::builder(directory).disk("1GB").memory("64MB").open()?;
    let storage = LarderStorage::leak(cache.clone());
    let lock = Box::leak(CacheLock::new_boxed(LOCK_TIMEOUT));
    let mut server = Server::new(None)?;
    server.bootstrap();
    let mut service = http_proxy_service(&server.configuration, CachingProxy { origin, storage, lock });
    service.add_tcp(listen);
    server.add_service(service);
    Ok((server, cache))
}

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [listen, origin, directory] = &arguments[..] else { return Err("usage: proxy LISTEN ORIGIN DIRECTORY".into()) };
    let (server, _) = server(listen, origin.parse()?, Path::new(directory))?;
    server.run_forever()
}
