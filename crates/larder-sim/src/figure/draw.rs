//! Draws figures as SVG. Widths of texts are those of an embedded font, so that figures look the same everywhere.
//!
//! Owns: colors, sizes and axes. Callers decide the content. Invariant: the same figure always gives the same picture.

use super::{Figure, FigureContent, FigureLine, Hue, Scale, ticks::Ticks};
use plotters::{
    coord::{Shift, ranged1d::IntoSegmentedCoord},
    prelude::*,
    style::{FontStyle, register_font},
};
use std::{
    error::Error,
    fs,
    ops::Range,
    path::{Path, PathBuf},
    sync::Once,
};

pub(super) const FONT: &str = "larder";
const SIZE: (u32, u32) = (960, 560);
/// Colors that people with color blindness can distinguish (Okabe and Ito, 2008).
const COLORS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(90, 90, 90),
];
/// Maximum number of labels inside the figure. If there are more, all are in a column to its right, which has
/// `BESIDE_WIDE` pixels.
const LABELS_INSIDE_MAX: usize = 7;
const BESIDE_WIDE: u32 = 190;
/// Height of the vertical axis, as a multiple of the highest bar. Leaves space for the names and values of bars.
const HEADROOM: f64 = 1.22;
/// Share of the figure's height that the label of a line takes.
const NAME_HIGH_SHARE: f64 = 0.045;
const X_LABELS_MAX: usize = 8;
/// Maximum number of points of a line that is drawn with dots.
const DOTS_MAX: usize = 40;
const PRINTED: RGBColor = RGBColor(150, 150, 150);
const GRID: RGBColor = RGBColor(225, 225, 225);

pub(super) type DrawResult<B> = Result<(), DrawingAreaErrorKind<<B as DrawingBackend>::ErrorType>>;

/// Configures the axes of a chart. A macro, because the types of charts differ by their scales.
macro_rules! axes {
    ($mesh:expr, $figure:expr) => {
        $mesh
            .x_desc(&$figure.x_label)
            .y_desc(&$figure.y_label)
            .axis_desc_style((FONT, 16))
            .label_style((FONT, 14))
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .y_label_formatter(&|value| short(*value))
    };
}

/// The reason why a figure cannot be drawn.
pub type DrawError = Box<dyn Error + Send + Sync>;

