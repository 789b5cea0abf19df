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

/// Of every command that says nothing else.
const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  failed; one line on stderr says why and what to do
  2  wrong usage";

/// The command line, with the commands in groups.
pub fn command() -> Command {
    let plain = complete();
    let groups = groups(&plain);
    plain.help_template(TEMPLATE).before_help(groups)
}

/// The command line, in which every command says its exit codes: its own, or those of the command that it is a part of.
pub fn complete() -> Command {
    Args::command().mut_subcommands(|inner| tell_exit_codes(inner, EXIT_CODES))
}

fn tell_exit_codes(command: Command, outer: &str) -> Command {
    let said = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let own = said.find("Exit codes").map(|start| &said[start..]);
    let codes = own.map(|text| text.split("\n\n").next().unwrap_or(text)).unwrap_or(outer).to_owned();
    let command = match (own, said.is_empty()) {
        (Some(_), _) => command,
        (None, true) => command.after_help(codes.clone()),
        (None, false) => command.after_help(format!("{said}\n\n{codes}")),
    };
    command.mut_subcommands(|inner| tell_exit_codes(inner, &codes))
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

    /// Every command, those within others too.
    fn walk(command: &Command, name: &str, look: &mut impl FnMut(&str, &Command)) {
        for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set() && inner.get_name() != "help") {
            let name = format!("{name} {}", inner.get_name());
            look(&name, inner);
            walk(inner, &name, look);
        }
    }

    #[test]
    fn every_command_says_its_exit_codes_and_what_its_arguments_are() {
        let mut seen = 0;
        walk(&complete(), "trireme", &mut |name, command| {
            seen += 1;
            let help = command.clone().render_long_help().to_string();
            assert_eq!(help.matches("Exit codes").count(), 1, "{name}\n{help}");
            for argument in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
                let about = argument.get_help().map(ToString::to_string).unwrap_or_default();
                assert!(!about.is_empty(), "{name}: {}", argument.get_id());
            }
        });
        assert!(seen > 40, "{seen}");
    }

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
