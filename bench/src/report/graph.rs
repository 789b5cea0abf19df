//! Graphs: curves with their spread, bars for categories, and lines over time with bands for faults. Each as SVG and as PNG.

use super::statistics::Summary;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::FontStyle;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Once;

/// Colours that are told apart by those who see fewer of them (Okabe and Ito), and a few more.
const COLOURS: [RGBColor; 10] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(90, 90, 90),
    RGBColor(130, 30, 60),
    RGBColor(60, 60, 160),
    RGBColor(150, 150, 0),
];
const SIZE: (u32, u32) = (960, 540);
const FONT: &str = "sans-serif";

pub struct Curve {
    pub label: String,
    pub points: Vec<(f64, Summary)>,
}

pub struct Figure {
    /// Of its files, without an ending.
    pub name: String,
    pub title: String,
    x_title: String,
    y_title: String,
    pub logarithmic: bool,
    /// No dots: there are too many.
    pub lines_only: bool,
    /// Bars instead of curves: a group for each of these, at 0, 1, 2 …
    pub categories: Vec<String>,
    pub bands: BTreeMap<String, (f64, f64)>,
    pub curves: Vec<Curve>,
}

impl Figure {
    pub fn new(name: &str, title: &str, x_title: &str, y_title: &str) -> Figure {
        Figure {
            name: name.to_owned(),
            title: title.to_owned(),
            x_title: x_title.to_owned(),
            y_title: y_title.to_owned(),
            logarithmic: false,
            lines_only: false,
            categories: Vec::new(),
            bands: BTreeMap::new(),
            curves: Vec::new(),
        }
    }

    pub fn add(&mut self, label: &str, x: f64, y: &Summary) {
        match self.curves.iter_mut().find(|curve| curve.label == label) {
            Some(curve) => curve.points.push((x, *y)),
            None => self.curves.push(Curve { label: label.to_owned(), points: vec![(x, *y)] }),
        }
    }

    /// A point that is alone in a curve whose label begins so becomes a line over the whole width.
    pub fn stretch(&mut self, label: &str) {
        let Some((from, to)) = self.span() else { return };
        for curve in self.curves.iter_mut().filter(|curve| curve.label.starts_with(label)) {
            if let [(_, y)] = curve.points[..] {
                curve.points = vec![(from, y), (to, y)];
            }
        }
    }

    pub fn has_something(&self) -> bool {
        self.curves.iter().any(|curve| !curve.points.is_empty())
    }

    fn span(&self) -> Option<(f64, f64)> {
        let all = || self.curves.iter().flat_map(|curve| curve.points.iter().map(|(x, _)| *x));
        Some((all().reduce(f64::min)?, all().reduce(f64::max)?))
    }

    pub fn draw(&self, dir: &Path) -> Result<(), String> {
        static FONTS: Once = Once::new();
        // The name stays generic, so that a browser takes its own letters for the SVG.
        FONTS.call_once(|| drop(plotters::style::register_font(FONT, FontStyle::Normal, dejavu::sans::regular())));
        for ending in ["svg", "png"] {
            let file = dir.join(format!("{}.{ending}", self.name));
            let failed = |e: String| format!("cannot draw {}: {e}", file.display());
            match ending {
                "svg" => self.on(SVGBackend::new(&file, SIZE).into_drawing_area()),
                _ => self.on(BitMapBackend::new(&file, SIZE).into_drawing_area()),
            }
            .map_err(failed)?;
        }
        Ok(())
    }

