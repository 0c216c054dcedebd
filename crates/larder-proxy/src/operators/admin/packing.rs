//! Packs stored responses into a file for another store, and unpacks such a file: the commands PACK and UNPACK.
//!
//! Owns: the commands' syntax and output. Packing is in `pack`. The body of `PACK /` is a line with options, followed
//! by patterns, one per line. The body of `UNPACK /` is the file.

use std::{
    io::{self, BufRead as _, BufReader, Read},
    pin::Pin,
    sync::Arc,
};

use bytes::{Buf as _, Bytes};
use flate2::bufread::MultiGzDecoder;
use http::Response;
use http_body::Body as _;
use larder_http::{Timestamp, UrlPatterns};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::mpsc;

use super::{
    pinning,
    progress::{self, OperatorFailure, ProgressWriter},
};
use crate::{
    ground::received_body::IncomingBody,
    operators::pack::{self, PackOutlet, PackSelection},
    road::client::response_body::ResponseBody,
    run::worker::Worker,
};

/// The options of a PACK command.
#[derive(Deserialize)]
struct PackRequest {
    gzip: bool,
    /// Only responses that were received or confirmed at or after this time are packed. In milliseconds of Unix time;
    /// `None` sets no limit.
    since: Option<i64>,
    until: Option<i64>,
}

/// Answers a PACK command, whose options and patterns are in `body`.
pub(super) fn pack(worker: &Arc<Worker>, body: &Bytes) -> Response<ResponseBody> {
    let cache = Arc::clone(&worker.cache);
    let body = body.clone();
    progress::answer(move |teller| {
        let store = pinning::store_of(&cache)?;
        let (line, patterns) = body.split_at(body.iter().position(|octet| *octet == b'\n').unwrap_or(body.len()));
        let wanted: PackRequest = serde_json::from_slice(line).map_err(|error| OperatorFailure {
            problem: format!("the pack command is malformed: {error}"),
            help: "use the same version of larder on both ends".to_owned(),
        })?;
        let selection = PackSelection {
            patterns: UrlPatterns::new(pinning::parse(patterns)?),
            since: wanted.since.map(Timestamp::from_millis),
            until: wanted.until.map(Timestamp::from_millis),
            gzip: wanted.gzip,
        };
        let outlet = PackOutlet {
            data: &|bytes| teller.data(bytes),
            progress: &|done, of| teller.progress(done, of),
            left_out: &|url, why| tell_left_out(teller, url, why),
        };
        let packed = pack::pack(&cache, &store, &selection, &outlet).map_err(|error| OperatorFailure {
            problem: format!("cannot pack: {error}"),
            help: "try again; if the store's policy cannot list its keys, its responses cannot be packed".to_owned(),
        })?;
        Ok(json!({ "responses": packed.responses, "body_bytes": packed.body_bytes, "left_out": packed.left_out }))
    })
}

/// Answers an UNPACK command, whose body is the pack file.
pub(super) fn unpack(worker: &Arc<Worker>, body: IncomingBody) -> Response<ResponseBody> {
    let cache = Arc::clone(&worker.cache);
    let (sender, pieces) = mpsc::channel(PIECE_COUNT_MAX);
    tokio::spawn(feed(body, sender));
    progress::answer(move |teller| {
        pinning::store_of(&cache)?;
        let mut source = BufReader::with_capacity(BUFFER_BYTES, UploadPieces { pieces, piece: Bytes::new() });
        let is_gzip = source.fill_buf().is_ok_and(|bytes| bytes.starts_with(&[0x1f, 0x8b]));
        let mut tell = |url: &str, why: &str| tell_left_out(teller, url, why);
        let (unpacked, outcome) = if is_gzip {
            pack::unpack(&cache, BufReader::with_capacity(BUFFER_BYTES, MultiGzDecoder::new(source)), &mut tell)
        } else {
            pack::unpack(&cache, source, &mut tell)
        };
        let why_ended = outcome.err().map(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => "the file ends within a record".to_owned(),
            _ => format!("reading failed: {error}"),
        });
        let pack::UnpackSummary { stored, body_bytes, there, refused, passed } = unpacked;
        Ok(json!({
            "stored": stored, "body_bytes": body_bytes, "there": there, "refused": refused, "passed": passed, "why_ended": why_ended,
        }))
    })
}

fn tell_left_out(teller: &ProgressWriter, url: &str, why: &str) -> bool {
    teller.line(&json!({ "left_out": { "url": url, "why": why } }))
}

/// Passes the pieces of a request's body to the thread that unpacks it.
async fn feed(mut body: IncomingBody, pieces: mpsc::Sender<io::Result<Bytes>>) {
    while let Some(frame) = std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        let piece = match frame.map(http_body::Frame::into_data) {
            Ok(Ok(bytes)) => Ok(bytes),
            Ok(Err(_)) => continue,
            Err(error) => Err(io::Error::other(error)),
        };
        if pieces.send(piece).await.is_err() {
            return;
        }
    }
}

/// Reads a request's body on a thread that may block.
struct UploadPieces {
    pieces: mpsc::Receiver<io::Result<Bytes>>,
    piece: Bytes,
}

impl Read for UploadPieces {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            match self.pieces.blocking_recv() {
                Some(piece) => self.piece = piece?,
                None => return Ok(0),
            }
        }
        let count = self.piece.len().min(target.len());
        self.piece.copy_to_slice(&mut target[..count]);
        Ok(count)
    }
}

const PIECE_COUNT_MAX: usize = 8;
const BUFFER_BYTES: usize = 64 << 10;
