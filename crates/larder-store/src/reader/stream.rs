//! A body as `AsyncRead` and `AsyncSeek`, for libraries that need these traits.
//!
//! Cost: one boxed future per device read; none for the part that was read with the head.

use super::Reader;
use crate::Result;
use bytes::Bytes;
use futures_io::{AsyncRead, AsyncSeek};
use std::{
    future::Future,
    io::{self, SeekFrom},
    pin::Pin,
    task::{Context, Poll, ready},
};

/// Maximum number of bytes that one read requests.
const STEP_BYTES: u64 = 256 << 10;

type Step = Pin<Box<dyn Future<Output = Result<Option<Bytes>>> + Send>>;

/// The body of an entry as a stream. Each byte is verified before it is returned.
///
/// ```
/// # futures_executor::block_on(async {
/// use futures_io::AsyncRead;
/// use larder_store::{BodyStream, Hints, Store, StoreOptions};
/// use std::{future::poll_fn, pin::Pin};
///
/// # let directory = tempfile::tempdir().expect("a directory");
/// # let path = directory.path().join("example.larder");
/// # let store = Store::open(StoreOptions::new(path, 16 << 20))?;
/// let mut writer = store.insert(b"key", "the head".into(), Hints::default())?;
/// writer.write("the body".into())?;
/// writer.commit().await?;
/// let reader = store.get(b"key").await?.expect("the entry was just committed");
/// let mut stream: BodyStream = reader.into_stream();
/// let mut bytes = [0; 16];
/// let len = poll_fn(|context| Pin::new(&mut stream).poll_read(context, &mut bytes)).await.expect("an entry");
/// assert_eq!(&bytes[..len], b"the body");
/// # store.close().await
/// # }).expect("a store in a directory of its own");
/// ```
pub struct BodyStream {
    reader: Reader,
    position: u64,
    ready: Bytes,
    step: Option<Step>,
}

impl_debug!(BodyStream { reader, position });

impl BodyStream {
    pub(super) fn new(reader: Reader) -> Self {
        Self { reader, position: 0, ready: Bytes::new(), step: None }
    }

    fn next_step(&self) -> Step {
        let reader = self.reader.clone();
        let start = self.position;
        let end = reader.len().min(start + STEP_BYTES);
        Box::pin(async move { reader.read(start..end).await })
    }
}

impl AsyncRead for BodyStream {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, target: &mut [u8]) -> Poll<io::Result<usize>> {
        if self.ready.is_empty() {
            if self.position >= self.reader.len() || target.is_empty() {
                return Poll::Ready(Ok(0));
            }
            if self.step.is_none() {
                self.step = Some(self.next_step());
            }
            let Some(step) = self.step.as_mut() else { return Poll::Ready(Ok(0)) };
            let outcome = ready!(step.as_mut().poll(context));
            self.step = None;
            let bytes = outcome.map_err(io::Error::other)?;
            self.ready =
                bytes.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the entry is gone or damaged"))?;
        }
        let count = target.len().min(self.ready.len());
        target[..count].copy_from_slice(&self.ready.split_to(count));
        self.position += count as u64;
        Poll::Ready(Ok(count))
    }
}

impl AsyncSeek for BodyStream {
    fn poll_seek(mut self: Pin<&mut Self>, _: &mut Context<'_>, to: SeekFrom) -> Poll<io::Result<u64>> {
        let target = match to {
            SeekFrom::Start(offset) => Some(offset),
            SeekFrom::Current(offset) => self.position.checked_add_signed(offset),
            SeekFrom::End(offset) => self.reader.len().checked_add_signed(offset),
        };
        let Some(target) = target else {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidInput, "seek before the start of the body")));
        };
        (self.position, self.ready, self.step) = (target, Bytes::new(), None);
        Poll::Ready(Ok(target))
    }
}
