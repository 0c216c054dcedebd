// A store of two volumes in memory. The example in the documentation of `larder_store::VolumeStats` includes this file.

use larder_device::{Device, MemoryDevice};
use larder_store::{Store, StoreOptions};
use std::sync::Arc;

pub fn two_volumes() -> Store {
    let options = StoreOptions::new("", 16 << 20);
    let devices = [1, 2].map(|_| Arc::new(MemoryDevice::new(options.size_bytes)) as Arc<dyn Device>);
    Store::open_on_all(devices.into(), &options).expect("a store in memory")
}
