//! Connections of clients: how they are opened, read and written, in HTTP/1.1 and HTTP/2, and how they end.

pub(crate) mod certificates;
pub(crate) mod connection;
pub(crate) mod http1;
mod http1_door;
pub(crate) mod http2;
pub(crate) mod opening;
pub(crate) mod passwords;
pub(crate) mod proxied;
pub(crate) mod shed;
pub(crate) mod stream;
