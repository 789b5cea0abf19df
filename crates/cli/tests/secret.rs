//! `trireme secret` as it is called.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use trireme_surface::secret::{Use, parse};

fn trireme(action: &str, file: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_trireme")).arg("secret").arg(action).arg(file).output().unwrap()
}

#[test]
fn a_secret_is_made_rotated_and_retired() {
    let dir = trireme_private::fresh_dir(&std::env::temp_dir(), "trireme-cli-secret").unwrap();
    let file = dir.join("secret");
    let secrets = || parse(&std::fs::read(&file).unwrap(), Use::Members).unwrap();
    let mode = || std::fs::metadata(&file).unwrap().permissions().mode() & 0o777;
    assert!(!trireme("rotate", &file).status.success(), "there is none");

    let made = trireme("new", &file);
    assert!(made.status.success());
    let first = secrets();
    assert_eq!((first.len(), mode()), (1, 0o600));
    let said = String::from_utf8(made.stdout).unwrap();
    let digits = std::fs::read_to_string(&file).unwrap().lines().last().unwrap().to_owned();
    assert!(said.contains("repl.secret_file=") && !said.contains(&digits), "{said}");

    let again = trireme("new", &file);
    assert!(!again.status.success() && secrets() == first);
    assert!(String::from_utf8(again.stderr).unwrap().contains("rotate"));

    assert!(trireme("rotate", &file).status.success());
    let second = secrets();
    assert_eq!((second.len(), mode()), (2, 0o600));
    assert!(second[1] == first[0] && second[0] != first[0]);
    assert!(trireme("retire", &file).status.success());
    assert_eq!(secrets(), second[..1]);

    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).unwrap();
    let open = trireme("rotate", &file);
    assert!(!open.status.success() && secrets() == second[..1]);
    assert!(String::from_utf8(open.stderr).unwrap().contains("chmod 0600"));
    std::fs::remove_dir_all(&dir).unwrap();
}

/// A secret lies where only root may write, and belongs to the user that the server runs as.
#[test]
fn root_changes_the_secret_of_a_server_and_it_stays_that_ones() {
    use std::os::unix::fs::{MetadataExt, chown};

    let dir = trireme_private::fresh_dir(&std::env::temp_dir(), "trireme-cli-secret").unwrap();
    let (file, made) = (dir.join("secret"), dir.join("transfer"));
    assert!(trireme("new", &file).status.success());
    if chown(&file, Some(12345), Some(12345)).is_err() {
        println!("skipped: needs root");
    } else {
        let owner = |path: &Path| std::fs::metadata(path).unwrap().uid();
        for action in ["rotate", "retire"] {
            let done = trireme(action, &file);
            assert!(done.status.success(), "{action}: {}", String::from_utf8_lossy(&done.stderr));
            assert_eq!(owner(&file), 12345, "{action}");
        }
        let done = Command::new(env!("CARGO_BIN_EXE_trireme"))
            .args(["secret", "transfer"])
            .args([&file, &made])
            .output()
            .unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        assert_eq!((owner(&made), owner(&made.join("key.pem")), owner(&made.join("ca.pem"))), (12345, 12345, 12345));
    }
    std::fs::remove_dir_all(&dir).unwrap();
}
