//! Reads sitemaps and indexes of sitemaps, plain or gzip, as sites publish them for search engines (sitemaps.org).
//!
//! Owns: extracting the URLs, and its limits. Pages are fetched elsewhere. Invariants: the uncompressed size and the
//! number of sitemaps are limited. An index may list sitemaps, but not other indexes. A document's own entities are not
//! expanded. Cost: a whole sitemap is kept in memory.

use super::fetching::WarmContext;
use crate::ground::failure::Failure;
use flate2::read::MultiGzDecoder;
use quick_xml::{Reader, events::Event};
use std::io::Read;

/// The links in a sitemap or in an index of sitemaps.
#[derive(Debug, Default, PartialEq, Eq)]
struct SitemapLinks {
    /// URLs of the sitemaps that an index lists.
    sitemaps: Vec<String>,
    pages: Vec<String>,
}

/// Returns the URLs of the pages in a sitemap. If `url` is an index, returns those of all its sitemaps.
///
/// # Errors
/// A sitemap cannot be fetched or is invalid.
pub(super) async fn fetch(warming: &WarmContext, url: &str) -> Result<Vec<String>, Failure> {
    let SitemapLinks { sitemaps, mut pages } = one(warming, url).await?;
    for sitemap in sitemaps {
        let found = one(warming, &sitemap).await?;
        if !found.sitemaps.is_empty() {
            return Err(refused(&sitemap, "an index that leads to another index"));
        }
        pages.extend(found.pages);
    }
    Ok(pages)
}

async fn one(warming: &WarmContext, url: &str) -> Result<SitemapLinks, Failure> {
    super::target(url)?;
    let failed = |why: String| {
        let help = "give the URL of a sitemap, such as https://example.com/sitemap.xml; robots.txt often names it";
        Failure::runtime(format!("cannot fetch the sitemap {url}: {why}"), help)
    };
    let bytes = warming.body(url, SITEMAP_BYTES_MAX).await.map_err(failed)?;
    let text = unpack(bytes).map_err(|why| refused(url, &why))?;
    parse(&text).map_err(|why| refused(url, &why))
}

fn refused(url: &str, why: &str) -> Failure {
    Failure::runtime(
        format!("not a sitemap: {url}: {why}"),
        "sitemaps.org describes the format; a list of URLs belongs in a file",
    )
}

/// Returns a document as text. Decompresses it first if it is gzip.
fn unpack(bytes: Vec<u8>) -> Result<String, String> {
    let bytes = if bytes.starts_with(&GZIP_MAGIC) {
        let mut unpacked = Vec::new();
        let limit = SITEMAP_BYTES_MAX as u64 + 1;
        MultiGzDecoder::new(&bytes[..]).take(limit).read_to_end(&mut unpacked).map_err(|error| error.to_string())?;
        unpacked
    } else {
        bytes
    };
    if bytes.len() > SITEMAP_BYTES_MAX {
        return Err(format!("longer than {SITEMAP_BYTES_MAX} bytes"));
    }
    String::from_utf8(bytes).map_err(|error| error.to_string())
}

