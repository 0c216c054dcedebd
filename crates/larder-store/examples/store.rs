//! A disk cache in a few lines: store an entry, find it again.
//!
//! `cargo run -p larder-store --example store [FILE]`; the second run finds the entry of the first.

use larder_store::{Hints, Store, StoreOptions};

fn main() -> larder_store::Result<()> {
    let path = std::env::args_os().nth(1).map_or_else(|| std::env::temp_dir().join("example.larder"), Into::into);
    let store = Store::open(StoreOptions::new(path, 64 << 20))?;
    futures_executor::block_on(async {
        store.ready().await;
        match store.get(b"greeting").await? {
            Some(reader) => {
                let body = reader.read(0..reader.len()).await?.unwrap_or_default();
                println!("found: {} ({})", String::from_utf8_lossy(&body), String::from_utf8_lossy(&reader.head()));
            }
            None => {
                let mut writer = store.insert(b"greeting", "text/plain".into(), Hints::default())?;
                writer.write("hello from disk".into())?;
                writer.commit().await?;
                println!("stored; run me again");
            }
        }
        store.close().await
    })
}
