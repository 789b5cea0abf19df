//! Programs of others that make load: run to their end, or ended by Ctrl-C.

use crate::systems::search_path;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use trireme_cluster::Cancel;

/// A program that runs. It is killed when this is dropped.
pub struct Tool {
    name: String,
    child: Child,
    /// Read by threads of their own: a full pipe would stop the program.
    output: Option<std::thread::JoinHandle<String>>,
    errors: Option<std::thread::JoinHandle<String>>,
}

pub fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    // In a group of its own: a Ctrl-C at the terminal reaches only us, and we decide what ends.
    command.env("PATH", search_path()).process_group(0);
    command
}

fn reader(pipe: Option<impl Read + Send + 'static>) -> Option<std::thread::JoinHandle<String>> {
    pipe.map(|mut pipe| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            // A file that cannot be read counts as none.
            let _ = pipe.read_to_end(&mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        })
    })
}

impl Tool {
    pub fn start(mut command: Command) -> Result<Tool, String> {
        let name = command.get_program().to_string_lossy().into_owned();
        let started = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = started.map_err(|e| format!("cannot run {name}: {e}"))?;
        let (output, errors) = (reader(child.stdout.take()), reader(child.stderr.take()));
        Ok(Tool { name, child, output, errors })
    }

    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap_or(0)
    }

    pub fn has_ended(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(Some(_)))
    }

    /// Waits for its end; what it printed. **Errors** with its last words when it failed, when `limit` passed, or with Ctrl-C.
    pub fn finish(mut self, limit: Duration, cancel: &Cancel) -> Result<String, String> {
        let began = Instant::now();
        let status = loop {
            match self.child.try_wait().map_err(|e| format!("{}: {e}", self.name))? {
                Some(status) => break status,
                None if cancel.is_set() => return Err("interrupted".to_owned()),
                None if began.elapsed() > limit => {
                    return Err(format!("{} did not end within {} s", self.name, limit.as_secs()));
                }
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        let text =
            |thread: Option<std::thread::JoinHandle<String>>| thread.and_then(|t| t.join().ok()).unwrap_or_default();
        let (output, errors) = (text(self.output.take()), text(self.errors.take()));
        if status.success() {
            return Ok(output);
        }
        let words = [&output, &errors].into_iter().flat_map(|text| text.lines());
        let said: Vec<&str> = words.map(str::trim).filter(|line| is_word_of_failure(line)).collect();
        let last = said.iter().rev().take(2).rev().copied().collect::<Vec<_>>().join(" | ");
        Err(format!("{} failed ({status}): {}", self.name, if last.is_empty() { "without a word" } else { &last }))
    }
}

/// The lines of a failing program that are worth repeating.
fn is_word_of_failure(line: &str) -> bool {
    !line.is_empty() && !line.starts_with("(last message repeated")
}

impl Drop for Tool {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Runs a program to its end.
pub fn run(command: Command, limit: Duration, cancel: &Cancel) -> Result<String, String> {
    Tool::start(command)?.finish(limit, cancel)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> Command {
        let mut sh = command("sh");
        sh.args(["-c", script]);
        sh
    }

    #[test]
    fn output_errors_limits_and_interruption() {
        let (minute, cancel) = (Duration::from_secs(60), Cancel::default());
        // More than a pipe holds.
        let much =
            run(sh("i=0; while [ $i -lt 20000 ]; do echo 0123456789; i=$((i+1)); done"), minute, &cancel).unwrap();
        assert_eq!(much.len(), 220_000);
        let failed = run(sh("echo one; echo two >&2; exit 3"), minute, &cancel).unwrap_err();
        assert!(failed.contains("one") && failed.contains("two"), "{failed}");
        assert!(run(sh("sleep 60"), Duration::from_millis(50), &cancel).unwrap_err().contains("did not end"));
        assert!(run(command("no-such-program"), minute, &cancel).unwrap_err().contains("cannot run"));
        cancel.set();
        assert_eq!(run(sh("sleep 60"), minute, &cancel).unwrap_err(), "interrupted");
    }
}
