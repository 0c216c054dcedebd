//! A body that is stored while it passes through.
//!
//! Its client reads it from [`FilledBody`]. Requests that wait for the response drive it, too ([`DriveFill`]). So a
//! slow client delays nobody. Invariants: the last frame is passed on only once the response is stored. Otherwise a
//! client that does not ask for the end of the body, because it knows the length, would drop the body before that. At
//! most [`QUEUE_BYTES_MAX`] and one frame wait for the client in memory: when others drive the body further, the
//! client gets the remainder from the cache. Cost: one lock per frame.

use crate::{
    body::{BodyError, in_bytes},
    entries::StoredLongBody,
    fill_writer::{FillWriter, FinishedFill},
    shared_fetch::{DriveFill, FetchEnd, SharedFetch},
};
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use larder_cache::IgnorePoison;
use larder_cache::ValueReader;
use larder_http::framing::{BodyMeter, CompletedBody, EndMark};
use std::{
    collections::VecDeque,
    io,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard},
    task::{Context, Poll, Wake, Waker, ready},
};

/// Bytes that wait for a slow client in memory while other requests drive the body.
const QUEUE_BYTES_MAX: u64 = 1 << 20;

/// A body that is being stored, as its client reads it.
pub(crate) struct FilledBody<B> {
    fill: Arc<SharedFill<B>>,
    shared: Option<Arc<SharedFetch>>,
    remainder: StoredRemainder,
}

/// The part of a body that its client gets from the cache.
enum StoredRemainder {
    /// Not needed so far.
    Unread,
    Opening(OpeningFuture),
    Reading(ValueReader),
    Read,
}

/// A body that is being stored, which its client and waiting requests drive.
pub(crate) struct SharedFill<B> {
    has_length: bool,
    progress: Mutex<FillProgress<B>>,
    wakers: Arc<FillWakers>,
}

/// The tasks that wait for the origin's body or for the cache: the client's, and that of a waiting request.
#[derive(Default)]
struct FillWakers {
    client: Mutex<Option<Waker>>,
    driver: Mutex<Option<Waker>>,
}

struct FillProgress<B> {
    body: Pin<Box<B>>,
    writer: WriterState,
    /// The count of the received bytes, and what the response announced.
    meter: BodyMeter,
    /// The frames that the client has not read yet.
    queue: VecDeque<Frame<Bytes>>,
    queued_bytes: u64,
    /// A frame that waits until the response is stored.
    last: Option<Frame<Bytes>>,
    /// The offset from which on the client gets the body from the cache, once it is too far behind.
    spilled_from: Option<u64>,
    /// The stored body, if it is long.
    long: Option<StoredLongBody>,
    has_ended: bool,
    error: Option<BodyError>,
    is_client_gone: bool,
}

type OpeningFuture = Pin<Box<dyn Future<Output = Result<ValueReader, BodyError>> + Send>>;
type FlushFuture = Pin<Box<dyn Future<Output = Option<Box<FillWriter>>> + Send>>;

enum WriterState {
    Ready(Box<FillWriter>),
    Flushing(FlushFuture),
    Finishing(Pin<Box<dyn Future<Output = FinishedFill> + Send>>),
    Stored,
    GivenUp,
}

impl<B: Body> SharedFill<B> {
    pub(crate) fn new(body: B, meter: BodyMeter, writer: FillWriter) -> Self {
        let progress = FillProgress {
            meter,
            body: Box::pin(body),
            writer: WriterState::Ready(Box::new(writer)),
            queue: VecDeque::new(),
            queued_bytes: 0,
            last: None,
            spilled_from: None,
            long: None,
            has_ended: false,
            error: None,
            is_client_gone: false,
        };
        let has_length = progress.meter.remaining().is_some();
        Self { has_length, progress: Mutex::new(progress), wakers: Arc::default() }
    }
}

impl<B> SharedFill<B> {
    fn lock(&self) -> MutexGuard<'_, FillProgress<B>> {
        self.progress.lock().ignore_poison()
    }
}

impl<B> DriveFill for SharedFill<B>
where
    B: Body<Error: Into<BodyError>> + Send,
{
    fn has_length(&self) -> bool {
        self.has_length
    }

    fn poll_drive(&self, context: &mut Context<'_>) -> Poll<FetchEnd> {
        set(&self.wakers.driver, context.waker());
        let waker = Waker::from(Arc::clone(&self.wakers));
        let mut context = Context::from_waker(&waker);
        let mut progress = self.lock();
        loop {
            match progress.writer {
                WriterState::Stored => return Poll::Ready(FetchEnd::Stored),
                WriterState::GivenUp => return Poll::Ready(FetchEnd::Failed),
                WriterState::Ready(_) | WriterState::Flushing(_) | WriterState::Finishing(_) => {}
            }
            ready!(progress.poll_step(&mut context));
            progress.spill();
            // The client may be waiting for the frame.
            wake(&self.wakers.client);
        }
    }
}

impl<B> FilledBody<B> {
    /// Creates the client's part. `shared` is the fetch that requests for the same response wait for.
    pub(crate) fn new(fill: Arc<SharedFill<B>>, shared: Option<Arc<SharedFetch>>) -> Self {
        Self { fill, shared, remainder: StoredRemainder::Unread }
    }
}

