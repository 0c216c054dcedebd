//! One fetch through the proxy, for `larder warm`.
//!
//! Owns: the requests, and the meaning of their responses. The bodies are not kept. Invariant: a request names its URL
//! in absolute form, so that the proxy uses the same key as for all clients. Cost: one connection per fetch, mostly on
//! this machine.

use super::pace::WarmPace;
use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode,
    header::{self, HOST},
};
use http_body::Body as _;
use hyper::{body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use std::{future::poll_fn, net::SocketAddr, pin::Pin, time::Duration};
use tokio::{net::TcpStream, time::timeout};

/// The properties common to all fetches.
pub(super) struct WarmContext {
    pub(super) proxy: SocketAddr,
    /// Field lines that every request has.
    pub(super) fields: Vec<String>,
    pub(super) pacing: WarmPace,
}

/// The URL of a fetch, with its own fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FetchTarget {
    pub(super) url: String,
    /// Additional fields of its request.
    pub(super) fields: Vec<(String, String)>,
}

/// The outcome of a fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FetchOutcome {
    /// The cache could already answer it.
    There,
    /// Fetched and stored.
    Stored { bytes: u64 },
    /// Fetched but not stored.
    NotStored { why: String },
    /// The origin does not have the resource.
    Gone { status: StatusCode },
    /// The fetch failed.
    Failed(String),
    /// The proxy does not respond, or may not contact origins.
    NoProxy(String),
}

impl FetchTarget {
    pub(super) fn plain(url: String) -> Self {
        Self { url, fields: Vec::new() }
    }
}

impl FetchOutcome {
    /// Returns whether repeating the fetch would give the same outcome.
    pub(super) fn is_settled(&self) -> bool {
        matches!(self, Self::There | Self::Stored { .. } | Self::Gone { .. })
    }
}

impl WarmContext {
    /// Makes the proxy store a resource, unless it is stored already.
    pub(super) async fn warm(&self, target: &FetchTarget) -> FetchOutcome {
        // A request for the last byte shows whether the whole body is stored, without sending all of it.
        let asked = [(header::CACHE_CONTROL, "only-if-cached"), (header::RANGE, "bytes=-1")];
        match self.ask(target, &asked).await {
            Ok(response) if is_hit(response.headers()) && response.status() != StatusCode::GATEWAY_TIMEOUT => {
                return FetchOutcome::There;
            }
            Ok(_) => {}
            Err(FetchTrouble::NoProxy(why)) => return FetchOutcome::NoProxy(why),
            Err(FetchTrouble::Failed(why)) => return FetchOutcome::Failed(why),
        }
        match self.ask(target, &[]).await {
            Ok(response) => self.settle(response).await,
            Err(FetchTrouble::NoProxy(why)) => FetchOutcome::NoProxy(why),
            Err(FetchTrouble::Failed(why)) => FetchOutcome::Failed(why),
        }
    }

    /// Returns the whole body of a URL, if it is not longer than `bytes_max`.
    ///
    /// # Errors
    /// The reason why it is unavailable.
    pub(super) async fn body(&self, url: &str, bytes_max: usize) -> Result<Vec<u8>, String> {
        let response = self.ask(&FetchTarget::plain(url.to_owned()), &[]).await.map_err(|trouble| match trouble {
            FetchTrouble::NoProxy(why) => format!("cannot fetch through {}: {why}", self.proxy),
            FetchTrouble::Failed(why) => why,
        })?;
        if response.status() != StatusCode::OK {
            return Err(format!("status {}", response.status()));
        }
        let mut body = response.into_body();
        let mut all = Vec::new();
        while let Some(piece) = next(&mut body).await? {
            if all.len() + piece.len() > bytes_max {
                return Err(format!("longer than {bytes_max} bytes"));
            }
            all.extend_from_slice(&piece);
            self.pacing.take(piece.len()).await;
        }
        Ok(all)
    }

    /// Reads a response to its end. Returns the outcome of the fetch.
    async fn settle(&self, response: Response<Incoming>) -> FetchOutcome {
        let (head, mut body) = response.into_parts();
        let mut bytes = 0;
        loop {
            match next(&mut body).await {
                Ok(Some(piece)) => {
                    bytes += piece.len() as u64;
                    self.pacing.take(piece.len()).await;
                }
                Ok(None) => break,
                Err(why) => return FetchOutcome::Failed(why),
            }
        }
        let status_line = cache_status(&head.headers);
        match head.status {
            StatusCode::NOT_FOUND | StatusCode::GONE => FetchOutcome::Gone { status: head.status },
            status if !status.is_success() && !status.is_redirection() => {
                let said = head.headers.get("proxy-status").and_then(|said| said.to_str().ok()).unwrap_or_default();
                if said.contains("details=\"offline\"") {
                    return FetchOutcome::NoProxy(OFFLINE.to_owned());
                }
                let shown = format!("status {status} {said}");
                let is_denied = said.contains("error=destination_ip_prohibited");
                let advice = if is_denied { ", see --allow-target" } else { "" };
                FetchOutcome::Failed(format!("{}{advice}", shown.trim_end()))
            }
            // The origin has just confirmed a stored response.
            _ if is_hit(&head.headers) || says(status_line, "fwd-status=304") => FetchOutcome::There,
            _ if says(status_line, "stored") => FetchOutcome::Stored { bytes },
            _ if status_line.is_empty() => FetchOutcome::NotStored { why: "the proxy does not confirm it".to_owned() },
            _ => FetchOutcome::NotStored { why: status_line.to_owned() },
        }
    }

