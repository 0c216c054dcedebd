//! Figure 3 of Markatos et al. (USITS 1999): the time to create and remove a file.
//!
//! Owns: the method of hbench-os' `latfs`: files of one size in one directory, created and then removed. Invariant: no
//! constant of the machine was fitted to it, so it independently checks the cost of files in all other tables.

use super::MACHINE;
use crate::{
    Comparison, ModelDirectory, Report, Table,
    bed::finished,
    paper::{PaperOptions, beds::whole},
};
use larder_device::{AlignedBuffer, Directory, FileName};
use larder_store::Error;
use std::sync::Arc;

pub(crate) fn figure_3(options: &PaperOptions<'_>) -> Result<Report, Error> {
    const SIZES: [u64; 4] = [0, 1 << 10, 4 << 10, 10 << 10];
    let model = options.machine(MACHINE);
    let times = options.each(&SIZES, |len_bytes| Ok(Times::of(&ModelDirectory::new(&model), *len_bytes)))?;
    let mut report = Report::new("Markatos et al., Figure 3: creating and removing a file");
    let mut table = Table::new("", &["file, bytes", "create, ms", "remove, ms"]);
    for (len_bytes, Times { create_ms, remove_ms }) in SIZES.iter().zip(&times) {
        table.push(len_bytes.to_string(), vec![*create_ms, *remove_ms]);
    }
    let [empty, _, of_4_kb, of_10_kb] = &times[..] else { unreachable!("one for each size") };
    let printed = |what: &str, simulated: f64| Comparison::published("markatos-figure3", what, simulated);
    report.comparisons = vec![
        printed("create, empty", empty.create_ms),
        printed("create, 10 KB: close to", of_10_kb.create_ms),
        printed("create and remove, 4 KB: close to", of_4_kb.create_ms + of_4_kb.remove_ms),
        printed("remove, 10 KB", of_10_kb.remove_ms),
    ];
    report.tables.push(table);
    report.remarks.push(
        "No constant was chosen to match this figure. In the simulation, creating or removing a file waits for three \
         writes of inodes and directories. Creating a file also waits for the write of its data. The paper's text and \
         the figure's caption state different times for the removal of a file."
            .to_owned(),
    );
    Ok(report)
}

/// Mean times of operations on a file.
#[derive(Default)]
struct Times {
    create_ms: f64,
    remove_ms: f64,
}

impl Times {
    fn of(directory: &ModelDirectory, len_bytes: u64) -> Self {
        let file_count = whole("markatos.file_count");
        let names = || (0..file_count).map(|number| FileName::new(format!("{number:08X}")).expect("a name"));
        let mean_ms = |since_ns: u64| (directory.passed_ns() - since_ns) as f64 / file_count as f64 / 1e6;
        let files: &dyn Directory = directory;
        let begun_ns = directory.passed_ns();
        for file in names() {
            let buffer = Arc::new(AlignedBuffer::with_len(len_bytes as usize));
            assert!(matches!(finished(files.write(file, 0, buffer)), Some(Ok(()))), "a model refuses no file");
        }
        let create_ms = mean_ms(begun_ns);
        let begun_ns = directory.passed_ns();
        for file in names() {
            assert!(matches!(finished(files.remove(file)), Some(Ok(()))), "the file was just made");
        }
        Self { create_ms, remove_ms: mean_ms(begun_ns) }
    }
}
