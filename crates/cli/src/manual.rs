//! Manual pages and completions, made from what can be typed.

use crate::help::complete;
use clap_complete::Shell;
use std::io::Write;
use std::path::Path;

/// Written by hand, with examples: not made here.
const BY_HAND: &[&str] = &["trireme-balance"];

/// The script for `shell`, on stdout.
pub fn completions(shell: Shell) -> Result<(), String> {
    // In memory first: clap_complete panics where a pipe was closed.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut complete(), "trireme", &mut script);
    std::io::stdout().write_all(&script).map_err(|error| format!("cannot write: {error}"))
}

/// `trireme.1`, `trireme-cluster.1`, `trireme-cluster-up.1`, … in `dir`, which is made if need be.
pub fn write(dir: &Path) -> Result<(), String> {
    std::fs::create_dir_all(dir).map_err(|error| format!("{}: {error}", dir.display()))?;
    let mut command = complete();
    command.build();
    write_page(&command, "trireme", dir)
}

fn write_page(command: &clap::Command, name: &str, dir: &Path) -> Result<(), String> {
    if !BY_HAND.contains(&name) {
        let path = dir.join(format!("{name}.1"));
        let page = clap_mangen::Man::new(command.clone()).title(name.to_uppercase()).section("1");
        let mut text = Vec::new();
        page.render(&mut text)
            .and_then(|()| std::fs::write(&path, &text))
            .map_err(|error| format!("{}: {error}", path.display()))?;
    }
    let mut shown = command.get_subcommands().filter(|inner| !inner.is_hide_set() && inner.get_name() != "help");
    shown.try_for_each(|inner| write_page(inner, &format!("{name}-{}", inner.get_name()), dir))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page_and_hidden_ones_have_none() {
        let dir = std::env::temp_dir().join(format!("trireme-manual-{}", std::process::id()));
        write(&dir).unwrap();
        let pages: Vec<String> =
            std::fs::read_dir(&dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        std::fs::remove_dir_all(&dir).unwrap();
        for page in
            ["trireme.1", "trireme-cluster.1", "trireme-cluster-up.1", "trireme-log-verify.1", "trireme-arbitrate.1"]
        {
            assert!(pages.iter().any(|p| p == page), "{page} lacks in {pages:?}");
        }
        assert!(!pages.iter().any(|p| p == "trireme-manual.1" || p == "trireme-balance.1"), "{pages:?}");
    }
}
