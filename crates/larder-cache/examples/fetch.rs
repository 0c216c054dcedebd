//! Fetches a value on the first run and finds it in the cache on the next: `cargo run -p larder-cache --example fetch`.

use larder_cache::{Cache, Result};

fn main() -> Result<()> {
    let cache = Cache::builder(std::env::temp_dir().join("larder-example")).disk("64MB").memory("8MB").open()?;
    futures_executor::block_on(async {
        let value = cache.get_or_fetch("greeting", || async { Ok::<_, std::io::Error>("hello") }).await?;
        println!("{} (fetches in this run: {})", String::from_utf8_lossy(&value), cache.stats().fetches);
        cache.close().await
    })
}
