//! One fetch through the proxy, for `larder warm`.
//!
//! Owns: the requests, and the meaning of their responses. The bodies are not kept. Invariant: a request names its URL
//! in absolute form, so that the proxy uses the same key as for all clients. Cost: one connection per fetch, mostly on
//! this machine.

use super::pace::WarmPace;
use bytes::{Bytes, BytesMut};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode,
    header::{self, HOST},
};
use larder_wire::{BodyDecoder, DecodedPart, HeadLimits, ResponseHead, parse_response, push_fields, push_request_line};
use std::{io, net::SocketAddr, time::Duration};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

/// The settings that all fetches share.
pub(super) struct WarmContext {
    pub(super) proxy: SocketAddr,
    /// Header field lines that each request contains.
    pub(super) fields: Vec<String>,
    pub(super) pacing: WarmPace,
}

/// A URL to fetch, and header fields for this request only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FetchTarget {
    pub(super) url: String,
    /// Header fields that only the request for this URL contains.
    pub(super) fields: Vec<(String, String)>,
}

/// The result of a fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FetchOutcome {
    /// The cache had a usable response already, so nothing was fetched.
    There,
    /// The response was fetched, and the proxy stored it.
    Stored { bytes: u64 },
    /// The response was fetched, but the proxy did not store it, for the reason `why`.
    NotStored { why: String },
    /// The origin answered that it does not have the resource.
    Gone { status: StatusCode },
    /// The fetch failed, for the reason given here.
    Failed(String),
    /// The proxy does not respond, or may not contact origins. The text says which.
    NoProxy(String),
}

impl FetchTarget {
    pub(super) fn plain(url: String) -> Self {
        Self { url, fields: Vec::new() }
    }
}

impl FetchOutcome {
    /// Returns whether repeating the fetch would have the same outcome.
    pub(super) fn is_settled(&self) -> bool {
        matches!(self, Self::There | Self::Stored { .. } | Self::Gone { .. })
    }
}

impl WarmContext {
    /// Makes the proxy fetch and store a resource, unless it is stored already.
    pub(super) async fn warm(&self, target: &FetchTarget) -> FetchOutcome {
        // A request for the last byte only from the cache shows whether the whole body is stored, and transfers almost
        // nothing.
        let asked = [(header::CACHE_CONTROL, "only-if-cached"), (header::RANGE, "bytes=-1")];
        match self.ask(target, &asked).await {
            Ok((head, _)) if is_hit(&head.fields) && head.status != StatusCode::GATEWAY_TIMEOUT => {
                return FetchOutcome::There;
            }
            Ok(_) => {}
            Err(FetchTrouble::NoProxy(why)) => return FetchOutcome::NoProxy(why),
            Err(FetchTrouble::Failed(why)) => return FetchOutcome::Failed(why),
        }
        match self.ask(target, &[]).await {
            Ok((head, body)) => self.settle(head, body).await,
            Err(FetchTrouble::NoProxy(why)) => FetchOutcome::NoProxy(why),
            Err(FetchTrouble::Failed(why)) => FetchOutcome::Failed(why),
        }
    }

    /// Returns the whole body of a URL.
    ///
    /// # Errors
    /// The reason why the body is unavailable, for example because it is longer than `bytes_max`.
    pub(super) async fn body(&self, url: &str, bytes_max: usize) -> Result<Vec<u8>, String> {
        let (head, mut body) =
            self.ask(&FetchTarget::plain(url.to_owned()), &[]).await.map_err(|trouble| match trouble {
                FetchTrouble::NoProxy(why) => format!("cannot fetch through {}: {why}", self.proxy),
                FetchTrouble::Failed(why) => why,
            })?;
        if head.status != StatusCode::OK {
            return Err(format!("status {}", head.status));
        }
        let mut all = Vec::new();
        while let Some(piece) = body.next().await? {
            if all.len() + piece.len() > bytes_max {
                return Err(format!("longer than {bytes_max} bytes"));
            }
            all.extend_from_slice(&piece);
            self.pacing.take(piece.len()).await;
        }
        Ok(all)
    }

    /// Reads the body of a response to its end, and returns the outcome of the fetch.
    async fn settle(&self, head: ResponseHead, mut body: ProxyBody) -> FetchOutcome {
        let mut bytes = 0;
        loop {
            match body.next().await {
                Ok(Some(piece)) => {
                    bytes += piece.len() as u64;
                    self.pacing.take(piece.len()).await;
                }
                Ok(None) => break,
                Err(why) => return FetchOutcome::Failed(why),
            }
        }
        let status_line = cache_status(&head.fields);
        match head.status {
            StatusCode::NOT_FOUND | StatusCode::GONE => FetchOutcome::Gone { status: head.status },
            status if !status.is_success() && !status.is_redirection() => {
                let said = head.fields.get("proxy-status").and_then(|said| said.to_str().ok()).unwrap_or_default();
                if said.contains("details=\"offline\"") {
                    return FetchOutcome::NoProxy(OFFLINE.to_owned());
                }
                let shown = format!("status {status} {said}");
                let is_denied = said.contains("error=destination_ip_prohibited");
                let advice = if is_denied { ", see --allow-target" } else { "" };
                FetchOutcome::Failed(format!("{}{advice}", shown.trim_end()))
            }
            // The response was stored, and the origin has just confirmed it.
            _ if is_hit(&head.fields) || says(status_line, "fwd-status=304") => FetchOutcome::There,
            _ if says(status_line, "stored") => FetchOutcome::Stored { bytes },
            _ if status_line.is_empty() => FetchOutcome::NotStored { why: "the proxy does not confirm it".to_owned() },
            _ => FetchOutcome::NotStored { why: status_line.to_owned() },
        }
    }

