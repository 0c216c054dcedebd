//! Objects of the benchmark: which there are, and what stands in them.
//!
//! Owns: the map from a URL's path to length, type, life cycle and every byte. Does not: keep anything. Invariant: origin and
//! client compute the same from the path and the version alone, so every byte of every answer can be checked, of a
//! range too. Cost: one multiplication for eight bytes. Distributions: PolyMix-4 (SYSTEMS 6).

use crate::random::{Random, mix};

/// Kinds of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Class {
    Image,
    Html,
    Download,
    Other,
    /// Of a length that the path says, and always storable.
    Fixed(u64),
}

/// One object: a class and a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Object {
    pub(crate) class: Class,
    pub(crate) number: u64,
}

/// What the object's number decides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Nature {
    pub(crate) len_bytes: u64,
    pub(crate) is_storable: bool,
    /// Seconds from one modification to the next.
    pub(crate) cycle_s: u64,
    phase_s: u64,
    seed: u64,
}

/// One state of an object, between two modifications.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) number: u64,
    /// Unix time of the modification that made it.
    pub(crate) since_s: u64,
    /// Unix time of the next.
    pub(crate) until_s: u64,
}

impl Object {
    /// The object at `path`, if there is one.
    pub(crate) fn at(path: &str) -> Option<Self> {
        let (kind, rest) = path.strip_prefix('/')?.split_once('/')?;
        let (class, number) = match kind {
            "i" => (Class::Image, rest),
            "h" => (Class::Html, rest),
            "d" => (Class::Download, rest),
            "o" => (Class::Other, rest),
            "f" => {
                let (len, number) = rest.split_once('/')?;
                (Class::Fixed(len.parse().ok().filter(|len| *len <= LEN_BYTES_MAX)?), number)
            }
            _ => return None,
        };
        Some(Self { class, number: number.parse().ok()? })
    }

    /// Its path.
    pub(crate) fn path(self) -> String {
        let number = self.number;
        match self.class {
            Class::Image => format!("/i/{number}"),
            Class::Html => format!("/h/{number}"),
            Class::Download => format!("/d/{number}"),
            Class::Other => format!("/o/{number}"),
            Class::Fixed(len_bytes) => format!("/f/{len_bytes}/{number}"),
        }
    }

    pub(crate) fn content_type(self) -> &'static str {
        match self.class {
            Class::Image => "image/jpeg",
            Class::Html => "text/html",
            Class::Download | Class::Fixed(_) => "application/octet-stream",
            Class::Other => "application/x-other",
        }
    }

    /// What its number decides.
    pub(crate) fn nature(self) -> Nature {
        let (kind, fixed) = match self.class {
            Class::Image => (1, 0),
            Class::Html => (2, 0),
            Class::Download => (3, 0),
            Class::Other => (4, 0),
            Class::Fixed(len_bytes) => (5, len_bytes),
        };
        let seed = mix(mix(self.number.wrapping_add(0x9E37_79B9)) ^ (kind << 56) ^ fixed);
        let mut random = Random::new(seed);
        let (kilobytes, storable, days) = match self.class {
            Class::Image => (random.exponential(4.5), 0.80, random.lognormal(30.0, 7.0)),
            Class::Html => (random.exponential(8.5), 0.90, random.lognormal(7.0, 1.0)),
            Class::Download => (random.lognormal(300.0, 300.0), 0.95, random.lognormal(182.5, 30.0)),
            Class::Other => (random.lognormal(25.0, 10.0), 0.72, 1.0 + 364.0 * random.share()),
            Class::Fixed(_) => (0.0, 1.0, 365.0),
        };
        let polymix = ((kilobytes * 1024.0) as u64).clamp(LEN_BYTES_MIN, LEN_BYTES_MAX);
        let cycle_s = ((days * 86_400.0) as u64).max(3600);
        Nature {
            len_bytes: if let Class::Fixed(len_bytes) = self.class { len_bytes } else { polymix },
            is_storable: random.happens(storable),
            cycle_s,
            phase_s: random.below(cycle_s),
            seed,
        }
    }
}

impl Nature {
    /// The version at a Unix time.
    pub(crate) fn version_at(&self, now_s: u64) -> Version {
        let number = (now_s + self.phase_s) / self.cycle_s;
        let since_s = (number * self.cycle_s).saturating_sub(self.phase_s);
        Version { number, since_s, until_s: (number + 1) * self.cycle_s - self.phase_s }
    }

