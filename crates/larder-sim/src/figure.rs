//! A figure as data: its values and axes.
//!
//! [`draw`] draws figures from this data alone.

mod draw;
mod ticks;

use crate::Table;
pub use draw::{DrawError, color_of};

/// A figure as data, which can be drawn.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figure {
    /// Name of the file, without extension.
    pub name: String,
    /// The title.
    pub title: String,
    /// Name and unit of the horizontal axis; empty if the figure has bars with names.
    pub x_label: String,
    /// Name and unit of the vertical axis.
    pub y_label: String,
    /// The scale of the axes.
    pub scale: Scale,
    /// The lines or bars that the figure shows.
    pub content: FigureContent,
}

/// The logarithmic axes of a figure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scale {
    /// Neither axis is logarithmic. The vertical axis starts at 0.
    #[default]
    Even,
    /// Only the horizontal axis is logarithmic.
    LogarithmicX,
    /// Only the vertical axis is logarithmic.
    LogarithmicY,
    /// Both axes are logarithmic.
    Logarithmic,
}

impl Scale {
    /// Returns whether the horizontal axis is logarithmic, and whether the vertical axis is.
    fn by_ratios(self) -> (bool, bool) {
        match self {
            Self::Even => (false, false),
            Self::LogarithmicX => (true, false),
            Self::LogarithmicY => (false, true),
            Self::Logarithmic => (true, true),
        }
    }

    /// Returns the same scale, with a logarithmic vertical axis.
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
    /// Groups of bars. First the names of the bars in each group, then the name and the values of each group.
    Bars(Vec<String>, Vec<(String, Vec<f64>)>),
}

impl FigureContent {
    /// Converts a table to lines or bars. If a row's name occurs several times, each name is a line, with the first
    /// value as x and the second as y. Otherwise, each row is a bar with the second value.
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

/// A line of a figure.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FigureLine {
    /// Label of the line; empty if it shares color and label with another line.
    pub label: String,
    /// Points of the line, from left to right. Points that a logarithmic axis cannot show are left out.
    pub points: Vec<(f64, f64)>,
    /// Color of the line.
    pub hue: Hue,
    /// Whether the line is dashed and has no dots.
    pub is_dashed: bool,
}

/// The way in which the color of a line is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hue {
    /// The line has the color of its own index.
    #[default]
    Next,
    /// The line has the color of this index.
    Of(usize),
    /// The line is gray, for published values and limits.
    Gray,
}
