//! The format of access log lines: Squid's, Apache's common and combined, JSON, or custom fields.
//!
//! Owns: the content of a line and its encoding. `access_log` writes the file. Invariants: untrusted data stays on its
//! line and within its field. A malformed format is refused at start with a description of the error. Custom formats
//! use the directives of Apache's LogFormat.

mod reading;

use std::{
    fmt,
    io::{self, Write},
    str::FromStr,
};

use http::HeaderName;
use jiff::Zoned;
use serde::Serialize;

use crate::figures::access_log::OpenLogLine;

/// The format of access log lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFormat {
    /// The format as it was configured.
    text: String,
    form: LineForm,
    /// The request fields that the format contains.
    pub(crate) request_fields: Vec<HeaderName>,
    /// The response fields that the format contains.
    pub(crate) response_fields: Vec<HeaderName>,
}

/// Error: the configured format is invalid. The text says why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidLogFormat(String);

#[derive(Clone, Debug, PartialEq, Eq)]
enum LineForm {
    Squid,
    Json,
    Pieces(Vec<LinePiece>),
}

/// A part of a log line: text, or a directive of the format.
#[derive(Clone, Debug, PartialEq, Eq)]
enum LinePiece {
    Text(String),
    /// `%h` or `%a`: the client's address.
    Client,
    /// `%u`: the user.
    User,
    /// `%t`: the time, as Apache writes it.
    Time,
    /// `%{unix}t`: the Unix time in seconds, with three decimals.
    UnixTime,
    /// `%{iso}t`: the time in ISO 8601.
    IsoTime,
    /// `%r`: the request line.
    RequestLine,
    /// `%m`: the request's method.
    Method,
    /// `%U`: the request's URL.
    Url,
    /// `%H`: the request's HTTP version.
    Protocol,
    /// `%s` or `%>s`: the response's status.
    Status,
    /// `%b`: length of the body in bytes, or `-` if it is empty.
    BytesOrNone,
    /// `%B`: length of the body in bytes.
    Bytes,
    /// `%O`: length of head and body together, in bytes.
    AllBytes,
    /// `%D`: duration in microseconds.
    Micros,
    /// `%{ms}T`: duration in milliseconds.
    Millis,
    /// `%T`: duration in seconds.
    Seconds,
    /// `%{Name}i`: a request field, by its index in `request_fields`.
    RequestField(usize),
    /// `%{Name}o`: a response field, by its index in `response_fields`.
    ResponseField(usize),
    /// `%X`: `X` if the exchange was broken off, otherwise `-`.
    Broken,
    /// `%{outcome}x`: the outcome as Squid's code, such as `TCP_HIT`.
    Outcome,
    /// `%{result}x`: the kind of outcome, such as `hit`.
    Result,
    /// `%{reason}x`: why the response was a miss.
    Reason,
    /// `%{steps}x`: the steps of the request and their verdicts.
    Steps,
    /// `%{origin}x`: the origin that was contacted.
    Origin,
    /// `%{node}x`: the name of this node in its fleet.
    Node,
    /// `%l`: the remote login name, which is always unknown.
    Unknown,
}

/// The fields of a log line in JSON.
#[derive(Serialize)]
struct JsonLine<'a> {
    time: String,
    client: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<&'a str>,
    method: &'a str,
    url: &'a str,
    protocol: String,
    status: u16,
    bytes: u64,
    head_bytes: u64,
    duration_ms: f64,
    outcome: &'a str,
    result: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    steps: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    origin: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_type: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    referer: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user_agent: Option<&'a str>,
    complete: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<&'a str>,
}

/// Facts about a response that are known when it has been sent or broken off.
#[derive(Clone, Copy)]
pub(crate) struct SentResponse {
    pub(crate) bytes: u64,
    pub(crate) complete: bool,
}

