//! `larder purge`: has a running proxy forget what it stored.
//!
//! Owns: the flags, and one short exchange with the proxy's admin listener for each URL. Does not: forget anything itself.
//! Invariant: it says that something is purged only if the proxy said so.

use crate::{failure::Failure, value};
use clap::Args;
use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

const EXAMPLES: &str = "\
Examples:
  larder purge http://example.com/style.css
  larder purge --site http://example.com/
  larder purge --admin 127.0.0.1:3180 --all";

/// The flags of `larder purge`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PurgeFlags {
    /// The proxy's admin listener (its --admin).
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:3180", value_parser = value::listen_address)]
    admin: SocketAddr,

    /// Forget everything of each URL's host, whatever its port and path.
    #[arg(long, conflicts_with = "all")]
    site: bool,

    /// Forget everything.
    #[arg(long, conflicts_with = "urls")]
    all: bool,

    /// The URL to forget, with all its variants
    #[arg(value_name = "URL", required_unless_present = "all")]
    urls: Vec<String>,
}

/// Runs it.
///
/// # Errors
/// A usage failure for what is no URL; a runtime failure if the proxy cannot be reached or refuses.
pub(crate) fn run(flags: &PurgeFlags) -> Result<(), Failure> {
    if flags.all {
        return purge(flags.admin, "http://all.invalid/", "all");
    }
    let scope = if flags.site { "site" } else { "url" };
    for url in &flags.urls {
        let is_url = url.starts_with("http://") || url.starts_with("https://");
        if !is_url || !url.bytes().all(|octet| octet.is_ascii_graphic()) {
            let help = "write it as it was asked for, such as http://example.com/style.css";
            return Err(Failure::usage(format!("not a URL: `{url}`"), help));
        }
        purge(flags.admin, url, scope)?;
    }
    Ok(())
}

fn purge(admin: SocketAddr, url: &str, scope: &str) -> Result<(), Failure> {
    let text = exchange(admin, url, scope).map_err(|error| {
        let help = "start the proxy with --admin, and give that address to --admin here";
        Failure::runtime(format!("cannot ask the proxy: {error}: {admin}"), help)
    })?;
    let (head, why) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    if head.split(' ').nth(1) == Some("200") {
        return Ok(());
    }
    Err(Failure::runtime(
        format!("the proxy did not purge: {}", why.trim()),
        "see the admin listener's address and the URL",
    ))
}

fn exchange(admin: SocketAddr, url: &str, scope: &str) -> std::io::Result<String> {
    let mut socket = TcpStream::connect_timeout(&admin, PATIENCE)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.set_write_timeout(Some(PATIENCE))?;
    let head = format!("PURGE {url} HTTP/1.1\r\nHost: {admin}\r\nPurge-Scope: {scope}\r\nConnection: close\r\n\r\n");
    socket.write_all(head.as_bytes())?;
    let mut text = Vec::new();
    socket.take(ANSWER_BYTES_MAX).read_to_end(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

const PATIENCE: Duration = Duration::from_secs(10);
const ANSWER_BYTES_MAX: u64 = 64 << 10;