    fn on<B: DrawingBackend>(&self, area: DrawingArea<B, Shift>) -> Result<(), String> {
        let text = |e: DrawingAreaErrorKind<B::ErrorType>| e.to_string();
        area.fill(&WHITE).map_err(text)?;
        let most = self.curves.iter().flat_map(|curve| &curve.points).map(|(_, y)| y.most).fold(0.0, f64::max);
        // Room for the legend, and for the names of bands below it.
        let top = if most > 0.0 { most * (1.12 + 0.045 * self.curves.len() as f64) } else { 1.0 };
        let y = 0.0..top;
        let (from, to) = self.span().ok_or("nothing to draw")?;
        let mut chart = ChartBuilder::on(&area);
        chart.caption(&self.title, (FONT, 20)).margin(12).x_label_area_size(44).y_label_area_size(84);
        if !self.categories.is_empty() {
            let mut chart = chart.build_cartesian_2d(-0.5..self.categories.len() as f64 - 0.5, y).map_err(text)?;
            let label = |x: &f64| {
                let at = x.round();
                let exact = (x - at).abs() < 1e-6 && at >= 0.0;
                exact.then(|| self.categories.get(at as usize).cloned()).flatten().unwrap_or_default()
            };
            chart
                .configure_mesh()
                .disable_x_mesh()
                .light_line_style(WHITE)
                .x_labels(self.categories.len() * 2 + 1)
                .x_label_formatter(&label)
                .y_label_formatter(&|y| super::number(*y, if top < 10.0 { 2 } else { 0 }))
                .x_desc(&self.x_title)
                .y_desc(&self.y_title)
                .label_style((FONT, 14))
                .draw()
                .map_err(text)?;
            let width = 0.8 / self.curves.len().max(1) as f64;
            for (n, curve) in self.curves.iter().enumerate() {
                let colour = COLOURS[n % COLOURS.len()];
                let left = |x: f64| x - 0.4 + n as f64 * width;
                let bar = |(x, y): &(f64, Summary)| {
                    Rectangle::new([(left(*x), 0.0), (left(*x) + width * 0.92, y.median)], colour.filled())
                };
                chart
                    .draw_series(curve.points.iter().map(bar))
                    .map_err(text)?
                    .label(&curve.label)
                    .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 14, y + 5)], colour.filled()));
                let whisker = |(x, y): &(f64, Summary)| {
                    let middle = left(*x) + width * 0.46;
                    PathElement::new(vec![(middle, y.least), (middle, y.most)], BLACK)
                };
                chart.draw_series(curve.points.iter().filter(|(_, y)| y.count > 1).map(whisker)).map_err(text)?;
            }
            return legend(chart.configure_series_labels(), self.curves.len())
                .map_err(text)
                .and_then(|()| area.present().map_err(text));
        }
        // Curves of one point would have no width.
        let (from, to) = if to > from { (from, to) } else { (from * 0.5, to * 1.5 + 0.1) };
        if self.logarithmic {
            let chart = chart.build_cartesian_2d((from.max(0.1)..to).log_scale(), y).map_err(text)?;
            self.lines(chart, top, &area)
        } else {
            let chart = chart.build_cartesian_2d(from..to, y).map_err(text)?;
            self.lines(chart, top, &area)
        }
    }

    fn lines<'a, B: DrawingBackend + 'a, X>(
        &self,
        mut chart: ChartContext<'a, B, Cartesian2d<X, plotters::coord::types::RangedCoordf64>>,
        top: f64,
        area: &DrawingArea<B, Shift>,
    ) -> Result<(), String>
    where
        X: Ranged<ValueType = f64> + plotters::coord::ranged1d::ValueFormatter<f64>,
    {
        let text = |e: DrawingAreaErrorKind<B::ErrorType>| e.to_string();
        chart
            .configure_mesh()
            .x_labels(11)
            .x_label_formatter(&|x| if (x - x.round()).abs() < 1e-6 { format!("{x:.0}") } else { String::new() })
            .y_label_formatter(&|y| super::number(*y, if top < 10.0 { 2 } else { 0 }))
            .light_line_style(WHITE)
            .x_desc(&self.x_title)
            .y_desc(&self.y_title)
            .label_style((FONT, 14))
            .draw()
            .map_err(text)?;
        for (name, (from, to)) in &self.bands {
            let band = Rectangle::new([(*from, 0.0), (*to, top)], RGBColor(120, 120, 120).mix(0.12).filled());
            chart.draw_series([band]).map_err(text)?;
            chart
                .draw_series([Text::new(
                    name.clone(),
                    (*from, top * (1.0 - 0.045 * (self.curves.len() as f64 + 0.6))),
                    (FONT, 14),
                )])
                .map_err(text)?;
        }
        for (n, curve) in self.curves.iter().enumerate() {
            let colour = COLOURS[n % COLOURS.len()];
            let mut points = curve.points.clone();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            chart
                .draw_series(LineSeries::new(points.iter().map(|(x, y)| (*x, y.median)), colour.stroke_width(2)))
                .map_err(text)?
                .label(&curve.label)
                .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 16, y)], colour.stroke_width(2)));
            if !self.lines_only {
                chart
                    .draw_series(points.iter().map(|(x, y)| Circle::new((*x, y.median), 3, colour.filled())))
                    .map_err(text)?;
            }
            let whisker = |(x, y): &(f64, Summary)| PathElement::new(vec![(*x, y.least), (*x, y.most)], colour);
            chart.draw_series(points.iter().filter(|(_, y)| y.count > 1).map(whisker)).map_err(text)?;
        }
        legend(chart.configure_series_labels(), self.curves.len()).map_err(text)?;
        area.present().map_err(text)
    }
}

fn legend<'a, 'b, B: DrawingBackend + 'a, C: CoordTranslate>(
    mut labels: plotters::chart::SeriesLabelStyle<'a, 'b, B, C>,
    curves: usize,
) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
    labels
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .border_style(RGBColor(200, 200, 200))
        .label_font((FONT, if curves > 10 { 11 } else { 14 }))
        .draw()
}
