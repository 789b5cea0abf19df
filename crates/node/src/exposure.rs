//! The strangers who could become members: what peers must show, and what is said when they need to show nothing.

use std::time::{Duration, Instant};

use trireme_transport::Protection;

use crate::Level;
use crate::host::Host;

/// A line that is said once is lost in the log of a server that runs for months.
const AGAIN: Duration = Duration::from_secs(3600);

/// How the extended status calls it.
pub fn name(protection: Protection) -> &'static str {
    match protection {
        Protection::Secret => "secret",
        Protection::Certificates => "certificates",
        Protection::Loopback => "none, loopback only",
        Protection::Optional => "optional",
        Protection::None => "none",
    }
}

/// The flaw in it, if there is one.
fn complaint(protection: Protection) -> Option<&'static str> {
    match protection {
        Protection::Secret | Protection::Certificates | Protection::Loopback => None,
        Protection::Optional => Some("also takes peers in clear text that show nothing (socket.dynamic=yes)"),
        Protection::None => Some("takes peers in clear text that show nothing"),
    }
}

/// `repl.require_auth`: why this node must not start.
pub fn refusal(protection: Protection, place: &str) -> Option<String> {
    let complaint = complaint(protection)?;
    let advice = match protection {
        Protection::Optional => "remove socket.dynamic",
        Protection::Secret | Protection::Certificates | Protection::Loopback | Protection::None => {
            "set repl.secret_file (make the file with `trireme secret new FILE`), or socket.ssl_key and socket.ssl_cert"
        }
    };
    Some(format!("repl.require_auth=yes, and this node listens on {place} and {complaint}: {advice}"))
}

/// Says it at the start and every hour.
#[derive(Default)]
pub struct Reminder {
    said: Option<Instant>,
}

impl Reminder {
    pub fn look(&mut self, host: &Host, protection: Protection, place: &str) {
        for line in self.due(Instant::now(), protection, place) {
            host.log(Level::Warn, line);
        }
    }

    /// The lines that are to be said now.
    fn due(&mut self, now: Instant, protection: Protection, place: &str) -> Vec<String> {
        let Some(complaint) = complaint(protection) else { return Vec::new() };
        if self.said.is_some_and(|said| now.saturating_duration_since(said) < AGAIN) {
            return Vec::new();
        }
        self.said = Some(now);
        lines(protection, complaint, place)
    }
}

fn lines(protection: Protection, complaint: &str, place: &str) -> Vec<String> {
    let mut lines = vec![format!(
        "this node listens on {place} and {complaint}: whoever reaches that port can read and change all data, as a superuser of every server"
    )];
    match protection {
        Protection::Optional => lines.push("to mend it, when all nodes have been changed: remove socket.dynamic".to_owned()),
        Protection::Secret | Protection::Certificates | Protection::Loopback | Protection::None => lines.extend([
            "to mend it, once: trireme secret new /etc/mysql/trireme.secret, and copy that file to every node (owner: the server's user, mode 0600)"
                .to_owned(),
            "to mend it, on every node: wsrep_provider_options=\"repl.secret_file=/etc/mysql/trireme.secret\"".to_owned(),
        ]),
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_open_to_everybody_is_complained_of() {
        for fine in [Protection::Secret, Protection::Certificates, Protection::Loopback] {
            assert_eq!(refusal(fine, "tcp://0.0.0.0:4567"), None);
        }
        let refused = refusal(Protection::None, "tcp://0.0.0.0:4567").unwrap();
        assert!(refused.contains("repl.secret_file") && refused.contains("tcp://0.0.0.0:4567"), "{refused}");
        assert!(refusal(Protection::Optional, "x").unwrap().contains("socket.dynamic"));
    }

    #[test]
    fn it_is_said_at_the_start_and_every_hour() {
        let mut reminder = Reminder::default();
        let start = Instant::now();
        let mut said_at = |minutes: u64, protection| {
            !reminder.due(start + Duration::from_secs(60 * minutes), protection, "tcp://0.0.0.0:4567").is_empty()
        };
        let said: Vec<u64> = (0..=180).filter(|minutes| said_at(*minutes, Protection::None)).collect();
        assert_eq!(said, [0, 60, 120, 180]);
        assert!(!said_at(600, Protection::Secret));
    }

    #[test]
    fn the_warning_names_the_two_lines_that_mend_it() {
        let said = lines(Protection::None, "c", "tcp://0.0.0.0:4567").join("\n");
        assert!(said.contains("trireme secret new") && said.contains("repl.secret_file="), "{said}");
    }
}
