//! The dashboard: a page, its script and its style, all of them in this program. Nothing is asked of anywhere else.
//!
//! The lines are drawn by uPlot (MIT; `dashboard/uplot/LICENSE`), which lies here as its authors publish it.

use crate::monitor::{Answer, Content};

/// For every answer. Nothing from elsewhere is loaded, run, sent to or embedded, and nothing that stands in the page itself is run.
pub const HEADERS: &str = "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
     img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\nX-Content-Type-Options: nosniff\r\n\
     Referrer-Policy: no-referrer\r\nCache-Control: no-store\r\n";

const ASSETS: &[(&str, &str, &[u8])] = &[
    ("/dashboard", "text/html; charset=utf-8", include_bytes!("dashboard/index.html")),
    ("/dashboard.js", "text/javascript; charset=utf-8", include_bytes!("dashboard/dashboard.js")),
    ("/dashboard.css", "text/css; charset=utf-8", include_bytes!("dashboard/dashboard.css")),
    ("/icon.svg", "image/svg+xml", include_bytes!("dashboard/icon.svg")),
    ("/uplot.js", "text/javascript; charset=utf-8", include_bytes!("dashboard/uplot/uPlot.iife.min.js")),
    ("/uplot.css", "text/css; charset=utf-8", include_bytes!("dashboard/uplot/uPlot.min.css")),
    ("/uplot-license.txt", "text/plain; charset=utf-8", include_bytes!("dashboard/uplot/LICENSE")),
];

pub fn asset(path: &str) -> Option<Answer> {
    let (_, kind, bytes) = ASSETS.iter().find(|(name, _, _)| *name == path)?;
    Some(Answer { status: "200 OK", kind, body: Content::Asset(bytes) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(path: &str) -> &'static str {
        let (_, _, bytes) = ASSETS.iter().find(|(name, _, _)| *name == path).unwrap();
        std::str::from_utf8(bytes).unwrap()
    }

    #[test]
    fn nothing_is_asked_of_anywhere_else() {
        for path in ["/dashboard", "/dashboard.js", "/dashboard.css", "/uplot.css"] {
            for word in ["http://", "https://", "//cdn", "@import", "url("] {
                let text = text(path).replace("http://www.w3.org/2000/svg", "");
                assert!(!text.contains(word), "{path} has {word}");
            }
        }
    }

    #[test]
    fn what_the_page_loads_is_there_and_nothing_stands_in_it() {
        let page = text("/dashboard");
        for name in ["src=\"", "href=\""] {
            for rest in page.split(name).skip(1) {
                let path = rest.split('"').next().unwrap();
                assert!(path.starts_with('#') || asset(&format!("/{path}")).is_some(), "{path}");
            }
        }
        assert!(!page.contains("style=") && !page.contains(" onclick") && !page.contains("<style"));
        assert_eq!(page.matches("<script").count(), page.matches("<script src=").count());
        assert!(asset("/../dashboard").is_none());
    }

    #[test]
    fn the_licence_is_beside_the_script() {
        assert!(text("/uplot-license.txt").contains("MIT License"));
        assert!(text("/uplot.js").contains("uPlot"));
    }
}
