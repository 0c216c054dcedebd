//! An entry being written.
use bytes::Bytes;

/// An entry being written: visible only after [`Writer::commit`]; dropped, it leaves no trace.
pub struct Writer {}

impl Writer {
    /// Appends to the body. Cheap: keeps the reference, copies at commit.
    ///
    /// # Errors
    /// `Invalid` when the body would exceed [`Writer::BODY_MAX_BYTES`].
    pub fn write(&mut self, bytes: Bytes) -> crate::Result<()> {
        let _ = bytes;
        todo!()
    }
    /// Longest body of one entry: 1 MiB. Longer ones are stored as several entries by the caller.
    pub const BODY_MAX_BYTES: u64 = 1 << 20;
    /// Longest head: 64 KiB.
    pub const HEAD_MAX_BYTES: usize = 64 << 10;
    /// Makes the entry visible, replacing any older entry of the key. Waits while too much is dirty.
    ///
    /// # Errors
    /// `Full` when there was no room in time; `Unavailable` when the device fails; `Closed`.
    pub async fn commit(self) -> crate::Result<()> {
        todo!()
    }
}
