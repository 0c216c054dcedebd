//! A device on threads.
use super::{Device, Transfer};
/// Threads.
pub struct ThreadsDevice {}
impl Device for ThreadsDevice {
    fn submit(&self, _transfer: Transfer) {
        todo!()
    }
    fn len_bytes(&self) -> u64 {
        todo!()
    }
    fn alignment_bytes(&self) -> u32 {
        512
    }
    fn name(&self) -> &'static str {
        "threads"
    }
}
