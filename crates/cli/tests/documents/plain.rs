//! The documents are in plain English, as far as a program can tell: short sentences that begin with their subject, short
//! cells, no words that say nothing.

use super::{pages, top};

/// Words in a sentence of a page for users.
const SENTENCE_MAX: usize = 40;
/// Words in a sentence of a page for developers, or of a comment, which argue.
pub(super) const ARGUMENT_MAX: usize = 60;
/// Pages for developers.
const FOR_DEVELOPERS: [&str; 11] = [
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "bench/",
    "crates/",
    "docs/decisions/",
    "docs/lessons.md",
    "docs/protocol.md",
    "docs/testing.md",
    "docs/threads.md",
    "docs/wslog-format.md",
    "docs/wsrep-contract.md",
];
/// Words in a cell of a table.
const CELL_MAX: usize = 25;
/// Words in a run-in heading: bold or italic words with a stop at the begin of a paragraph.
const HEADING_MAX: usize = 7;

/// Words that may not begin a sentence that is no question: the clause takes the place of the subject, and the verb comes too late.
const FUSED: [&str; 5] = ["Who", "What", "Whoever", "Whatever", "Whom"];

/// Words that say nothing, talk down to the reader, or have a plainer form.
const BANNED: [(&str, &str); 20] = [
    ("simply", "leave it out"),
    ("obviously", "leave it out"),
    ("of course", "leave it out"),
    ("needless to say", "leave it out"),
    ("please", "leave it out"),
    ("basically", "leave it out"),
    ("actually", "leave it out"),
    ("utilize", "use"),
    ("utilise", "use"),
    ("leverage", "use"),
    ("whilst", "while"),
    ("thereof", "of it"),
    ("therein", "in it"),
    ("herein", "here"),
    ("hereby", "leave it out"),
    ("in order to", "to"),
    ("due to the fact", "because"),
    ("prior to", "before"),
    ("subsequent to", "after"),
    ("of late", "recently"),
];

/// A piece of a page that is judged by itself.
#[derive(Debug, PartialEq)]
enum Piece {
    Paragraph(String),
    Cell(String),
}

/// The words of a line that begins an item of a list.
fn item(line: &str) -> Option<&str> {
    line.strip_prefix("- ").or_else(|| line.strip_prefix("* ")).or_else(|| {
        let (number, rest) = line.split_once(". ")?;
        (!number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())).then_some(rest)
    })
}

/// The text of a page in pieces, each with the number of the line at which it begins. Headings and typed commands are left out.
fn pieces(text: &str) -> Vec<(usize, Piece)> {
    let mut pieces = Vec::new();
    let mut paragraph: Option<(usize, String)> = None;
    let mut fenced = false;
    for (at, line) in text.lines().enumerate() {
        let at = at + 1;
        let bare = line.trim();
        // Commands to be typed may look like a list.
        let item = Some(bare).filter(|_| !line.starts_with("    ")).and_then(item);
        let is_fence = bare.starts_with("```");
        fenced ^= is_fence;
        let typed = fenced || is_fence || (paragraph.is_none() && item.is_none() && line.starts_with("    "));
        let ends = typed || bare.is_empty() || bare.starts_with('#') || bare.starts_with('|') || item.is_some();
        if ends && let Some((begun, text)) = paragraph.take() {
            pieces.push((begun, Piece::Paragraph(text)));
        }
        if typed || bare.is_empty() || bare.starts_with('#') {
            continue;
        }
        if bare.starts_with('|') {
            let row = without_code(bare).replace("\\|", "/");
            pieces.extend(row.trim_matches('|').split('|').map(|cell| (at, Piece::Cell(cell.trim().to_owned()))));
            continue;
        }
        let (_, text) = paragraph.get_or_insert_with(|| (at, String::new()));
        if !text.is_empty() {
            text.push(' ');
        }
        text.push_str(item.unwrap_or(bare));
    }
    if let Some((begun, text)) = paragraph {
        pieces.push((begun, Piece::Paragraph(text)));
    }
    pieces
}

/// With each span of code as one word, so that neither its length nor its punctuation counts.
fn without_code(text: &str) -> String {
    text.split('`').enumerate().map(|(at, part)| if at % 2 == 0 { part } else { "Code" }).collect()
}

/// Links as their words.
fn without_targets(text: &str) -> String {
    let mut parts = text.split("](");
    let mut kept = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        kept.push(']');
        kept.push_str(part.split_once(')').map_or("", |(_, rest)| rest));
    }
    kept
}

/// The sentences of a piece: they end with a stop, a colon or a semicolon before a capital.
fn sentences(text: &str) -> Vec<String> {
    let text = without_targets(&without_code(text));
    let mut sentences: Vec<String> = vec![String::new()];
    let mut ended = false;
    for word in text.split_whitespace() {
        let begins = word
            .trim_start_matches(['(', '[', '*', '_', '"', '“'])
            .starts_with(|c: char| c.is_uppercase() || c.is_ascii_digit());
        if ended && begins {
            sentences.push(String::new());
        }
        let sentence = sentences.last_mut().expect("one is there from the start");
        if !sentence.is_empty() {
            sentence.push(' ');
        }
        sentence.push_str(word);
        ended = word.trim_end_matches([')', ']', '*', '_', '"', '”']).ends_with(['.', '!', '?', ':', ';']);
    }
    sentences
}

/// Names of things that are typed are no words of a sentence.
fn words(text: &str) -> usize {
    let is_word = |word: &&str| {
        word.chars().any(char::is_alphanumeric) && word.trim_matches(|c: char| !c.is_alphanumeric()) != "Code"
    };
    text.split_whitespace().filter(is_word).count()
}

