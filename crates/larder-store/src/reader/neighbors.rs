//! Entries that are read along with a requested one, and the sink that takes them.

use super::Reader;
use crate::volume::neighbors::{BeginNeighbors, NeighborRecord};
use bytes::Bytes;
use std::sync::Arc;

/// An entry that was read along with a requested one, see [`crate::Store::set_neighbors`].
///
/// ```
/// # futures_executor::block_on(async {
/// use larder_store::{Hints, NeighborEntry, Policy, Store, StoreOptions};
/// use std::sync::{Arc, Mutex};
///
/// # let device = Arc::new(larder_device::MemoryDevice::new(16 << 20));
/// let policy = Policy::named("ucfs").expect("one of the policies");
/// let store = Store::open_on(device, &StoreOptions { policy, ..StoreOptions::new("", 16 << 20) })?;
/// for key in [b"page", b"icon"] {
///     store.insert(key, "the head".into(), Hints { site: 7, ..Hints::default() })?.commit().await?;
/// }
/// store.sync().await?;
///
/// let kept: Arc<Mutex<Vec<NeighborEntry>>> = Arc::default();
/// let keeping = Arc::clone(&kept);
/// store.set_neighbors(Arc::new(move || {
///     let keeping = Arc::clone(&keeping);
///     Box::new(move |neighbor| keeping.lock().unwrap().push(neighbor))
/// }));
/// store.get(b"page").await?;
/// let kept = kept.lock().unwrap();
/// assert_eq!((&kept[0].key[..], kept[0].reader.head()), (&b"icon"[..], "the head".into()));
/// # store.close().await
/// # }).expect("a store in memory");
/// ```
#[derive(Debug)]
pub struct NeighborEntry {
    /// The entry's key.
    pub key: Bytes,
    /// Reader of the entry. The whole record was read; its body is verified when it is used.
    pub reader: Reader,
}

/// Receives the entries that one read brought along, see [`crate::Store::set_neighbors`].
///
/// ```
/// # futures_executor::block_on(async {
/// use larder_store::{NeighborSink, Store};
/// use std::sync::{Arc, mpsc::{Sender, channel}};
///
/// fn sink_to(keys: Sender<bytes::Bytes>) -> NeighborSink {
///     Box::new(move |neighbor| keys.send(neighbor.key).expect("the receiver exists"))
/// }
///
/// # let device = Arc::new(larder_device::MemoryDevice::new(16 << 20));
/// # let policy = larder_store::Policy::named("ucfs").expect("one of the policies");
/// # let options = larder_store::StoreOptions { policy, ..larder_store::StoreOptions::new("", 16 << 20) };
/// let store = Store::open_on(device, &options)?;
/// # for key in [b"page", b"icon"] {
/// #     store.insert(key, "the head".into(), larder_store::Hints::default())?.commit().await?;
/// # }
/// # store.sync().await?;
/// let (sender, keys) = channel();
/// store.set_neighbors(Arc::new(move || sink_to(sender.clone())));
/// store.get(b"page").await?;
/// assert_eq!(keys.try_recv(), Ok("icon".into()));
/// # store.close().await
/// # }).expect("a store in memory");
/// ```
pub type NeighborSink = Box<dyn Fn(NeighborEntry) + Send + Sync>;

/// Wraps `begin` for the volumes, which pass records instead of readers.
pub(crate) fn begin_records(begin: Arc<dyn Fn() -> NeighborSink + Send + Sync>) -> BeginNeighbors {
    Arc::new(move || {
        let sink = begin();
        Box::new(move |NeighborRecord { volume, key, record, decoded }| {
            sink(NeighborEntry { key, reader: Reader::whole(volume, record, decoded) });
        })
    })
}
