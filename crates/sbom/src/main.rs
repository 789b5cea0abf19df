//! The content of a build: a bill of materials as CycloneDX 1.5 (JSON), from `cargo metadata` and `Cargo.lock`. `make sbom`
//! calls it.
//!
//! The same commit gives the same bytes: no date, no random serial number.

mod bill;

use std::path::PathBuf;
use std::process::{Command, ExitCode};

/// The packages that `make install` installs.
const INSTALLED: [&str; 3] = ["trireme-provider", "trireme-cli", "trireme-connect"];

fn main() -> ExitCode {
    match run() {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("trireme-sbom: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<String, String> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let output = Command::new(&cargo)
        .args(["metadata", "--format-version", "1", "--locked", "--filter-platform", &target])
        .output()
        .map_err(|error| format!("cannot run {cargo}: {error}"))?;
    if !output.status.success() {
        return Err(format!("cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr)));
    }
    let metadata = serde_json::from_slice(&output.stdout).map_err(|error| format!("cargo metadata: {error}"))?;
    let root: &serde_json::Value = &metadata;
    let lock = PathBuf::from(root["workspace_root"].as_str().unwrap_or(".")).join("Cargo.lock");
    let lock = std::fs::read_to_string(&lock).map_err(|error| format!("{}: {error}", lock.display()))?;
    let bill = bill::of(&metadata, &lock, &INSTALLED)?;
    serde_json::to_string_pretty(&bill).map_err(|error| error.to_string())
}
