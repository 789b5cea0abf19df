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
    /// Curves of one family have one colour and differ in dashes and marks.
    pub family: String,
    pub points: Vec<(f64, Summary)>,
}

/// Length of dashes and of gaps in pixels, for the members of a family in turn. The first is drawn through.
const DASHES: [(u32, u32); 4] = [(0, 0), (9, 5), (3, 4), (14, 8)];
const LEGEND_WIDTH: u32 = 240;

/// How a curve looks: its colour, and its place in its family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Look {
    colour: RGBColor,
    member: usize,
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

    pub fn add(&mut self, family: &str, label: &str, x: f64, y: &Summary) {
        match self.curves.iter_mut().find(|curve| curve.label == label) {
            Some(curve) => curve.points.push((x, *y)),
            None => {
                self.curves.push(Curve { label: label.to_owned(), family: family.to_owned(), points: vec![(x, *y)] })
            }
        }
    }

    /// A point that is alone in a curve of a family that begins so becomes a line over the whole width.
    pub fn stretch(&mut self, family: &str) {
        let Some((from, to)) = self.span() else { return };
        for curve in self.curves.iter_mut().filter(|curve| curve.family.starts_with(family)) {
            if let [(_, y)] = curve.points[..] {
                curve.points = vec![(from, y), (to, y)];
            }
        }
    }

    /// A curve of one point is none.
    pub fn has_something(&self) -> bool {
        let least = if self.categories.is_empty() { 2 } else { 1 };
        self.curves.iter().any(|curve| curve.points.len() >= least)
    }

    /// A colour for each family, in the order in which they come; members differ in the rest.
    fn looks(&self) -> Vec<Look> {
        let mut families: Vec<(&str, usize)> = Vec::new();
        let mut all = Vec::with_capacity(self.curves.len());
        for curve in &self.curves {
            let at = families.iter().position(|(family, _)| *family == curve.family).unwrap_or_else(|| {
                families.push((&curve.family, 0));
                families.len() - 1
            });
            all.push(Look { colour: COLOURS[at % COLOURS.len()], member: families[at].1 });
            families[at].1 += 1;
        }
        all
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

    fn on<B: DrawingBackend>(&self, whole: DrawingArea<B, Shift>) -> Result<(), String> {
        let text = |e: DrawingAreaErrorKind<B::ErrorType>| e.to_string();
        whole.fill(&WHITE).map_err(text)?;
        let (area, beside) = whole.split_horizontally(SIZE.0 - LEGEND_WIDTH);
        self.legend(&beside).map_err(text)?;
        let most = self.curves.iter().flat_map(|curve| &curve.points).map(|(_, y)| y.most).fold(0.0, f64::max);
        // Room for the names of bands.
        let room = if self.bands.is_empty() { 1.05 } else { 1.25 };
        let top = if most > 0.0 { most * room } else { 1.0 };
        let y = 0.0..top;
        let (from, to) = self.span().ok_or("nothing to draw")?;
        let mut chart = ChartBuilder::on(&area);
        chart.caption(&self.title, (FONT, 18)).margin(12).x_label_area_size(44).y_label_area_size(84);
        if !self.categories.is_empty() {
            let mut chart = chart.build_cartesian_2d(-0.5..self.categories.len() as f64 - 0.5, y).map_err(text)?;
            let label = |x: &f64| {
                let at = x.round();
                let exact = (x - at).abs() < 1e-6 && at >= 0.0;
                exact.then(|| self.categories.get(at as usize).cloned()).flatten().unwrap_or_default()
            };
            let longest = self.categories.iter().map(String::len).max().unwrap_or(0) * self.categories.len();
            chart
                .configure_mesh()
                .disable_x_mesh()
                .light_line_style(WHITE)
                .x_labels(self.categories.len() * 2 + 1)
                .x_label_formatter(&label)
                .y_label_formatter(&|y| super::number(*y, if top < 10.0 { 2 } else { 0 }))
                .x_desc(&self.x_title)
                .y_desc(&self.y_title)
                .label_style((FONT, if longest > 70 { 10 } else { 14 }))
                .draw()
                .map_err(text)?;
            let width = 0.8 / self.curves.len().max(1) as f64;
            for ((n, curve), look) in self.curves.iter().enumerate().zip(self.looks()) {
                let left = |x: f64| x - 0.4 + n as f64 * width;
                let bar = |(x, y): &(f64, Summary)| {
                    Rectangle::new([(left(*x), 0.0), (left(*x) + width * 0.92, y.median)], look.fill())
                };
                chart.draw_series(curve.points.iter().map(bar)).map_err(text)?;
                let whisker = |(x, y): &(f64, Summary)| {
                    let middle = left(*x) + width * 0.46;
                    PathElement::new(vec![(middle, y.least), (middle, y.most)], BLACK)
                };
                chart.draw_series(curve.points.iter().filter(|(_, y)| y.count > 1).map(whisker)).map_err(text)?;
            }
            return whole.present().map_err(text);
        }
        // Curves of one point would have no width.
        let (from, to) = if to > from { (from, to) } else { (from * 0.5, to * 1.5 + 0.1) };
        if self.logarithmic {
            let chart = chart.build_cartesian_2d((from.max(0.1)..to).log_scale(), y).map_err(text)?;
            self.lines(chart, top)?;
        } else {
            let chart = chart.build_cartesian_2d(from..to, y).map_err(text)?;
            self.lines(chart, top)?;
        }
        whole.present().map_err(text)
    }

    fn lines<'a, B: DrawingBackend + 'a, X>(
        &self,
        mut chart: ChartContext<'a, B, Cartesian2d<X, plotters::coord::types::RangedCoordf64>>,
        top: f64,
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
        let mut bands: Vec<(&String, &(f64, f64))> = self.bands.iter().collect();
        bands.sort_by(|a, b| a.1.0.total_cmp(&b.1.0));
        for (n, (name, (from, to))) in bands.into_iter().enumerate() {
            let band = Rectangle::new([(*from, 0.0), (*to, top)], RGBColor(120, 120, 120).mix(0.12).filled());
            chart.draw_series([band]).map_err(text)?;
            // In turn on two heights, as a name may be wider than the way to the next band.
            let height = top * (0.99 - 0.05 * (n % 2) as f64);
            chart.draw_series([Text::new(name.clone(), (*from, height), (FONT, 13))]).map_err(text)?;
        }
        for (curve, look) in self.curves.iter().zip(self.looks()) {
            let mut points = curve.points.clone();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            let style = look.colour.stroke_width(2);
            let line: Vec<(f64, f64)> = points.iter().map(|(x, y)| (*x, y.median)).collect();
            match look.dashes() {
                None => chart.draw_series(LineSeries::new(line.clone(), style)).map(drop).map_err(text)?,
                Some((dash, gap)) => {
                    chart.draw_series(DashedLineSeries::new(line.clone(), dash, gap, style)).map(drop).map_err(text)?;
                }
            }
            if !self.lines_only {
                match look.member % 3 {
                    0 => chart.draw_series(line.iter().map(|at| Circle::new(*at, 4, look.colour.filled()))).map(drop),
                    1 => chart
                        .draw_series(line.iter().map(|at| TriangleMarker::new(*at, 5, look.colour.filled())))
                        .map(drop),
                    _ => chart.draw_series(line.iter().map(|at| Cross::new(*at, 4, style))).map(drop),
                }
                .map_err(text)?;
            }
            let whisker = |(x, y): &(f64, Summary)| PathElement::new(vec![(*x, y.least), (*x, y.most)], look.colour);
            chart.draw_series(points.iter().filter(|(_, y)| y.count > 1).map(whisker)).map_err(text)?;
        }
        Ok(())
    }

    /// Beside the graph, so that it hides nothing.
    fn legend<B: DrawingBackend>(
        &self,
        area: &DrawingArea<B, Shift>,
    ) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
        let size = if self.curves.len() > 20 { 10 } else { 12 };
        let step = (18 + size - 12).min((SIZE.1 as i32 - 60) / self.curves.len().max(1) as i32);
        for ((n, curve), look) in self.curves.iter().enumerate().zip(self.looks()) {
            let y = 44 + step * n as i32;
            let style = look.colour.stroke_width(2);
            if self.categories.is_empty() {
                let ends = [(4, y), (32, y)];
                match look.dashes() {
                    None => area.draw(&PathElement::new(ends.to_vec(), style))?,
                    Some((dash, gap)) => {
                        let pieces = (0..).map(|piece| 4 + piece * (dash + gap) as i32).take_while(|x| *x < 32);
                        for x in pieces {
                            area.draw(&PathElement::new(vec![(x, y), ((x + dash as i32).min(32), y)], style))?;
                        }
                    }
                }
                match (self.lines_only, look.member % 3) {
                    (true, _) => {}
                    (false, 0) => area.draw(&Circle::new((18, y), 4, look.colour.filled()))?,
                    (false, 1) => area.draw(&TriangleMarker::new((18, y), 5, look.colour.filled()))?,
                    (false, _) => area.draw(&Cross::new((18, y), 4, style))?,
                }
            } else {
                area.draw(&Rectangle::new([(8, y - 5), (28, y + 5)], look.fill()))?;
            }
            area.draw(&Text::new(curve.label.clone(), (38, y - size / 2), (FONT, size)))?;
        }
        Ok(())
    }
}

impl Look {
    fn dashes(self) -> Option<(u32, u32)> {
        Some(DASHES[self.member % DASHES.len()]).filter(|(dash, _)| *dash > 0)
    }

    /// Bars of one family are lighter one by one.
    fn fill(self) -> ShapeStyle {
        self.colour.mix([1.0, 0.7, 0.45, 0.25][self.member % 4]).filled()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_curves_look_alike() {
        let mut figure = Figure::new("x", "x", "x", "y");
        let y = Summary { median: 1.0, least: 1.0, most: 1.0, count: 1 };
        for system in ["plain", "trireme-disk", "trireme-process", "galera-1", "galera-0", "dummy", "plain-0"] {
            for nodes in 1..=4 {
                figure.add(system, &format!("{system}, nodes {nodes}"), 1.0, &y);
            }
        }
        let looks = figure.looks();
        for (n, look) in looks.iter().enumerate() {
            assert!(!looks[..n].contains(look), "{}", figure.curves[n].label);
        }
        assert!(!figure.has_something(), "one point is no curve");
        figure.add("plain", "plain, nodes 1", 2.0, &y);
        assert!(figure.has_something());
    }
}
