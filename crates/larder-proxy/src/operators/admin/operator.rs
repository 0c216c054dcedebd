//! The commands of operators. Each has its own method, and the response is plain text or JSON.
//!
//! Owns: the methods and the words of the responses. Execution, and the check of the sender (`guard`), are elsewhere.

use std::{future::poll_fn, pin::Pin, sync::Arc};

use bytes::{Bytes, BytesMut};
use http::{Response, StatusCode, request};
use http_body::Body as _;

use super::{listing, packing, page, pinning};
use crate::{
    ground::{config::Offline, received_body::IncomingBody},
    origins::uplink::LineStatus,
    road::client::response_body::ResponseBody,
    run::worker::Worker,
};

/// Executes an operator's command and returns the response. Returns `None` if the request is not a command.
pub(super) async fn answer(
    worker: &Arc<Worker>,
    request: &request::Parts,
    body: IncomingBody,
) -> Option<Response<ResponseBody>> {
    enum OperatorCommand {
        Short(fn(&Worker, &request::Parts) -> Result<String, String>),
        Long(LongCommand),
    }
    let command = match request.method.as_str() {
        "MISSING" => OperatorCommand::Short(missing),
        "OFFLINE" => OperatorCommand::Short(offline),
        "PIN" => OperatorCommand::Long(LongCommand::Pin),
        "UNPIN" => OperatorCommand::Long(LongCommand::Unpin),
        "LIST" => OperatorCommand::Long(LongCommand::List),
        "PACK" => OperatorCommand::Long(LongCommand::Pack),
        "UNPACK" => OperatorCommand::Long(LongCommand::Unpack),
        _ => return None,
    };
    let done = match command {
        OperatorCommand::Short(answer) => answer(worker, request),
        OperatorCommand::Long(command) => return Some(answer_long(worker, command, request, body).await),
    };
    Some(match done {
        Ok(text) => page(StatusCode::OK, text.into()),
        Err(text) => page(StatusCode::BAD_REQUEST, text.into()),
    })
}

/// A command that may take long, so that its progress is streamed.
#[derive(Clone, Copy)]
enum LongCommand {
    Pin,
    Unpin,
    List,
    Pack,
    Unpack,
}

/// Starts a long command, and returns the response that streams its progress.
async fn answer_long(
    worker: &Arc<Worker>,
    command: LongCommand,
    request: &request::Parts,
    body: IncomingBody,
) -> Response<ResponseBody> {
    if matches!((command, request.uri.path()), (LongCommand::Unpack, "/")) {
        return packing::unpack(worker, body);
    }
    let Some(text) = whole(body).await else {
        return page(StatusCode::PAYLOAD_TOO_LARGE, "the list of patterns is too long or incomplete\n".into());
    };
    match (command, request.uri.path()) {
        (LongCommand::Pin, "/") => pinning::pin(worker, text),
        (LongCommand::List, "/") => listing::list(worker, &text),
        (LongCommand::Pack, "/") => packing::pack(worker, &text),
        (LongCommand::Unpin, path @ ("/" | "/all")) => pinning::unpin(worker, text, path == "/all"),
        _ => {
            page(StatusCode::BAD_REQUEST, "PIN, LIST, PACK and UNPACK need the path /, UNPIN needs / or /all\n".into())
        }
    }
}

/// Reads the whole body of a request. Returns `None` if it is too long or breaks off.
async fn whole(mut body: IncomingBody) -> Option<Bytes> {
    let mut text = BytesMut::new();
    while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        let Ok(data) = frame.ok()?.into_data() else { continue };
        if text.len() + data.len() > LIST_BYTES_MAX {
            return None;
        }
        text.extend_from_slice(&data);
    }
    Some(text.freeze())
}

/// Maximum length of a list of patterns, in bytes.
const LIST_BYTES_MAX: usize = 16 << 20;

/// Sets the offline mode that the path names; `status` leaves it unchanged. Returns the current state.
fn offline(worker: &Worker, request: &request::Parts) -> Result<String, String> {
    let uplink = &worker.shared.origins.uplink;
    let word = request.uri.path().trim_start_matches('/');
    if word != "status" {
        let mode: Offline = word.parse().map_err(|error| format!("{error}, or status: {word}\n"))?;
        uplink.set_mode(mode);
        tracing::info!(%mode, "offline mode changed");
    }
    Ok(told(&uplink.status()))
}

/// Lists the missing resources as lines of JSON, or removes one or all of them from the list.
fn missing(worker: &Worker, request: &request::Parts) -> Result<String, String> {
    let missing = &worker.shared.missing;
    if request.uri.scheme().is_some() {
        let was_there = missing.remove(&request.uri.to_string());
        return Ok(if was_there { "removed from the list\n" } else { "not on the list\n" }.to_owned());
    }
    match request.uri.path() {
        "/" => {
            let (all, unlisted_count) = missing.all();
            let lines: Result<Vec<String>, _> = all.iter().map(serde_json::to_string).collect();
            let mut text = lines.map_err(|error| format!("{error}\n"))?.join("\n");
            if unlisted_count > 0 {
                text = format!("{text}\n{{\"unlisted\":{unlisted_count}}}");
            }
            Ok(text)
        }
        "/clear" => {
            missing.clear();
            Ok("the list is empty\n".to_owned())
        }
        other => Err(format!("MISSING needs the path / or /clear, or a URL: {other}\n")),
    }
}

/// Describes the offline mode and the state of the uplink.
fn told(status: &LineStatus) -> String {
    let LineStatus { mode, down_for, failing } = status;
    match (mode, down_for) {
        (Offline::Off, _) => "off: origins are contacted\n".to_owned(),
        (Offline::On, _) => {
            "on: no origin is contacted; stored responses are served, unless their origins forbid it\n".to_owned()
        }
        (Offline::OnEvenForbidden, _) => {
            "on-even-forbidden: no origin is contacted; stored responses are served, even if their origins forbid \
             it\n"
                .to_owned()
        }
        (Offline::Auto, None) => "auto: the uplink is up, origins are contacted\n".to_owned(),
        (Offline::Auto, Some(time)) => {
            let seconds = time.as_secs();
            let failing = failing.join(", ");
            format!("auto: the uplink has been down for {seconds} s; no response from {failing}\n")
        }
    }
}
