//! Serves one client of a store's socket: reads its requests, executes them one after the other, and responds.
//!
//! Owns: the connection, and the times it may take. `protocol` has the messages, `handles` the open values. Invariants:
//! a request is executed only when all of it has arrived, except that the bytes of a write are appended piece by piece,
//! so that a connection never buffers more than a piece of them. If the rest does not arrive, the value is dropped with
//! the connection. A client that does not read or write waits alone. If it is in the middle of a message for too long,
//! it is disconnected; if it keeps values unfinished, they are dropped.

use super::{
    handles::{Handles, LentMemory, SharedLimits},
    protocol::{
        self, DATA_BYTES_MAX, HELLO_BYTES, KEY_BYTES_MAX, LENGTH_BYTES, REQUEST_BYTES_MAX, Request, RequestRefusal,
        SHORT_REQUEST_BYTES_MAX, Status, VERSION, WRITE_FRONT_BYTES,
    },
};
use bytes::{Buf, Bytes, BytesMut};
use larder_cache::Cache;
use std::{
    future::pending,
    io,
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
    sync::{OwnedSemaphorePermit, watch},
    time::{sleep_until, timeout},
};

/// Maximum time for a client to send its first message.
const HELLO_PATIENCE: Duration = Duration::from_secs(10);
/// Maximum pause in the middle of a request or a response.
const STALL_PATIENCE: Duration = Duration::from_secs(60);
/// Number of bytes to read at once while the length of the next request is unknown.
const READ_BYTES: usize = 16 << 10;
/// Length of the pieces in which a write is received and appended to the value, in bytes.
///
/// Other requests that are too long are received and dropped in pieces of this length.
const PIECE_BYTES: usize = 64 << 10;
/// Maximum length of a response that is copied behind its front (length and status), so that one write sends both.
const JOINED_BYTES_MAX: usize = 16 << 10;

/// The connection of one client of a store's socket.
pub(super) struct StoreClient {
    stream: UnixStream,
    /// Bytes that were received and not processed yet.
    received: BytesMut,
    cache: Cache,
    handles: Handles,
    limits: SharedLimits,
    /// Becomes true when the server stops.
    stop: watch::Receiver<bool>,
}

/// The content of a response, which follows its length and its status.
enum ResponseBody {
    Fields(Vec<u8>),
    Data {
        /// Bytes of a value, for the client that reads it.
        bytes: Bytes,
        /// The permit for the shared memory of these bytes, returned when they were sent. `None` if they fit in the
        /// connection's own share.
        _share: Option<OwnedSemaphorePermit>,
    },
}

/// Waits until `moment`, or forever if it is `None`.
async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment.into()).await,
        None => pending().await,
    }
}

impl StoreClient {
    pub(super) fn new(stream: UnixStream, cache: &Cache, limits: &SharedLimits, stop: watch::Receiver<bool>) -> Self {
        Self {
            stream,
            received: BytesMut::new(),
            cache: cache.clone(),
            handles: Handles::new(cache, limits),
            limits: limits.clone(),
            stop,
        }
    }

    /// Serves the client until it disconnects or violates the protocol, or the server stops.
    ///
    /// # Errors
    /// The connection failed, or the client stalled.
    pub(super) async fn serve(mut self) -> io::Result<()> {
        if !self.greet().await? {
            return Ok(());
        }
        // When the server stops, a client between two requests sees that the connection closes.
        while let Some(length) = self.next_length().await? {
            if length == 0 || length > REQUEST_BYTES_MAX {
                let text = format!("a request has 1 to {REQUEST_BYTES_MAX} bytes, not {length}");
                // Finding the end of the request could take up to 4 GB, so the connection closes.
                return self.refuse(&RequestRefusal::new(Status::Invalid, text)).await;
            }
            self.received.advance(LENGTH_BYTES);
            match self.receive_and_execute(length).await? {
                Ok(body) => self.respond(body).await?,
                Err(refusal) => self.refuse(&refusal).await?,
            }
        }
        Ok(())
    }

    /// Receives a request of `length` bytes, and executes it.
    async fn receive_and_execute(&mut self, length: usize) -> io::Result<Result<ResponseBody, RequestRefusal>> {
        self.fill(length.min(WRITE_FRONT_BYTES)).await?;
        if length >= WRITE_FRONT_BYTES
            && let Ok(Request::Write { handle, .. }) = Request::parse(&self.received[..WRITE_FRONT_BYTES])
        {
            self.received.advance(WRITE_FRONT_BYTES);
            return self.receive_write(handle, length - WRITE_FRONT_BYTES).await;
        }
        if length > SHORT_REQUEST_BYTES_MAX {
            self.drop_bytes(length).await?;
            return Ok(Err(protocol::too_long_request(length)));
        }
        self.fill(length).await?;
        let message = self.received.split_to(length);
        Ok(self.execute(&message).await)
    }

    /// Receives `left` bytes and appends them to a value. If the value refuses a piece, drops all bytes after it.
    async fn receive_write(
        &mut self,
        handle: u32,
        mut left: usize,
    ) -> io::Result<Result<ResponseBody, RequestRefusal>> {
        loop {
            let count = self.next_piece(left).await?;
            let appended = self.handles.write(handle, &self.received[..count]).await;
            self.received.advance(count);
            left -= count;
            if let Err(refusal) = appended {
                self.drop_bytes(left).await?;
                return Ok(Err(refusal));
            }
            if left == 0 {
                return Ok(Ok(ResponseBody::Fields(Vec::new())));
            }
        }
    }

