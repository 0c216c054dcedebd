//! A plot of lines as SVG.
//!
//! Owns: axes, colours and legends. Does not: know what is drawn. Invariant: values that an axis cannot show (none or less on a
//! logarithmic one) are left out, never moved.

use plotters::{
    coord::{Shift, ranged1d::ValueFormatter},
    prelude::*,
    style::{FontStyle, register_font},
};
use std::{ops::Range, sync::Once};

/// How an axis goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scale {
    Linear,
    Logarithmic,
}

/// A line with a name for the legend; without one it goes with the named one of its colour.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) name: Option<String>,
    pub(super) color: usize,
    pub(super) dashed: bool,
    pub(super) points: Vec<(f64, f64)>,
}

/// A plot.
#[derive(Clone, Debug)]
pub(super) struct Plot {
    pub(super) x_title: String,
    pub(super) y_title: String,
    pub(super) x_scale: Scale,
    pub(super) y_scale: Scale,
    pub(super) lines: Vec<Line>,
}

/// Colours that are told apart by those who see no red or green (Okabe and Ito).
const COLORS: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(120, 94, 0),
];

/// The colour of a line; of one beyond all, grey.
pub(super) fn color(number: usize) -> RGBColor {
    if number == usize::MAX { RGBColor(90, 97, 105) } else { COLORS[number % COLORS.len()] }
}

impl Plot {
    /// The plot as SVG, without the head a file would have.
    pub(super) fn svg(&self) -> Result<String, String> {
        static REGISTERED: Once = Once::new();
        REGISTERED.call_once(|| {
            // Whoever looks at the page has another font of this family; this one tells how wide text is.
            let registered = register_font(FONT, FontStyle::Normal, epaint_default_fonts::UBUNTU_LIGHT);
            debug_assert!(registered.is_ok(), "the font that comes along is one");
        });
        let mut svg = String::new();
        {
            let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
            self.draw(&area)?;
        }
        Ok(svg.split_once("<svg").map_or(svg.clone(), |(_, rest)| format!("<svg{rest}")))
    }

    fn draw(&self, area: &DrawingArea<SVGBackend<'_>, Shift>) -> Result<(), String> {
        let words = |error: DrawingAreaErrorKind<_>| error.to_string();
        let (x, y) = (self.range(self.x_scale, |point| point.0), self.range(self.y_scale, |point| point.1));
        let mut builder = ChartBuilder::on(area);
        builder.margin(12).set_label_area_size(LabelAreaPosition::Left, 70);
        builder.set_label_area_size(LabelAreaPosition::Bottom, 46);
        match (self.x_scale, self.y_scale) {
            (Scale::Linear, Scale::Linear) => self.fill(builder.build_cartesian_2d(x, y).map_err(words)?),
            (Scale::Linear, Scale::Logarithmic) => {
                self.fill(builder.build_cartesian_2d(x, y.log_scale()).map_err(words)?)
            }
            (Scale::Logarithmic, Scale::Linear) => {
                self.fill(builder.build_cartesian_2d(x.log_scale(), y).map_err(words)?)
            }
            (Scale::Logarithmic, Scale::Logarithmic) => {
                self.fill(builder.build_cartesian_2d(x.log_scale(), y.log_scale()).map_err(words)?)
            }
        }
    }

    fn fill<'a, X, Y>(&self, mut chart: ChartContext<'a, SVGBackend<'a>, Cartesian2d<X, Y>>) -> Result<(), String>
    where
        X: Ranged<ValueType = f64> + ValueFormatter<f64>,
        Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
    {
        let words = |error: DrawingAreaErrorKind<_>| error.to_string();
        let grey = RGBColor(225, 228, 232);
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(grey)
            .axis_style(RGBColor(138, 147, 156))
            .label_style((FONT, 14).into_font().color(&RGBColor(69, 76, 84)))
            .axis_desc_style((FONT, 15).into_font().color(&RGBColor(69, 76, 84)))
            .x_desc(self.x_title.as_str())
            .y_desc(self.y_title.as_str())
            .x_label_formatter(&|value| number(*value))
            .y_label_formatter(&|value| number(*value))
            .draw()
            .map_err(words)?;
        for line in &self.lines {
            let color = color(line.color);
            let points = line.points.iter().copied().filter(|point| self.can_show(*point));
            if line.dashed {
                let style = color.mix(0.75).stroke_width(2);
                let series = DashedLineSeries::new(points, 6, 5, style);
                chart.draw_series(series).map_err(words)?;
            } else {
                chart.draw_series(LineSeries::new(points, color.stroke_width(2))).map_err(words)?;
            }
            if let Some(name) = &line.name {
                // A series of nothing, so that the legend has the line's style and name.
                let none = std::iter::empty::<(f64, f64)>();
                chart
                    .draw_series(LineSeries::new(none, color.stroke_width(2)))
                    .map_err(words)?
                    .label(name.as_str())
                    .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], color.stroke_width(3)));
            }
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperRight)
            .background_style(WHITE.mix(0.85))
            .border_style(grey)
            .label_font((FONT, 15).into_font().color(&RGBColor(27, 31, 36)))
            .draw()
            .map_err(words)
    }

    fn can_show(&self, point: (f64, f64)) -> bool {
        let fits = |scale, value: f64| value.is_finite() && (scale == Scale::Linear || value > 0.0);
        fits(self.x_scale, point.0) && fits(self.y_scale, point.1)
    }

    /// From the least to the greatest value with some room; from 0 if the axis is linear.
    fn range(&self, scale: Scale, value: impl Fn((f64, f64)) -> f64) -> Range<f64> {
        let points = self.lines.iter().flat_map(|line| &line.points).copied().filter(|point| self.can_show(*point));
        let (low, high) = points
            .map(value)
            .fold((f64::INFINITY, 0.0), |(low, high): (f64, f64), value| (low.min(value), high.max(value)));
        match scale {
            _ if high <= 0.0 => 0.1..1.0,
            Scale::Linear => 0.0..high * 1.25,
            Scale::Logarithmic => low / 1.3..(high * 2.5).max(low * 10.0),
        }
    }
}

/// A number on an axis: no digits that mean nothing.
fn number(value: f64) -> String {
    let size = value.abs();
    match size {
        _ if size >= 1e6 => format!("{:.1}M", value / 1e6),
        _ if size >= 10_000.0 => format!("{:.0}k", value / 1000.0),
        _ if size >= 100.0 || size == 0.0 => format!("{value:.0}"),
        _ if size >= 1.0 => trimmed(&format!("{value:.1}")),
        _ if size >= 0.01 => trimmed(&format!("{value:.2}")),
        _ => format!("{value:.0e}"),
    }
}

fn trimmed(number: &str) -> String {
    number.trim_end_matches('0').trim_end_matches('.').to_owned()
}

const SIZE: (u32, u32) = (960, 360);
const FONT: &str = "sans-serif";
