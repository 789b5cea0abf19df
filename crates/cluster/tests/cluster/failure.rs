//! The reason why a scenario failed, told again where somebody looks who sees only the end of a log.

use std::any::Any;
use std::collections::VecDeque;
use std::panic::{PanicHookInfo, set_hook, take_hook};
use std::sync::Mutex;

use trireme_types::panic_text;

/// Messages of the last panics, and where in the source they came from. Which scenario a thread belongs to is not known here: a panic that is
/// handed on from thread to thread keeps its message, by which its place is found.
static HEARD: Mutex<VecDeque<(String, String)>> = Mutex::new(VecDeque::new());
const HEARD_MAX: usize = 64;

/// No line of a message is longer in what is told.
const WIDTH: usize = 400;

/// Remembers the places of panics from here on, which are printed as ever.
pub fn note_places() {
    let print = take_hook();
    set_hook(Box::new(move |info: &PanicHookInfo| {
        let place = info.location().map_or_else(|| "somewhere".to_owned(), |at| format!("{}:{}", at.file(), at.line()));
        if let Ok(mut heard) = HEARD.lock() {
            heard.truncate(HEARD_MAX - 1);
            heard.push_front((panic_text(info.payload()).to_owned(), place));
        }
        print(info);
    }));
}

pub struct Failure {
    message: String,
    place: Option<String>,
}

impl Failure {
    pub fn of(panic: &(dyn Any + Send)) -> Failure {
        let message = panic_text(panic).to_owned();
        let heard = HEARD.lock().expect("no holder panics");
        let place = heard.iter().find(|(said, _)| *said == message).map(|(_, place)| place.clone());
        Failure { message, place }
    }

    /// Of a scenario that did not panic.
    pub fn without_place(message: String) -> Failure {
        Failure { message, place: None }
    }

    /// At most so many lines of the message, each behind `indent`.
    pub fn told(&self, lines: usize, indent: &str) -> String {
        let place = self.place.as_ref().map(|place| format!("{place}: ")).unwrap_or_default();
        let text = place + self.message.trim();
        let all = text.lines().count();
        let mut told: Vec<String> = text.lines().take(lines).map(|line| format!("{indent}{}", clip(line))).collect();
        if all > lines {
            told.push(format!("{indent}[{} lines more]", all - lines));
        }
        told.join("\n")
    }
}

fn clip(line: &str) -> String {
    match line.char_indices().nth(WIDTH) {
        Some((end, _)) => format!("{} […]", &line[..end]),
        None => line.to_owned(),
    }
}