impl Figure {
    /// Draws the figure as an SVG file in `folder`, which is created if it does not exist. Returns the path of the
    /// file.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn draw(&self, folder: &Path) -> Result<PathBuf, DrawError> {
        fs::create_dir_all(folder)?;
        let svg = folder.join(&self.name).with_extension("svg");
        fs::write(&svg, self.to_svg()?)?;
        Ok(svg)
    }

    /// Draws the figure as SVG.
    ///
    /// # Errors
    /// If the figure cannot be drawn.
    pub fn to_svg(&self) -> Result<String, DrawError> {
        let mut svg = String::new();
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        self.on(&area)?;
        area.present().map_err(|error| DrawError::from(error.to_string()))?;
        drop(area);
        // The embedded font exists only here. A viewer of the SVG uses any of these fonts that it has.
        Ok(svg.replace(&format!("\"{FONT}\""), "\"Ubuntu, DejaVu Sans, Helvetica, sans-serif\""))
    }

    fn on<B: DrawingBackend>(&self, area: &DrawingArea<B, Shift>) -> Result<(), DrawError>
    where
        B::ErrorType: 'static,
    {
        static REGISTERED: Once = Once::new();
        REGISTERED.call_once(|| {
            let registered = register_font(FONT, FontStyle::Normal, epaint_default_fonts::UBUNTU_LIGHT);
            debug_assert!(registered.is_ok(), "the font that comes along is one");
        });
        let drawn = match &self.content {
            FigureContent::Lines(lines) => self.lines(area, lines),
            FigureContent::Bars(names, groups) => self.bars(area, names, groups),
        };
        drawn.map_err(|error| DrawError::from(error.to_string()))
    }

    fn lines<B: DrawingBackend>(&self, area: &DrawingArea<B, Shift>, lines: &[FigureLine]) -> DrawResult<B> {
        let points = || lines.iter().flat_map(|line| line.points.iter().copied()).filter(|point| self.can_show(*point));
        let labels = lines.iter().filter(|line| !line.label.is_empty()).count();
        let x = reach(points().map(|point| point.0));
        let y = self.with_room(reach(points().map(|point| point.1)), labels);
        let ticks = Ticks::of(self.scale, points().map(|point| point.0), (x.clone(), y.clone()));
        area.fill(&WHITE)?;
        let beside_wide = u32::from(labels > LABELS_INSIDE_MAX) * BESIDE_WIDE;
        let (area, beside) = area.split_horizontally(area.dim_in_pixel().0 - beside_wide);
        let mut chart = self.framed(&area);
        macro_rules! draw {
            ($chart:expr) => {{
                let mut chart = $chart;
                let mut mesh = chart.configure_mesh();
                let are_across = ticks.are_across();
                let are_upwards = ticks.are_upwards();
                let across = |x: &f64| if are_across { String::new() } else { short(*x) };
                let upwards = |y: &f64| if are_upwards { String::new() } else { short(*y) };
                axes!(mesh, self).x_labels(X_LABELS_MAX).x_label_formatter(&across).y_label_formatter(&upwards);
                let mesh = if are_across { mesh.disable_x_mesh() } else { &mut mesh };
                let mesh = if are_upwards { mesh.disable_y_mesh() } else { mesh };
                mesh.draw()?;
                ticks.draw(&area, chart.plotting_area().get_pixel_range())?;
                for (place, line) in lines.iter().enumerate() {
                    let color = line.hue.color(place);
                    let style = color.stroke_width(wide(place, lines.len()));
                    let points = line.points.iter().copied().filter(|point| self.can_show(*point));
                    if line.is_dashed {
                        chart.draw_series(DashedLineSeries::new(points, 6, 5, style))?;
                    } else {
                        chart.draw_series(LineSeries::new(points.clone(), style))?;
                        // When colors repeat, the dots have another shape.
                        let size = wide(place, lines.len()) + 1;
                        let circle = |point| Circle::new(point, size, color.filled());
                        let triangle = |point| TriangleMarker::new(point, 2 * size, color.filled());
                        let cross = |point| Cross::new(point, 2 * size, style);
                        match place / COLORS.len() {
                            _ if line.points.len() > DOTS_MAX => {}
                            0 => drop(chart.draw_series(points.map(circle))?),
                            1 => drop(chart.draw_series(points.map(triangle))?),
                            _ => drop(chart.draw_series(points.map(cross))?),
                        }
                    }
                    if !line.label.is_empty() {
                        // An empty series, for the line's color and name in the legend.
                        chart
                            .draw_series(LineSeries::new(std::iter::empty::<(f64, f64)>(), style))?
                            .label(&line.label)
                            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
                    }
                }
                if labels > LABELS_INSIDE_MAX {
                    return names_of_lines(&beside, lines);
                }
                chart
                    .configure_series_labels()
                    .position(SeriesLabelPosition::UpperRight)
                    .label_font((FONT, 15))
                    .legend_area_size(24)
                    .margin(12)
                    .background_style(WHITE.mix(0.85))
                    .border_style(GRID)
                    .draw()?;
            }};
        }
        match self.scale {
            Scale::Even => draw!(chart.build_cartesian_2d(x, y)?),
            Scale::LogarithmicX => draw!(chart.build_cartesian_2d(x.log_scale(), y)?),
            Scale::LogarithmicY => draw!(chart.build_cartesian_2d(x, y.log_scale())?),
            Scale::Logarithmic => draw!(chart.build_cartesian_2d(x.log_scale(), y.log_scale())?),
        }
        Ok(())
    }

    fn framed<'a, 'b, B: DrawingBackend>(&self, area: &'a DrawingArea<B, Shift>) -> ChartBuilder<'a, 'b, B> {
        let mut chart = ChartBuilder::on(area);
        if !self.title.is_empty() {
            chart.caption(&self.title, (FONT, 22).into_font());
        }
        chart.margin(14).x_label_area_size(46).y_label_area_size(86);
        chart
    }

    /// Returns the range of the vertical axis. Extends it if the labels of lines must fit inside the figure.
    fn with_room(&self, y: Range<f64>, labels: usize) -> Range<f64> {
        let inside = if labels > LABELS_INSIDE_MAX { 0 } else { labels };
        match self.scale {
            Scale::Even | Scale::LogarithmicX => 0.0..y.end / (0.95 - NAME_HIGH_SHARE * inside as f64),
            Scale::LogarithmicY | Scale::Logarithmic => {
                let low = y.start / 1.3;
                let high = y.end * 1.3;
                let share = NAME_HIGH_SHARE * inside as f64;
                low..high * (high / low).powf(share / (1.0 - share))
            }
        }
    }

    fn can_show(&self, (x, y): (f64, f64)) -> bool {
        let (is_x_by_ratios, is_y_by_ratios) = self.scale.by_ratios();
        let fits = |is_by_ratios: bool, value: f64| value.is_finite() && (!is_by_ratios || value > 0.0);
        fits(is_x_by_ratios, x) && fits(is_y_by_ratios, y)
    }

    fn bars<B: DrawingBackend>(
        &self,
        area: &DrawingArea<B, Shift>,
        names: &[String],
        groups: &[(String, Vec<f64>)],
    ) -> DrawResult<B> {
        let most = reach(groups.iter().flat_map(|(_, values)| values.iter().copied())).end;
        area.fill(&WHITE)?;
        let caption = (FONT, 22).into_font();
        let mut chart = ChartBuilder::on(area)
            .caption(&self.title, caption)
            .margin(14)
            .x_label_area_size(54)
            .y_label_area_size(86)
            .build_cartesian_2d((0..groups.len().max(1) as u32 - 1).into_segmented(), 0.0..most * HEADROOM)?;
        let mut mesh = chart.configure_mesh();
        axes!(mesh, self).disable_x_mesh().x_labels(groups.len()).x_label_formatter(&|_| String::new()).draw()?;
        // Bars are drawn in pixels, because the axis of names has no positions between the names.
        let pixels = chart.plotting_area().get_pixel_range();
        let left = f64::from(pixels.0.start);
        let wide = f64::from(pixels.0.end - pixels.0.start) / groups.len() as f64;
        let bottom = f64::from(pixels.1.end);
        let high = f64::from(pixels.1.end - pixels.1.start) / (most * HEADROOM);
        let bar_wide = wide * 0.76 / names.len().max(1) as f64;
        for (group, (name, values)) in groups.iter().enumerate() {
            let middle = left + wide * (group as f64 + 0.5);
            name_of_bars(area, name, (middle, bottom), wide * 0.94)?;
            for (bar, value) in values.iter().enumerate() {
                let color = bar_color(bar, names.len());
                let from = left + wide * (group as f64 + 0.12) + bar_wide * bar as f64;
                let top = bottom - value * high;
                area.draw(&Rectangle::new(
                    [(from as i32, top as i32), ((from + bar_wide) as i32 - 1, bottom as i32)],
                    color.filled(),
                ))?;
                let style = (FONT, 13).into_font().color(&BLACK.mix(0.8));
                let text = crate::report::number(*value);
                let text_wide = area.estimate_text_size(&text, &style)?.0;
                let at = ((from + bar_wide / 2.0) as i32 - text_wide as i32 / 2, top as i32 - 16);
                area.draw(&Text::new(text, at, style))?;
            }
        }
        legend(area, names)
    }
}

