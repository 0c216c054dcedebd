//! A device in memory.
use super::{Device, Transfer};
/// A device in memory, for tests and for measuring the engine without a disk.
pub struct MemoryDevice {}
impl Device for MemoryDevice {
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
        "memory"
    }
}
