//! The help of `trireme` itself: its commands by purpose, and examples. Those of the commands are made by clap.

use crate::args::Args;
use clap::{Command, CommandFactory};

/// Commands by purpose, in the order in which they are shown. One that is in no group is shown at the end.
const GROUPS: [(&str, &[&str]); 4] = [
    ("Try it", &["up", "cluster", "chaos", "bench"]),
    ("Look at a cluster", &["status", "top", "doctor", "events", "explain", "flight", "bundle", "monitor"]),
    ("Run beside the servers", &["arbitrate", "balance", "hosts"]),
    ("Files of a node", &["secret", "log"]),
];
const REST: &str = "Further";

const TEMPLATE: &str = "\
{about-with-newline}
{usage-heading} {usage}

{before-help}Options:
{options}{after-help}";

/// The command line, with the commands in groups.
pub fn command() -> Command {
    let plain = Args::command();
    let groups = groups(&plain);
    plain.help_template(TEMPLATE).before_help(groups)
}

fn groups(command: &Command) -> String {
    let visible: Vec<&Command> = command.get_subcommands().filter(|inner| !inner.is_hide_set()).collect();
    let width = visible.iter().map(|inner| inner.get_name().len()).max().unwrap_or_default();
    let line = |inner: &&Command| {
        let about = inner.get_about().map(ToString::to_string).unwrap_or_default();
        format!("  {:width$}  {about}\n", inner.get_name())
    };
    let mut text = String::new();
    for (heading, names) in GROUPS {
        let inner = names.iter().filter_map(|name| visible.iter().find(|inner| inner.get_name() == *name));
        let lines: String = inner.map(line).collect();
        text.push_str(&format!("{heading}:\n{lines}\n"));
    }
    let is_grouped = |inner: &&&Command| GROUPS.iter().any(|(_, names)| names.contains(&inner.get_name()));
    let rest: String = visible.iter().filter(|inner| !is_grouped(inner)).map(line).collect();
    text.push_str(&format!("{REST}:\n{rest}"));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_every_command_once_and_no_line_is_wide() {
        let help = command().render_help().to_string();
        for inner in Args::command().get_subcommands().filter(|inner| !inner.is_hide_set()) {
            let name = inner.get_name();
            let shown = help.lines().filter(|line| line.starts_with(&format!("  {name} "))).count();
            assert_eq!(shown, 1, "{name}\n{help}");
        }
        let wide: Vec<&str> = help.lines().filter(|line| line.chars().count() > 100).collect();
        assert!(wide.is_empty(), "{wide:#?}");
    }
}
