//! Reads a `[[site]]` section of the configuration file: the requests that it matches, their origins, and what it
//! overrides of the general policy.

use super::{
    section::{ConfigProblem, ConfigSection},
    table,
    values::{duration, duration_from, host_sent, origin, proxy_protocol},
};
use crate::ground::value::{self, BadValue};
use larder_proxy::{Balance, GroupRules, OriginUrl, Origins, Site, SitePolicy};
use std::{collections::HashSet, sync::Arc, time::Duration};

/// The names and hosts of the sites that were read so far.
#[derive(Default)]
pub(super) struct KnownSites {
    /// Hosts of sites that match all paths and listeners. Another site with such a host would never match.
    hosts: HashSet<String>,
    count: usize,
}

/// Reads a `[[site]]` section. Settings that the site does not override come from `general`.
pub(super) fn read(
    section: &mut ConfigSection<'_>,
    known: &mut KnownSites,
    general: &SitePolicy,
) -> Result<Site, ConfigProblem> {
    known.count += 1;
    let paths = section.take("paths", |value| value.each("a path", check_path)).unwrap_or_default();
    let listeners = section.take("listeners", |value| value.each("an address", value::listen_address));
    let listeners = listeners.unwrap_or_default();
    // If a path or listener is invalid, it is unknown whether the site matches all requests for its hosts.
    let is_of_all = paths.is_empty() && listeners.is_empty() && !section.has_problems();
    let mut new_host = |text: &str| {
        let host = value::site_host(text)?;
        let help = "name each host once, or in an earlier [[site]] with `paths` or `listeners`: the first match \
                    applies";
        let is_new = if is_of_all { known.hosts.insert(host.clone()) } else { !known.hosts.contains(&host) };
        if is_new { Ok(host) } else { Err(BadValue::new(format!("two sites have the same host: `{host}`"), help)) }
    };
    let hosts = section.take("hosts", |value| value.each("a host name", &mut new_host)).unwrap_or_default();
    if hosts.is_empty() && is_of_all {
        let help = "give the hosts, such as hosts = [\"www.example.com\"], or `paths` or `listeners`";
        return Err(section.missing("hosts", help));
    }
    let name = section.take("name", |value| value.parsed("a name", super::rule::name));
    let name = name.unwrap_or_else(|| match hosts.first() {
        Some(host) => format!("{host}{}", paths.first().map_or("", String::as_str)),
        None => format!("site {}", known.count),
    });
    let policy = read_policy(section, general);
    let origins = read_origins(section, policy.is_some())?;
    if origins.is_some() && !listeners.is_empty() {
        let help = "all listeners share stored responses: remove `origin` or `listeners`";
        return Err(section.refused(BadValue::new("a site with `listeners` cannot have an origin", help)));
    }
    Ok(Site { name, hosts, paths, listeners, origins: origins.map(Arc::new), policy })
}

/// Reads the sections in which a site overrides the general policy, such as `[site.cache]`.
///
/// The table of settings says which keys these sections have. Returns `None` if the site has no such section.
fn read_policy(section: &mut ConfigSection<'_>, general: &SitePolicy) -> Option<SitePolicy> {
    let mut policy = None;
    for (name, keys) in table::sections_of_sites() {
        section.table(name, |section| {
            let own = policy.get_or_insert_with(|| general.clone());
            for (key, read) in keys {
                section.take(key, |value| read(own, value));
            }
            Ok(())
        });
    }
    policy
}

/// Reads the origins of a site. `is_enough` is true if the site's other settings suffice, so that it may have no
/// origin.
fn read_origins(section: &mut ConfigSection<'_>, is_enough: bool) -> Result<Option<Origins>, ConfigProblem> {
    let one = section.take("origin", origin).map(|url| (url, 1));
    let several = section.tables("origins", member);
    let host_sent = section.take("preserve_host", host_sent).unwrap_or_default();
    let sends_header = section.take("proxy_protocol", proxy_protocol).unwrap_or_default();
    let parent = section.take("parent", |value| value.parsed("a URL", value::parent));
    let with_host = |(url, weight): (OriginUrl, u32)| {
        let url = url.with_host(host_sent.clone()).with_proxy_header(sends_header);
        (parent.iter().fold(url, |url, parent| url.by_parent(parent.clone())), weight)
    };
    let members: Vec<_> = one.into_iter().chain(several).map(with_host).collect();
    let help = "give the origin, such as origin = \"http://10.0.0.5:8080\", or settings of the site in [site.cache] or [site.limits]";
    let first = match members.first() {
        Some((first, _)) => first.clone(),
        None if is_enough => return Ok(None),
        None => return Err(section.missing("origin", help)),
    };
    let mut origins = Origins { members, ..Origins::from(first) };
    read_group(section, &mut origins.rules);
    if let Some(fault) = origins.fault() {
        let help = "all origins of a site must have the same path, a weight is from 1 to 100, and `proxy_protocol` \
                    excludes `parent`";
        return Err(section.refused(BadValue::new(fault, help)));
    }
    Ok(Some(origins))
}

/// Reads the rules by which a member of a group is chosen or excluded. The members are origins or parents.
pub(super) fn read_group(section: &mut ConfigSection<'_>, rules: &mut GroupRules) {
    section.set("balance", &mut rules.balance, |value| value.parsed("round_robin or consistent_hash", balance));
    let failures = &mut rules.failure_count_max;
    section.set("max_fails", failures, |value| value.parsed("a count", value::small_count));
    section.set("fail_timeout", &mut rules.out, duration);
    let pause = section.take("check_interval", |value| duration_from(value, CHECK_PAUSE_MIN)).unwrap_or(CHECK_PAUSE);
    let path = section.take("check_path", |value| value.parsed("a path", check_path));
    rules.check = path.map(|path| (path, pause));
}

/// Reads the weight of a group's member. Default: 1.
pub(super) fn weight(section: &mut ConfigSection<'_>) -> u32 {
    section.take("weight", |value| value.parsed("a weight", value::small_count)).unwrap_or(1)
}

/// Reads a `[[site.origins]]` section: an origin's URL and weight.
fn member(section: &mut ConfigSection<'_>) -> Result<(OriginUrl, u32), ConfigProblem> {
    let url = section.take("url", origin);
    let url =
        url.ok_or_else(|| section.missing("url", "give the origin's URL, such as url = \"http://10.0.0.5:8080\""))?;
    Ok((url, weight(section)))
}

fn balance(text: &str) -> Result<Balance, BadValue> {
    match text {
        "round_robin" => Ok(Balance::RoundRobin),
        "consistent_hash" => Ok(Balance::ConsistentHash),
        _ => Err(BadValue::new(
            format!("unknown value for `balance`: `{text}`"),
            "it can be round_robin or consistent_hash",
        )),
    }
}

fn check_path(text: &str) -> Result<String, BadValue> {
    let bad = || BadValue::new(format!("not a path: `{text}`"), "a path begins with a slash, such as /health");
    text.starts_with('/').then(|| text.to_owned()).ok_or_else(bad)
}

/// Minimum interval between two health checks.
const CHECK_PAUSE_MIN: Duration = Duration::from_millis(100);

/// Default interval between two health checks.
const CHECK_PAUSE: Duration = Duration::from_secs(10);
