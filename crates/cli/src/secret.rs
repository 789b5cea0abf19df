//! `trireme secret`: the file with the secret that members share (`repl.secret_file`). Prints no secret.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::args::SecretAction;
use trireme_surface::secret::{LEN, Secret, Use, parse, render};

pub fn run(action: SecretAction) -> Result<(), String> {
    match action {
        SecretAction::New { file } => {
            make(&file, Use::Members, "`trireme secret rotate` puts a new secret into an existing file")?;
            println!("{} holds a new secret.", file.display());
            println!(
                "Copy it to every node and arbitrator (owner: the user that the server runs as, mode 0600), and set there:"
            );
            println!("  wsrep_provider_options=\"repl.secret_file={}\"", file.display());
        }
        SecretAction::Rotate { file } => {
            let old = read(&file, Use::Members)?;
            let secrets = [draw()?, old[0].clone()];
            write(&file, &secrets, Use::Members)?;
            println!("{} shows a new secret and accepts the one before it too.", file.display());
            println!(
                "Copy it to every node, and then, on every node: SET GLOBAL wsrep_provider_options='repl.secret_reload=1'"
            );
            println!("When all have it: `trireme secret retire`, copy and reload again.");
        }
        SecretAction::Retire { file } => {
            let secrets = read(&file, Use::Members)?;
            write(&file, &secrets[..1], Use::Members)?;
            println!("{} holds one secret: the {} before it are gone.", file.display(), secrets.len() - 1);
            println!(
                "Copy it to every node, and then, on every node: SET GLOBAL wsrep_provider_options='repl.secret_reload=1'"
            );
        }
    }
    Ok(())
}

/// A new file with one new secret. `else_do`: what the user does with a file that is there.
pub fn make(file: &Path, of: Use, else_do: &str) -> Result<(), String> {
    trireme_private::write_new(file, render(&[draw()?], of).as_bytes()).map_err(|error| {
        let hint = match error.kind() {
            std::io::ErrorKind::AlreadyExists => format!("; {else_do}"),
            _ => String::new(),
        };
        format!("cannot make {}: {error}{hint}", file.display())
    })
}

pub fn read(file: &Path, of: Use) -> Result<Vec<Secret>, String> {
    let text = trireme_private::read_secret(file)?;
    let text = text.ok_or_else(|| format!("there is no {}: make it with `{}`", file.display(), of.maker()))?;
    parse(&text, of).map_err(|why| format!("{}: {why}", file.display()))
}

pub fn write(file: &Path, secrets: &[Secret], of: Use) -> Result<(), String> {
    trireme_private::replace(file, render(secrets, of).as_bytes(), 0o600)
        .map_err(|error| format!("cannot write {}: {error}", file.display()))
}

pub fn draw() -> Result<Secret, String> {
    let mut bytes = [0; LEN];
    File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(&mut bytes))
        .map_err(|error| format!("cannot read /dev/urandom: {error}"))?;
    Ok(Secret(bytes))
}