impl LogFormat {
    /// Writes one line of the log.
    ///
    /// # Errors
    /// Returns the errors of `out`.
    pub(crate) fn write(&self, out: &mut impl Write, line: &OpenLogLine, sent: SentResponse) -> io::Result<()> {
        match &self.form {
            LineForm::Squid => write_squid(out, line, sent)?,
            LineForm::Json => serde_json::to_writer(&mut *out, &JsonLine::of(line, sent))?,
            LineForm::Pieces(pieces) => pieces.iter().try_for_each(|piece| piece.write(out, line, sent))?,
        }
        out.write_all(b"\n")
    }
}

impl Default for LogFormat {
    /// Returns the format of Squid's access log.
    fn default() -> Self {
        Self {
            text: "squid".to_owned(),
            form: LineForm::Squid,
            request_fields: Vec::new(),
            response_fields: Vec::new(),
        }
    }
}

impl FromStr for LogFormat {
    type Err = InvalidLogFormat;

    fn from_str(text: &str) -> Result<Self, InvalidLogFormat> {
        reading::read(text)
    }
}

impl fmt::Display for LogFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Display for InvalidLogFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for InvalidLogFormat {}

impl LinePiece {
    fn write(&self, out: &mut impl Write, line: &OpenLogLine, sent: SentResponse) -> io::Result<()> {
        let elapsed = || line.started.elapsed();
        match self {
            Self::Text(text) => out.write_all(text.as_bytes()),
            Self::Client => write!(out, "{}", line.client),
            Self::User => write_word(out, line.user.as_deref().unwrap_or("-")),
            Self::Time => write!(out, "[{}]", Zoned::now().strftime("%d/%b/%Y:%H:%M:%S %z")),
            Self::UnixTime => write!(out, "{:.3}", Zoned::now().timestamp().as_millisecond() as f64 / 1000.0),
            Self::IsoTime => write!(out, "{}", iso_now()),
            Self::RequestLine => {
                write!(out, "{} ", line.method)?;
                write_word(out, &line.url)?;
                write!(out, " {:?}", line.version)
            }
            Self::Method => write!(out, "{}", line.method),
            Self::Url => write_word(out, &line.url),
            Self::Protocol => write!(out, "{:?}", line.version),
            Self::Status => write!(out, "{}", line.status.as_u16()),
            Self::BytesOrNone if sent.bytes == 0 => out.write_all(b"-"),
            Self::BytesOrNone | Self::Bytes => write!(out, "{}", sent.bytes),
            Self::AllBytes => write!(out, "{}", line.head_bytes + sent.bytes),
            Self::Micros => write!(out, "{}", elapsed().as_micros()),
            Self::Millis => write!(out, "{}", elapsed().as_millis()),
            Self::Seconds => write!(out, "{}", elapsed().as_secs()),
            Self::RequestField(at) => write_quotable(out, line.request_fields.get(*at)),
            Self::ResponseField(at) => write_quotable(out, line.response_fields.get(*at)),
            Self::Broken => out.write_all(if sent.complete { b"-" } else { b"X" }),
            Self::Outcome => write!(out, "{}", line.outcome.squid_code()),
            Self::Result => write!(out, "{}", line.outcome.kind().token()),
            Self::Reason => write!(out, "{}", line.why.map_or("-", |why| why.token())),
            Self::Steps => write!(out, "{}", line.steps),
            Self::Origin => write_word(out, line.origin.as_deref().unwrap_or("-")),
            Self::Node => write_word(out, line.node.as_deref().unwrap_or("-")),
            Self::Unknown => out.write_all(b"-"),
        }
    }
}