impl Hue {
    fn color(self, place: usize) -> RGBColor {
        match self {
            Self::Next => COLORS[place % COLORS.len()],
            Self::Of(place) => COLORS[place % COLORS.len()],
            Self::Gray => PRINTED,
        }
    }
}

/// Returns the color of the line with this index, as written in HTML.
pub fn color_of(place: usize) -> String {
    let RGBColor(red, green, blue) = Hue::Of(place).color(place);
    format!("#{red:02x}{green:02x}{blue:02x}")
}

/// Draws the labels of lines, each with the line's color and a dot, one below the other.
fn names_of_lines<B: DrawingBackend>(area: &DrawingArea<B, Shift>, lines: &[FigureLine]) -> DrawResult<B> {
    for (row, (place, line)) in lines.iter().enumerate().filter(|(_, line)| !line.label.is_empty()).enumerate() {
        let middle = 54 + 21 * row as i32;
        let color = line.hue.color(place);
        let style = color.stroke_width(2);
        area.draw(&PathElement::new([(4, middle), (26, middle)], style))?;
        let at = (15, middle);
        match place / COLORS.len() {
            0 => area.draw(&Circle::new(at, 3, color.filled()))?,
            1 => area.draw(&TriangleMarker::new(at, 6, color.filled()))?,
            _ => area.draw(&Cross::new(at, 6, style))?,
        }
        let text = (FONT, 15).into_font().color(&BLACK);
        area.draw(&Text::new(line.label.clone(), (33, middle - 8), text))?;
    }
    Ok(())
}

/// Draws the name of a group of bars below it. Breaks the name into lines of at most `wide` pixels.
fn name_of_bars<B: DrawingBackend>(
    area: &DrawingArea<B, Shift>,
    name: &str,
    (middle, bottom): (f64, f64),
    wide: f64,
) -> DrawResult<B> {
    let style = (FONT, 14).into_font().color(&BLACK);
    let wide_of = |text: &str| area.estimate_text_size(text, &style).map(|(wide, _)| wide);
    let mut lines: Vec<String> = Vec::new();
    for word in name.split(' ') {
        if let Some(line) = lines.last_mut() {
            let longer = format!("{line} {word}");
            if f64::from(wide_of(&longer)?) <= wide {
                *line = longer;
                continue;
            }
        }
        lines.push(word.to_owned());
    }
    for (row, line) in lines.into_iter().enumerate() {
        let at = (middle as i32 - wide_of(&line)? as i32 / 2, bottom as i32 + 7 + 16 * row as i32);
        area.draw(&Text::new(line, at, style.clone()))?;
    }
    Ok(())
}

