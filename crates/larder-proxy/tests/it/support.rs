//! The base of the tests: a scripted origin, a plain client, and a proxy between them, all on real sockets.

pub(crate) mod ailing_device;
pub(crate) mod bodies;
pub(crate) mod breaking_origin;
pub(crate) mod certificates;
pub(crate) mod client;
pub(crate) mod fixture;
pub(crate) mod gate;
pub(crate) mod http2;
pub(crate) mod http2_origin;
pub(crate) mod nodes;
pub(crate) mod origin;
pub(crate) mod ports;
pub(crate) mod raw_http2;
pub(crate) mod relay;
pub(crate) mod scripted_origin;
pub(crate) mod stream_server;
pub(crate) mod tls_origin;

pub(crate) use ailing_device::{Ailing, Ailment};
pub(crate) use bodies::body;
pub(crate) use client::{Connection, Response, request_text};
pub(crate) use fixture::{Fixture, eventually};
pub(crate) use gate::Gate;
pub(crate) use origin::{Origin, Received, Reply};