impl<'a> JsonLine<'a> {
    fn of(line: &'a OpenLogLine, sent: SentResponse) -> Self {
        let field = |at: usize| line.request_fields.get(at)?.as_deref();
        Self {
            time: iso_now(),
            client: line.client.to_string(),
            user: line.user.as_deref(),
            method: line.method.as_str(),
            url: &line.url,
            protocol: format!("{:?}", line.version),
            status: line.status.as_u16(),
            bytes: sent.bytes,
            head_bytes: line.head_bytes,
            duration_ms: line.started.elapsed().as_micros() as f64 / 1000.0,
            outcome: line.outcome.squid_code(),
            result: line.outcome.kind().token(),
            reason: line.why.map(|why| why.token()),
            steps: &line.steps,
            origin: line.origin.as_deref(),
            content_type: line.content_type.as_deref(),
            referer: field(0),
            user_agent: field(1),
            complete: sent.complete,
            node: line.node.as_deref(),
        }
    }
}

/// Writes a line in Squid's format: `time.ms elapsed client code/status bytes method URL user hierarchy/peer type`.
fn write_squid(out: &mut impl Write, line: &OpenLogLine, sent: SentResponse) -> io::Result<()> {
    let since_epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let aborted = if sent.complete { "" } else { "_ABORTED" };
    write!(
        out,
        "{:9}.{:03} {:6} {} {}{aborted}/{:03} {} ",
        since_epoch.as_secs(),
        since_epoch.subsec_millis(),
        line.started.elapsed().as_millis(),
        line.client,
        line.outcome.squid_code(),
        line.status.as_u16(),
        line.head_bytes + sent.bytes,
    )?;
    write!(out, "{} ", line.method)?;
    write_word(out, &line.url)?;
    out.write_all(b" ")?;
    write_word(out, line.user.as_deref().unwrap_or("-"))?;
    match &line.origin {
        Some(origin) => write!(out, " HIER_DIRECT/{origin} ")?,
        None => write!(out, " HIER_NONE/- ")?,
    }
    write_word(out, line.content_type.as_deref().unwrap_or("-"))
}

/// Writes an untrusted value as one word, with white space and control characters escaped.
fn write_word(out: &mut impl Write, text: &str) -> io::Result<()> {
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => write!(out, "%{byte:02X}")?,
            0x21..=0x7e => out.write_all(&[byte])?,
            _ => write!(out, "%{byte:02X}")?,
        }
    }
    Ok(())
}

/// Writes a field's value between quotes, escaped as in Apache's log. Writes `-` for a missing field.
fn write_quotable(out: &mut impl Write, value: Option<&Option<String>>) -> io::Result<()> {
    let Some(Some(text)) = value else { return out.write_all(b"-") };
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => out.write_all(&[b'\\', byte])?,
            0x20..=0x7e => out.write_all(&[byte])?,
            _ => write!(out, "\\x{byte:02x}")?,
        }
    }
    Ok(())
}

