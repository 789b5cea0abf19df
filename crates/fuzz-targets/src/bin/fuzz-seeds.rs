//! `fuzz-seeds TARGET DIR`: writes the valid inputs that a fuzzer of that target begins with.

use std::path::PathBuf;

fn main() -> Result<(), String> {
    let mut args = std::env::args().skip(1);
    let (Some(name), Some(dir)) = (args.next(), args.next().map(PathBuf::from)) else {
        return Err("usage: fuzz-seeds TARGET DIR".into());
    };
    let target = trireme_fuzz_targets::TARGETS.iter().find(|t| t.name == name);
    let target = target.ok_or_else(|| {
        let names: Vec<&str> = trireme_fuzz_targets::TARGETS.iter().map(|t| t.name).collect();
        format!("no target {name}; there are: {}", names.join(" "))
    })?;
    std::fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    for (at, seed) in (target.seeds)().iter().enumerate() {
        let path = dir.join(format!("seed-{at:03}"));
        std::fs::write(&path, seed).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    Ok(())
}
