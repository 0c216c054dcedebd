//! Sends a command to a running proxy's admin listener or control socket, and reads the response.
//!
//! Owns: finding the proxy, and the connection with its limits. The commands are elsewhere. Invariant: only the body of
//! a 200 is returned.

use crate::{
    ground::{failure::Failure, value},
    run::control::{self, ControlAnswer, ControlPath, ControlRequest, SILENCE_MAX},
};
use clap::Args;
use serde_json::Value;
use std::{
    env, fs,
    io::{self, BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    path::Path,
};

/// The flags that select the proxy to contact.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct AdminFlags {
    /// The proxy's admin listener (its --admin) [default: your running larder; otherwise 127.0.0.1:3180]
    #[arg(long, value_name = "ADDRESS", value_parser = value::listen_address)]
    admin: Option<SocketAddr>,
}

impl AdminFlags {
    /// Returns whether the flag `--admin` was given.
    pub(crate) fn is_named(self) -> bool {
        self.admin.is_some()
    }
}

/// The admin listener to connect to if `--admin` is not given and this user runs no proxy.
const DEFAULT_ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 3180);

/// Sends a request without a body, and returns the text of the response. `fields` are the request's additional field
/// lines, each with its line end.
///
/// # Errors
/// A runtime failure if the proxy is unreachable or refuses.
pub(crate) fn ask(admin: AdminFlags, request: &str, fields: &str) -> Result<String, Failure> {
    let mut connection = connect(admin)?;
    let fields = format!("{fields}{}", credentials(admin)?);
    let text = exchange(&mut *connection.stream, request, &fields)
        .map_err(|error| connection.broken("the proxy does not respond", &error))?;
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let why = body.trim();
    match head.split(' ').nth(1) {
        Some("200") => Ok(body.to_owned()),
        Some("503") => {
            let help =
                "the store's disk, or the log of the fleet, may be full or failing; repeat the command when it works";
            Err(Failure::runtime(format!("the proxy failed to do it: {why}"), help))
        }
        Some("401" | "403") => {
            let help = format!("set {TOKEN_FILE} to a file with a token of the right role");
            Err(Failure::runtime(format!("the proxy refused the command: {why}"), help))
        }
        _ => Err(Failure::runtime(
            format!("the proxy refused the command: {why}"),
            "check the admin listener's address and the URL",
        )),
    }
}

/// An event that the proxy reports while it runs a long command.
pub(crate) enum ProgressEvent<'a> {
    /// The proxy has completed `done` units of work, out of `of`.
    Progress { done: u64, of: u64 },
    /// The proxy sent a line of the result, as JSON.
    Line(&'a Value),
    /// The proxy sent bytes of the result.
    Data(&'a [u8]),
}

/// The body of a request, and its length.
pub(crate) struct SentBody<'a> {
    pub(crate) len_bytes: u64,
    pub(crate) reader: &'a mut dyn Read,
}

