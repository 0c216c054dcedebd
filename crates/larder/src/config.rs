//! The configuration file: TOML laid over the settings.
//!
//! Owns: which keys there are and what they set; docs/configuration.md lists them for people. Does not: know
//! defaults or rules between settings (those are in `settings`). Invariant: a file with an unknown key, a
//! value of the wrong type or a value out of range is refused with a caret under the place.

mod section;

use crate::{
    duration,
    failure::Failure,
    origin,
    settings::{AccessLog, Disk, Io, Settings, Site},
    size,
    value::{self, BadValue},
};
use section::{Problem, Section, Value};
use std::{fs, io::Read, path::Path};

/// Longest configuration file, so that a device or a video given by mistake is refused at once.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Reads `path` and lays it over `settings`.
///
/// # Errors
/// A runtime failure if the file cannot be read, a usage failure if something in it is wrong.
pub(crate) fn apply(path: &Path, settings: &mut Settings) -> Result<(), Failure> {
    let text = read(path)?;
    read_settings(&text, settings)
        .map_err(|wrong| Failure::usage(wrong.problem, wrong.help).at(path, &text, wrong.span, &wrong.label))
}

fn read(path: &Path) -> Result<String, Failure> {
    let help = "give an existing, readable text file to --config";
    let unreadable = |error| Failure::runtime(format!("cannot read configuration {}: {error}", path.display()), help);
    let mut text = String::new();
    let file = fs::File::open(path).map_err(unreadable)?;
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(unreadable)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        let problem =
            format!("a configuration of more than {} is none: {}", size::show(FILE_BYTES_MAX), path.display());
        return Err(Failure::usage(problem, help));
    }
    Ok(text)
}

fn read_settings(text: &str, settings: &mut Settings) -> Result<(), Problem> {
    let mut top = Section::parse(text)?;
    top.set("listen", &mut settings.listen, |value| each(value, "an address", value::listen_address))?;
    top.set("workers", &mut settings.workers, |value| value.parsed("a count", value::workers).map(Some))?;
    top.set("drain", &mut settings.drain, |value| value.parsed("a duration", duration::parse))?;
    top.table("store", |section| {
        let store = &mut settings.store;
        section.set("path", &mut store.disk, |value| value.parsed("a path", Disk::parse))?;
        section.set("size", &mut store.size_bytes, bytes)?;
        section.set("mean_object_size", &mut store.mean_object_size_bytes, bytes)?;
        section.set("io", &mut store.io, |value| value.parsed("auto, uring or threads", Io::parse))
    })?;
    top.table("memory", |section| section.set("hot", &mut settings.hot_bytes, bytes))?;
    top.set("allow_clients", &mut settings.allow_clients, |value| each(value, "a network", value::network))?;
    top.table("forward", |section| {
        let forward = &mut settings.forward;
        section.set("enabled", &mut forward.enabled, |value| value.boolean().map(Some))?;
        section.set("allow_targets", &mut forward.allow_targets, |value| each(value, "a network", value::network))?;
        section.set("connect_ports", &mut forward.connect_ports, |value| each(value, "a port", value::port))
    })?;
    settings.sites = top.tables("site", site)?;
    top.table("log", |section| {
        section.set("access", &mut settings.access_log, |value| value.parsed("a path", AccessLog::parse).map(Some))
    })?;
    top.table("admin", |section| {
        let admin = &mut settings.admin;
        section.set("listen", admin, |value| value.parsed("an address", value::listen_address).map(Some))
    })?;
    top.table("response", |section| {
        section.set("via", &mut settings.via, Value::boolean)?;
        section.set("cache_status", &mut settings.cache_status, Value::boolean)
    })?;
    top.finish()
}

fn site(section: &mut Section<'_>) -> Result<Site, Problem> {
    let hosts = section.take("hosts", |value| each(value, "a host name", value::host))?;
    let hosts = hosts.filter(|hosts| !hosts.is_empty());
    let hosts =
        hosts.ok_or_else(|| section.missing("hosts", "name the hosts, such as hosts = [\"www.example.com\"]"))?;
    let origin = section.take("origin", |value| value.parsed("a URL", origin::parse))?;
    let origin = origin
        .ok_or_else(|| section.missing("origin", "say where they live, such as origin = \"http://10.0.0.5:8080\""))?;
    Ok(Site { hosts, origin })
}

