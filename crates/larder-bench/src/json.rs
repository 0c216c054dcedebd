//! Results as JSON: for other programs, and for `larder plan`.
//!
//! Owns: the form, and parsing. Invariant: figures that cannot be used for a plan are refused here, with the reason.

use larder_store::plan::DeviceFigures;
use serde::Serialize;

/// Formats figures, a plan or a result as JSON.
///
/// # Panics
/// If `value` cannot be represented as JSON, for example because a map has keys that are not strings.
pub fn to_json<T: Serialize>(value: &T) -> String {
    serde_json::to_string_pretty(value).expect("numbers and words can always be written")
}

/// Parses the figures of a disk from JSON.
///
/// # Errors
/// The text is not JSON of this form, or a plan could not use the figures. The error says why.
pub fn figures_from_json(text: &str) -> Result<DeviceFigures, String> {
    let figures: DeviceFigures = serde_json::from_str(text).map_err(|error| error.to_string())?;
    figures.fault().map_or(Ok(figures), |fault| Err(fault.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_store::plan::BesideReads;

    #[test]
    fn figures_survive_their_file_and_nonsense_is_refused() {
        let mut figures = DeviceFigures::typical_solid_state();
        figures.beside_reads = Some(BesideReads { sequential_write: 2e8, random_write_times: 1.5 });
        let text = to_json(&figures);
        let read = figures_from_json(&text).unwrap();
        assert_eq!((read.beside_reads, &read.files), (figures.beside_reads, &figures.files));
        assert_eq!((read.reads.len(), read.writes.len()), (figures.reads.len(), figures.writes.len()));
        let odd = to_json(&DeviceFigures { sequential_write: -1.0, ..figures });
        for text in ["", "{}", &odd, &text.replace("reads", "read")] {
            assert!(figures_from_json(text).is_err(), "{text}");
        }
    }
}
