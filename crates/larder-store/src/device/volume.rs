//! The volume file.
use super::Device;
use crate::{IoChoice, Result};
use std::{path::Path, sync::Arc};
/// An opened, exclusively locked volume file.
pub struct VolumeFile {}
impl VolumeFile {
    /// Opens an existing file.
    pub fn open(_path: &Path) -> Result<Self> {
        todo!()
    }
    /// Creates.
    pub fn create(_path: &Path, _size_bytes: u64) -> Result<Self> {
        todo!()
    }
}
/// Makes a device.
pub fn open_device(_file: VolumeFile, _io: IoChoice) -> Result<Arc<dyn Device>> {
    todo!()
}
