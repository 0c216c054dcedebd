//! Tables on a terminal whose rows are printed as they become known: a name, then values, each at its column's width.
//!
//! Owns: widths and the two lines of the header. The content is known elsewhere (tables that are known as a whole are
//! `larder_sim`'s reports).

const NAME_WIDTH: usize = 22;

/// Columns behind that of the names: both lines of the header, and the width.
pub(crate) struct Columns {
    pub(crate) name: &'static str,
    pub(crate) values: &'static [(&'static str, &'static str, usize)],
    /// Heads whatever stands behind the last column.
    pub(crate) rest: &'static str,
}

impl Columns {
    /// Returns both lines of the header.
    pub(crate) fn header(&self) -> String {
        let first = self.values.iter().map(|(first, _, _)| *first);
        let second = self.values.iter().map(|(_, second, _)| *second);
        format!("{}{}\n{}", self.row(' ', self.name, first), self.rest, self.row(' ', "", second))
    }

    /// Returns one row, with a mark in front of it.
    pub(crate) fn row<T: AsRef<str>>(&self, mark: char, name: &str, cells: impl IntoIterator<Item = T>) -> String {
        let mut row = format!("{mark} {name:NAME_WIDTH$}");
        for (cell, (_, _, width)) in cells.into_iter().zip(self.values) {
            row += &format!("{:>width$}", cell.as_ref());
        }
        row
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_left_and_values_right_under_their_heads() {
        let columns =
            Columns { name: "policy", values: &[("reads", "a hit", 8), ("hits", "", 6)], rest: "  limited by" };
        let expected = "  policy                   reads  hits  limited by\n                           a hit      ";
        assert_eq!(columns.header(), expected);
        assert_eq!(columns.row('*', "log", ["1.00", "60%"]), "* log                       1.00   60%");
    }
}