    /// What of the version `number` stands at `offset_bytes` and behind.
    pub(crate) fn fill(&self, number: u64, offset_bytes: u64, bytes: &mut [u8]) {
        let key = mix(self.seed ^ number);
        let (mut word, skip) = (offset_bytes / 8, (offset_bytes % 8) as usize);
        let first = bytes.len().min((8 - skip) % 8);
        let (head, rest) = bytes.split_at_mut(first);
        if first > 0 {
            head.copy_from_slice(&content_word(key, word)[skip..skip + first]);
            word += 1;
        }
        for piece in rest.chunks_mut(8) {
            piece.copy_from_slice(&content_word(key, word)[..piece.len()]);
            word += 1;
        }
    }

    /// Whether exactly that stands in `bytes`.
    pub(crate) fn holds(&self, number: u64, offset_bytes: u64, bytes: &[u8]) -> bool {
        let mut expected = [0; CHECK_BYTES];
        bytes.chunks(CHECK_BYTES).enumerate().all(|(position, piece)| {
            let expected = &mut expected[..piece.len()];
            self.fill(number, offset_bytes + (position * CHECK_BYTES) as u64, expected);
            expected == piece
        })
    }
}

fn content_word(key: u64, word: u64) -> [u8; 8] {
    let mixed = (key ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed ^ (mixed >> 29)).to_le_bytes()
}

const LEN_BYTES_MIN: u64 = 128;
/// Longest object.
pub(crate) const LEN_BYTES_MAX: u64 = 4 << 30;
const CHECK_BYTES: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_leads_to_its_object_and_nonsense_to_none() {
        for class in [Class::Image, Class::Html, Class::Download, Class::Other, Class::Fixed(1000)] {
            let object = Object { class, number: 42 };
            assert_eq!(Object::at(&object.path()), Some(object));
        }
        for path in ["", "/", "/i", "/i/", "/i/x", "/q/1", "/f/1", "/f/99999999999/1", "/i/1/2"] {
            assert_eq!(Object::at(path), None, "{path}");
        }
    }

    #[test]
    fn any_piece_of_an_object_is_told_from_a_damaged_one() {
        let nature = Object { class: Class::Fixed(10_000), number: 7 }.nature();
        let mut whole = vec![0; 10_000];
        nature.fill(3, 0, &mut whole);
        for offset in [0, 1, 7, 8, 4095, 4096, 9999] {
            let piece = &whole[offset..];
            assert!(nature.holds(3, offset as u64, piece), "{offset}");
            assert!(!nature.holds(4, offset as u64, piece), "{offset}");
            let mut damaged = piece.to_vec();
            damaged[piece.len() / 2] ^= 1;
            assert!(!nature.holds(3, offset as u64, &damaged), "{offset}");
        }
    }

    /// At stake: a workload that is called PolyMix and is none.
    #[test]
    fn lengths_and_storable_shares_are_polymix() {
        for (class, kilobytes, storable) in [
            (Class::Image, 4.5, 0.8),
            (Class::Html, 8.5, 0.9),
            (Class::Download, 300.0, 0.95),
            (Class::Other, 25.0, 0.72),
        ] {
            let natures: Vec<_> = (0..50_000).map(|number| Object { class, number }.nature()).collect();
            let mean = natures.iter().map(|nature| nature.len_bytes as f64).sum::<f64>() / 50_000.0 / 1024.0;
            assert!((mean / kilobytes - 1.0).abs() < 0.05, "{class:?}: {mean}");
            let share = natures.iter().filter(|nature| nature.is_storable).count() as f64 / 50_000.0;
            assert!((share - storable).abs() < 0.01, "{class:?}: {share}");
        }
    }

    #[test]
    fn a_version_ends_when_the_next_begins() {
        let nature = Object { class: Class::Html, number: 1 }.nature();
        let version = nature.version_at(1_800_000_000);
        assert!((version.since_s..version.until_s).contains(&1_800_000_000));
        assert_eq!(nature.version_at(version.until_s).number, version.number + 1);
        assert_eq!(nature.version_at(version.until_s - 1), version);
    }
}