/// Runs a long command on a proxy. Sends `sent` as the request's body, calls `tell` with each event, and returns the
/// final result.
///
/// # Errors
/// The same as for [`ask`]; the proxy's error; the error that `tell` returns.
pub(crate) fn converse(
    admin: AdminFlags,
    request: &str,
    sent: SentBody<'_>,
    tell: &mut dyn FnMut(ProgressEvent<'_>) -> Result<(), Failure>,
) -> Result<Value, Failure> {
    let AdminConnection { stream: mut connection, place } = connect(admin)?;
    let broken = |error: io::Error| broken(&place, "the proxy's response broke off", &error);
    // The request is HTTP/1.0, so that the response's body ends with the connection.
    let length = sent.len_bytes;
    let credentials = credentials(admin)?;
    let head = format!("{request} HTTP/1.0\r\nHost: localhost\r\n{credentials}Content-Length: {length}\r\n\r\n");
    connection.write_all(head.as_bytes()).map_err(broken)?;
    // The proxy may stop reading early and close the connection, which makes the copy fail. Its response, read below,
    // says why.
    let _ = io::copy(&mut sent.reader.take(sent.len_bytes), &mut connection);
    let mut answer = BufReader::with_capacity(ANSWER_BUFFER_BYTES, connection);
    let mut status = String::new();
    (&mut answer).take(LINE_BYTES_MAX).read_line(&mut status).map_err(broken)?;
    let mut line = String::new();
    while {
        line.clear();
        (&mut answer).take(LINE_BYTES_MAX).read_line(&mut line).map_err(broken)? > 2
    } {}
    if status.split(' ').nth(1) != Some("200") {
        let mut why = String::new();
        // If reading fails, the part of the response that arrived is shown.
        let _ = answer.take(LINE_BYTES_MAX).read_to_string(&mut why);
        let help = "check the admin listener's address, and use the same version of larder on both ends";
        return Err(Failure::runtime(format!("the proxy refused the command: {}", why.trim()), help));
    }
    loop {
        let value = match read_piece(&mut answer).map_err(broken)? {
            AnswerPiece::Line(value) => value,
            AnswerPiece::Data(bytes) => {
                tell(ProgressEvent::Data(&bytes))?;
                continue;
            }
        };
        if let Some(done) = value.get("done") {
            return Ok(done.clone());
        }
        if let Some(failed) = value.get("failed") {
            let text = |name: &str| failed[name].as_str().unwrap_or_default().to_owned();
            return Err(Failure::runtime(text("problem"), text("help")));
        }
        match (value["progress"]["done"].as_u64(), value["progress"]["of"].as_u64()) {
            (Some(done), Some(of)) => tell(ProgressEvent::Progress { done, of })?,
            _ => tell(ProgressEvent::Line(&value))?,
        }
    }
}

enum AnswerPiece {
    Line(Value),
    Data(Vec<u8>),
}

/// Reads one piece of a response: its kind, its length and its bytes. The proxy's module `progress` defines this
/// framing.
fn read_piece(answer: &mut impl Read) -> io::Result<AnswerPiece> {
    let mut head = [0; 5];
    answer.read_exact(&mut head)?;
    let len_bytes = u32::from_le_bytes([head[1], head[2], head[3], head[4]]);
    let wrong = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    if u64::from(len_bytes) > PIECE_BYTES_MAX {
        return Err(wrong("a chunk of the response is too long"));
    }
    let mut bytes = vec![0; len_bytes as usize];
    answer.read_exact(&mut bytes)?;
    match head[0] {
        b'D' => Ok(AnswerPiece::Data(bytes)),
        b'L' => Ok(AnswerPiece::Line(serde_json::from_slice(&bytes)?)),
        _ => Err(wrong("the response is not one of this version of larder")),
    }
}

/// Returns the field line with the token for the admin listener. The environment variable [`TOKEN_FILE`] names the file
/// that contains the token. The result is empty if `--admin` is not given, or if the variable is not set.
///
/// # Errors
/// The file is unreadable, or contains no token.
fn credentials(admin: AdminFlags) -> Result<String, Failure> {
    let Some(path) = env::var_os(TOKEN_FILE).filter(|_| admin.admin.is_some()) else { return Ok(String::new()) };
    let help = format!("{TOKEN_FILE} must name a file that contains only a token, one of the proxy's [admin] tokens");
    let shown = Path::new(&path).display().to_string();
    let text = fs::read_to_string(&path)
        .map_err(|error| Failure::runtime(format!("cannot read the token: {error}: {shown}"), help.clone()))?;
    let token = text.trim();
    if token.is_empty() || !token.bytes().all(|octet| octet.is_ascii_graphic()) {
        return Err(Failure::runtime(format!("the file contains no token: {shown}"), help));
    }
    Ok(format!("Authorization: Bearer {token}\r\n"))
}

/// The environment variable that names the file of the token for `--admin ADDRESS`. There is no flag for it, because
/// other users of the machine could see a flag's value.
const TOKEN_FILE: &str = "LARDER_TOKEN_FILE";

/// A stream to a proxy. Each read and each write fails after the time limit [`SILENCE_MAX`].
trait AdminStream: Read + Write {}

impl<T: Read + Write> AdminStream for T {}

/// A connection to a proxy. Error messages name its `place`.
struct AdminConnection {
    stream: Box<dyn AdminStream>,
    /// The proxy's address, or the path of its control socket.
    place: String,
}

impl AdminConnection {
    fn broken(&self, problem: &str, error: &io::Error) -> Failure {
        broken(&self.place, problem, error)
    }
}

/// Makes the failure for an error on a connection to the proxy at `place`.
fn broken(place: &str, problem: &str, error: &io::Error) -> Failure {
    if control::is_late(error) {
        return control::silent(place);
    }
    let help = "the proxy may be stopping, or its disk may not respond; see its standard error";
    Failure::runtime(format!("{problem}: {error}"), help)
}

/// Connects to a proxy: to the one at the address in `admin`, otherwise to this user's running proxy, otherwise to the
/// one at the default address.
///
/// # Errors
/// There is no such proxy, or it does not respond.
fn connect(admin: AdminFlags) -> Result<AdminConnection, Failure> {
    if admin.admin.is_none()
        && let Some(mut control) = ControlPath::connect_any()?
        && let Ok(ControlAnswer::Operate) = control.ask_or_fail(&ControlRequest::Operate)?
    {
        let place = control.place();
        return Ok(AdminConnection { stream: Box::new(control.into_stream()), place });
    }
    let address = admin.admin.unwrap_or(DEFAULT_ADDRESS);
    let connect = || {
        let socket = TcpStream::connect_timeout(&address, SILENCE_MAX)?;
        socket.set_read_timeout(Some(SILENCE_MAX))?;
        socket.set_write_timeout(Some(SILENCE_MAX))?;
        Ok(socket)
    };
    let socket = connect().map_err(|error: io::Error| match admin.admin {
        Some(_) => {
            let help = "start the proxy with --admin, and give that address to --admin here";
            Failure::runtime(format!("cannot connect to the admin listener: {error}: {address}"), help)
        }
        None => {
            let help = "start one with larder run; if another user runs it, it must have an admin listener: give its \
                        address with --admin ADDRESS";
            Failure::runtime(
                format!("no larder of yours is running, and none has its admin listener at {address}"),
                help,
            )
        }
    })?;
    Ok(AdminConnection { stream: Box::new(socket), place: address.to_string() })
}

fn exchange(socket: &mut dyn AdminStream, request: &str, fields: &str) -> io::Result<String> {
    let head = format!("{request} HTTP/1.1\r\nHost: localhost\r\n{fields}Connection: close\r\n\r\n");
    socket.write_all(head.as_bytes())?;
    let mut text = Vec::new();
    socket.take(ANSWER_BYTES_MAX).read_to_end(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

const ANSWER_BUFFER_BYTES: usize = 256 << 10;
const LINE_BYTES_MAX: u64 = 64 << 10;
/// Maximum length of one piece of a response, in bytes. A line contains a URL, and data comes in pieces of 256 KiB.
const PIECE_BYTES_MAX: u64 = 1 << 20;
/// Maximum length of a response, in bytes. A full list of missing URLs has a few MiB.
const ANSWER_BYTES_MAX: u64 = 64 << 20;
