//! The file with the secret that members share (`repl.secret_file`).
//!
//! One secret a line, as 64 hexadecimal digits; empty lines and those that begin with `#` do not count. The first is the one that this node
//! shows; the others are accepted as well, so that a secret can be changed while the cluster runs.

use std::fmt::{self, Write};

/// Bytes of a secret. Too many to be guessed: it is drawn, not chosen.
pub const LEN: usize = 32;
/// Secrets in one file: the new one, the old one, and room for mistakes.
const MAX: usize = 8;

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
pub fn parse(text: &[u8]) -> Result<Vec<Secret>, String> {
    let wrong = |line: usize| {
        format!(
            "line {line} is no secret: write 64 hexadecimal digits, as `trireme secret new` does, or begin the line with #"
        )
    };
    let mut secrets: Vec<Secret> = Vec::new();
    for (number, line) in text.split(|byte| *byte == b'\n').enumerate() {
        let line = std::str::from_utf8(line).map_err(|_| wrong(number + 1))?.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let secret = Secret::parse(line).ok_or_else(|| wrong(number + 1))?;
        if secret.0.iter().all(|byte| *byte == secret.0[0]) {
            return Err(format!("line {} is no secret: all its bytes are alike", number + 1));
        }
        if !secrets.contains(&secret) {
            secrets.push(secret);
        }
    }
    match secrets.len() {
        0 => Err("it holds no secret: make one with `trireme secret new`".to_owned()),
        n if n > MAX => Err(format!("it holds {n} secrets, more than {MAX}: remove those that no node uses any more")),
        _ => Ok(secrets),
    }
}

/// A file of these secrets.
pub fn render(secrets: &[Secret]) -> String {
    let mut out = String::from(
        "# Secrets that the members of a cluster share (repl.secret_file). The first one is shown to others, all are accepted.\n",
    );
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
        assert_eq!(parse(render(&secrets).as_bytes()), Ok(secrets));
    }

    #[test]
    fn errors_name_the_line_and_not_the_secret() {
        let mut text = render(&[secret(1)]);
        text.push_str("\n  \nhunter2\n");
        let error = parse(text.as_bytes()).unwrap_err();
        assert!(error.contains("line 5") && !error.contains("hunter2"), "{error}");
        assert!(parse(b"# nothing\n").unwrap_err().contains("trireme secret new"));
        assert!(parse("00".repeat(LEN).as_bytes()).unwrap_err().contains("alike"));
        assert!(parse(&[0xff, 0xfe]).unwrap_err().contains("line 1"));
        let many: Vec<Secret> = (0..9).map(secret).collect();
        assert!(parse(render(&many).as_bytes()).unwrap_err().contains("9 secrets"));
    }

    #[test]
    fn the_same_twice_is_one() {
        assert_eq!(parse(render(&[secret(1), secret(1)]).as_bytes()).unwrap().len(), 1);
    }
}
