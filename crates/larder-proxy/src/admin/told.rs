//! Answers to operators' commands that take long: what is told while they go on.
//!
//! Owns: the pieces, each with its kind and length, so that who reads knows an answer that ends early from one that is whole. Does not: know
//! what is told. Invariant: the last piece of a whole answer is a line with `done` or `failed`. Cost: a few pieces wait at most; who is told
//! nothing any more is found out at the next piece.

use bytes::{BufMut as _, Bytes, BytesMut};
use http::Response;
use serde_json::{Value, json};
use tokio::{sync::mpsc, task};

use crate::client::response_body::ResponseBody;

/// Tells whoever asked.
#[derive(Clone)]
pub(crate) struct ProgressTeller(mpsc::Sender<Bytes>);

/// What an operator can do about what went wrong.
#[derive(Debug)]
pub(crate) struct OperatorFailure {
    pub(crate) problem: String,
    pub(crate) help: String,
}

/// Answers with what `work` tells, which runs on a thread that may block. What it comes to is told last.
pub(super) fn answer(
    work: impl FnOnce(&ProgressTeller) -> Result<Value, OperatorFailure> + Send + 'static,
) -> Response<ResponseBody> {
    let (sender, pieces) = mpsc::channel(PIECE_COUNT_MAX);
    let teller = ProgressTeller(sender);
    task::spawn_blocking(move || {
        let last = match work(&teller) {
            Ok(done) => json!({ "done": done }),
            Err(OperatorFailure { problem, help }) => json!({ "failed": { "problem": problem, "help": help } }),
        };
        teller.line(&last);
    });
    Response::new(ResponseBody::told(pieces))
}

impl ProgressTeller {
    /// Tells a line. Returns whether anybody is there.
    pub(crate) fn line(&self, line: &Value) -> bool {
        self.piece(KIND_LINE, line.to_string().as_bytes())
    }

    /// Tells how far it has come. Returns whether anybody is there.
    pub(crate) fn progress(&self, done: u64, of: u64) -> bool {
        self.line(&json!({ "progress": { "done": done, "of": of } }))
    }

    /// Tells bytes. Returns whether anybody is there.
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

/// Kinds of pieces: a line of JSON, and bytes. `larder`'s `admin_client` has the same.
const KIND_LINE: u8 = b'L';
const KIND_DATA: u8 = b'D';
const DATA_BYTES_MAX: usize = 256 << 10;
/// Pieces that wait to be sent.
const PIECE_COUNT_MAX: usize = 8;