    /// Sends a request, and returns its response's head.
    async fn ask(
        &self,
        target: &FetchTarget,
        more: &[(HeaderName, &'static str)],
    ) -> Result<Response<Incoming>, FetchTrouble> {
        let no_proxy = |error: &dyn std::fmt::Display| FetchTrouble::NoProxy(error.to_string());
        let socket = timeout(CONNECT_PATIENCE, TcpStream::connect(self.proxy)).await;
        let socket = socket.map_err(|late| no_proxy(&late))?.map_err(|error| no_proxy(&error))?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(socket)).await.map_err(|error| no_proxy(&error))?;
        tokio::spawn(connection);
        let request = self.request(target, more).map_err(|error| FetchTrouble::Failed(error.to_string()))?;
        let answered = timeout(ANSWER_PATIENCE, sender.send_request(request)).await;
        let answered = answered.map_err(|_| FetchTrouble::Failed("the proxy does not respond in time".to_owned()))?;
        answered.map_err(|error| FetchTrouble::Failed(error.to_string()))
    }

    fn request(&self, target: &FetchTarget, more: &[(HeaderName, &'static str)]) -> http::Result<Request<String>> {
        let mut request = Request::get(&target.url).body(String::new())?;
        let authority = request.uri().authority().map(|authority| authority.as_str().to_owned()).unwrap_or_default();
        let fields = request.headers_mut();
        fields.insert(HOST, HeaderValue::try_from(authority)?);
        fields.insert(header::USER_AGENT, HeaderValue::from_static(USER_AGENT));
        fields.insert(header::ACCEPT, HeaderValue::from_static("*/*"));
        let own = target.fields.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let given = self.fields.iter().filter_map(|line| line.split_once(':'));
        for (name, value) in own.chain(given) {
            fields.insert(HeaderName::from_bytes(name.trim().as_bytes())?, HeaderValue::from_str(value.trim())?);
        }
        for (name, value) in more {
            fields.insert(name, HeaderValue::from_static(value));
        }
        Ok(request)
    }
}

/// The reason why there is no response.
enum FetchTrouble {
    NoProxy(String),
    Failed(String),
}

/// Returns the Cache-Status of the nearest proxy.
fn cache_status(fields: &HeaderMap) -> &str {
    let last = fields.get_all("cache-status").iter().next_back().and_then(|value| value.to_str().ok());
    last.and_then(|last| last.rsplit(',').next()).unwrap_or_default().trim()
}

fn is_hit(fields: &HeaderMap) -> bool {
    says(cache_status(fields), "hit")
}

/// Returns whether a member of Cache-Status has a parameter.
fn says(cache_status: &str, parameter: &str) -> bool {
    cache_status.split(';').any(|part| part.trim() == parameter)
}

/// Returns the next piece of a body.
async fn next(body: &mut Incoming) -> Result<Option<Bytes>, String> {
    loop {
        let frame = timeout(ANSWER_PATIENCE, poll_fn(|context| Pin::new(&mut *body).poll_frame(context))).await;
        match frame.map_err(|_| "the connection was closed".to_owned())? {
            None => return Ok(None),
            Some(Err(error)) => return Err(format!("the connection broke off: {error}")),
            Some(Ok(frame)) => {
                if let Ok(piece) = frame.into_data() {
                    return Ok(Some(piece));
                }
            }
        }
    }
}

/// The reason why a proxy fetches nothing while it is offline.
pub(super) const OFFLINE: &str = "it is offline";
const USER_AGENT: &str = concat!("larder/", env!("CARGO_PKG_VERSION"));
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);
/// Longest wait for a response. It exceeds the proxy's own wait for an origin.
const ANSWER_PATIENCE: Duration = Duration::from_secs(180);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_nearest_cache_says_counts() {
        let fields = |lines: &[&str]| {
            lines.iter().map(|line| (HeaderName::from_static("cache-status"), line.parse().unwrap())).collect()
        };
        let far: HeaderMap = fields(&["Far; hit", "Larder; fwd=uri-miss; fwd-status=200; stored"]);
        assert!(!is_hit(&far) && cache_status(&far).ends_with("; stored"));
        assert!(is_hit(&fields(&["Far; fwd=miss, Larder; hit; ttl=5"])));
        assert_eq!(cache_status(&HeaderMap::new()), "");
    }
}
