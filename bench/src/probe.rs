//! The disk alone: what the servers' syncs have to live with.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::hist::Histogram;

/// As much as a commit of one row, in a file that is written already, as logs are.
const BLOCK: usize = 512;
const FILE: usize = 1 << 20;

/// Latency of fdatasync after a small write, with one writer in each directory at the same time.
pub fn fdatasync(dirs: &[PathBuf], time: Duration) -> io::Result<Histogram> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = dirs.iter().map(|dir| scope.spawn(move || one(dir, time))).collect();
        let mut all = Histogram::default();
        for thread in threads {
            all.merge(&thread.join().map_err(|_| io::Error::other("panicked"))??);
        }
        Ok(all)
    })
}

fn one(dir: &Path, time: Duration) -> io::Result<Histogram> {
    let path = dir.join("bench-probe.log");
    let result = measure(&path, time);
    let _ = std::fs::remove_file(&path);
    result
}

fn measure(path: &Path, time: Duration) -> io::Result<Histogram> {
    let file = File::create(path)?;
    file.write_all_at(&vec![0; FILE], 0)?;
    file.sync_all()?;
    let mut out = Histogram::default();
    let end = Instant::now() + time;
    let mut at = 0;
    while Instant::now() < end {
        file.write_all_at(&[1; BLOCK], at)?;
        at = (at + BLOCK as u64) % FILE as u64;
        let began = Instant::now();
        file.sync_data()?;
        out.record(began.elapsed().as_nanos() as u64);
    }
    Ok(out)
}