fn iso_now() -> String {
    Zoned::now().strftime("%Y-%m-%dT%H:%M:%S.%3f%:z").to_string()
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use http::{Method, StatusCode, Version};

    use super::*;
    use crate::figures::outcome::{MissReason, Outcome};

    fn line(fields: &[&str]) -> OpenLogLine {
        OpenLogLine {
            node: Some("node-a".into()),
            started: Instant::now(),
            client: "192.0.2.7".parse().unwrap(),
            method: Method::GET,
            url: "http://a.example/x y\"\n".into(),
            version: Version::HTTP_11,
            user: None,
            outcome: Outcome::Miss,
            why: MissReason::ALL.into_iter().find(|reason| reason.token() == "no-store"),
            steps: "gate,deliver".into(),
            status: StatusCode::OK,
            origin: Some("a.example".into()),
            content_type: Some("text/html; charset=utf-8".into()),
            head_bytes: 100,
            request_fields: fields.iter().map(|field| Some((*field).to_owned())).collect(),
            response_fields: Vec::new(),
        }
    }

    fn written(format: &str, line: &OpenLogLine) -> String {
        let mut out = Vec::new();
        let format: LogFormat = format.parse().unwrap();
        format.write(&mut out, line, SentResponse { bytes: 23, complete: true }).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text.matches('\n').count(), 1, "{text}");
        text.trim_end().to_owned()
    }

    #[test]
    fn squids_line_has_its_fields_and_no_outside_white_space() {
        let text = written("squid", &OpenLogLine { outcome: Outcome::MemoryHit, origin: None, ..line(&[]) });
        let fields: Vec<_> = text.split_whitespace().collect();
        let url = "http://a.example/x%20y%22%0A";
        let expected =
            ["192.0.2.7", "TCP_MEM_HIT/200", "123", "GET", url, "-", "HIER_NONE/-", "text/html;%20charset=utf-8"];
        assert_eq!(&fields[2..], expected);
    }

    #[test]
    fn squids_line_says_what_was_broken_off() {
        let mut out = Vec::new();
        LogFormat::default().write(&mut out, &line(&[]), SentResponse { bytes: 0, complete: false }).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains(" TCP_MISS_ABORTED/200 ") && text.contains(" HIER_DIRECT/a.example "), "{text}");
    }

    #[test]
    fn combined_lines_stay_whole_whatever_a_client_sends() {
        let text = written("combined", &line(&["http://b/\"", "evil\" 200 \n\\ ü"]));
        let (head, rest) = text.split_once('[').unwrap();
        let (time, rest) = rest.split_once(']').unwrap();
        assert_eq!((head, time.len()), ("192.0.2.7 - - ", "23/Nov/2026:10:00:00 +0000".len()));
        let url = "http://a.example/x%20y%22%0A";
        let expected = format!(r#" "GET {url} HTTP/1.1" 200 23 "http://b/\"" "evil\" 200 \x0a\\ \xc3\xbc""#);
        assert_eq!(rest, expected);
        assert!(written("common", &line(&[])).ends_with("HTTP/1.1\" 200 23"));
    }

    #[test]
    fn json_lines_are_objects() {
        let text = written("json", &line(&["http://b/", "curl \"8\""]));
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        let expected = serde_json::json!({
            "client": "192.0.2.7", "url": "http://a.example/x y\"\n", "status": 200, "bytes": 23, "result": "miss",
            "reason": "no-store", "user_agent": "curl \"8\"", "complete": true, "node": "node-a",
            "steps": "gate,deliver",
        });
        for (name, expected) in expected.as_object().unwrap() {
            assert_eq!(value[name], *expected, "{name}");
        }
        assert!(value["user"].is_null() && value["time"].as_str().unwrap().contains('T'));
    }

    #[test]
    fn own_fields_are_written_as_apache_does() {
        let line = line(&["fr"]);
        let text = written(
            "%a %m %U %H %>s %s %b %B %O %X %% \"%{Accept-Language}i\" %{outcome}x %{result}x %{reason}x %{steps}x %{origin}x \
             %{node}x",
            &line,
        );
        let url = "http://a.example/x%20y%22%0A";
        let expected = format!(
            "192.0.2.7 GET {url} HTTP/1.1 200 200 23 23 123 - % \"fr\" TCP_MISS miss no-store gate,deliver \
             a.example node-a"
        );
        assert_eq!(text, expected);
        assert!(written("%{unix}t", &line).parse::<f64>().unwrap() > 1e9);
    }

    #[test]
    fn a_format_that_makes_no_sense_is_refused_with_what_is_wrong() {
        for (text, problem) in [
            ("", "empty"),
            ("combine", "`combine`"),
            ("%a %z", "`%z`"),
            ("%a %", "`%`"),
            ("%{Referer}", "`%{Referer}`"),
            ("%{Referer i", "`%{Referer i`"),
            ("%{no such}i", "`no such`"),
            ("%{moon}x", "`%{moon}x`"),
            ("%{moon}t", "`%{moon}t`"),
            ("%a\n%m", "line"),
        ] {
            let error = text.parse::<LogFormat>().unwrap_err().to_string();
            assert!(error.contains(problem), "{text:?}: {error}");
        }
    }
}
