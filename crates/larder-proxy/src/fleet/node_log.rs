//! Reads the log of purges of another node over HTTP.
//!
//! Owns: the connection, the request and the check of the response. Invariant: a response is accepted only if its code
//! proves that a node with the secret made it for this request, and if it is a valid part of a log (`message`).
//!
//! Cost: one connection per node, and one request per purge or per wait for one.

use std::{
    future::poll_fn,
    pin::Pin,
    time::{Duration, Instant},
};

use http::{HeaderValue, Request, StatusCode, header};
use http_body::Body as _;
use hyper::{
    body::Incoming,
    client::conn::http1::{self, SendRequest},
};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    task::JoinSet,
};

use super::{
    connecting::{self, RESPONSE_PATIENCE},
    link::FleetLink,
    message::{self, LogQuery},
    secret,
    serving::{CODE_FIELD, FleetCredentials, response_parts},
    tls::FleetTls,
};
use crate::{
    cache::purges::{LogPosition, LogSlice, Purges},
    config::FleetNode,
    origin::{fault::FaultReport, request_body::RequestBody},
};

/// The log of another node.
pub(super) struct NodeLog {
    node: FleetNode,
    connection: Option<PeerConnection>,
}

/// A connection to a node. Dropping it closes it.
struct PeerConnection {
    sender: SendRequest<RequestBody>,
    _driver: JoinSet<()>,
}

impl NodeLog {
    pub(super) fn new(node: FleetNode) -> Self {
        Self { node, connection: None }
    }

    /// Reads the purges after a position. Waits for one if there is none.
    pub(super) async fn slice(
        &mut self,
        link: &FleetLink,
        purges: &Purges,
        position: Option<LogPosition>,
        wait: Duration,
    ) -> Result<LogSlice, String> {
        let (log, after) = position.map_or((0, 0), |position| (position.log, position.number));
        let slice = self.request(link, LogQuery { log, after, wait }).await?;
        if slice.log == purges.log_id() {
            return Err("its address leads to this node itself".to_owned());
        }
        Ok(slice)
    }

    /// Closes the connection.
    pub(super) fn disconnect(&mut self) {
        self.connection = None;
    }

    /// Sends a request for a part of the log, and checks the response.
    async fn request(&mut self, link: &FleetLink, query: LogQuery) -> Result<LogSlice, String> {
        let nonce = secret::nonce().ok_or("the system has no random numbers")?;
        let target = query.target();
        let credentials = FleetCredentials::new(&link.own_name, &self.node.name, &nonce);
        let mut request = Request::new(RequestBody::none());
        *request.uri_mut() = target.parse().expect("its parts are numbers");
        let authority = format!("{}:{}", self.node.host, self.node.port);
        for (name, value) in
            [(header::HOST, authority), (header::AUTHORIZATION, credentials.value(&link.secret, &target))]
        {
            request.headers_mut().insert(name, HeaderValue::try_from(value).map_err(|error| error.to_string())?);
        }
        let patience = query.wait + RESPONSE_PATIENCE;
        let exchange = tokio::time::timeout(patience, self.exchange(request, link.tls.as_deref())).await;
        let (status, code, body) = exchange.map_err(|_| "it does not respond".to_owned())??;
        if status != StatusCode::OK {
            let text: String = body.chars().take(SHOWN_CHARS).filter(|letter| !letter.is_control()).collect();
            return Err(format!("it refuses to send its purges: {} {text}", status.as_u16()));
        }
        if !link.secret.verify(&response_parts(&nonce, &body), &code) {
            return Err("its response does not prove that it knows the secret of the fleet".to_owned());
        }
        message::decode(&body, query).map_err(|why| format!("its log of purges is unusable: {why}"))
    }

    /// Sends a request over the connection. Opens one if there is none. Returns the status, the code and the body.
    async fn exchange(
        &mut self,
        request: Request<RequestBody>,
        tls: Option<&FleetTls>,
    ) -> Result<(StatusCode, String, String), String> {
        let connection = match self.connection.take().filter(|connection| !connection.sender.is_closed()) {
            Some(connection) => connection,
            None => connect(&self.node, tls).await?,
        };
        let connection = self.connection.insert(connection);
        let response = connection.sender.send_request(request).await.map_err(|error| error.to_string())?;
        let status = response.status();
        let code =
            response.headers().get(CODE_FIELD).and_then(|code| code.to_str().ok()).unwrap_or_default().to_owned();
        let body = whole(response.into_body()).await?;
        Ok((status, code, body))
    }
}

/// Opens a connection to a node.
async fn connect(node: &FleetNode, tls: Option<&FleetTls>) -> Result<PeerConnection, String> {
    let socket = connecting::connect(&node.host, node.port).await.map_err(|error| error.to_string())?;
    match tls {
        Some(tls) => {
            let stream = tls.connect(socket, &node.host).await;
            drive(stream.map_err(|error| FaultReport::of_node_tls(&error).why)?).await
        }
        None => drive(socket).await,
    }
}

/// Begins to speak HTTP on a connection.
async fn drive(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) -> Result<PeerConnection, String> {
    let handshake = http1::Builder::new().max_buf_size(HEAD_BYTES_MAX).handshake(TokioIo::new(stream));
    let (sender, connection) = handshake.await.map_err(|error| error.to_string())?;
    let mut driver = JoinSet::new();
    driver.spawn(async move {
        // The request fails with the same error.
        let _ = connection.await;
    });
    Ok(PeerConnection { sender, _driver: driver })
}

/// Reads a whole body, which must be short text.
async fn whole(mut body: Incoming) -> Result<String, String> {
    let mut octets = Vec::new();
    let begun = Instant::now();
    while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        let Ok(data) = frame.map_err(|error| error.to_string())?.into_data() else { continue };
        if octets.len() + data.len() > BODY_BYTES_MAX {
            return Err(format!("it sends more than {BODY_BYTES_MAX} bytes at once"));
        }
        octets.extend_from_slice(&data);
        if begun.elapsed() > RESPONSE_PATIENCE {
            return Err("its response takes too long".to_owned());
        }
    }
    String::from_utf8(octets).map_err(|_| "its response is no text".to_owned())
}

/// Longest response. The purges of one command are sent together; their tags fit in the head of a request.
pub(super) const BODY_BYTES_MAX: usize = 8 << 20;
const HEAD_BYTES_MAX: usize = 64 << 10;
/// Number of characters of a refusal that are shown to the operator.
const SHOWN_CHARS: usize = 120;