    /// Receives `left` bytes and drops them.
    async fn drop_bytes(&mut self, mut left: usize) -> io::Result<()> {
        while left > 0 {
            let count = self.next_piece(left).await?;
            self.received.advance(count);
            left -= count;
        }
        Ok(())
    }

    /// Waits until [`PIECE_BYTES`] of the next `left` bytes have arrived, or all of them if they are fewer. Returns the
    /// number of bytes.
    async fn next_piece(&mut self, left: usize) -> io::Result<usize> {
        let count = left.min(PIECE_BYTES);
        self.fill(count).await?;
        Ok(count)
    }

    /// Exchanges the first messages. Returns false if the client uses another protocol or version.
    async fn greet(&mut self) -> io::Result<bool> {
        timeout(HELLO_PATIENCE, self.fill(HELLO_BYTES)).await??;
        let hello = self.received.split_to(HELLO_BYTES);
        let hello = hello.first_chunk().expect("as many bytes were read");
        // A client of another protocol would not understand a reason, so none is sent.
        let Some(version) = protocol::version_of(hello) else { return Ok(false) };
        self.send(&protocol::hello()).await?;
        if version != VERSION {
            let text = format!("version {version} of the protocol is not supported: use version {VERSION}");
            self.refuse(&RequestRefusal::new(Status::Invalid, text)).await?;
            return Ok(false);
        }
        let mut limits = Vec::with_capacity(16);
        limits.extend_from_slice(&(KEY_BYTES_MAX as u32).to_le_bytes());
        limits.extend_from_slice(&(DATA_BYTES_MAX as u32).to_le_bytes());
        limits.extend_from_slice(&self.limits.value_bytes_max.to_le_bytes());
        self.respond(ResponseBody::Fields(limits)).await?;
        Ok(true)
    }

    /// Waits for the next request and returns its length. `None` if the client has disconnected or the server stops.
    async fn next_length(&mut self) -> io::Result<Option<usize>> {
        if self.received.is_empty() && !self.await_request().await? {
            return Ok(None);
        }
        if *self.stop.borrow() {
            return Ok(None);
        }
        self.fill(LENGTH_BYTES).await?;
        let length = self.received.first_chunk().expect("as many bytes were read");
        Ok(Some(u32::from_le_bytes(*length) as usize))
    }

    /// Waits for the first bytes of a request. There is no time limit, because a client may keep values open while it
    /// works.
    async fn await_request(&mut self) -> io::Result<bool> {
        self.received.reserve(READ_BYTES);
        loop {
            let expiry = self.handles.next_expiry();
            tokio::select! {
                count = self.stream.read_buf(&mut self.received) => return Ok(count? > 0),
                _ = self.stop.wait_for(|stops| *stops) => return Ok(false),
                () = until(expiry) => self.handles.expire(Instant::now()),
            }
        }
    }

    /// Reads until at least `count` bytes were received.
    async fn fill(&mut self, count: usize) -> io::Result<()> {
        while self.received.len() < count {
            self.received.reserve(count.max(READ_BYTES) - self.received.len());
            if timeout(STALL_PATIENCE, self.stream.read_buf(&mut self.received)).await?? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            // A client that sends a byte now and then must not keep its unfinished values forever either.
            self.handles.expire(Instant::now());
        }
        Ok(())
    }

    async fn execute(&mut self, message: &[u8]) -> Result<ResponseBody, RequestRefusal> {
        let handles = &mut self.handles;
        match Request::parse(message)? {
            Request::OpenToRead { key } => {
                let opened = handles.open_to_read(key).await?;
                let fields = [&opened.handle.to_le_bytes()[..], &opened.len_bytes.to_le_bytes()].concat();
                return Ok(ResponseBody::Fields(fields));
            }
            Request::OpenToWrite { key, len_bytes } => {
                let handle = handles.open_to_write(key, len_bytes)?;
                return Ok(ResponseBody::Fields(handle.to_le_bytes().to_vec()));
            }
            Request::Read { handle, offset, count } => {
                let LentMemory { bytes, permit } = self.limits.lend_memory((count as usize).min(DATA_BYTES_MAX));
                let bytes = handles.read(handle, offset, bytes as u64).await?;
                return Ok(ResponseBody::Data { bytes, _share: permit });
            }
            Request::Write { handle, bytes } => handles.write(handle, bytes).await?,
            Request::Close { handle } => handles.close(handle).await?,
            Request::Abandon { handle } => handles.abandon(handle)?,
            Request::Remove { key } => self.cache.remove(key).await?,
            Request::Sync => self.cache.sync().await?,
        }
        Ok(ResponseBody::Fields(Vec::new()))
    }

    async fn respond(&mut self, body: ResponseBody) -> io::Result<()> {
        let body = match &body {
            ResponseBody::Fields(fields) => &fields[..],
            ResponseBody::Data { bytes, .. } => &bytes[..],
        };
        let front = protocol::response_front(Status::Done, body.len());
        if body.len() <= JOINED_BYTES_MAX {
            return self.send(&[&front, body].concat()).await;
        }
        self.send(&front).await?;
        self.send(body).await
    }

    async fn refuse(&mut self, refusal: &RequestRefusal) -> io::Result<()> {
        self.send(&protocol::refusal_response(refusal)).await
    }

    async fn send(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match timeout(STALL_PATIENCE, self.stream.write(bytes)).await?? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                count => bytes = &bytes[count..],
            }
        }
        Ok(())
    }
}
