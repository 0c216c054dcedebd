//! Groups responses by page view: those that one client requested with the same Referer shortly after one another.
//!
//! Owns: a fixed table of page views and their numbers. Pages are not parsed. The store receives the number as
//! [`larder_store::Hints::group`].
//!
//! Invariants: a number is never 0, and numbers repeat only after 2^32 page views. A page view that was dropped from
//! the table starts again with a new number, so at worst it becomes two groups.
//!
//! Cost: 139 KB; one hash and one short lock per fetch with a Referer, three for a document. Idea: HashCache (NSDI'09):
//! same client, small time window, same Referer.

use larder_device::IgnorePoison;
use std::{
    hash::{BuildHasher, RandomState},
    net::IpAddr,
    sync::{
        Mutex,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use http::{HeaderMap, Uri, header};
use larder_http::{
    Timestamp,
    fields::{Fields, media_type},
    key::{self, path_of},
};

/// The recent page views of all clients. All workers share the table.
///
/// ```
/// use http::HeaderMap;
/// use larder_cache::http::groups::{PageAsker, PageGroups};
/// use larder_http::{Timestamp, key::primary_key};
/// use std::{net::IpAddr, time::Duration};
///
/// let groups = PageGroups::new(Duration::from_secs(4));
/// let client: IpAddr = "192.0.2.1".parse()?;
/// let asker = || PageAsker { client, now: Timestamp::from_secs(1_800_000_000) };
/// let page = groups.of_document(asker(), &primary_key("https", "a.example", "/page")?, 0);
/// // A picture of the page belongs to the page's group.
/// let mut fields = HeaderMap::new();
/// fields.insert("referer", "https://a.example/page".parse()?);
/// assert_eq!(groups.of_referred(asker(), &fields), page);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct PageGroups {
    hasher: RandomState,
    window_millis: u64,
    next: AtomicU32,
    sets: Box<[Mutex<[PageView; WAY_COUNT]>]>,
}

/// A client that requests a page, and the time of its request. [`PageGroups`] has an example.
#[derive(Clone, Copy)]
pub struct PageAsker {
    /// The address of the client.
    pub client: IpAddr,
    /// The time of the client's request.
    pub now: Timestamp,
}

/// A page that a client has requested, and the group of its entries.
#[derive(Clone, Copy, Default)]
struct PageView {
    /// Hash of the client's address and the page's URL. 0 marks an unused slot.
    hash: u64,
    begun_millis: i64,
    /// The time of the latest request that belongs to the page view, in milliseconds since the Unix epoch.
    last_millis: i64,
    group: u32,
}

impl PageView {
    fn new(hash: u64, now: Timestamp, group: u32) -> Self {
        let now_millis = now.as_millis();
        Self { hash, begun_millis: now_millis, last_millis: now_millis, group }
    }
}

impl PageGroups {
    /// Creates the table. `window` is the maximum time between two requests of the same page view. If it is zero, no
    /// groups are formed.
    pub fn new(window: Duration) -> Self {
        let hasher = RandomState::new();
        // The first number is random, because the store still has groups of earlier runs.
        let next = AtomicU32::new(hasher.hash_one("first group") as u32);
        let sets = (0..SET_COUNT).map(|_| Mutex::default()).collect();
        Self { hasher, window_millis: u64::try_from(window.as_millis()).unwrap_or(u64::MAX), next, sets }
    }

    /// Returns the group of a request: that of the page which its Referer names. 0 if it has no usable Referer.
    pub fn of_referred(&self, asker: PageAsker, request_fields: &HeaderMap) -> u32 {
        if self.window_millis == 0 {
            return 0;
        }
        let referer = request_fields.get(header::REFERER).and_then(|value| value.to_str().ok());
        let Some(name) = referer.and_then(name_of_referer) else { return 0 };
        let hash = self.hash(asker, &name);
        let mut set = self.lock(hash);
        match set.iter_mut().find(|page| page.hash == hash && self.is_live(page, asker.now)) {
            Some(page) => {
                page.last_millis = asker.now.as_millis();
                page.group
            }
            None => {
                let group = self.begin();
                put(&mut set, PageView::new(hash, asker.now, group));
                group
            }
        }
    }

    /// Returns the group of a document whose head has just arrived. Requests that name the document as their Referer
    /// get the same group.
    ///
    /// `group` is the group of the document's own Referer, or 0. `primary` is the document's key.
    pub fn of_document(&self, asker: PageAsker, primary: &[u8], group: u32) -> u32 {
        if self.window_millis == 0 {
            return 0;
        }
        let group = if group == 0 { self.begin() } else { group };
        let name = without_scheme(primary);
        // By default, a request from one site to another names only the page's origin in its Referer.
        let path = name.iter().position(|byte| *byte == b'/').map_or(name.len(), |slash| slash + 1);
        for name in [name, &name[..path]] {
            let hash = self.hash(asker, name);
            put(&mut self.lock(hash), PageView::new(hash, asker.now, group));
        }
        group
    }

    /// Returns the number for a new group of a page view. It is never 0.
    fn begin(&self) -> u32 {
        match self.next.fetch_add(1, Relaxed) {
            0 => self.next.fetch_add(1, Relaxed),
            number => number,
        }
    }

    fn is_live(&self, page: &PageView, now: Timestamp) -> bool {
        // The differences are absolute, because the clock may have been set back.
        let now_millis = now.as_millis();
        page.last_millis.abs_diff(now_millis) <= self.window_millis
            && page.begun_millis.abs_diff(now_millis) <= self.window_millis.max(VIEW_MAX_MILLIS)
    }

    fn hash(&self, asker: PageAsker, name: &[u8]) -> u64 {
        self.hasher.hash_one((asker.client, name)).max(1)
    }

    fn lock(&self, hash: u64) -> std::sync::MutexGuard<'_, [PageView; WAY_COUNT]> {
        self.sets[hash as usize % SET_COUNT].lock().ignore_poison()
    }
}

