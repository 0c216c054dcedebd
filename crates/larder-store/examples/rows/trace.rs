//! A seeded trace of page views: pages of one site, with objects that are requested together.
//!
//! Popularity of pages is log-uniform (Zipf with exponent 1), sizes are lognormal with the median and
//! spread of the synthetic trace of Markatos et al. (3,000 B, sigma 1.05; mean 5.2 KB).

use bytes::Bytes;
use larder_store::{Hints, SplitMix64};

/// Objects of a page, at most.
const PAGE_OBJECTS_MAX: u64 = 12;
/// Pages of a site.
const SITE_PAGES: u64 = 20;
const BODY_BYTES_MAX: f64 = 1_000_000.0;
const SIGMA: f64 = 1.05;

/// One object of a page.
#[derive(Clone, Copy)]
pub(crate) struct Object {
    page: u64,
    number: u64,
}

impl Object {
    /// Returns object number `number` of page `page`.
    pub(crate) fn new(page: u64, number: u64) -> Self {
        Self { page, number }
    }

    pub(crate) fn key(self) -> Vec<u8> {
        format!("http://site{}.test/page{}/{}", self.page / SITE_PAGES, self.page, self.number).into_bytes()
    }

    /// Hints of a view of its page.
    pub(crate) fn hints(self, view: u64) -> Hints {
        Hints { site: self.page / SITE_PAGES, group: view, ..Hints::default() }
    }

    /// Returns the body, `median` bytes long half of the time or more.
    pub(crate) fn body(self, median: f64) -> Bytes {
        let mut random = SplitMix64::new(self.page << 8 | self.number);
        // Twelve uniform numbers are normal enough.
        let normal = (0..12).map(|_| random.share()).sum::<f64>() - 6.0;
        let len = (median * (SIGMA * normal).exp()).clamp(80.0, BODY_BYTES_MAX) as usize;
        let word = random.next_u64().to_le_bytes();
        word.iter().copied().cycle().take(len).collect::<Vec<_>>().into()
    }
}

/// Returns the objects of a page.
pub(crate) fn page(page: u64) -> impl Iterator<Item = Object> {
    let count = 1 + SplitMix64::new(page ^ 0xA5A5).next_u64() % PAGE_OBJECTS_MAX;
    (0..count).map(move |number| Object { page, number })
}

/// Returns a page by popularity, of `count`.
pub(crate) fn popular_page(random: &mut SplitMix64, count: u64) -> u64 {
    ((count as f64).powf(random.share()) as u64).saturating_sub(1)
}
