//! Answers requests for two pages: from their origin, and then from the cache.
//!
//! `cargo run -p larder-cache --features http --example site`

mod fetcher;

use fetcher::PageRequest;
use http::HeaderMap;
use larder_cache::http::{
    answer::{AnswerResponse, CacheQuery},
    fetcher::Fetcher as _,
};
use std::sync::Arc;

fn main() {
    fetcher::run(async |site| {
        for _ in 0..2 {
            let answer = fetcher::get(&site, "/news").await.expect("the origin always answers");
            let (head, body) = answer.response.made(site.fetcher.marks(), answer.status).into_parts();
            let body = fetcher::read(body).await.expect("the whole page");
            println!("{} {:?}", String::from_utf8_lossy(&body).trim_end(), head.headers["cache-status"]);
        }

        // A server that encodes heads itself takes a stored head as it is, without a copy.
        fetcher::store(&site, "/weather").await;
        let asked = Arc::new(PageRequest::new("/weather", HeaderMap::new()).plain());
        let answer = CacheQuery { http: &site, asked: &asked }.answer().await.expect("it is stored");
        if let AnswerResponse::Plain(plain) = answer.response {
            println!("{} bytes, stored with {:?}", plain.body.len(), plain.head().fields());
        }
    });
}