/// Returns whether other requests may name this response as their Referer, because it is a page or a style sheet.
pub fn is_document(response_fields: &impl Fields) -> bool {
    media_type(response_fields).is_some_and(|kind| DOCUMENT_TYPES.iter().any(|known| kind.eq_ignore_ascii_case(known)))
}

/// Puts a page view into a set, in place of the older view of the same page. If the set has none, the new view replaces
/// the view whose latest request is farthest in time.
fn put(set: &mut [PageView; WAY_COUNT], page: PageView) {
    let own = set.iter().position(|known| known.hash == page.hash);
    let distance = |way: &usize| set[*way].last_millis.abs_diff(page.last_millis);
    let farthest = || (0..WAY_COUNT).max_by_key(distance).unwrap_or(0);
    set[own.unwrap_or_else(farthest)] = page;
}

/// Returns the host, port and path of a Referer, in the form that they have in the key of that page.
fn name_of_referer(referer: &str) -> Option<Vec<u8>> {
    let uri: Uri = referer.parse().ok()?;
    let key = key::primary_key(uri.scheme_str()?, uri.authority()?.as_str(), path_of(&uri)).ok()?;
    Some(without_scheme(&key).to_vec())
}

/// Returns the URL in a primary key without its scheme. If a proxy in front ends TLS, clients name another scheme in
/// their Referer.
fn without_scheme(primary: &[u8]) -> &[u8] {
    let url = primary.split(|octet| *octet == b' ').next().unwrap_or(primary);
    let slashes = url.windows(3).position(|bytes| bytes == b"://");
    slashes.map_or(url, |at| &url[at + 3..])
}

