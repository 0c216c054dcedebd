//! Objects of the benchmark: their existence and their content.
//!
//! Owns: the map from a URL's path to length, type, life cycle and every byte. Nothing is kept. Invariant: origin and
//! client compute the same from the path and the version alone, so every byte of every response can be checked, even of
//! a range. Cost: one multiplication per eight bytes. The properties of PolyMix objects come from `larder-sim`.

use larder_workload::{PolyMixClass, PolyMixNature, PolyMixObject, Random, mix};

/// The kinds of objects, which determine length, type and life cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ObjectClass {
    /// An object of the workload PolyMix, of this class.
    Mix(PolyMixClass),
    /// An object with this length in bytes, which its path contains. It may always be stored.
    Fixed(u64),
}

/// An object, identified by its kind and its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct BenchObject {
    pub(crate) class: ObjectClass,
    pub(crate) number: u64,
}

/// The properties of an object, which follow from its kind and number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ObjectNature {
    pub(crate) len_bytes: u64,
    pub(crate) is_storable: bool,
    /// Time between two modifications of the object, in seconds.
    pub(crate) cycle_s: u64,
    phase_s: u64,
    seed: u64,
}

/// A version of an object: its content between two modifications.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ObjectVersion {
    pub(crate) number: u64,
    /// Unix time of the modification that created this version.
    pub(crate) since_s: u64,
    /// Unix time of the modification that replaces this version.
    pub(crate) until_s: u64,
}

impl BenchObject {
    /// Returns the object that `path` names. `None` if the path names none.
    pub(crate) fn at(path: &str) -> Option<Self> {
        let (kind, rest) = path.strip_prefix('/')?.split_once('/')?;
        let (class, number) = match kind {
            "i" => (ObjectClass::Mix(PolyMixClass::Image), rest),
            "h" => (ObjectClass::Mix(PolyMixClass::Html), rest),
            "d" => (ObjectClass::Mix(PolyMixClass::Download), rest),
            "o" => (ObjectClass::Mix(PolyMixClass::Other), rest),
            "f" => {
                let (len, number) = rest.split_once('/')?;
                (ObjectClass::Fixed(len.parse().ok().filter(|len| *len <= LEN_BYTES_MAX)?), number)
            }
            _ => return None,
        };
        Some(Self { class, number: number.parse().ok()? })
    }

    /// Returns the URL path of the object.
    pub(crate) fn path(self) -> String {
        let number = self.number;
        match self.class {
            ObjectClass::Mix(PolyMixClass::Image) => format!("/i/{number}"),
            ObjectClass::Mix(PolyMixClass::Html) => format!("/h/{number}"),
            ObjectClass::Mix(PolyMixClass::Download) => format!("/d/{number}"),
            ObjectClass::Mix(PolyMixClass::Other) => format!("/o/{number}"),
            ObjectClass::Fixed(len_bytes) => format!("/f/{len_bytes}/{number}"),
        }
    }

    pub(crate) fn content_type(self) -> &'static str {
        match self.class {
            ObjectClass::Mix(PolyMixClass::Image) => "image/jpeg",
            ObjectClass::Mix(PolyMixClass::Html) => "text/html",
            ObjectClass::Mix(PolyMixClass::Download) | ObjectClass::Fixed(_) => "application/octet-stream",
            ObjectClass::Mix(PolyMixClass::Other) => "application/x-other",
        }
    }

    /// Returns the properties of the object.
    pub(crate) fn nature(self) -> ObjectNature {
        let number = self.number;
        let (kind, nature) = match self.class {
            ObjectClass::Mix(class) => (class as u64, PolyMixObject { class, number }.nature()),
            ObjectClass::Fixed(len_bytes) => {
                (len_bytes << 3 | FIXED_KIND, PolyMixNature { len_bytes, is_storable: true, cycle_s: FIXED_CYCLE_S })
            }
        };
        let seed = mix(mix(number.wrapping_add(0x9E37_79B9)) ^ kind.rotate_right(8));
        let PolyMixNature { len_bytes, is_storable, cycle_s } = nature;
        ObjectNature { len_bytes, is_storable, cycle_s, phase_s: Random::new(seed).below(cycle_s), seed }
    }
}