/// `**What waits.**` at the begin of a paragraph is a heading.
fn is_heading(sentence: &str) -> bool {
    sentence.starts_with('*') && sentence.trim_end_matches(':').ends_with('*') && words(sentence) <= HEADING_MAX
}

fn begins_fused(sentence: &str) -> bool {
    let first: String =
        sentence.trim_start_matches(['(', '[', '*', '_', '"', '“']).chars().take_while(|c| c.is_alphabetic()).collect();
    FUSED.contains(&first.as_str())
        && !sentence.trim_end_matches([')', ']', '*', '_', '"']).ends_with('?')
        && !is_heading(sentence)
}

/// Whole words, in any case.
fn banned(sentence: &str) -> Vec<String> {
    let letters: String =
        // Words with a comma between them are no phrase.
        sentence.to_lowercase().chars().flat_map(|c| if c.is_alphanumeric() || c == ' ' { vec![c] } else { vec![' ', c, ' '] }).collect();
    let padded = format!(" {} ", letters.split_whitespace().collect::<Vec<_>>().join(" "));
    BANNED
        .iter()
        .filter(|(word, _)| padded.contains(&format!(" {word} ")))
        .map(|(word, better)| format!("\"{word}\": {better}"))
        .collect()
}

/// Everything that is wrong with a page or a comment, each with its line.
pub(super) fn findings(text: &str, sentence_max: usize) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (line, piece) in pieces(text) {
        let body = match &piece {
            Piece::Paragraph(body) => body,
            Piece::Cell(body) => {
                // A name that is typed takes its room in a cell.
                let count = words(&without_targets(&body.replace("Code", "name")));
                if count > CELL_MAX {
                    found.push((line, format!("{count} words in a cell, {CELL_MAX} are allowed: {body}")));
                }
                body
            }
        };
        for sentence in sentences(body) {
            let count = words(&sentence);
            if count > sentence_max {
                found.push((line, format!("{count} words in a sentence, {sentence_max} are allowed: {sentence}")));
            }
            if begins_fused(&sentence) {
                found.push((line, format!("begins with a clause for a subject: {sentence}")));
            }
            found.extend(banned(&sentence).into_iter().map(|reason| (line, format!("{reason}: {sentence}"))));
        }
    }
    found
}

/// Written by `trireme bench`: tables, and lists of what was measured.
const RESULTS: &str = "docs/benchmarks/report/";

#[test]
fn documents_are_in_plain_english() {
    let mut found = Vec::new();
    let mut judged = 0;
    for (path, text) in pages() {
        judged += pieces(&text).len();
        let name = path.strip_prefix(top()).unwrap_or(&path).display().to_string();
        if name.starts_with(RESULTS) {
            continue;
        }
        let sentence_max =
            if FOR_DEVELOPERS.iter().any(|part| name.starts_with(part)) { ARGUMENT_MAX } else { SENTENCE_MAX };
        found.extend(findings(&text, sentence_max).into_iter().map(|(line, what)| format!("{name}:{line}: {what}")));
    }
    assert!(found.is_empty(), "{} findings:\n{}", found.len(), found.join("\n"));
    assert!(judged > 3000, "{judged}");
}

fn found(text: &str) -> Vec<(usize, String)> {
    findings(text, SENTENCE_MAX)
}

#[test]
fn finds_a_clause_that_stands_for_the_subject() {
    for wrong in [
        "Who comes late waits.",
        "It ends. What is left is dropped.",
        "- Whatever it says is a claim.",
        "| a | Who waits, waits |",
        "Whom it names is told.",
    ] {
        assert_eq!(found(wrong).len(), 1, "{wrong}");
    }
    for right in [
        "What is a term?",
        "## What waits",
        "**What waits.** New write sets wait.",
        "    What is typed is typed",
        "It says what waits.",
    ] {
        assert_eq!(found(right), [], "{right}");
    }
}

#[test]
fn finds_long_sentences_and_cells() {
    let long = |count: usize| vec!["word"; count].join(" ");
    assert_eq!(found(&long(SENTENCE_MAX)).len(), 0);
    assert_eq!(found(&long(SENTENCE_MAX + 1)).len(), 1);
    assert_eq!(found(&format!("{}. A{}", long(SENTENCE_MAX - 1), long(SENTENCE_MAX - 1))), []);
    assert_eq!(found(&format!("{}\n{}", long(SENTENCE_MAX - 1), long(2))).len(), 1);
    assert_eq!(found(&format!("- {}\n- {}", long(SENTENCE_MAX), long(SENTENCE_MAX))), []);
    assert_eq!(found(&format!("| {} | x |", long(CELL_MAX))), []);
    assert_eq!(found(&format!("| {} | x |", long(CELL_MAX + 1))).len(), 1);
    assert_eq!(found(&format!("| `a | b` {} `c`, `d` |", long(CELL_MAX - 3))), []);
    assert_eq!(found(&format!("| `a | b` {} `c`, `d` |", long(CELL_MAX - 2))).len(), 1);
    assert_eq!(found(&format!("[{}]({})", long(3), "a/".repeat(60))), []);
}

#[test]
fn finds_words_that_say_nothing() {
    assert_eq!(found("You simply start it.").len(), 1);
    assert_eq!(found("Stop it, in\norder to start it.").len(), 1);
    assert_eq!(found("The option `simply` and pleased clients."), []);
}
