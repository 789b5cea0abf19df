//! The option string: `key = value` pairs, separated by `;`.
//!
//! A backslash takes the next character literally. White space around keys and values does not count, unless it is escaped.
//! Empty pairs are skipped, so `''`, `' '` and `';;'` are valid and mean nothing.

use super::OptionError;

/// Splits an option string. An error means that nothing of the string may be applied.
pub fn pairs(text: &str) -> Result<Vec<(String, String)>, OptionError> {
    let mut found = Vec::new();
    let mut chars = text.chars();
    loop {
        let (pair, more) = next_pair(&mut chars, text)?;
        found.extend(pair);
        if !more {
            return Ok(found);
        }
    }
}

/// One pair, or `None` for an empty one; the flag says whether a `;` ended it.
fn next_pair(chars: &mut std::str::Chars<'_>, whole: &str) -> Result<(Option<(String, String)>, bool), OptionError> {
    let syntax = |reason| OptionError::Syntax { text: whole.to_owned(), reason };
    let mut sides = [Side::default(), Side::default()];
    let mut at = 0;
    let mut more = false;
    while let Some(c) = chars.next() {
        match c {
            ';' => {
                more = true;
                break;
            }
            '=' if at == 1 => return Err(syntax("a second '=' in one pair")),
            '=' => at = 1,
            '\\' => match chars.next() {
                Some(literal) => sides[at].push_literal(literal),
                None => return Err(syntax("nothing follows the last '\\'")),
            },
            c => sides[at].push(c),
        }
    }
    let [key, value] = sides.map(Side::finish);
    match (key.is_empty(), at) {
        (true, 0) => Ok((None, more)),
        (true, _) => Err(syntax("a value without a name")),
        (false, 0) => Err(syntax("a name without '='")),
        (false, _) => Ok((Some((key, value)), more)),
    }
}

/// One side of a pair, with white space trimmed as it grows.
#[derive(Default)]
struct Side {
    text: String,
    /// Length up to and including the last character that must stay.
    keep: usize,
}

impl Side {
    fn push(&mut self, c: char) {
        if c.is_whitespace() {
            if !self.text.is_empty() {
                self.text.push(c);
            }
        } else {
            self.push_literal(c);
        }
    }
    fn push_literal(&mut self, c: char) {
        self.text.push(c);
        self.keep = self.text.len();
    }
    fn finish(mut self) -> String {
        self.text.truncate(self.keep);
        self.text
    }
}

/// Escapes what [`pairs`] would take for syntax, so that printed options can be read back.
pub fn escape(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    for c in value.chars() {
        if matches!(c, ';' | '=' | '\\') {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ok(text: &str) -> Vec<(String, String)> {
        pairs(text).unwrap()
    }

    #[test]
    fn splits_and_trims() {
        let expect = vec![("a.b".to_owned(), "1".to_owned()), ("c".to_owned(), "two words".to_owned())];
        assert_eq!(ok("a.b=1;c=two words"), expect);
        assert_eq!(ok("  a.b \t= 1 ;\n c = two words ; "), expect);
    }

    #[test]
    fn empty_pairs_mean_nothing() {
        for text in ["", " ", ";;", " ; ; ", "\t"] {
            assert_eq!(ok(text), vec![], "{text:?}");
        }
    }

    #[test]
    fn a_value_may_be_empty_but_a_name_may_not() {
        assert_eq!(ok("a="), vec![("a".to_owned(), String::new())]);
        for bad in ["=1", " = 1", "="] {
            assert!(pairs(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn escapes_take_separators_literally() {
        assert_eq!(ok(r"a=x\;y\=z\\;b=\ 1\ "), vec![("a".into(), r"x;y=z\".into()), ("b".into(), " 1 ".into())]);
    }

    #[test]
    fn syntax_errors_spoil_the_whole_string() {
        for bad in ["a", "a=1;b", "a=1;b=2=3", "pc.weight", "a=1\\"] {
            assert!(matches!(pairs(bad), Err(OptionError::Syntax { .. })), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn never_panics(text in ".{0,60}") {
            let _ = pairs(&text);
        }
        #[test]
        fn escaped_values_come_back(value in r"[a-z;=\\:/]{0,20}") {
            prop_assert_eq!(ok(&format!("k = {}; ", escape(&value))), vec![("k".to_owned(), value)]);
        }
    }
}
