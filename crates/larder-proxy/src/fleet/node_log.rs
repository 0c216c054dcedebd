//! Reads the log of purges of another node over HTTP.
//!
//! Owns: the connection, the request and the check of the response. Invariant: a response is accepted only if its code
//! proves that a node with the secret made it for this request, and if it is a valid part of a log (`message`).
//!
//! Cost: one connection per node, and one request per purge or per wait for one.

use std::{
    future::poll_fn,
    sync::Arc,
    time::{Duration, Instant},
};

use http::{HeaderValue, Request, StatusCode, header};
use larder_wire::HeadLimits;

use super::{
    connecting::{self, RESPONSE_PATIENCE},
    link::FleetLink,
    message::{self, LogQuery},
    secret,
    serving::{CODE_FIELD, FleetCredentials, response_parts},
    tls::FleetTls,
};
use crate::{
    ground::{
        cache::purges::{LogPosition, LogSlice, Purges},
        config::FleetNode,
        fault::FaultReport,
        watch::WorkerDeadlines,
    },
    origins::{
        http1::{Http1Body, Http1Connection},
        request_body::RequestBody,
        stream::{OriginStream, Transport},
    },
};

/// Reads the log of one other node.
pub(super) struct NodeLog {
    node: FleetNode,
    /// The connection to the node, kept open between requests.
    connection: Option<Http1Connection>,
}

impl NodeLog {
    pub(super) fn new(node: FleetNode) -> Self {
        Self { node, connection: None }
    }

    /// Reads the purges after `position`. If there are none, waits up to `wait` for one.
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

    /// Closes the connection, because a response on it failed.
    pub(super) fn disconnect(&mut self) {
        self.connection = None;
    }

    /// Requests a part of the log, and checks the response.
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

    /// Sends a request, on a new connection if none is open. Returns the status, the code and the body of the response.
    async fn exchange(
        &mut self,
        request: Request<RequestBody>,
        tls: Option<&FleetTls>,
    ) -> Result<(StatusCode, String, String), String> {
        let kept = self.connection.take_if(Http1Connection::is_free);
        let mut connection = match kept {
            Some(connection) => connection,
            None => connect(&self.node, tls).await?,
        };
        let mut exchange = connection.begin(request, None);
        let response = poll_fn(|context| exchange.poll_response(&mut connection, context)).await;
        let (head, body) = response.map_err(|fault| fault.to_string())?.into_parts();
        let code = head.headers.get(CODE_FIELD).and_then(|code| code.to_str().ok()).unwrap_or_default().to_owned();
        let body = whole(&mut connection, body).await?;
        self.connection = Some(connection);
        Ok((head.status, code, body))
    }
}

/// Opens a connection to a node, over TLS if the fleet uses it.
async fn connect(node: &FleetNode, tls: Option<&FleetTls>) -> Result<Http1Connection, String> {
    let socket = connecting::connect(&node.host, node.port).await.map_err(|error| error.to_string())?;
    let transport = match tls {
        Some(tls) => {
            let stream = tls.connect(socket, &node.host).await;
            Transport::Tls(Box::new(stream.map_err(|error| FaultReport::of_node_tls(&error).why)?))
        }
        None => Transport::Plain(socket),
    };
    // The whole exchange has a time limit, so the connection needs no deadline.
    let watched = Arc::new(Arc::<WorkerDeadlines>::default().register());
    Ok(Http1Connection::new(OriginStream::new(transport, watched, RESPONSE_PATIENCE), HEAD_LIMITS))
}

/// Reads a whole body as text. A body longer than [`BODY_BYTES_MAX`] is an error.
async fn whole(connection: &mut Http1Connection, mut body: Http1Body) -> Result<String, String> {
    let mut octets = Vec::new();
    let begun = Instant::now();
    while let Some(frame) = poll_fn(|context| body.poll_frame(Some(connection), context)).await {
        let Ok(data) = frame.map_err(|fault| fault.to_string())?.into_data() else { continue };
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

/// Maximum length of a response, in bytes. A response can hold all purges of one command, which name at most as many
/// tags as fit in a request's head.
pub(super) const BODY_BYTES_MAX: usize = 8 << 20;
const HEAD_LIMITS: HeadLimits = HeadLimits { bytes_max: 64 << 10, field_count_max: 100 };
/// Maximum number of characters of a refusal that the operator sees.
const SHOWN_CHARS: usize = 120;