/// Parses a sitemap or an index, and returns its links.
fn parse(text: &str) -> Result<SitemapLinks, String> {
    let mut reader = Reader::from_str(text.trim_start_matches('\u{feff}'));
    let mut found = SitemapLinks::default();
    let mut open = Vec::<String>::new();
    let mut location = String::new();
    let mut root = None;
    loop {
        match reader.read_event().map_err(|error| format!("{error}, at byte {}", reader.error_position()))? {
            Event::Start(tag) => {
                let name = tag.local_name().as_ref().to_owned();
                root.get_or_insert_with(|| name.clone());
                open.push(name);
                if open.len() > DEPTH_MAX {
                    return Err("elements are nested too deeply".to_owned());
                }
            }
            Event::End(_) => {
                let path: Vec<&str> = open.iter().map(String::as_str).collect();
                let url = location.trim();
                match path[..] {
                    _ if url.is_empty() => {}
                    ["sitemapindex", "sitemap", "loc"] => found.sitemaps.push(url.to_owned()),
                    ["urlset", "url", "loc"] => found.pages.push(url.to_owned()),
                    _ => {}
                }
                location.clear();
                open.pop();
            }
            Event::Text(piece) => location.push_str(&piece.xml10_content()),
            Event::CData(piece) => location.push_str(&piece.xml10_content()),
            Event::GeneralRef(reference) => {
                let letter = reference.resolve_char_ref().map_err(|error| error.to_string())?;
                match (letter, &*reference.xml10_content()) {
                    (Some(letter), _) => location.push(letter),
                    (None, "amp") => location.push('&'),
                    (None, "lt") => location.push('<'),
                    (None, "gt") => location.push('>'),
                    (None, "quot") => location.push('"'),
                    (None, "apos") => location.push('\''),
                    (None, other) => return Err(format!("it uses an entity of its own: {other}")),
                }
            }
            Event::Eof => break,
            _ => {}
        }
        if found.pages.len() > PAGE_COUNT_MAX || found.sitemaps.len() > SITEMAP_COUNT_MAX {
            return Err(format!("more than {PAGE_COUNT_MAX} pages or {SITEMAP_COUNT_MAX} sitemaps"));
        }
    }
    match root.as_deref() {
        Some("urlset" | "sitemapindex") if open.is_empty() => Ok(found),
        Some("urlset" | "sitemapindex") => Err("it ends in the middle".to_owned()),
        _ => Err("it begins with neither urlset nor sitemapindex".to_owned()),
    }
}

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
/// Maximum uncompressed size of a sitemap, in bytes, which sitemaps.org prescribes.
const SITEMAP_BYTES_MAX: usize = 50 << 20;
const PAGE_COUNT_MAX: usize = 50_000;
const SITEMAP_COUNT_MAX: usize = 1000;
const DEPTH_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn pages_and_sitemaps_are_found_with_entities_and_namespaces() {
        let page = |inner: &str| format!("<?xml version=\"1.0\"?><urlset xmlns=\"http://x\">{inner}</urlset>");
        let text = page(
            "<url><loc>\n http://a/?a=1&amp;b=2 </loc><lastmod>2026</lastmod></url><!-- no --><url><loc><![CDATA[http://a/c]]></loc>\
             <image:image><image:loc>http://a/i.png</image:loc></image:image></url>",
        );
        assert_eq!(parse(&text).unwrap().pages, ["http://a/?a=1&b=2", "http://a/c"]);
        let index =
            "<s:sitemapindex xmlns:s=\"y\"><s:sitemap><s:loc>http://a/1.xml.gz</s:loc></s:sitemap></s:sitemapindex>";
        assert_eq!(parse(index).unwrap().sitemaps, ["http://a/1.xml.gz"]);
    }

    #[test]
    fn what_is_no_sitemap_is_refused_whatever_it_does() {
        let deep = "<urlset>".repeat(1000);
        for (text, why) in [
            ("", "neither"),
            ("<html><body/></html>", "neither"),
            ("<urlset><url><loc>http://a/", "ends in the middle"),
            ("<urlset></url></urlset>", "at byte"),
            (&*deep, "too deeply"),
            ("<!DOCTYPE a [<!ENTITY x \"y\">]><urlset><url><loc>&x;</loc></url></urlset>", "an entity of its own: x"),
        ] {
            let refused = parse(text).expect_err(text);
            assert!(refused.contains(why), "{text}: {refused}");
        }
    }

    /// A few kilobytes must not decompress to gigabytes.
    #[test]
    fn gzip_is_unpacked_up_to_a_bound() {
        let pack = |bytes: &[u8]| {
            let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            packer.write_all(bytes).unwrap();
            packer.finish().unwrap()
        };
        assert_eq!(unpack(pack(b"<urlset/>")).as_deref(), Ok("<urlset/>"));
        let bomb = pack(&vec![b' '; SITEMAP_BYTES_MAX + 1]);
        assert!(bomb.len() < 1 << 20 && unpack(bomb).is_err());
        assert!(unpack(pack(b"abc")[..12].to_vec()).is_err());
        assert!(unpack(b"\xff\xfe".to_vec()).is_err());
    }
}
