// Shared by the build scripts of what tells its version. `TRIREME_COMMIT` in the environment wins, for builds from an archive.

use std::process::Command;

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}

/// Sets TRIREME_VERSION for the crate: `0.1.0+20260131.0123abc` with the commit and its day, or `0.1.0` where no commit is known.
fn tell_version() {
    println!("cargo:rerun-if-env-changed=TRIREME_COMMIT");
    println!("cargo:rerun-if-changed=../../packaging/version.rs");
    // These files move with each commit. A path that is not there would make every build a new one.
    for name in ["HEAD", "logs/HEAD"] {
        if let Some(file) = git(&["rev-parse", "--git-path", name]).filter(|file| std::path::Path::new(file).exists()) {
            println!("cargo:rerun-if-changed={file}");
        }
    }
    let commit = std::env::var("TRIREME_COMMIT").ok().or_else(|| {
        git(&["log", "-1", "--abbrev=7", "--date=format:%Y%m%d", "--format=%cd.%h"])
    });
    let version = std::env::var("CARGO_PKG_VERSION").expect("cargo sets it");
    match commit {
        Some(commit) => println!("cargo:rustc-env=TRIREME_VERSION={version}+{commit}"),
        None => println!("cargo:rustc-env=TRIREME_VERSION={version}"),
    }
}
