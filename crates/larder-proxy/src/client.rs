//! Connections of clients, the responses sent on them, and their accounting.

pub(crate) mod answer;
pub(crate) mod certificates;
pub(crate) mod connection;
pub(crate) mod encoded;
pub(crate) mod floods;
pub(crate) mod flushed;
pub(crate) mod handed;
pub(crate) mod http1;
mod http1_door;
pub(crate) mod http2;
pub(crate) mod intercept;
pub(crate) mod interim;
pub(crate) mod opaque;
pub(crate) mod opening;
pub(crate) mod passwords;
pub(crate) mod peer;
pub(crate) mod peer_user;
pub(crate) mod proxied;
pub(crate) mod raw_frames;
pub(crate) mod response_body;
pub(crate) mod shed;
pub(crate) mod socket;
pub(crate) mod stream;
pub(crate) mod ticket;