impl<B: Body<Error: Into<BodyError>>> FilledBody<B> {
    pub(crate) fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        loop {
            match &mut self.remainder {
                StoredRemainder::Unread => {
                    if let Some(frame) = ready!(self.poll_queue(context)) {
                        return Poll::Ready(frame.transpose());
                    }
                }
                StoredRemainder::Opening(opening) => {
                    let opened = ready!(opening.as_mut().poll(context));
                    self.remainder = StoredRemainder::Read;
                    self.remainder = StoredRemainder::Reading(opened?);
                }
                StoredRemainder::Reading(reader) => match ready!(reader.poll_next(context)) {
                    Ok(Some(bytes)) => return Poll::Ready(Some(Ok(Frame::data(bytes)))),
                    Ok(None) => self.remainder = StoredRemainder::Read,
                    Err(error) => {
                        self.remainder = StoredRemainder::Read;
                        return Poll::Ready(Some(Err(error.into())));
                    }
                },
                StoredRemainder::Read => return Poll::Ready(None),
            }
        }
    }

    /// Returns the next frame from memory or from the origin, or the end of the body. Returns `None` once the remainder
    /// comes from the cache.
    fn poll_queue(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Option<Frame<Bytes>>, BodyError>>> {
        set(&self.fill.wakers.client, context.waker());
        let waker = Waker::from(Arc::clone(&self.fill.wakers));
        let mut context = Context::from_waker(&waker);
        let fill = Arc::clone(&self.fill);
        let mut progress = fill.lock();
        loop {
            if let Some(frame) = progress.pop() {
                // A client that knows the length does not ask for the end.
                if matches!(progress.writer, WriterState::Stored) {
                    self.end(&progress);
                }
                return Poll::Ready(Some(Ok(Some(frame))));
            }
            if let Some(error) = progress.error.take() {
                self.end(&progress);
                return Poll::Ready(Some(Err(error)));
            }
            if progress.is_over() {
                self.end(&progress);
                match progress.remainder() {
                    Some(opening) => self.remainder = StoredRemainder::Opening(opening),
                    None => return Poll::Ready(Some(Ok(None))),
                }
                return Poll::Ready(None);
            }
            ready!(progress.poll_step(&mut context));
        }
    }

    /// Ends the shared fetch, if the client has seen the end of the body first.
    fn end(&self, progress: &FillProgress<B>) {
        let end = if matches!(progress.writer, WriterState::Stored) { FetchEnd::Stored } else { FetchEnd::Failed };
        if let Some(shared) = &self.shared {
            shared.end(end);
        }
    }

    pub(crate) fn is_end_stream(&self) -> bool {
        match self.remainder {
            StoredRemainder::Unread => {
                let progress = self.fill.lock();
                let is_read = progress.queue.is_empty() && progress.last.is_none() && progress.error.is_none();
                is_read && progress.spilled_from.is_none() && progress.is_over()
            }
            StoredRemainder::Opening(_) | StoredRemainder::Reading(_) => false,
            StoredRemainder::Read => true,
        }
    }

    pub(crate) fn size_hint(&self) -> SizeHint {
        if !matches!(self.remainder, StoredRemainder::Unread) {
            return SizeHint::default();
        }
        let progress = self.fill.lock();
        if progress.spilled_from.is_some() {
            return SizeHint::default();
        }
        let last_bytes = progress.last.as_ref().map_or(0, len_of);
        let left = progress.body.size_hint();
        let held_bytes = progress.queued_bytes + last_bytes;
        let mut hint = SizeHint::new();
        if let Some(upper) = left.upper() {
            hint.set_upper(upper + held_bytes);
        }
        hint.set_lower(left.lower() + held_bytes);
        hint
    }
}

impl<B> Drop for FilledBody<B> {
    fn drop(&mut self) {
        let mut progress = self.fill.lock();
        progress.is_client_gone = true;
        progress.queue.clear();
        progress.queued_bytes = 0;
    }
}

impl<B> FillProgress<B> {
    fn pop(&mut self) -> Option<Frame<Bytes>> {
        let frame = self.queue.pop_front()?;
        self.queued_bytes -= len_of(&frame);
        Some(frame)
    }

    /// Adds a frame for the client, unless the client gets the remainder from the cache. It then gets no trailers,
    /// which a recipient may discard (RFC 9110 6.5.1).
    fn push(&mut self, frame: Frame<Bytes>) {
        if !self.is_client_gone && self.spilled_from.is_none() {
            self.queued_bytes += len_of(&frame);
            self.queue.push_back(frame);
        }
    }

    /// Lets the client get the next bytes from the cache, if it is too far behind.
    fn spill(&mut self) {
        let is_storing = matches!(self.writer, WriterState::Ready(_) | WriterState::Flushing(_));
        if is_storing && self.queued_bytes > QUEUE_BYTES_MAX && self.spilled_from.is_none() {
            self.spilled_from = Some(self.meter.received());
        }
    }

