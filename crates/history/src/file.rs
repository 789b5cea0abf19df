//! Histories as JSON lines: the header, then one operation per line.

use crate::operation::{FORMAT, Header, History, Operation};
use std::fmt;
use std::io::{self, BufRead, Write};

/// Why a file is no history.
#[derive(Debug)]
pub enum ReadError {
    Io(io::Error),
    /// The first line is missing or says another format.
    Header(String),
    /// Counted from 1.
    Line {
        number: usize,
        why: String,
    },
}

impl std::error::Error for ReadError {}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadError::Io(error) => write!(f, "{error}"),
            ReadError::Header(why) => {
                write!(f, "the first line is no header of a history ({why}): give a history.jsonl of `trireme chaos`")
            }
            ReadError::Line { number, why } => write!(f, "line {number} is no operation: {why}"),
        }
    }
}

impl History {
    /// **Errors** at the first line that cannot be understood; half a history is not judged.
    pub fn read(input: impl BufRead) -> Result<History, ReadError> {
        let mut lines = input.lines();
        let first = lines.next().ok_or_else(|| ReadError::Header("the file is empty".to_owned()))?;
        let header: Header = serde_json::from_str(&first.map_err(ReadError::Io)?)
            .map_err(|error| ReadError::Header(error.to_string()))?;
        if header.format != FORMAT {
            return Err(ReadError::Header(format!("format {}, expected {FORMAT}", header.format)));
        }
        let mut operations = Vec::new();
        for (i, line) in lines.enumerate() {
            let line = line.map_err(ReadError::Io)?;
            let operation: Operation = serde_json::from_str(&line)
                .map_err(|error| ReadError::Line { number: i + 2, why: error.to_string() })?;
            operations.push(operation);
        }
        Ok(History { header, operations })
    }

    pub fn write(&self, mut output: impl Write) -> io::Result<()> {
        serde_json::to_writer(&mut output, &self.header)?;
        output.write_all(b"\n")?;
        for operation in &self.operations {
            serde_json::to_writer(&mut output, operation)?;
            output.write_all(b"\n")?;
        }
        output.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::{Body, Element, Isolation, Key, Micros, Outcome, Step};

    #[test]
    fn what_is_written_is_read() {
        let operation = Operation {
            process: 3,
            node: 1,
            invoked: Micros(5),
            completed: None,
            outcome: Outcome::Unknown,
            error: Some("ERROR 1180".to_owned()),
            last: false,
            body: Body::Transaction(vec![Step::Append(Key(1), Element(2)), Step::Read(Key(1), None)]),
        };
        let history = History { header: Header::new(Isolation::Snapshot), operations: vec![operation] };
        let mut file = Vec::new();
        history.write(&mut file).unwrap();
        assert_eq!(History::read(&file[..]).unwrap(), history);
    }

    #[test]
    fn refuses_what_is_no_history() {
        for bad in ["", "{}", "nonsense", r#"{"format":99,"isolation":"snapshot","causal":false}"#] {
            assert!(matches!(History::read(bad.as_bytes()), Err(ReadError::Header(_))), "{bad}");
        }
        let cut = "{\"format\":1,\"isolation\":\"snapshot\",\"causal\":false}\n{\"process\":1,";
        assert!(matches!(History::read(cut.as_bytes()), Err(ReadError::Line { number: 2, .. })));
    }
}
