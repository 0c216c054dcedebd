//! Tests of the command line.

use super::*;
use crate::{
    ground::failure::Failure,
    settings::{DiskSettings, memory_plan::TotalMemory},
};
use clap::CommandFactory;
use larder_proxy::AccessLogTarget;
use larder_store::IoChoice;
use std::{ffi::OsString, time::Duration};

fn parse(arguments: &[&str]) -> Result<RunSettings, Failure> {
    let arguments: Vec<OsString> = ["larder", "run"].iter().chain(arguments).map(OsString::from).collect();
    let cli = Cli::try_parse_from(&arguments)
        .map_err(|error| failure(&error, arguments.clone()).expect("no help was requested"))?;
    let CliCommand::Run(flags) = cli.command else { panic!("the command was run") };
    let mut settings = RunSettings::default();
    flags.apply(&mut settings);
    Ok(settings)
}

#[test]
fn the_command_line_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn no_flags_are_the_defaults() {
    assert_eq!(format!("{:?}", parse(&[]).unwrap()), format!("{:?}", RunSettings::default()));
}

#[test]
fn flags_lie_over_the_settings() {
    let settings = parse(&[
        "--listen",
        "8080",
        "--listen",
        "[::1]:81",
        "--listen-tls",
        "8443",
        "--certificate",
        "a.pem,a.key",
        "--disk",
        "none",
        "--size",
        "2TB",
        "--memory",
        "256MiB",
        "--memory-cache",
        "16MiB",
        "--origin",
        "https://example.com",
        "--mean-object-size",
        "8KiB",
        "--workers",
        "3",
        "--access-log",
        "-",
        "--admin",
        "3180",
        "--allow-client",
        "10.0.0.0/8",
        "--allow-target",
        "127.0.0.0/8",
        "--intercept",
        "*.debian.org",
        "--io",
        "threads",
        "--policy",
        "log",
        "--tune",
        "reinsertion_share=0.5",
        "--drain-timeout",
        "3s",
    ])
    .unwrap();
    let RunSettings { proxy, store, drain, intercept, memory, memory_cache, .. } = settings;
    assert_eq!(intercept.hosts.hosts, ["*.debian.org".parse().unwrap()]);
    let tls = Listener::tls("127.0.0.1:8443".parse().unwrap());
    assert_eq!(proxy.listeners, ["127.0.0.1:8080".parse().unwrap(), "[::1]:81".parse().unwrap(), tls]);
    let identity = TlsIdentity { certificate: "a.pem".into(), key: "a.key".into() };
    assert_eq!(proxy.identities, [identity]);
    assert_eq!((memory, memory_cache), (TotalMemory::Bytes(256 << 20), Some(16 << 20)));
    assert_eq!(proxy.default_origin.unwrap().to_string(), "https://example.com:443");
    assert_eq!(proxy.worker_count, 3);
    assert_eq!(proxy.access_log, Some(AccessLogTarget::Stdout));
    assert_eq!(proxy.admin, Some("127.0.0.1:3180".parse().unwrap()));
    assert_eq!(proxy.clients, ["10.0.0.0/8".parse().unwrap()]);
    assert_eq!(proxy.targets.allow, ["127.0.0.0/8".parse().unwrap()]);
    assert_eq!(store.disks, [DiskSettings::None]);
    assert_eq!((store.row().unwrap().name, store.tuning.reinsertion_share), ("log", 0.5));
    assert_eq!((store.sizes, store.mean_object_size_bytes), (vec![Some(2_000_000_000_000)], Some(8192)));
    assert_eq!(store.io, IoChoice::Threads);
    assert_eq!(drain, Duration::from_secs(3));
}

#[test]
fn a_wrong_flag_is_told_in_our_words() {
    for (arguments, problem) in [
        (vec!["--size", "1XB"], "--size: unknown unit in size: `1XB`"),
        (vec!["--sise", "1GB"], "unknown flag or argument: `--sise`"),
        (vec!["--io", "magic"], "--io: unknown I/O method: `magic`"),
        (vec!["--io"], "a value is required for '--io <HOW>' but none was supplied"),
        (vec!["--workers", "0"], "--workers: not a number of threads: `0`"),
        (vec!["--disk", ""], "--disk: an empty path"),
        (vec!["--policy", "lru"], "--policy: unknown policy: `lru`"),
        (vec!["--tune", "sorted_reads=maybe"], "--tune: neither on nor off: `maybe`"),
        (vec!["extra"], "unknown flag or argument: `extra`"),
    ] {
        let found = parse(&arguments).err().map(|failure| failure.to_string());
        assert!(found.as_deref().is_some_and(|found| found.starts_with(problem)), "{arguments:?}: {found:?}");
    }
}
