//! Streams progress to the client of a long-running operator's command.
//!
//! Owns: the framing. Each piece has a kind and a length, so that a reader can tell a truncated response from a
//! complete one. Invariant: the last piece of a complete response is a line with `done` or `failed`. Cost: a few pieces
//! are queued at most. A client that has disconnected is noticed at the next piece.

use bytes::{BufMut as _, Bytes, BytesMut};
use http::Response;
use serde_json::{Value, json};
use tokio::{sync::mpsc, task};

use crate::road::client::response_body::ResponseBody;

/// Sends the progress of a command to its client.
#[derive(Clone)]
pub(crate) struct ProgressWriter(mpsc::Sender<Bytes>);

/// Why a command failed, with advice for the operator.
#[derive(Debug)]
pub(crate) struct OperatorFailure {
    pub(crate) problem: String,
    pub(crate) help: String,
}

/// Runs `work` on a thread that may block, and returns the response that streams its progress and result.
pub(super) fn answer(
    work: impl FnOnce(&ProgressWriter) -> Result<Value, OperatorFailure> + Send + 'static,
) -> Response<ResponseBody> {
    let (sender, pieces) = mpsc::channel(PIECE_COUNT_MAX);
    let teller = ProgressWriter(sender);
    task::spawn_blocking(move || {
        let last = match work(&teller) {
            Ok(done) => json!({ "done": done }),
            Err(OperatorFailure { problem, help }) => json!({ "failed": { "problem": problem, "help": help } }),
        };
        teller.line(&last);
    });
    Response::new(ResponseBody::told(pieces))
}

impl ProgressWriter {
    /// Sends a line of JSON. Returns false if the client is gone.
    pub(crate) fn line(&self, line: &Value) -> bool {
        self.piece(KIND_LINE, line.to_string().as_bytes())
    }

    /// Sends how much of the work is done. Returns false if the client is gone.
    pub(crate) fn progress(&self, done: u64, of: u64) -> bool {
        self.line(&json!({ "progress": { "done": done, "of": of } }))
    }

    /// Sends data, such as parts of a file. Returns false if the client is gone.
    pub(crate) fn data(&self, bytes: &[u8]) -> bool {
        bytes.chunks(DATA_BYTES_MAX).all(|bytes| self.piece(KIND_DATA, bytes))
    }

    fn piece(&self, kind: u8, bytes: &[u8]) -> bool {
        let mut piece = BytesMut::with_capacity(bytes.len() + 5);
        piece.put_u8(kind);
        piece.put_u32_le(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
        piece.put_slice(bytes);
        self.0.blocking_send(piece.freeze()).is_ok()
    }
}

/// Number of the kind of piece that is a line of JSON. `admin_client` in the crate `larder` uses the same numbers.
const KIND_LINE: u8 = b'L';
const KIND_DATA: u8 = b'D';
const DATA_BYTES_MAX: usize = 256 << 10;
/// Maximum number of pieces that wait to be sent.
const PIECE_COUNT_MAX: usize = 8;
