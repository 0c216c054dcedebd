//! Keeps users for a minute each, with tags and shared fetches, in a program on tokio:
//! `cargo run -p larder-cache --features serde --example users`.

use larder_cache::{Cache, Result};
use serde::{Deserialize, Serialize};
use std::{io, time::Duration};

#[derive(Debug, Serialize, Deserialize)]
struct User {
    name: String,
    group: String,
}

/// Stands for a slow database.
async fn load(id: u32) -> io::Result<User> {
    tokio::time::sleep(Duration::from_millis(100)).await;
    Ok(User { name: format!("user {id}"), group: "staff".to_owned() })
}

async fn user(cache: &Cache, id: u32) -> Result<User> {
    let request = cache.entry(format!("user/{id}")).fresh_for(Duration::from_secs(60)).tag("staff");
    request.get_or_fetch_as(|| load(id)).await
}

#[tokio::main]
async fn main() -> Result<()> {
    let cache = Cache::builder(std::env::temp_dir().join("larder-users")).disk("64MB").memory("8MB").open()?;
    // Ten tasks want the same user: one of them loads it.
    let tasks: Vec<_> = (0..10)
        .map(|_| {
            let cache = cache.clone();
            tokio::spawn(async move { user(&cache, 7).await })
        })
        .collect();
    for task in tasks {
        println!("{:?}", task.await.expect("no task panics")?);
    }
    cache.remove_tag("staff").await?;
    println!("{:?}", user(&cache, 7).await?);
    let stats = cache.stats();
    println!("{} fetches, {} callers shared one", stats.fetches, stats.shared_fetches);
    cache.close().await
}
