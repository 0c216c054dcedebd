//! Reads a `[[rate_limit]]` section of the configuration file, which limits the rate of responses to clients.

use super::{
    section::{ConfigProblem, ConfigSection, ConfigValue},
    values::bytes,
};
use crate::ground::value::{self, BadValue};
use larder_proxy::{RateLimit, RateSharing};

/// Reads a `[[rate_limit]]` section. A limit without a name is named after `number`.
pub(super) fn read(section: &mut ConfigSection<'_>, number: usize) -> Result<RateLimit, ConfigProblem> {
    let name = section.take("name", |value| value.parsed("a name", super::rule::name));
    let rate = section.take("rate", |value| value.parsed("a rate", value::rate));
    let help = "give bytes per second, such as rate = \"2MB\"";
    let limit = RateLimit {
        name: name.unwrap_or_else(|| format!("rate limit {number}")),
        clients: section.take("clients", |value| value.each("a network", value::network)).unwrap_or_default(),
        hosts: section.take("hosts", |value| value.each("a host", value::host_pattern)).unwrap_or_default(),
        rate: rate.ok_or_else(|| section.missing("rate", help))?,
        burst_bytes: section.take("burst", bytes),
        shared: section
            .take("for", |value: ConfigValue<'_>| value.parsed("all, each network or each client", sharing))
            .unwrap_or_default(),
    };
    if let Some(fault) = limit.fault() {
        let help = "give a limit such as rate = \"2MB\", clients = [\"10.0.0.0/8\"], for = \"each client\"";
        return Err(section.refused(BadValue::new(fault, help)));
    }
    Ok(limit)
}

fn sharing(text: &str) -> Result<RateSharing, BadValue> {
    match text {
        "all" => Ok(RateSharing::Together),
        "each network" => Ok(RateSharing::Network),
        "each client" => Ok(RateSharing::Client),
        _ => Err(BadValue::new(
            format!("unknown value for `for`: `{text}`"),
            "it can be all (they share the rate), each network (its clients share it) or each client",
        )),
    }
}
