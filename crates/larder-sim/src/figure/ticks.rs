//! Labels of ticks on logarithmic axes. Powers of ten alone would often give one label or none.
//!
//! This module does not know figures. Invariant: labels do not overlap.

use super::{Scale, draw};
use plotters::{coord::Shift, prelude::*};
use std::ops::Range;

/// Number of different values above which a horizontal axis only has labels at powers of ten.
const COUNT_MAX: usize = 16;
const GRID: RGBColor = RGBColor(225, 225, 225);

/// The labels of both axes. Those of a linear axis are empty.
pub(super) struct Ticks {
    across: Vec<f64>,
    upwards: Vec<f64>,
    reach: (Range<f64>, Range<f64>),
}

impl Ticks {
    /// Chooses the labels. A horizontal axis has a label for each value, if there are few. A vertical axis has them at
    /// 1, 2 and 5 times powers of ten.
    pub(super) fn of(scale: Scale, values: impl Iterator<Item = f64>, reach: (Range<f64>, Range<f64>)) -> Self {
        let (is_x_by_ratios, is_y_by_ratios) = scale.by_ratios();
        let mut across: Vec<f64> = values.filter(|_| is_x_by_ratios).collect();
        across.sort_by(f64::total_cmp);
        across.dedup();
        if across.len() < 2 || across.len() > COUNT_MAX {
            across.clear();
        }
        let tens = || (-9..=15).map(|power| 10_f64.powi(power));
        let inside = |values: Vec<f64>| values.into_iter().filter(|value| reach.1.contains(value)).collect::<Vec<_>>();
        let mut upwards =
            inside(tens().flat_map(|ten| [ten, 2.0 * ten, 5.0 * ten]).filter(|_| is_y_by_ratios).collect());
        if upwards.len() > COUNT_MAX {
            upwards = inside(tens().collect());
        }
        Self { across, upwards, reach }
    }

    pub(super) fn are_across(&self) -> bool {
        !self.across.is_empty()
    }

    pub(super) fn are_upwards(&self) -> bool {
        !self.upwards.is_empty()
    }

    /// Draws the labels and the grid lines into a chart that takes these ranges of pixels.
    pub(super) fn draw<B: DrawingBackend>(
        &self,
        area: &DrawingArea<B, Shift>,
        (across, down): (Range<i32>, Range<i32>),
    ) -> draw::DrawResult<B> {
        let style = (draw::FONT, 14).into_font().color(&BLACK);
        let gap = 6;
        let mut end = i32::MIN;
        for tick in &self.across {
            let at = across.start + part(*tick, &self.reach.0, across.end - across.start);
            area.draw(&PathElement::new([(at, down.start), (at, down.end - 1)], GRID.stroke_width(1)))?;
            let text = draw::short(*tick);
            let wide = area.estimate_text_size(&text, &style)?.0 as i32;
            if at - wide / 2 > end {
                area.draw(&Text::new(text, (at - wide / 2, down.end + gap), style.clone()))?;
                end = at + wide / 2 + gap;
            }
        }
        for tick in &self.upwards {
            let at = down.end - part(*tick, &self.reach.1, down.end - down.start);
            area.draw(&PathElement::new([(across.start + 1, at), (across.end, at)], GRID.stroke_width(1)))?;
            let text = draw::short(*tick);
            let (wide, high) = area.estimate_text_size(&text, &style)?;
            area.draw(&Text::new(text, (across.start - gap - wide as i32, at - high as i32 / 2), style.clone()))?;
        }
        Ok(())
    }
}

/// Returns how many pixels a value is from the start of an axis that is `pixels` long.
fn part(value: f64, reach: &Range<f64>, pixels: i32) -> i32 {
    ((value / reach.start).ln() / (reach.end / reach.start).ln() * f64::from(pixels)) as i32
}
