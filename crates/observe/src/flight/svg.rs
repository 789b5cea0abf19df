//! The time line as a drawing: a lane per node, a mark per record, its text in a tooltip.

use std::fmt::Write;

/// A mark in one or several lanes.
pub struct Shape<'a> {
    pub lanes: &'a [usize],
    pub unix_ns: u64,
    pub trouble: bool,
    pub topic: &'static str,
    pub title: String,
}

const WIDTH: f64 = 1200.0;
/// Of the names.
const LEFT: f64 = 140.0;
const RIGHT: f64 = 30.0;
const TOP: f64 = 40.0;
const LANE: f64 = 64.0;
const TICKS: u64 = 6;

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// `stamp`: writes a time.
pub fn draw(names: &[&str], shapes: &[Shape], stamp: impl Fn(u64) -> String) -> String {
    let first = shapes.iter().map(|shape| shape.unix_ns).min().unwrap_or(0);
    let last = shapes.iter().map(|shape| shape.unix_ns).max().unwrap_or(0);
    let span = (last - first).max(1);
    let x = |unix_ns: u64| LEFT + (WIDTH - LEFT - RIGHT) * ((unix_ns - first) as f64 / span as f64);
    let y = |lane: usize| TOP + LANE * (lane as f64 + 0.5);
    let height = TOP + LANE * names.len() as f64 + 40.0;
    let mut out = String::new();
    let _ = writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <style>text{{fill:#333}}line{{stroke:#ccc}}.o{{fill:#36c;fill-opacity:.7}}.t{{fill:#c22;fill-opacity:.8}}.v{{stroke:#36c;stroke-opacity:.4}}</style>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>"
    );
    for tick in 0..=TICKS {
        let at = first + (u128::from(span) * u128::from(tick) / u128::from(TICKS)) as u64;
        let (x, bottom) = (x(at), height - 30.0);
        let _ = writeln!(out, "<line x1=\"{x:.1}\" y1=\"{TOP}\" x2=\"{x:.1}\" y2=\"{bottom}\"/>");
        let clock = stamp(at);
        let clock = clock.get(11..).unwrap_or(&clock);
        let _ = writeln!(out, "<text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{clock}</text>", bottom + 16.0);
    }
    let _ = writeln!(out, "<text x=\"10\" y=\"20\">{} to {} UTC; red: trouble</text>", stamp(first), stamp(last));
    for (lane, name) in names.iter().enumerate() {
        let y = y(lane);
        let _ = writeln!(out, "<line x1=\"{LEFT}\" y1=\"{y}\" x2=\"{}\" y2=\"{y}\"/>", WIDTH - RIGHT);
        let _ = writeln!(out, "<text x=\"10\" y=\"{}\">{}</text>", y + 4.0, escape(name));
    }
    for shape in shapes {
        let x = x(shape.unix_ns);
        if let (Some(top), Some(bottom)) = (shape.lanes.iter().min(), shape.lanes.iter().max())
            && top < bottom
        {
            let _ = writeln!(
                out,
                "<line class=\"v\" x1=\"{x:.1}\" y1=\"{}\" x2=\"{x:.1}\" y2=\"{}\"/>",
                y(*top),
                y(*bottom)
            );
        }
        let class = if shape.trouble { "t" } else { "o" };
        for lane in shape.lanes {
            let title = escape(&format!("{} [{}] {}", names[*lane], shape.topic, shape.title));
            let _ = writeln!(
                out,
                "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{}\" r=\"5\"><title>{title}</title></circle>",
                y(*lane)
            );
        }
    }
    out + "</svg>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_text_is_markup_and_an_empty_line_is_drawn() {
        let shape = Shape { lanes: &[0, 1], unix_ns: 5, trouble: true, topic: "life", title: "<script>\"&".into() };
        let drawing = draw(&["a<b", "c"], &[shape], |ns| ns.to_string());
        assert!(!drawing.contains("<script>") && drawing.contains("a&lt;b") && drawing.matches("<circle").count() == 2);
        assert!(draw(&[], &[], |_| String::new()).ends_with("</svg>\n"));
    }
}
