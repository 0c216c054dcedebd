//! Tables on a terminal whose rows are printed as they become known.
//!
//! A row has a name, then values, each as wide as its column. Owns: the widths, and the two lines of the header. Tables
//! that are known as a whole are `larder_sim`'s reports.

const NAME_WIDTH: usize = 22;

/// The columns of a table, after the first one, which contains names.
pub(crate) struct Columns {
    pub(crate) name: &'static str,
    pub(crate) values: &'static [(&'static str, &'static str, usize)],
    /// Header of the text that may follow the last column.
    pub(crate) rest: &'static str,
}

impl Columns {
    /// Returns the two lines of the header.
    pub(crate) fn header(&self) -> String {
        let first = self.values.iter().map(|(first, _, _)| *first);
        let second = self.values.iter().map(|(_, second, _)| *second);
        format!("{}{}\n{}", self.row(' ', self.name, first), self.rest, self.row(' ', "", second))
    }

    /// Returns a row: the character `mark`, the name, and a cell for each column.
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
