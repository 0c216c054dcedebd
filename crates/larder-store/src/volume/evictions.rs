//! Entries that are about to be evicted, and the receiver that may keep them elsewhere.

use crate::Hints;
use bytes::Bytes;
use std::{fmt, pin::Pin};

/// An entry that is about to be evicted, see [`crate::Store::set_evictions`].
///
/// ```
/// use larder_store::{EvictedEntry, EvictionSink};
/// use std::sync::mpsc;
///
/// let (copies, copied) = mpsc::channel();
/// let mut sink: EvictionSink = Box::new(move |EvictedEntry { key, body, .. }| {
///     copies.send((key, body)).expect("the receiver exists");
/// });
/// # let hints = larder_store::Hints::default();
/// sink(EvictedEntry { key: "key".into(), head: "the head".into(), body: "the body".into(), hints });
/// assert_eq!(copied.try_recv(), Ok(("key".into(), "the body".into())));
/// ```
#[derive(Clone, Debug)]
pub struct EvictedEntry {
    /// The entry's key.
    pub key: Bytes,
    /// The entry's head, as it was committed.
    pub head: Bytes,
    /// The entry's body. Its checksums were verified.
    pub body: Bytes,
    /// The hints with which the entry was stored.
    pub hints: Hints,
}

/// Takes the evicted entries of one batch, see [`crate::Store::set_evictions`].
///
/// ```
/// use larder_store::EvictionSink;
/// use std::sync::{Arc, atomic::{AtomicUsize, Ordering}};
///
/// let bytes = Arc::new(AtomicUsize::new(0));
/// let counting = Arc::clone(&bytes);
/// let mut sink: EvictionSink = Box::new(move |entry| {
///     counting.fetch_add(entry.body.len(), Ordering::Relaxed);
/// });
/// # let hints = larder_store::Hints::default();
/// # let entry = larder_store::EvictedEntry { key: "key".into(), head: "head".into(), body: "body".into(), hints };
/// sink(entry);
/// assert_eq!(bytes.load(Ordering::Relaxed), 4);
/// ```
pub type EvictionSink = Box<dyn FnMut(EvictedEntry) + Send>;

/// The future that ends a batch of evicted entries, see [`crate::Store::set_evictions`].
///
/// ```
/// use larder_store::EvictionFinish;
/// use std::{fs::File, sync::Arc};
///
/// /// Makes the copies of a batch durable.
/// fn finish(copies: &Arc<File>) -> EvictionFinish {
///     let copies = Arc::clone(copies);
///     Box::pin(async move { copies.sync_data().unwrap_or_else(|error| eprintln!("no copies: {error}")) })
/// }
///
/// let copies = Arc::new(tempfile::tempfile()?);
/// futures_executor::block_on(finish(&copies));
/// assert_eq!(Arc::strong_count(&copies), 1);
/// # Ok::<(), std::io::Error>(())
/// ```
pub type EvictionFinish = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Functions of the store's user that receive entries before they are evicted, see [`crate::Store::set_evictions`].
///
/// ```
/// # futures_executor::block_on(async {
/// use larder_store::{EvictionReceiver, Hints, Store, StoreOptions};
/// use std::sync::{Arc, mpsc::channel};
///
/// # let directory = tempfile::tempdir().expect("a directory");
/// # let path = directory.path().join("example.larder");
/// let store = Store::open(StoreOptions::new(path, 16 << 20))?;
/// let (sender, evicted) = channel();
/// let receiver = EvictionReceiver {
///     wants: Box::new(|_hits, len_bytes| len_bytes > 1000),
///     begin: Box::new(move || {
///         let sender = sender.clone();
///         Box::new(move |entry| drop(sender.send(entry.key)))
///     }),
///     finish: Box::new(|| Box::pin(async {})),
/// };
/// assert!(store.set_evictions(&Arc::new(receiver)));
/// # for number in 0..128_u32 {
/// #     let mut writer = store.insert(&number.to_le_bytes(), "the head".into(), Hints::default())?;
/// #     writer.write(vec![0; 256 << 10].into())?;
/// #     writer.commit().await?;
/// # }
/// // After more entries were stored than there is room for:
/// assert!(evicted.try_iter().count() > 0);
/// # store.close().await
/// # }).expect("a store in a directory of its own");
/// ```
pub struct EvictionReceiver {
    /// Returns whether the receiver wants an entry. The arguments are its number of hits and its length in bytes.
    /// Called for each entry before it is read.
    pub wants: Box<dyn Fn(u8, u64) -> bool + Send + Sync>,
    /// Creates a sink for a batch. Called before the batch is read, so that the sink can refuse entries that were
    /// replaced or removed since then.
    pub begin: Box<dyn Fn() -> EvictionSink + Send + Sync>,
    /// Ends a batch. The store waits for this future before it overwrites the entries of the batch. Until then, the
    /// receiver can still read entries that belong to the evicted ones, such as the chunks of a body.
    pub finish: Box<dyn Fn() -> EvictionFinish + Send + Sync>,
}

impl fmt::Debug for EvictionReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EvictionReceiver").finish_non_exhaustive()
    }
}
