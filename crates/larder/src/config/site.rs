//! One `[[site]]` of the configuration file: hosts, and the origin or origins they live at.

use super::{
    duration, host_sent, origin,
    section::{Problem, Section, Value},
};
use crate::value::{self, BadValue};
use larder_proxy::{Balance, OriginUrl, Origins, Site};
use std::{collections::HashSet, sync::Arc, time::Duration};

/// Each of its hosts with its origins. `known` are the hosts of the sites before it.
pub(super) fn read(section: &mut Section<'_>, known: &mut HashSet<String>) -> Result<Vec<Site>, Problem> {
    let mut new_host = |text: &str| {
        let host = value::host(text)?;
        let help = "name each host once, in the [[site]] that says where it lives";
        let is_new = known.insert(host.clone());
        if is_new { Ok(host) } else { Err(BadValue::new(format!("a host with two sites: `{host}`"), help)) }
    };
    let what = "a list, each member a host name";
    let read = |value: Value<'_>| value.list(what, |member| member.parsed("a host name", &mut new_host));
    let hosts = section.take("hosts", read)?.filter(|hosts| !hosts.is_empty());
    let help = "name the hosts, such as hosts = [\"www.example.com\"]";
    let hosts = hosts.ok_or_else(|| section.missing("hosts", help))?;
    let one = section.take("origin", origin)?.map(|url| (url, 1));
    let several = section.tables("origins", member)?;
    let host_sent = section.take("origin_host", host_sent)?.unwrap_or_default();
    let parent = section.take("parent", |value| value.parsed("a URL", value::parent))?;
    let with_host = |(url, weight): (OriginUrl, u32)| {
        let url = url.with_host(host_sent.clone());
        (parent.iter().fold(url, |url, parent| url.by_parent(parent.clone())), weight)
    };
    let members: Vec<_> = one.into_iter().chain(several).map(with_host).collect();
    let help = "say where they live, such as origin = \"http://10.0.0.5:8080\"";
    let first = members.first().ok_or_else(|| section.missing("origin", help))?.0.clone();
    let mut origins = Origins { members, ..Origins::from(first) };
    section.set("balance", &mut origins.balance, |value| value.parsed("turns or hash", balance))?;
    let failures = &mut origins.failure_count_max;
    section.set("failures", failures, |value| value.parsed("a count", value::small_count))?;
    section.set("out", &mut origins.out, duration)?;
    let pause = section.take("check_interval", duration)?.unwrap_or(CHECK_PAUSE).max(Duration::from_millis(100));
    let path = section.take("check_path", |value| value.parsed("a path", check_path))?;
    origins.check = path.map(|path| (path, pause));
    if let Some(fault) = origins.fault() {
        let help = "the origins of a site hold the same, under the same path; a weight is from 1 to 100";
        return Err(section.refused(BadValue::new(fault, help)));
    }
    let origins = Arc::new(origins);
    Ok(hosts.into_iter().map(|host| Site { host, origins: Arc::clone(&origins) }).collect())
}

/// One of several origins.
fn member(section: &mut Section<'_>) -> Result<(OriginUrl, u32), Problem> {
    let url = section.take("url", origin)?;
    let url = url.ok_or_else(|| section.missing("url", "say where it is, such as url = \"http://10.0.0.5:8080\""))?;
    let weight = section.take("weight", |value| value.parsed("a weight", value::small_count))?;
    Ok((url, weight.unwrap_or(1)))
}

fn balance(text: &str) -> Result<Balance, BadValue> {
    match text {
        "turns" => Ok(Balance::Turns),
        "hash" => Ok(Balance::Hash),
        _ => Err(BadValue::new(format!("not a way to balance: `{text}`"), "it can be turns or hash")),
    }
}

fn check_path(text: &str) -> Result<String, BadValue> {
    let bad = || BadValue::new(format!("not a path: `{text}`"), "a path begins with a slash, such as /health");
    text.starts_with('/').then(|| text.to_owned()).ok_or_else(bad)
}

/// Time between two checks, unless another is given.
const CHECK_PAUSE: Duration = Duration::from_secs(10);
