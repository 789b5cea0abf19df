//! The comments of the sources are in plain English, as the pages are.

use std::path::PathBuf;

use super::plain::{ARGUMENT_MAX, findings};
use super::{sources, top};

/// Directories with sources, from the top.
const PLACES: [&str; 4] = ["bench", "crates", "fuzz", "packaging"];

/// A comment, without its marks.
#[derive(Debug, PartialEq)]
struct Comment {
    /// The line at which it begins.
    line: usize,
    text: String,
}

/// One line of a comment.
struct Line<'a> {
    line: usize,
    /// `//`, `///` or `//!`.
    mark: &'a str,
    text: &'a str,
    /// No code stands before it.
    alone: bool,
}

/// The part of `code` behind a literal at its begin; `None`: no literal of more than a word begins there. `after_word`: the character
/// before belongs to a name.
fn after_literal(code: &str, after_word: bool) -> Option<&str> {
    if let Some(mut rest) = code.strip_prefix('"') {
        loop {
            let at = rest.find(['"', '\\']).expect("a string ends");
            if rest.as_bytes()[at] == b'"' {
                return Some(&rest[at + 1..]);
            }
            let escaped = rest[at + 1..].chars().next().expect("something is escaped");
            rest = &rest[at + 1 + escaped.len_utf8()..];
        }
    }
    if !after_word && let Some(rest) = code.trim_start_matches(['b', 'c']).strip_prefix('r') {
        let quoted = rest.trim_start_matches('#');
        if let Some(body) = quoted.strip_prefix('"') {
            let end = format!("\"{}", "#".repeat(rest.len() - quoted.len()));
            return Some(body.split_once(&end).expect("a raw string ends").1);
        }
    }
    // A character, and no lifetime.
    let rest = code.strip_prefix('\'')?;
    let escaped = rest.starts_with('\\');
    let first = if escaped { rest[1..].chars().next() } else { rest.chars().next() }?;
    let behind = &rest[usize::from(escaped) + first.len_utf8()..];
    if escaped { Some(behind.split_once('\'')?.1) } else { behind.strip_prefix('\'') }
}

/// Every line of a comment in `source`. Strings that look like one are none.
fn lines(source: &str) -> Vec<Line<'_>> {
    let mut lines = Vec::new();
    let (mut rest, mut line, mut alone, mut after_word) = (source, 1, true, false);
    while let Some(first) = rest.chars().next() {
        if rest.starts_with("//") {
            let text = rest.lines().next().unwrap_or_default();
            let mark =
                ["//!", "///", "//"].into_iter().find(|mark| text.starts_with(mark)).expect("it begins with one");
            lines.push(Line { line, mark, text: &text[mark.len()..], alone });
            rest = &rest[text.len()..];
            continue;
        }
        assert!(!rest.starts_with("/*"), "line {line}: comments are written with //");
        let next = after_literal(rest, after_word).unwrap_or(&rest[first.len_utf8()..]);
        let passed = &rest[..rest.len() - next.len()];
        line += passed.matches('\n').count();
        alone = first == '\n' || alone && first.is_whitespace();
        after_word = passed.ends_with(|c: char| c.is_alphanumeric() || c == '_');
        rest = next;
    }
    lines
}

/// The comments of `source`: lines of one kind that follow each other are one.
fn comments(source: &str) -> Vec<Comment> {
    let mut comments: Vec<Comment> = Vec::new();
    let mut before: Option<Line<'_>> = None;
    for line in lines(source) {
        let text = line.text.strip_prefix(' ').unwrap_or(line.text);
        let goes_on =
            |before: &Line<'_>| before.alone && line.alone && before.mark == line.mark && before.line + 1 == line.line;
        match comments.last_mut() {
            Some(comment) if before.as_ref().is_some_and(goes_on) => {
                comment.text.push('\n');
                comment.text.push_str(text);
            }
            _ => comments.push(Comment { line: line.line, text: text.to_owned() }),
        }
        before = Some(line);
    }
    comments
}

#[test]
fn comments_are_in_plain_english() {
    let mut files: Vec<PathBuf> = Vec::new();
    PLACES.iter().for_each(|place| sources(&top().join(place), &mut files));
    let mut found = Vec::new();
    let mut judged = 0;
    for path in files {
        let name = path.strip_prefix(top()).unwrap_or(&path).display().to_string();
        for comment in comments(&std::fs::read_to_string(&path).unwrap()) {
            judged += 1;
            let wrong = findings(&comment.text, ARGUMENT_MAX);
            found.extend(wrong.into_iter().map(|(at, what)| format!("{name}:{}: {what}", comment.line + at - 1)));
        }
    }
    assert!(found.is_empty(), "{} findings:\n{}", found.len(), found.join("\n"));
    assert!(judged > 8000, "{judged}");
}

#[test]
fn finds_comments_and_nothing_else() {
    let source = r##"//! What it is.
//! More of it.

/// What `a` is.
// Beside it.
let a = "// no comment"; // What follows.
// What comes next.
let b = ('"', '\'', '\u{1F}', b'"', "\"// no", r#""// no"#, 'a');
fn f<'a>(x: &'a str) {} // Whoever calls it.
"##;
    let found = comments(source);
    let expected = [
        (1, "What it is.\nMore of it."),
        (4, "What `a` is."),
        (5, "Beside it."),
        (6, "What follows."),
        (7, "What comes next."),
        (9, "Whoever calls it."),
    ];
    assert_eq!(found, expected.map(|(line, text)| Comment { line, text: text.to_owned() }));
    let wrong: Vec<usize> = found
        .iter()
        .filter(|comment| !findings(&comment.text, ARGUMENT_MAX).is_empty())
        .map(|comment| comment.line)
        .collect();
    assert_eq!(wrong, [1, 4, 6, 7, 9]);
}
