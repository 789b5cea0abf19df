//! `trireme secret`: the file with the secret that members share (`repl.secret_file`). Prints no secret.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::args::SecretAction;
use crate::run::print_line;
use trireme_certificates::{Authority, Files, Validity};
use trireme_surface::secret::{LEN, Secret, Use, parse, render};

const COPY_AND_RELOAD: &str = "Copy it to every node and arbitrator (which sees it by itself), and then, on every node: SET GLOBAL wsrep_provider_options='repl.secret_reload=1'";

pub fn run(action: SecretAction) -> Result<(), String> {
    match action {
        SecretAction::New { file } => {
            make(&file, Use::Members, "`trireme secret rotate` puts a new secret into an existing file")?;
            print_line(&format!("{} holds a new secret.", file.display()));
            print_line(
                "Copy it to every node and arbitrator (owner: the user that the server runs as, mode 0600), and set there:",
            );
            print_line(&format!("  wsrep_provider_options=\"repl.secret_file={}\"", file.display()));
        }
        SecretAction::Rotate { file } => {
            let old = read(&file, Use::Members)?;
            let secrets = [draw()?, old[0].clone()];
            write(&file, &secrets, Use::Members)?;
            print_line(&format!("{} shows a new secret and accepts the one before it too.", file.display()));
            print_line(COPY_AND_RELOAD);
            print_line("When all have it: `trireme secret retire`, copy and reload again.");
        }
        SecretAction::Retire { file } => {
            let secrets = read(&file, Use::Members)?;
            write(&file, &secrets[..1], Use::Members)?;
            print_line(&format!("{} holds one secret: the {} before it are gone.", file.display(), secrets.len() - 1));
            print_line(COPY_AND_RELOAD);
        }
        SecretAction::Transfer { file, dir } => transfer(&file, &dir)?,
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

/// While a secret is being changed certificates of the old one are taken too, as the group does.
fn transfer(file: &Path, dir: &Path) -> Result<(), String> {
    let secrets = read(file, Use::Members)?;
    trireme_private::own_dir_as(dir, file)?;
    let failed = |error: &dyn std::fmt::Display| format!("cannot make a certificate: {error}");
    let authorities: Result<Vec<Authority>, _> = secrets.iter().map(|secret| Authority::of_secret(&secret.0)).collect();
    let authorities = authorities.map_err(|error| failed(&error))?;
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name: String =
        host.trim().chars().filter(|c| c.is_ascii_alphanumeric() || "-.".contains(*c)).take(63).collect();
    let name = if name.is_empty() { "member" } else { &name };
    let issued = authorities[0].issue(name, Validity::YEARS, None).map_err(|error| failed(&error))?;
    let mut trusted = Vec::new();
    for authority in &authorities {
        trusted.extend(authority.cert().map_err(|error| failed(&error))?);
    }
    let files = Files::below(dir);
    for (path, bytes, mode) in
        [(&files.key, &issued.key, 0o600), (&files.cert, &issued.cert, 0o644), (&files.ca, &trusted, 0o644)]
    {
        trireme_private::replace_as(path, bytes, mode, file)
            .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    }
    print_line(
        "The key belongs to the owner of the secret, who must be the user that the server runs as. In my.cnf of this node:",
    );
    print_line("  [sst]");
    print_line("  ssl-mode=VERIFY_CA");
    print_line(&format!("  tca={}", files.ca.display()));
    print_line(&format!("  tcert={}", files.cert.display()));
    print_line(&format!("  tkey={}", files.key.display()));
    print_line(
        "Do the same on every node, and again when the secret is changed. rsync needs stunnel, mariabackup needs socat.",
    );
    Ok(())
}

pub fn read(file: &Path, of: Use) -> Result<Vec<Secret>, String> {
    let text = trireme_private::read_secret_of_any(file)?;
    let text = text.ok_or_else(|| format!("there is no {}: make it with `{}`", file.display(), of.maker()))?;
    parse(&text, of).map_err(|why| format!("{}: {why}", file.display()))
}

pub fn write(file: &Path, secrets: &[Secret], of: Use) -> Result<(), String> {
    trireme_private::replace_as(file, render(secrets, of).as_bytes(), 0o600, file).map_err(|error| {
        let hint = match error.kind() {
            std::io::ErrorKind::PermissionDenied => "; its directory is not yours: run this as root, the owner stays",
            _ => "",
        };
        format!("cannot write {}: {error}{hint}", file.display())
    })
}

pub fn draw() -> Result<Secret, String> {
    let mut bytes = [0; LEN];
    File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(&mut bytes))
        .map_err(|error| format!("cannot read /dev/urandom: {error}"))?;
    Ok(Secret(bytes))
}
