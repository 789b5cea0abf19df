//! Texts from elsewhere, fit for one line of a log.

/// `text` with a question mark in the place of everything that ends a line, moves the cursor, hides itself or turns the direction of writing.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if is_plain(c) { c } else { '?' }).collect()
}

fn is_plain(c: char) -> bool {
    let turns_or_hides = matches!(
        c,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}'
    );
    !c.is_control() && !turns_or_hides
}

#[cfg(test)]
mod tests {
    use super::printable;

    #[test]
    fn nothing_ends_a_line_or_turns_it() {
        for bad in
            ["a\nb", "a\rb", "a\u{1b}b", "a\u{2028}b", "a\u{202e}b", "a\u{85}b", "a\0b", "a\u{feff}b", "a\u{200b}b"]
        {
            assert_eq!(printable(bad), "a?b");
        }
        assert_eq!(printable("node-1 'ä' 節点"), "node-1 'ä' 節点");
    }
}
