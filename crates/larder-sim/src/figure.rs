//! A figure as data: its values and axes.
//!
//! [`draw`] draws figures from this data alone.

mod draw;
mod ticks;

use crate::Table;
pub use draw::{DrawError, color_of};

/// A figure.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figure {
    /// File name without extension.
    pub name: String,
    /// The title.
    pub title: String,
    /// Name and unit of the horizontal axis; empty if bars have names.
    pub x_label: String,
    /// Name and unit of the vertical axis.
    pub y_label: String,
    /// The scale of the axes.
    pub scale: Scale,
    /// Lines, or bars with names.
    pub content: FigureContent,
}

/// The scale of axes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scale {
    /// Both axes are linear; the vertical one starts at 0.
    #[default]
    Even,
    /// The horizontal axis is logarithmic.
    LogarithmicX,
    /// The vertical axis is logarithmic.
    LogarithmicY,
    /// Both axes are logarithmic.
    Logarithmic,
}

impl Scale {
    /// Returns whether the horizontal and the vertical axis are logarithmic.
    fn by_ratios(self) -> (bool, bool) {
        match self {
            Self::Even => (false, false),
            Self::LogarithmicX => (true, false),
            Self::LogarithmicY => (false, true),
            Self::Logarithmic => (true, true),
        }
    }

    /// Returns the scale with a logarithmic vertical axis.
    pub(crate) fn with_ratios_upwards(self) -> Self {
        match self {
            Self::Even | Self::LogarithmicY => Self::LogarithmicY,
            Self::LogarithmicX | Self::Logarithmic => Self::Logarithmic,
        }
    }
}

/// The content of a figure.
#[derive(Clone, Debug, PartialEq)]
pub enum FigureContent {
    /// Lines through points.
    Lines(Vec<FigureLine>),
    /// Groups of bars: the names of a group's bars, and each group's name and values.
    Bars(Vec<String>, Vec<(String, Vec<f64>)>),
}

impl FigureContent {
    /// Returns the second value of a table's rows against the first: a line for each name if one has several rows,
    /// otherwise bars.
    pub(crate) fn by_name(table: &Table) -> Self {
        let mut lines: Vec<FigureLine> = Vec::new();
        for (name, values) in &table.rows {
            let point = (values[0], values[1]);
            match lines.iter_mut().find(|line| line.label == *name) {
                Some(line) => line.points.push(point),
                None => lines.push(FigureLine { label: name.clone(), points: vec![point], ..FigureLine::default() }),
            }
        }
        if lines.iter().any(|line| line.points.len() > 1) {
            return Self::Lines(lines);
        }
        let bars = lines.into_iter().map(|line| (line.label, vec![line.points[0].1]));
        Self::Bars(table.columns.get(2).cloned().into_iter().collect(), bars.collect())
    }
}

impl Default for FigureContent {
    fn default() -> Self {
        Self::Lines(Vec::new())
    }
}

/// A line.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FigureLine {
    /// The label; empty for a line that shares the color and label of another.
    pub label: String,
    /// The points, from left to right. Those that a logarithmic axis cannot show are left out.
    pub points: Vec<(f64, f64)>,
    /// The color.
    pub hue: Hue,
    /// Set for a dashed line without dots.
    pub is_dashed: bool,
}

/// The color of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hue {
    /// The color assigned to the line's index.
    #[default]
    Next,
    /// The color assigned to this index.
    Of(usize),
    /// Gray, for published values and limits.
    Gray,
}
