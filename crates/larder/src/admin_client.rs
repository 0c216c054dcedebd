//! One short exchange with a running proxy's admin listener, for the commands that are answered there.
//!
//! Owns: the socket and its bounds. Does not: know what is asked. Invariant: what is given back is what a 200 brought.

use crate::failure::Failure;
use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

/// Where `--admin` of a proxy that says nothing else is.
pub(crate) const DEFAULT_ADDRESS: &str = "127.0.0.1:3180";

/// Checks that a text is a URL that can be asked about.
///
/// # Errors
/// A usage failure for what is none.
pub(crate) fn check_url(url: &str) -> Result<(), Failure> {
    let is_url = url.starts_with("http://") || url.starts_with("https://");
    if is_url && url.bytes().all(|octet| octet.is_ascii_graphic()) {
        return Ok(());
    }
    let help = "write it as it was asked for, such as http://example.com/style.css";
    Err(Failure::usage(format!("not a URL: `{url}`"), help))
}

/// The text that answers a request with these field lines, each with its line's end.
///
/// # Errors
/// A runtime failure if the proxy cannot be reached or refuses.
pub(crate) fn ask(admin: SocketAddr, request: &str, fields: &str) -> Result<String, Failure> {
    let text = exchange(admin, request, fields).map_err(|error| {
        let help = "start the proxy with --admin, and give that address to --admin here";
        Failure::runtime(format!("cannot ask the proxy: {error}: {admin}"), help)
    })?;
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let why = body.trim();
    match head.split(' ').nth(1) {
        Some("200") => Ok(body.to_owned()),
        Some("503") => {
            let help = "the disk of its store may be full, read-only or failing; ask again when that is mended";
            Err(Failure::runtime(format!("the proxy could not do it: {why}"), help))
        }
        _ => Err(Failure::runtime(format!("the proxy refuses: {why}"), "see the admin listener's address and the URL")),
    }
}

fn exchange(admin: SocketAddr, request: &str, fields: &str) -> std::io::Result<String> {
    let mut socket = TcpStream::connect_timeout(&admin, PATIENCE)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.set_write_timeout(Some(PATIENCE))?;
    let head = format!("{request} HTTP/1.1\r\nHost: {admin}\r\n{fields}Connection: close\r\n\r\n");
    socket.write_all(head.as_bytes())?;
    let mut text = Vec::new();
    socket.take(ANSWER_BYTES_MAX).read_to_end(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

const PATIENCE: Duration = Duration::from_secs(10);
const ANSWER_BYTES_MAX: u64 = 1 << 20;