fn bytes(value: Value<'_>) -> Result<u64, Problem> {
    value.parsed("a size", size::parse)
}

fn each<T>(value: Value<'_>, what: &str, parse: impl Fn(&str) -> Result<T, BadValue>) -> Result<Vec<T>, Problem> {
    value.list(&format!("a list, each member {what}"), |member| member.parsed(what, &parse))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{path::PathBuf, time::Duration};

    fn parse(text: &str) -> Result<Settings, Problem> {
        let mut settings = Settings::default();
        read_settings(text, &mut settings).map(|()| settings)
    }

    #[test]
    fn an_empty_file_changes_nothing() {
        assert_eq!(parse("").unwrap(), Settings::default());
        assert_eq!(parse("[store]\n[memory]\n[forward]\n[log]\n[admin]\n[response]\n").unwrap(), Settings::default());
    }

    #[test]
    fn every_key_is_read() {
        let text = r#"
            listen = ["127.0.0.1:1", "81", 82]
            workers = 2
            drain = "3s"
            allow_clients = ["10.0.0.0/8"]
            [store]
            path = "/var/cache/larder"
            size = "2TB"
            mean_object_size = "8KiB"
            io = "threads"
            [memory]
            hot = "256MiB"
            [forward]
            enabled = true
            allow_targets = ["192.168.1.1"]
            connect_ports = [443, 8443]
            [[site]]
            hosts = ["A.example", "b.example"]
            origin = "http://127.0.0.1:9000"
            [[site]]
            hosts = ["c.example"]
            origin = "https://c.example/base"
            [log]
            access = "-"
            [admin]
            listen = 3180
            [response]
            via = false
            cache_status = false
        "#;
        let settings = parse(text).unwrap();
        let listen = ["127.0.0.1:1", "127.0.0.1:81", "127.0.0.1:82"].map(|address| address.parse().unwrap());
        assert_eq!(settings.listen, listen);
        assert_eq!(settings.workers, Some(2));
        assert_eq!(settings.drain, Duration::from_secs(3));
        assert_eq!(settings.allow_clients, ["10.0.0.0/8".parse().unwrap()]);
        assert_eq!(settings.store.disk, Disk::At(PathBuf::from("/var/cache/larder")));
        assert_eq!(settings.store.size_bytes, 2_000_000_000_000);
        assert_eq!(settings.store.mean_object_size_bytes, 8192);
        assert_eq!(settings.store.io, Io::Threads);
        assert_eq!(settings.hot_bytes, 256 << 20);
        assert_eq!(settings.forward.enabled, Some(true));
        assert_eq!(settings.forward.allow_targets, ["192.168.1.1/32".parse().unwrap()]);
        assert_eq!(settings.forward.connect_ports, [443, 8443]);
        assert_eq!(settings.sites.len(), 2);
        assert_eq!(settings.sites[0].hosts, ["a.example", "b.example"]);
        assert_eq!(settings.sites[1].origin.to_string(), "https://c.example:443/base");
        assert_eq!(settings.access_log, Some(AccessLog::Stdout));
        assert_eq!(settings.admin, Some("127.0.0.1:3180".parse().unwrap()));
        assert!(!settings.via && !settings.cache_status);
    }

    #[test]
    fn a_bad_member_of_a_list_is_pointed_at_alone() {
        for (text, at) in [
            ("listen = [\"3128\", \"x\"]", "\"x\""),
            ("[forward]\nallow_targets = [\"10.0.0.0/8\", \"lan\"]", "\"lan\""),
            ("[forward]\nconnect_ports = [443, 0]", "0"),
            ("[[site]]\nhosts = [\"a\", \"http://b\"]\norigin = \"http://c\"", "\"http://b\""),
        ] {
            let found = parse(text).unwrap_err();
            assert_eq!(&text[found.span], at, "{text}");
        }
    }

    #[test]
    fn a_site_needs_hosts_and_an_origin() {
        assert_eq!(parse("[[site]]\norigin = \"http://a\"").unwrap_err().problem, "[[site]] has no `hosts`");
        assert_eq!(
            parse("[[site]]\nhosts = []\norigin = \"http://a\"").unwrap_err().problem,
            "[[site]] has no `hosts`"
        );
        assert_eq!(parse("[[site]]\nhosts = [\"a\"]").unwrap_err().problem, "[[site]] has no `origin`");
    }
}
