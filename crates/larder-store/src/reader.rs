//! A found entry.
use bytes::Bytes;
use std::ops::Range;

/// A found entry: its head at once, its body in verified ranges.
#[derive(Clone)]
pub struct Reader {}

impl Reader {
    /// The head as it was committed.
    pub fn head(&self) -> Bytes {
        todo!()
    }
    /// Length of the body in bytes.
    pub fn len(&self) -> u64 {
        todo!()
    }
    /// Whether the body is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// The bytes of `range` of the body, verified. `None`: damaged, or reused meanwhile; treat the
    /// entry as a miss. Costs a device read only if the entry is longer than what `get` has read.
    pub async fn read(&self, range: Range<u64>) -> crate::Result<Option<Bytes>> {
        let _ = range;
        todo!()
    }
}
