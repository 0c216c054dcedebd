//! Fields that an intermediary handles itself (RFC 9110 7): connection options, framing, routing and media types.

pub mod framing;
pub mod host;
pub mod via;

mod detach;
mod hop_by_hop;
mod max_forwards;
mod media_type;
mod names;
mod own;
mod read;
mod upgrade;

pub use crate::list::has_token;
pub use detach::detach;
pub use framing::{BodyLength, FramingError, check_request, check_response, settle_response};
pub use hop_by_hop::{is_hop_by_hop, strip_hop_by_hop, strip_named};
pub use host::{HostError, accepted_authority, check_host, effective_authority, host_lines};
pub use max_forwards::count_down;
pub use media_type::media_type;
pub use names::NameFilter;
pub use own::strip_own;
pub use read::Fields;
pub(crate) use read::unusual_lines;
pub use upgrade::asks_to_switch;
