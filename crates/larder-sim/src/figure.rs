//! A figure as data: what is drawn against what.
//!
//! Does not: draw; [`draw`] does, from nothing but what stands here.

mod draw;
mod ticks;

pub use draw::{DrawError, colour_of};

/// A figure.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figure {
    /// Its file's name, without ending.
    pub name: String,
    /// What it shows.
    pub title: String,
    /// Name and unit of the horizontal axis; empty where bars have names.
    pub x_label: String,
    /// Name and unit of the vertical axis.
    pub y_label: String,
    /// How the axes run.
    pub scale: Scale,
    /// Lines, or bars by name.
    pub content: FigureContent,
}

/// How axes run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scale {
    /// Both evenly, the vertical one from 0.
    #[default]
    Even,
    /// The horizontal one by ratios.
    LogarithmicX,
    /// The vertical one by ratios.
    LogarithmicY,
    /// Both by ratios.
    Logarithmic,
}

impl Scale {
    /// Which of its axes run by ratios: the horizontal one, the vertical one.
    fn by_ratios(self) -> (bool, bool) {
        match self {
            Self::Even => (false, false),
            Self::LogarithmicX => (true, false),
            Self::LogarithmicY => (false, true),
            Self::Logarithmic => (true, true),
        }
    }

    /// The same with the vertical axis by ratios.
    pub(crate) fn with_ratios_upwards(self) -> Self {
        match self {
            Self::Even | Self::LogarithmicY => Self::LogarithmicY,
            Self::LogarithmicX | Self::Logarithmic => Self::Logarithmic,
        }
    }
}

/// What is drawn.
#[derive(Clone, Debug, PartialEq)]
pub enum FigureContent {
    /// Lines through points.
    Lines(Vec<FigureLine>),
    /// Groups of bars: the names of a group's bars, and each group's name and values.
    Bars(Vec<String>, Vec<(String, Vec<f64>)>),
}

impl Default for FigureContent {
    fn default() -> Self {
        Self::Lines(Vec::new())
    }
}

/// A line.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FigureLine {
    /// What it is of; nothing for one that goes with another of its hue.
    pub label: String,
    /// Its points, from left to right. Those that an axis by ratios cannot show are left out.
    pub points: Vec<(f64, f64)>,
    /// Its colour.
    pub hue: Hue,
    /// Whether it is dashed and without dots.
    pub is_dashed: bool,
}

/// The colour of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hue {
    /// That of its place among the lines.
    #[default]
    Next,
    /// That of this place.
    Of(usize),
    /// Grey: what was printed, or a limit.
    Grey,
}