/// Maximum time from the first to the last request of a page view, in milliseconds, unless the window is longer. The
/// store keeps the entries of a page together for the same time.
const VIEW_MAX_MILLIS: u64 = 12_000;
const WAY_COUNT: usize = 4;
/// Number of sets in the table. Each has [`WAY_COUNT`] slots, so 4,096 page views are remembered.
const SET_COUNT: usize = 1024;
const DOCUMENT_TYPES: [&str; 3] = ["text/html", "application/xhtml+xml", "text/css"];

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Duration = Duration::from_secs(2);

    fn asker(client: u8, millis: i64) -> PageAsker {
        PageAsker { client: IpAddr::from([10, 0, 0, client]), now: Timestamp::from_millis(millis) }
    }

    fn referred(groups: &PageGroups, asker: PageAsker, referer: &'static str) -> u32 {
        let value = header::HeaderValue::from_static(referer);
        groups.of_referred(asker, &HeaderMap::from_iter([(header::REFERER, value)]))
    }

    #[test]
    fn page_and_what_it_refers_to_are_one_group() {
        let groups = PageGroups::new(WINDOW);
        let page = groups.of_document(asker(1, 0), b"Phttp://site.example/a?b", 0);
        assert_ne!(page, 0);
        for referer in ["http://site.example/a?b", "https://SITE.example:443/a?b#c", "http://site.example/"] {
            assert_eq!(referred(&groups, asker(1, 2000), referer), page, "{referer}");
        }
        for referer in ["http://site.example/a", "http://other.example/a?b", "http://site.example:81/a?b"] {
            assert_ne!(referred(&groups, asker(1, 2000), referer), page, "{referer}");
        }
    }

    #[test]
    fn page_that_was_not_fetched_is_known_by_what_refers_to_it() {
        let groups = PageGroups::new(WINDOW);
        let first = referred(&groups, asker(1, 0), "http://site.example/");
        assert_ne!(first, 0);
        assert_eq!(referred(&groups, asker(1, 1999), "http://site.example/"), first);
    }

    #[test]
    fn style_sheet_hands_its_group_on() {
        let groups = PageGroups::new(WINDOW);
        let page = groups.of_document(asker(1, 0), b"Phttp://site.example/", 0);
        let sheet = referred(&groups, asker(1, 10), "http://site.example/");
        assert_eq!(groups.of_document(asker(1, 20), b"Phttp://cdn.example/css", sheet), page);
        assert_eq!(referred(&groups, asker(1, 30), "http://cdn.example/css"), page);
    }

    #[test]
    fn other_clients_and_later_views_are_other_groups() {
        let groups = PageGroups::new(WINDOW);
        let first = referred(&groups, asker(1, 0), "http://site.example/");
        let other = referred(&groups, asker(2, 0), "http://site.example/");
        let later = referred(&groups, asker(1, 2001), "http://site.example/");
        assert!(first != other && first != later && other != later);
        assert_eq!(referred(&groups, asker(1, 2001 + 2000), "http://site.example/"), later);
        let clock_set_back = referred(&groups, asker(1, -1000), "http://site.example/");
        assert_ne!(clock_set_back, later);
    }

    /// Guards against storing a page that loads for ten seconds in five places.
    #[test]
    fn view_goes_on_while_its_requests_follow_one_another_and_has_an_end() {
        let groups = PageGroups::new(WINDOW);
        let page = groups.of_document(asker(1, 0), b"Phttp://site.example/", 0);
        for number in 1..=11 {
            assert_eq!(referred(&groups, asker(1, number * 1000), "http://site.example/"), page, "{number} s");
        }
        assert_ne!(referred(&groups, asker(1, 12_500), "http://site.example/"), page);
        let long = PageGroups::new(Duration::from_secs(60));
        let page = long.of_document(asker(1, 0), b"Phttp://site.example/", 0);
        assert_eq!(referred(&long, asker(1, 60_000), "http://site.example/"), page);
    }

    #[test]
    fn without_referer_or_window_there_is_no_group() {
        let groups = PageGroups::new(WINDOW);
        assert_eq!(groups.of_referred(asker(1, 0), &HeaderMap::new()), 0);
        for referer in ["", "about:blank", "/path", "mailto:a@b"] {
            assert_eq!(referred(&groups, asker(1, 0), referer), 0, "{referer}");
        }
        let off = PageGroups::new(Duration::ZERO);
        assert_eq!(referred(&off, asker(1, 0), "http://site.example/"), 0);
        assert_eq!(off.of_document(asker(1, 0), b"Phttp://site.example/", 0), 0);
    }

    #[test]
    fn full_table_forgets_the_oldest_and_numbers_stay_apart() {
        let groups = PageGroups::new(WINDOW);
        groups.next.store(u32::MAX - 1000, Relaxed);
        let mut numbers: Vec<u32> = (0..20_000_u32)
            .map(|number| {
                let key = format!("Phttp://site{number}.example/");
                groups.of_document(asker(1, i64::from(number)), key.as_bytes(), 0)
            })
            .collect();
        let newest = numbers[19_999];
        assert_eq!(referred(&groups, asker(1, 20_000), "http://site19999.example/"), newest);
        assert_ne!(referred(&groups, asker(1, 1), "http://site0.example/"), numbers[0]);
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!((numbers.len(), numbers[0] > 0), (20_000, true));
    }

    #[test]
    fn documents_are_what_others_name_as_their_referer() {
        let is = |kind: &'static str| {
            is_document(&HeaderMap::from_iter([(header::CONTENT_TYPE, header::HeaderValue::from_static(kind))]))
        };
        assert!(is("text/html") && is("Text/HTML; charset=utf-8") && is("text/css") && is("application/xhtml+xml"));
        assert!(!is("image/png") && !is("text/htmlx") && !is("") && !is_document(&HeaderMap::new()));
    }
}
