//! Reads the keys about other machines of a fleet: load balancers in front, and the node's name.

use super::{section::ConfigSection, values::duration};
use crate::ground::value;
use larder_proxy::Fleet;
use std::time::Duration;

/// Reads the keys about a fleet into `fleet` and `drain_notice`.
pub(super) fn read(top: &mut ConfigSection<'_>, fleet: &mut Fleet, drain_notice: &mut Duration) {
    top.set("trusted_proxies", &mut fleet.trusted_proxies, |value| value.each("a network", value::network));
    top.set("client_field", &mut fleet.client_field, |value| value.parsed("a field name", value::client_field));
    top.set("ready_path", &mut fleet.ready_path, |value| value.parsed("a path", value::ready_path));
    top.set("drain_notice", drain_notice, duration);
    if let Some(node) = top.take("node", |value| value.parsed("a name", value::pseudonym)) {
        (fleet.node, fleet.shows_node) = (Some(node.into()), true);
    }
}