    /// Sends a request for `target` to the proxy, with the fields in `more`. Returns the head of the response and its
    /// body.
    async fn ask(
        &self,
        target: &FetchTarget,
        more: &[(HeaderName, &'static str)],
    ) -> Result<(ResponseHead, ProxyBody), FetchTrouble> {
        let no_proxy = |error: &dyn std::fmt::Display| FetchTrouble::NoProxy(error.to_string());
        let socket = timeout(CONNECT_PATIENCE, TcpStream::connect(self.proxy)).await;
        let mut socket = socket.map_err(|late| no_proxy(&late))?.map_err(|error| no_proxy(&error))?;
        let request = self.request(target, more).map_err(|error| FetchTrouble::Failed(error.to_string()))?;
        let answered = timeout(ANSWER_PATIENCE, exchange(&mut socket, &request)).await;
        let answered = answered.map_err(|_| FetchTrouble::Failed("the proxy does not respond in time".to_owned()))?;
        let (head, received) = answered.map_err(|error| FetchTrouble::Failed(error.to_string()))?;
        let decoder = BodyDecoder::of_response(&head, &Method::GET, HEAD_LIMITS);
        let decoder = decoder.map_err(|fault| FetchTrouble::Failed(fault.to_string()))?;
        Ok((head, ProxyBody { socket, decoder, received }))
    }

    fn request(&self, target: &FetchTarget, more: &[(HeaderName, &'static str)]) -> http::Result<Request<()>> {
        let mut request = Request::get(&target.url).body(())?;
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

/// The reason why a request got no response.
enum FetchTrouble {
    NoProxy(String),
    Failed(String),
}

/// Returns the member that the nearest proxy added to the field Cache-Status.
fn cache_status(fields: &HeaderMap) -> &str {
    let last = fields.get_all("cache-status").iter().next_back().and_then(|value| value.to_str().ok());
    last.and_then(|last| last.rsplit(',').next()).unwrap_or_default().trim()
}

fn is_hit(fields: &HeaderMap) -> bool {
    says(cache_status(fields), "hit")
}

/// Returns whether a member of Cache-Status has this parameter.
fn says(cache_status: &str, parameter: &str) -> bool {
    cache_status.split(';').any(|part| part.trim() == parameter)
}

/// Sends a request, and receives the head of its response. Also returns the octets received after the head.
async fn exchange(socket: &mut TcpStream, request: &Request<()>) -> io::Result<(ResponseHead, Bytes)> {
    let mut sent = Vec::new();
    push_request_line(&mut sent, request.method(), request.uri());
    push_fields(&mut sent, request.headers());
    sent.extend_from_slice(b"\r\n");
    socket.write_all(&sent).await?;
    let mut received = Vec::new();
    loop {
        match parse_response(&received, 0, HEAD_LIMITS).map_err(io::Error::other)? {
            Some((head, len)) if head.status.is_informational() => _ = received.drain(..len),
            Some((head, len)) => return Ok((head, Bytes::copy_from_slice(&received[len..]))),
            None if socket.read_buf(&mut received).await? == 0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            None => {}
        }
    }
}

/// The body of a response, which is read piece by piece.
struct ProxyBody {
    socket: TcpStream,
    decoder: BodyDecoder,
    received: Bytes,
}

impl ProxyBody {
    /// Returns the next piece of the body, or `None` at its end.
    async fn next(&mut self) -> Result<Option<Bytes>, String> {
        let broken_off = |why: &dyn std::fmt::Display| format!("the connection broke off: {why}");
        loop {
            match self.decoder.next(&mut self.received).map_err(|fault| broken_off(&fault))? {
                DecodedPart::Data(data) => return Ok(Some(data)),
                DecodedPart::Trailers(_) => continue,
                DecodedPart::End => return Ok(None),
                DecodedPart::More => {}
            }
            let mut octets = BytesMut::with_capacity(PIECE_BYTES);
            let read = timeout(ANSWER_PATIENCE, self.socket.read_buf(&mut octets)).await;
            match read.map_err(|_| "the connection was closed".to_owned())? {
                Ok(0) if matches!(self.decoder, BodyDecoder::UntilClose) => return Ok(None),
                Ok(0) => return Err(broken_off(&io::ErrorKind::UnexpectedEof)),
                Ok(_) => self.received = octets.freeze(),
                Err(error) => return Err(broken_off(&error)),
            }
        }
    }
}

/// The reason that the proxy states if it fetches nothing because it is offline.
pub(super) const OFFLINE: &str = "it is offline";
const USER_AGENT: &str = concat!("larder/", env!("CARGO_PKG_VERSION"));
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);
/// Maximum wait for a response. It is longer than the proxy's own wait for an origin.
const ANSWER_PATIENCE: Duration = Duration::from_secs(180);
const HEAD_LIMITS: HeadLimits = HeadLimits { bytes_max: 64 << 10, field_count_max: 400 };
/// Maximum number of octets in one receive operation.
const PIECE_BYTES: usize = 64 << 10;

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