    /// Returns whether nothing more comes to the client's queue, and the response is stored or will not be.
    fn is_over(&self) -> bool {
        match self.writer {
            WriterState::Stored => self.has_ended,
            WriterState::GivenUp => self.has_ended || self.spilled_from.is_some(),
            WriterState::Ready(_) | WriterState::Flushing(_) | WriterState::Finishing(_) => false,
        }
    }

    /// Returns the opening of the part that the client gets from the cache.
    fn remainder(&mut self) -> Option<OpeningFuture> {
        let from_bytes = self.spilled_from?;
        let long = self.long.take();
        let len_bytes = self.meter.received();
        Some(Box::pin(async move {
            let gone = || io::Error::other("the cache lost the part of the body that its client had not read yet");
            let value = match long {
                Some(long) => long.open().await?.filter(|value| value.len() == len_bytes),
                None => None,
            };
            Ok(value.ok_or_else(gone)?.range_reader(from_bytes..len_bytes))
        }))
    }
}

impl<B: Body<Error: Into<BodyError>>> FillProgress<B> {
    /// Waits for the writer, or else for the next frame. Must not be called when the body is over.
    fn poll_step(&mut self, context: &mut Context<'_>) -> Poll<()> {
        ready!(self.poll_writer(context));
        if let Some(last) = self.last.take() {
            self.has_ended = true;
            self.push(last);
            return Poll::Ready(());
        }
        if self.has_ended {
            return Poll::Ready(());
        }
        match ready!(self.body.as_mut().poll_frame(context)) {
            None => {
                self.has_ended = true;
                match self.meter.end_reported(self.body.is_end_stream()) {
                    Ok(completed) => self.finish(completed),
                    Err(incomplete) => {
                        self.writer = WriterState::GivenUp;
                        // Without a length, only the cache has to know whether the body is complete.
                        self.error = self.meter.remaining().map(|_| incomplete.into());
                    }
                }
            }
            Some(Err(error)) => {
                self.has_ended = true;
                self.writer = WriterState::GivenUp;
                self.error = Some(error.into());
            }
            Some(Ok(frame)) => {
                let frame = in_bytes(frame);
                match self.take(&frame) {
                    Some(completed) => {
                        self.finish(completed);
                        self.last = Some(frame);
                    }
                    None => self.push(frame),
                }
            }
        }
        Poll::Ready(())
    }

    /// Waits for what is being written.
    fn poll_writer(&mut self, context: &mut Context<'_>) -> Poll<()> {
        match &mut self.writer {
            WriterState::Ready(_) | WriterState::Stored | WriterState::GivenUp => {}
            WriterState::Flushing(flush) => {
                self.writer = ready!(flush.as_mut().poll(context)).map_or(WriterState::GivenUp, WriterState::Ready);
            }
            WriterState::Finishing(finish) => {
                let FinishedFill { is_stored, long } = ready!(finish.as_mut().poll(context));
                self.writer = if is_stored { WriterState::Stored } else { WriterState::GivenUp };
                self.long = long;
            }
        }
        Poll::Ready(())
    }

    /// Adds a frame to what is stored. Returns the proof that the body is complete, if the frame is the last one of the
    /// content. Trailers are not stored.
    fn take(&mut self, frame: &Frame<Bytes>) -> Option<CompletedBody> {
        let Some(bytes) = frame.data_ref() else { return self.meter.end_reported(true).ok() };
        self.meter.take(bytes.len() as u64);
        self.writer = match std::mem::replace(&mut self.writer, WriterState::GivenUp) {
            WriterState::Ready(mut writer) => match writer.push(bytes.clone()) {
                true => WriterState::Flushing(Box::pin(writer.flush())),
                false => WriterState::Ready(writer),
            },
            other => other,
        };
        if self.meter.remaining() == Some(0) {
            return self.meter.end(EndMark::Length).ok();
        }
        self.body.is_end_stream().then(|| self.meter.end_reported(true).ok()).flatten()
    }

    /// Stores the response.
    fn finish(&mut self, completed: CompletedBody) {
        self.writer = match std::mem::replace(&mut self.writer, WriterState::GivenUp) {
            WriterState::Ready(writer) => WriterState::Finishing(Box::pin(writer.finish(completed))),
            WriterState::Flushing(flush) => WriterState::Finishing(Box::pin(async {
                match flush.await {
                    Some(writer) => writer.finish(completed).await,
                    None => FinishedFill::default(),
                }
            })),
            writer @ (WriterState::Finishing(_) | WriterState::Stored | WriterState::GivenUp) => writer,
        };
    }
}

impl Wake for FillWakers {
    fn wake(self: Arc<Self>) {
        wake(&self.client);
        wake(&self.driver);
    }
}

fn set(slot: &Mutex<Option<Waker>>, waker: &Waker) {
    slot.lock().ignore_poison().replace(waker.clone());
}

/// Wakes the task in a slot, which is empty afterwards.
fn wake(slot: &Mutex<Option<Waker>>) {
    let waker = slot.lock().ignore_poison().take();
    waker.into_iter().for_each(Waker::wake);
}

fn len_of(frame: &Frame<Bytes>) -> u64 {
    frame.data_ref().map_or(0, Bytes::len) as u64
}
