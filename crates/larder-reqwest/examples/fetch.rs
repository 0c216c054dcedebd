//! Fetches a URL through a cache that lasts: `cargo run -p larder-reqwest --example fetch -- http://example.com/`.

use larder_reqwest::{Cache, CacheMiddleware};
use reqwest_middleware::ClientBuilder;
use std::error::Error;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).ok_or("usage: fetch URL")?;
    let cache = Cache::builder(std::env::temp_dir().join("larder-reqwest")).disk("1GB").memory("32MB").open()?;
    let client = ClientBuilder::new(reqwest::Client::new()).with(CacheMiddleware::new(cache.clone())).build();
    let response = client.get(url).send().await?;
    println!("{}", response.status());
    println!("cache-status: {}", response.headers()["cache-status"].to_str()?);
    println!("{} bytes", response.bytes().await?.len());
    cache.close().await?;
    Ok(())
}
