//! Answers two requests for a page: the first from its origin, the second from the cache.
//!
//! `cargo run -p larder-cache --features http --example site`

mod fetcher;

use larder_cache::http::fetcher::Fetcher as _;

fn main() {
    fetcher::run(async |site| {
        for _ in 0..2 {
            let answer = fetcher::get(&site, "/news").await.expect("the origin always answers");
            let (head, body) = answer.response.made(site.fetcher.marks(), answer.status).into_parts();
            let body = fetcher::read(body).await.expect("the whole page");
            println!("{} {:?}", String::from_utf8_lossy(&body), head.headers["cache-status"]);
        }
    });
}
