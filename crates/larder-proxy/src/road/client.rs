//! A client as its requests see it: the facts about its connection, and what is sent to it.
//!
//! `door` opens the connections and fills these types. The road knows them only by these types.

pub(crate) mod answer;
pub(crate) mod encoded;
pub(crate) mod floods;
pub(crate) mod flushed;
pub(crate) mod http2_head;
pub(crate) mod interim;
pub(crate) mod opaque;
pub(crate) mod peer;
pub(crate) mod peer_user;
pub(crate) mod raw_frames;
pub(crate) mod response_body;
pub(crate) mod session;
pub(crate) mod socket;
pub(crate) mod ticket;
