//! Parses a log format.

use http::HeaderName;

use super::{InvalidLogFormat, LineForm, LinePiece, LogFormat};

/// Parses a format: the name of a predefined one, or directives with text between them.
pub(super) fn read(text: &str) -> Result<LogFormat, InvalidLogFormat> {
    let mut fields = FormatFields::default();
    let form = match text {
        "squid" => LineForm::Squid,
        "json" => {
            // The order matters: these are the first request fields, which the JSON lines refer to by index.
            fields.request("Referer")?;
            fields.request("User-Agent")?;
            LineForm::Json
        }
        "common" => LineForm::Pieces(pieces(COMMON, &mut fields)?),
        "combined" => LineForm::Pieces(pieces(&format!("{COMMON} {REST_OF_COMBINED}"), &mut fields)?),
        "" => return refuse("the log format is empty".to_owned()),
        own if own.contains(char::is_control) => {
            return refuse("the log format contains a line break or another control character".to_owned());
        }
        own if own.contains('%') => LineForm::Pieces(pieces(own, &mut fields)?),
        other => return refuse(format!("unknown log format: `{other}`")),
    };
    let FormatFields { request: request_fields, response: response_fields } = fields;
    Ok(LogFormat { text: text.to_owned(), form, request_fields, response_fields })
}

/// The request and response fields that a format contains, so far.
#[derive(Default)]
struct FormatFields {
    request: Vec<HeaderName>,
    response: Vec<HeaderName>,
}

impl FormatFields {
    fn request(&mut self, name: &str) -> Result<LinePiece, InvalidLogFormat> {
        place(&mut self.request, name).map(LinePiece::RequestField)
    }

    fn response(&mut self, name: &str) -> Result<LinePiece, InvalidLogFormat> {
        place(&mut self.response, name).map(LinePiece::ResponseField)
    }
}

/// Returns the index of a field in `names`. Appends the field if it is missing.
fn place(names: &mut Vec<HeaderName>, name: &str) -> Result<usize, InvalidLogFormat> {
    let name: HeaderName = name.parse().map_err(|_| InvalidLogFormat(format!("not a field name: `{name}`")))?;
    let known = names.iter().position(|known| *known == name);
    Ok(known.unwrap_or_else(|| {
        names.push(name);
        names.len() - 1
    }))
}

fn pieces(text: &str, fields: &mut FormatFields) -> Result<Vec<LinePiece>, InvalidLogFormat> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('%') {
        push_text(&mut pieces, &rest[..at]);
        let directive = &rest[at + 1..];
        let (argument, behind) = match directive.strip_prefix('{') {
            Some(inside) => match inside.split_once('}') {
                Some((argument, behind)) => (Some(argument), behind),
                None => return refuse(format!("a brace is not closed: `{}`", &rest[at..])),
            },
            // In Apache's format, `>` selects the last of several statuses. Here there is only one, so it is ignored.
            None => (None, directive.strip_prefix('>').unwrap_or(directive)),
        };
        let mut letters = behind.chars();
        let letter = letters.next();
        let whole = &rest[at..rest.len() - letters.as_str().len()];
        match piece(argument, letter, fields)? {
            Some(LinePiece::Text(text)) => push_text(&mut pieces, &text),
            Some(piece) => pieces.push(piece),
            None => return refuse(format!("unknown directive of a log format: `{whole}`")),
        }
        rest = letters.as_str();
    }
    push_text(&mut pieces, rest);
    Ok(pieces)
}

fn push_text(pieces: &mut Vec<LinePiece>, text: &str) {
    match pieces.last_mut() {
        Some(LinePiece::Text(before)) => before.push_str(text),
        _ if text.is_empty() => {}
        _ => pieces.push(LinePiece::Text(text.to_owned())),
    }
}

/// Parses one directive of a log format. In `%{Name}i`, `argument` is `Name` and `letter` is `i`. Returns `None` if the
/// directive is unknown.
fn piece(
    argument: Option<&str>,
    letter: Option<char>,
    fields: &mut FormatFields,
) -> Result<Option<LinePiece>, InvalidLogFormat> {
    Ok(Some(match (argument, letter) {
        (None, Some('%')) => LinePiece::Text("%".to_owned()),
        (None, Some('h' | 'a')) => LinePiece::Client,
        (None, Some('l')) => LinePiece::Unknown,
        (None, Some('u')) => LinePiece::User,
        (None, Some('t')) => LinePiece::Time,
        (Some("unix"), Some('t')) => LinePiece::UnixTime,
        (Some("iso"), Some('t')) => LinePiece::IsoTime,
        (None, Some('r')) => LinePiece::RequestLine,
        (None, Some('m')) => LinePiece::Method,
        (None, Some('U')) => LinePiece::Url,
        (None, Some('H')) => LinePiece::Protocol,
        (None, Some('s')) => LinePiece::Status,
        (None, Some('b')) => LinePiece::BytesOrNone,
        (None, Some('B')) => LinePiece::Bytes,
        (None, Some('O')) => LinePiece::AllBytes,
        (None, Some('D')) => LinePiece::Micros,
        (Some("ms"), Some('T')) => LinePiece::Millis,
        (None | Some("s"), Some('T')) => LinePiece::Seconds,
        (None, Some('X')) => LinePiece::Broken,
        (Some(name), Some('i')) => fields.request(name)?,
        (Some(name), Some('o')) => fields.response(name)?,
        (Some("outcome"), Some('x')) => LinePiece::Outcome,
        (Some("result"), Some('x')) => LinePiece::Result,
        (Some("reason"), Some('x')) => LinePiece::Reason,
        (Some("steps"), Some('x')) => LinePiece::Steps,
        (Some("origin"), Some('x')) => LinePiece::Origin,
        (Some("node"), Some('x')) => LinePiece::Node,
        _ => return Ok(None),
    }))
}

fn refuse<T>(why: String) -> Result<T, InvalidLogFormat> {
    Err(InvalidLogFormat(why))
}

const COMMON: &str = "%h %l %u %t \"%r\" %>s %b";
const REST_OF_COMBINED: &str = "\"%{Referer}i\" \"%{User-agent}i\"";
