//! The admin listener: `/metrics` and `/healthz`.
//!
//! Owns: the two pages. Does not: change anything. It has its own address, so that what is open to
//! clients and what is open to operators can differ.

use std::{convert::Infallible, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus_client::{encoding::text, registry::Registry};
use tokio::{net::TcpListener, sync::Semaphore};

use crate::{client::response_body::ResponseBody, metrics::Exposition};

/// What the pages show.
#[derive(Clone)]
pub(crate) struct Pages(Arc<Registry>);

impl Pages {
    pub(crate) fn new(exposition: Exposition) -> Self {
        Self(Arc::new(exposition.registry()))
    }

    fn answer(&self, request: &Request<Incoming>) -> Response<ResponseBody> {
        if request.method() != Method::GET && request.method() != Method::HEAD {
            return page(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n".into());
        }
        match request.uri().path() {
            "/healthz" => page(StatusCode::OK, "ok\n".into()),
            "/metrics" => {
                let mut text = String::new();
                match text::encode(&mut text, &self.0) {
                    Ok(()) => {
                        let mut response = page(StatusCode::OK, text.into());
                        let kind =
                            HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
                        response.headers_mut().insert(header::CONTENT_TYPE, kind);
                        response
                    }
                    Err(_) => page(StatusCode::INTERNAL_SERVER_ERROR, "the figures cannot be encoded\n".into()),
                }
            }
            _ => page(StatusCode::NOT_FOUND, "here are /metrics and /healthz\n".into()),
        }
    }
}

/// Serves the pages until aborted.
pub(crate) async fn serve(listener: TcpListener, pages: Pages) {
    let room = Arc::new(Semaphore::new(CONNECTION_COUNT_MAX));
    loop {
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return };
        let Ok((socket, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let pages = pages.clone();
        tokio::spawn(async move {
            let service = service_fn(|request| {
                let response = pages.answer(&request);
                async move { Ok::<_, Infallible>(response) }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADER_PATIENCE)
                .serve_connection(TokioIo::new(socket), service);
            if let Err(error) = connection.await {
                tracing::debug!(%error, "admin connection ended");
            }
            drop(permit);
        });
    }
}

fn page(status: StatusCode, text: Bytes) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::full(text));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

const CONNECTION_COUNT_MAX: usize = 64;
const HEADER_PATIENCE: Duration = Duration::from_secs(30);
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
