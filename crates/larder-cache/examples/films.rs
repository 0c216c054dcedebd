//! Fetches five values of 100 MB and waits to be killed. The next run finds them on disk:
//! `cargo run -p larder-cache --example films`. The README has the same program.

use larder_cache::Cache;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let cache = Cache::builder(std::env::temp_dir().join("films")).disk("2GB").memory("64MB").open()?;
    for number in 0..5_u8 {
        let fetch = || async move { Ok::<_, std::io::Error>(vec![number; 100_000_000]) };
        let film = cache.get_or_fetch(format!("film {number}"), fetch).await?;
        assert!(film.len() == 100_000_000 && film.iter().all(|&byte| byte == number));
    }
    println!("5 films of 100 MB, {} fetched in this run", cache.stats().fetches);
    std::future::pending().await
}
