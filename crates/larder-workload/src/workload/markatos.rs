//! A trace like the one that Markatos et al. (USITS 1999) replayed; the original is lost.
//!
//! 48 clients take turns, each requesting one object. Every client views pages, and a page has several objects of one
//! server. The next page is a recent one, an old one or a new one. The shares are chosen so that a memory LRU of 512 MB
//! hits 32% and a disk LRU of 2 GiB behind it 4%, as in footnote 2 of the paper. Memory: the history of pages that can
//! be viewed again.

use crate::{Random, random::Zipf};
use std::collections::VecDeque;

const CLIENTS: u64 = 48;
const OBJECTS_MORE: f64 = 0.75;
const OBJECTS_MAX: u64 = 30;
const SIZE_MEDIAN_BYTES: f64 = 3000.0;
const SIZE_SIGMA: f64 = 1.05;
const SIZE_BYTES: std::ops::RangeInclusive<f64> = 80.0..=8_388_608.0;
/// Mean size of a page in bytes: four objects of 5.2 KB.
const PAGE_BYTES: f64 = 4.0 * 5206.0;
const RECENT_SHARE: f64 = 0.317;
/// Greatest distance of a recent page from the newest page viewed, as a multiple of the number of pages that fit in
/// memory.
const RECENT_REACH: f64 = 0.6;
const OLD_SHARE: f64 = 0.0655;
/// Smallest distance of an old page from the newest page viewed, as a multiple of the number of pages that fit in
/// memory. The greatest distance is larger by `OLD_REACH` times the number of pages that fit on disk.
const OLD_FROM: f64 = 2.0;
const OLD_REACH: f64 = 0.8;
const SERVERS: u64 = 60_000;
const SERVER_EXPONENT: f64 = 0.8;
/// Maximum number of pages in a row that a client views on the same server.
const SERVER_RUN_MAX: u64 = 5;

/// A request for a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Document {
    /// Number of the document.
    pub number: u64,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Number of the server that has the document.
    pub server: u64,
    /// Number of the client that requests it.
    pub client: u64,
    /// Number of the page view to which the request belongs.
    pub view: u64,
}

/// An endless sequence of requests, determined by a seed.
pub struct Markatos {
    random: Random,
    servers: Zipf,
    /// The pages that were viewed, the newest last.
    history: VecDeque<Page>,
    reach: Reach,
    clients: Vec<Client>,
    turn: u64,
    views: u64,
    next_document: u64,
}

#[derive(Clone, Copy)]
struct Page {
    first_document: u64,
    /// Seed of the documents' sizes, from which the size of a document can be computed again.
    seed: u64,
    server: u64,
}

#[derive(Clone, Default)]
struct Client {
    server: u64,
    pages_left: u64,
    /// The requests of the present page that are still to come, the last one first.
    pending: Vec<Document>,
}

/// The distances at which recent and old pages are found in the history, in pages from its end.
#[derive(Clone, Copy)]
struct Reach {
    recent: f64,
    old_from: f64,
    old_to: f64,
}

impl Markatos {
    /// Creates the requests of `seed` for a cache with this memory and this disk.
    pub fn new(seed: u64, memory_bytes: u64, disk_bytes: u64) -> Self {
        let memory_pages = memory_bytes as f64 / PAGE_BYTES;
        let disk_pages = disk_bytes as f64 / PAGE_BYTES;
        let old_from = OLD_FROM * memory_pages;
        Self {
            random: Random::new(seed),
            servers: Zipf::new(SERVERS, SERVER_EXPONENT),
            history: VecDeque::new(),
            reach: Reach { recent: RECENT_REACH * memory_pages, old_from, old_to: old_from + OLD_REACH * disk_pages },
            clients: vec![Client::default(); CLIENTS as usize],
            turn: 0,
            views: 0,
            next_document: 0,
        }
    }

    fn view_next_page(&mut self, client: usize) {
        self.views += 1;
        let page = self.choose(client);
        self.history.push_back(page);
        if self.history.len() as f64 > self.reach.old_to + 1.0 {
            self.history.pop_front();
        }
        let mut sizes = Random::new(page.seed);
        let count = object_count(&mut sizes);
        let view = self.views;
        let documents = (0..count).map(|object| {
            let size = sizes.lognormal(SIZE_MEDIAN_BYTES, SIZE_SIGMA).clamp(*SIZE_BYTES.start(), *SIZE_BYTES.end());
            let number = page.first_document + object;
            Document { number, size_bytes: size as u64, server: page.server, client: client as u64, view }
        });
        let pending = &mut self.clients[client].pending;
        pending.extend(documents);
        pending.reverse();
    }

    fn choose(&mut self, client: usize) -> Page {
        let kind = self.random.share();
        let distance = if kind < RECENT_SHARE {
            self.random.log_uniform(1.0, self.reach.recent)
        } else if kind < RECENT_SHARE + OLD_SHARE {
            self.reach.old_from + self.random.share() * (self.reach.old_to - self.reach.old_from)
        } else {
            return self.new_page(client);
        };
        match self.history.len().checked_sub(distance as usize) {
            Some(at) if at < self.history.len() => self.history[at],
            _ => self.new_page(client),
        }
    }

    fn new_page(&mut self, client: usize) -> Page {
        let state = &mut self.clients[client];
        if state.pages_left == 0 {
            state.server = self.servers.draw(&mut self.random);
            state.pages_left = self.random.below(SERVER_RUN_MAX + 1);
        } else {
            state.pages_left -= 1;
        }
        let page = Page { first_document: self.next_document, seed: self.random.bits(), server: state.server };
        self.next_document += object_count(&mut Random::new(page.seed));
        page
    }
}

impl Iterator for Markatos {
    type Item = Document;

    fn next(&mut self) -> Option<Document> {
        let client = (self.turn % CLIENTS) as usize;
        self.turn += 1;
        if self.clients[client].pending.is_empty() {
            self.view_next_page(client);
        }
        self.clients[client].pending.pop()
    }
}

fn object_count(random: &mut Random) -> u64 {
    let mut count = 1;
    while count < OBJECTS_MAX && random.happens(OBJECTS_MORE) {
        count += 1;
    }
    count
}
