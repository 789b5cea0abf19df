//! `trireme log key`: the file with the keys of a node's write-set log (`repl.log_key_file`). Prints no key.

use std::path::{Path, PathBuf};

use trireme_surface::secret::{Secret, Use};
use trireme_wslog::inspect::keys_needed;
use trireme_wslog::{DirStorage, KeyId, LogKeys};

use super::text;
use crate::args::LogKeyAction;
use crate::run::print_line;
use crate::secret::{draw, make, read as read_file, write};

pub fn run(action: LogKeyAction) -> Result<(), String> {
    match action {
        LogKeyAction::New { file } => {
            make(&file, Use::Log, "`trireme log key rotate` puts a new key into an existing file")?;
            print_line(&format!("{} holds a new key, {}.", file.display(), id(&read_file(&file, Use::Log)?[0])?));
            print_line(
                "It is for one node (owner: the user that the server runs as, mode 0600). Set there, and restart the server:",
            );
            print_line(&format!("  wsrep_provider_options=\"repl.log_key_file={}\"", file.display()));
            print_line(
                "Keep a copy apart from the data. Without the key the node's log is lost, and it needs a full copy.",
            );
        }
        LogKeyAction::Rotate { file } => {
            let mut keys = read_file(&file, Use::Log)?;
            keys.insert(0, Secret(draw()?.0));
            write(&file, &keys, Use::Log)?;
            print_line(&format!("{} holds a new key, {}, before the others.", file.display(), id(&keys[0])?));
            print_line(
                "A restart uses it, or on the running node: SET GLOBAL wsrep_provider_options='repl.log_key_reload=1'",
            );
            print_line("When the old segments are trimmed: `trireme log key retire`");
        }
        LogKeyAction::Retire { file, dir } => retire(&file, &dir)?,
    }
    Ok(())
}

/// Takes out the keys that no file of the log needs any more.
fn retire(file: &Path, dir: &Path) -> Result<(), String> {
    let storage = DirStorage::read_only(dir).map_err(text)?;
    let needed = keys_needed(&storage).map_err(text)?;
    if needed.is_empty() {
        return Err(format!(
            "no file of an encrypted log is in {}: nothing is taken out of {}",
            dir.display(),
            file.display()
        ));
    }
    let mut keys = read_file(file, Use::Log)?;
    let before = keys.len();
    let first = keys.remove(0);
    let mut kept = vec![first];
    for key in keys {
        if needed.contains(&id(&key)?) {
            kept.push(key);
        }
    }
    write(file, &kept, Use::Log)?;
    let still = kept.len() - 1;
    print_line(&format!(
        "{} keys taken out of {}; {still} of those before the first are still needed.",
        before - kept.len(),
        file.display()
    ));
    Ok(())
}

fn id(key: &Secret) -> Result<KeyId, String> {
    LogKeys::id(&key.0).map_err(text)
}

/// The keys of `--key-file`.
pub fn read(file: Option<PathBuf>) -> Result<Option<LogKeys>, String> {
    let Some(file) = file else { return Ok(None) };
    let keys: Vec<_> = read_file(&file, Use::Log)?.into_iter().map(|key| key.0).collect();
    LogKeys::new(&keys).map(Some).map_err(text)
}