impl ObjectNature {
    /// Returns the version that the object has at a Unix time, in seconds.
    pub(crate) fn version_at(&self, now_s: u64) -> ObjectVersion {
        let number = (now_s + self.phase_s) / self.cycle_s;
        let since_s = (number * self.cycle_s).saturating_sub(self.phase_s);
        ObjectVersion { number, since_s, until_s: (number + 1) * self.cycle_s - self.phase_s }
    }

    /// Fills `bytes` with the content of version `number`, beginning at `offset_bytes`.
    pub(crate) fn fill(&self, number: u64, offset_bytes: u64, bytes: &mut [u8]) {
        let key = mix(self.seed ^ number);
        let mut word = offset_bytes / 8;
        let skip = (offset_bytes % 8) as usize;
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

    /// Returns the index in `bytes` of the first byte that differs from the content of version `number` at
    /// `offset_bytes`. `None` if all are equal.
    pub(crate) fn first_wrong(&self, number: u64, offset_bytes: u64, bytes: &[u8]) -> Option<usize> {
        let mut expected = [0; CHECK_BYTES];
        bytes.chunks(CHECK_BYTES).enumerate().find_map(|(position, piece)| {
            let expected = &mut expected[..piece.len()];
            let begin = position * CHECK_BYTES;
            self.fill(number, offset_bytes + begin as u64, expected);
            // The pieces are first compared as a whole. Nearly all are equal, and this comparison is fast.
            let is_wrong = expected != piece;
            is_wrong.then(|| begin + expected.iter().zip(piece).take_while(|(one, other)| one == other).count())
        })
    }
}

fn content_word(key: u64, word: u64) -> [u8; 8] {
    let mixed = (key ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed ^ (mixed >> 29)).to_le_bytes()
}

/// Number that distinguishes objects of a fixed length from the classes of PolyMix, in the seed of the content.
const FIXED_KIND: u64 = 7;
const FIXED_CYCLE_S: u64 = 365 * 86_400;
/// Maximum length of an object, in bytes.
pub(crate) const LEN_BYTES_MAX: u64 = 4 << 30;
const CHECK_BYTES: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_leads_to_its_object_and_nonsense_to_none() {
        for class in
            [ObjectClass::Mix(PolyMixClass::Image), ObjectClass::Mix(PolyMixClass::Html), ObjectClass::Fixed(1000)]
        {
            let object = BenchObject { class, number: 42 };
            assert_eq!(BenchObject::at(&object.path()), Some(object));
        }
        for path in ["", "/", "/i", "/i/", "/i/x", "/q/1", "/f/1", "/f/99999999999/1", "/i/1/2"] {
            assert_eq!(BenchObject::at(path), None, "{path}");
        }
    }

    #[test]
    fn any_piece_of_an_object_is_told_from_a_damaged_one() {
        let nature = BenchObject { class: ObjectClass::Fixed(10_000), number: 7 }.nature();
        let mut whole = vec![0; 10_000];
        nature.fill(3, 0, &mut whole);
        for offset in [0, 1, 7, 8, 4095, 4096, 9999] {
            let piece = &whole[offset..];
            assert_eq!(nature.first_wrong(3, offset as u64, piece), None, "{offset}");
            assert!(nature.first_wrong(4, offset as u64, piece).is_some(), "{offset}");
            let mut damaged = piece.to_vec();
            damaged[piece.len() / 2] ^= 1;
            assert_eq!(nature.first_wrong(3, offset as u64, &damaged), Some(piece.len() / 2), "{offset}");
        }
    }

    #[test]
    fn a_version_ends_when_the_next_begins() {
        let nature = BenchObject { class: ObjectClass::Mix(PolyMixClass::Html), number: 1 }.nature();
        let version = nature.version_at(1_800_000_000);
        assert!((version.since_s..version.until_s).contains(&1_800_000_000));
        assert_eq!(nature.version_at(version.until_s).number, version.number + 1);
        assert_eq!(nature.version_at(version.until_s - 1), version);
    }
}