/// Draws the names and colors of bars, next to each other above the bars.
fn legend<B: DrawingBackend>(area: &DrawingArea<B, Shift>, names: &[String]) -> DrawResult<B> {
    let mut left = 118;
    let top = 54;
    let side = 13;
    for (bar, name) in names.iter().enumerate() {
        area.draw(&Rectangle::new([(left, top), (left + side, top + side)], bar_color(bar, names.len()).filled()))?;
        let style = (FONT, 15).into_font().color(&BLACK);
        left += side + 6;
        area.draw(&Text::new(name.clone(), (left, top - 1), style.clone()))?;
        left += area.estimate_text_size(name, &style)?.0 as i32 + 24;
    }
    Ok(())
}

/// Returns the color of bar number `bar` in a group of `count`. If a group has several bars, the first is the published
/// value.
fn bar_color(bar: usize, count: usize) -> RGBColor {
    match (bar, count) {
        (0, 2..) => PRINTED,
        (bar, 2..) => COLORS[(bar - 1) % COLORS.len()],
        (bar, _) => COLORS[bar % COLORS.len()],
    }
}

/// Returns the width of the line with index `place`. If there are few lines, earlier ones are wider, so that they show
/// behind later lines that coincide with them.
fn wide(place: usize, count: usize) -> u32 {
    if count > LABELS_INSIDE_MAX { 2 } else { 2 + (count - 1 - place).min(4) as u32 }
}

/// Formats a number for an axis.
pub(super) fn short(value: f64) -> String {
    if value.fract() == 0.0 {
        return crate::report::number(value);
    }
    // Ticks are sums of steps, and 0.1 + 0.2 is not exactly 0.3 in floating point.
    let text = format!("{value:.12}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Returns the range from the least to the greatest of the finite `values`.
fn reach(values: impl Iterator<Item = f64>) -> Range<f64> {
    let finite = values.filter(|value| value.is_finite());
    let (low, high) =
        finite.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
    if low > high {
        0.0..1.0
    } else if low == high {
        low.min(0.0)..high.max(low + 1.0)
    } else {
        low..high
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_have_no_more_digits_than_their_step() {
        assert_eq!(
            [0.1 + 0.2, 0.1 * 8.0 - 1e-16, 2.5, 1500.0, 1.0 + 1e-16].map(short),
            ["0.3", "0.8", "2.5", "1,500", "1"]
        );
    }

    #[test]
    fn figures_are_drawn_as_svg() {
        let folder = tempfile::tempdir().unwrap();
        let points = vec![(1.0, 2.0), (10.0, 30.0), (100.0, 25.0)];
        let lines = vec![
            FigureLine { label: "a line".to_owned(), points, ..FigureLine::default() },
            FigureLine {
                points: vec![(0.0, 1.0), (2.0, 2.0), (50.0, 3.0)],
                is_dashed: true,
                hue: Hue::Gray,
                ..FigureLine::default()
            },
        ];
        for (name, scale) in [
            ("even", Scale::Even),
            ("x", Scale::LogarithmicX),
            ("y", Scale::LogarithmicY),
            ("both", Scale::Logarithmic),
        ] {
            let content = FigureContent::Lines(lines.clone());
            let figure =
                Figure { name: name.to_owned(), title: "A figure".to_owned(), scale, content, ..Figure::default() };
            let drawn = figure.draw(folder.path()).unwrap();
            let svg = fs::read_to_string(&drawn).unwrap();
            assert!(svg.contains("A figure") && svg.contains("a line") && svg.contains("DejaVu"), "{svg}");
        }
        let many = (0..20).map(|at| FigureLine {
            label: format!("line {at}"),
            points: vec![(1.0, f64::from(at))],
            ..FigureLine::default()
        });
        let figure = Figure { content: FigureContent::Lines(many.collect()), ..Figure::default() };
        assert!((0..20).all(|at| figure.to_svg().unwrap().contains(&format!("line {at}"))));
        let names = vec!["paper".to_owned(), "simulated".to_owned()];
        let content = FigureContent::Bars(names, vec![("squid".to_owned(), vec![20.0, 23.0])]);
        let figure = Figure { name: "bars".to_owned(), content, ..Figure::default() };
        assert!(figure.to_svg().unwrap().contains("squid"));
        let empty = Figure { name: "empty".to_owned(), ..Figure::default() };
        assert!(empty.to_svg().is_ok(), "nothing to show is no failure");
    }
}
