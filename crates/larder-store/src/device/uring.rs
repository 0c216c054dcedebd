//! A device in memory.
use super::{Device, Transfer};
/// Uring.
pub struct UringDevice {}
impl Device for UringDevice {
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
        "io_uring"
    }
}
