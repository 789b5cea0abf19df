//! Files with secrets: the one that members share (`repl.secret_file`), and the keys of a node's log (`repl.log_key_file`).
//!
//! One secret a line, as 64 hexadecimal digits; empty lines and those that begin with `#` do not count. The first is the one that this node
//! shows, or encrypts with; the others are accepted as well, so that a secret can be changed while the cluster runs.

use std::fmt::{self, Write};

/// Bytes of a secret. Too many to be guessed: it is drawn, not chosen.
pub const LEN: usize = 32;
/// Secrets in one file: the new one, the old one, and room for mistakes.
const MAX: usize = 8;

/// The use of the secrets in a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Use {
    /// Members show it to each other.
    Members,
    /// The write-set log of one node is encrypted with it.
    Log,
}

impl Use {
    fn noun(self) -> &'static str {
        match self {
            Use::Members => "secret",
            Use::Log => "key",
        }
    }

    /// The command that makes such a file.
    pub fn maker(self) -> &'static str {
        match self {
            Use::Members => "trireme secret new",
            Use::Log => "trireme log key new",
        }
    }

    fn comment(self) -> &'static str {
        match self {
            Use::Members => {
                "# Secrets that the members of a cluster share (repl.secret_file). The first one is shown to others, all are accepted.\n"
            }
            Use::Log => {
                "# Keys of a node's write-set log (repl.log_key_file). The first one encrypts, all decrypt. Without them the log is lost.\n"
            }
        }
    }
}

#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub [u8; LEN]);

impl fmt::Debug for Secret {
    /// Never into a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl Secret {
    fn parse(digits: &str) -> Option<Secret> {
        let digits = digits.as_bytes();
        let mut bytes = [0; LEN];
        if digits.len() != LEN * 2 {
            return None;
        }
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let nibble = |digit: u8| (digit as char).to_digit(16);
            *byte = (nibble(pair[0])? << 4 | nibble(pair[1])?) as u8;
        }
        Some(Secret(bytes))
    }
}

/// The secrets of a file, at least one.
///
/// **Errors:** a text that names the line, and never what is in it.
pub fn parse(text: &[u8], of: Use) -> Result<Vec<Secret>, String> {
    let (noun, maker) = (of.noun(), of.maker());
    let wrong = |line: usize| {
        format!("line {line} is no {noun}: write 64 hexadecimal digits, as `{maker}` does, or begin the line with #")
    };
    let mut secrets: Vec<Secret> = Vec::new();
    for (number, line) in text.split(|byte| *byte == b'\n').enumerate() {
        let line = std::str::from_utf8(line).map_err(|_| wrong(number + 1))?.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let secret = Secret::parse(line).ok_or_else(|| wrong(number + 1))?;
        if secret.0.iter().all(|byte| *byte == secret.0[0]) {
            return Err(format!("line {} is no {noun}: all its bytes are alike", number + 1));
        }
        if !secrets.contains(&secret) {
            secrets.push(secret);
        }
    }
    match secrets.len() {
        0 => Err(format!("it holds no {noun}: make one with `{maker}`")),
        n if n > MAX => Err(format!("it holds {n} {noun}s, more than {MAX}: remove those that are not used any more")),
        _ => Ok(secrets),
    }
}

/// A file of these secrets.
pub fn render(secrets: &[Secret], of: Use) -> String {
    let mut out = String::from(of.comment());
    for Secret(bytes) in secrets {
        for byte in bytes {
            // Writing to a String cannot fail.
            let _ = write!(out, "{byte:02x}");
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(n: u8) -> Secret {
        let mut bytes = [n; LEN];
        bytes[0] = !n;
        Secret(bytes)
    }

    #[test]
    fn what_is_written_is_read_in_order() {
        let secrets = vec![secret(7), secret(200)];
        assert_eq!(parse(render(&secrets, Use::Members).as_bytes(), Use::Members), Ok(secrets));
    }

    #[test]
    fn errors_name_the_line_and_not_the_secret() {
        let mut text = render(&[secret(1)], Use::Members);
        text.push_str("\n  \nhunter2\n");
        let error = parse(text.as_bytes(), Use::Members).unwrap_err();
        assert!(error.contains("line 5") && !error.contains("hunter2"), "{error}");
        assert!(parse(b"# nothing\n", Use::Members).unwrap_err().contains("trireme secret new"));
        assert!(parse("00".repeat(LEN).as_bytes(), Use::Members).unwrap_err().contains("alike"));
        assert!(parse(&[0xff, 0xfe], Use::Members).unwrap_err().contains("line 1"));
        let many: Vec<Secret> = (0..9).map(secret).collect();
        assert!(parse(render(&many, Use::Members).as_bytes(), Use::Members).unwrap_err().contains("9 secrets"));
    }

    #[test]
    fn keys_of_a_log_are_called_so() {
        let text = render(&[secret(3)], Use::Log);
        assert!(text.contains("repl.log_key_file"));
        assert_eq!(parse(text.as_bytes(), Use::Log), Ok(vec![secret(3)]));
        let error = parse(b"x", Use::Log).unwrap_err();
        assert!(error.contains("no key") && error.contains("trireme log key new"), "{error}");
    }

    #[test]
    fn the_same_twice_is_one() {
        assert_eq!(parse(render(&[secret(1), secret(1)], Use::Members).as_bytes(), Use::Members).unwrap().len(), 1);
    }
}
