//! HTTP/1.1 as octets, for connections with clients and with origins: heads, the framing of bodies, and encoding.
//!
//! Owns: the only reading of HTTP/1.1, and every refusal of it. No socket, clock or task: callers bring octets, and
//! decide when to read and write. Invariants: a message that is accepted has one framing in every interpretation of RFC
//! 9112. No part of a refused message is passed on. Cost: heads are copied once, at their length; bodies are passed on
//! by reference.

mod body;
mod chunk_extension;
mod encode;
mod fault;
mod head;
mod request;
mod target;

pub use body::{BodyDecoder, DecodedPart};
pub use encode::{
    BodyEncoder, OutgoingOctets, WrongLength, push_field, push_fields, push_interim_head, push_request_line,
    push_status_line,
};
pub use fault::WireFault;
pub use head::{HeadLimits, ResponseHead, parse_response};
pub use request::{RefusedHead, RequestHead, empty_lines_len, parse_request};
