//! `--disks separate`: a disk for each node, in RAM, whose syncs take the time that those of a real disk take.
//!
//! **The model.** A sync takes a fixed time, and more for each MiB that was written to the same disk since its last sync. The syncs of one disk follow each
//! other, and a write to it waits for the sync that is under way. Different disks know nothing of each other. Reads, and writes as such, take the
//! time of memory. Unless given, the times are those that [`crate::probe`] measures on the disk where the servers would live otherwise. Then they
//! are corrected by what the way to the memory takes itself, until the same measurement on a modelled disk gives the same median.
//!
//! How a disk is made: `ram.rs`.

pub mod check;
mod ram;

use crate::hist::Histogram;
use crate::probe;
use ram::{Mounted, Sleeps};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use trireme_cluster::{Cancel, Disk, disks_available};

/// Of each measurement that the model is made of.
const PROBE: Duration = Duration::from_millis(400);
/// The disk that is measured.
const PROBE_MIB: u32 = 64;
const SMALL: usize = 512;
const LARGE: usize = 1 << 20;
/// Corrections of the sleeps until the medians agree.
const ROUNDS: usize = 6;
/// As far as the median of a modelled disk may be from its model.
const AGREES: f64 = 0.1;

/// The times of a disk, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Model {
    pub sync_us: f64,
    pub mib_us: f64,
}

/// The parts of a model that were given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Asked {
    pub sync_us: Option<f64>,
    pub mib_us: Option<f64>,
}

/// The place of modelled disks. It is unmounted when this is dropped, after the disks.
pub struct Separate {
    mounted: Option<Mounted>,
    dir: PathBuf,
    sleeps: Arc<Sleeps>,
    model: Model,
    asked: Asked,
    /// Latencies of fdatasync: on the real disk, and on a modelled one.
    real: Histogram,
    modelled: Histogram,
}

impl Separate {
    /// Makes the place below `dir`, and finds the sleeps that give the model. The real disk is the one that holds `dir`.
    ///
    /// **Errors** with the reason why such disks cannot be had here.
    pub fn new(dir: &Path, asked: Asked) -> Result<Separate, String> {
        available()?;
        let images = dir.join("disks");
        remove_leftover(&images);
        std::fs::create_dir_all(&images).map_err(|e| format!("{}: {e}", images.display()))?;
        let sleeps = Arc::new(Sleeps::default());
        let mounted = ram::mount(&images, sleeps.clone())
            .map_err(|e| format!("FUSE gives no file system on {}: {e}", images.display()))?;
        let mut separate = Separate {
            mounted: Some(mounted),
            dir: images,
            sleeps,
            model: Model::default(),
            asked,
            real: Histogram::default(),
            modelled: Histogram::default(),
        };
        separate.calibrate(dir)?;
        Ok(separate)
    }

    pub fn images(&self) -> &Path {
        &self.dir
    }

    fn set(&self, each: f64, per_mib: f64) {
        self.sleeps.each.store((each.max(0.0) * 1e3) as u64, Ordering::Relaxed);
        self.sleeps.per_mib.store((per_mib.max(0.0) * 1e3) as u64, Ordering::Relaxed);
    }

    fn calibrate(&mut self, real: &Path) -> Result<(), String> {
        self.real = probed(real, SMALL)?;
        let real_large = median(&probed(real, LARGE)?);
        let disk = self.disk("calibration", &real.join("calibration"), PROBE_MIB)?;
        // The kernel's part of the way waits for a processor at times: a disturbed measurement must not pass for its length.
        let way = |size| Ok::<_, String>(probed(disk.dir(), size)?.quantile(0.25) as f64 / 1e3);
        let (own, own_large) = (way(SMALL)?, way(LARGE)?);
        let sync_us = self.asked.sync_us.unwrap_or_else(|| median(&self.real).max(own));
        if own > sync_us {
            return Err(format!(
                "a sync of {sync_us:.0} µs cannot be modelled here: without any sleep it takes {own:.0} µs; ask for a longer one with --disk-sync, or see that nothing else works"
            ));
        }
        // The large write also costs the memory's own time on both.
        let rest = (real_large - median(&self.real) - (own_large - own)).max(0.0);
        let mib_us = self.asked.mib_us.unwrap_or(rest);
        self.model = Model { sync_us, mib_us };
        let (mut sleep, mut best) = (sync_us - own, f64::INFINITY);
        let mut chosen = sleep;
        for _ in 0..ROUNDS {
            self.set(sleep, mib_us);
            let modelled = probed(disk.dir(), SMALL)?;
            let off = sync_us - median(&modelled);
            if off.abs() < best {
                (best, chosen, self.modelled) = (off.abs(), sleep, modelled);
            }
            if best < sync_us * AGREES / 5.0 {
                break;
            }
            sleep = (sleep + off).max(0.0);
        }
        self.set(chosen, mib_us);
        Ok(())
    }

    /// A disk of its own, mounted on `mount`, which is made.
    pub fn disk(&self, name: &str, mount: &Path, mib: u32) -> Result<OwnDisk, String> {
        let disk = Disk::new(self.dir.join(name), mount.to_owned());
        disk.create(mib).map_err(|e| e.to_string())?;
        Ok(OwnDisk { disk, mount: mount.to_owned() })
    }

    /// The model and its check, in sentences for the report.
    pub fn told(&self) -> String {
        let three = |h: &Histogram| format!("{} / {} / {} µs", micros(h, 0.5), micros(h, 0.95), micros(h, 0.99));
        let off = (median(&self.modelled) / self.model.sync_us - 1.0) * 100.0;
        let origin = match self.asked.sync_us {
            None if median(&self.real) < self.model.sync_us => "the least that can be had here; the real one is faster",
            None => "the median of the real one",
            Some(_) => "as asked for",
        };
        format!(
            "Each node has a disk of its own in RAM with a modelled sync time: {:.0} µs for each sync ({origin}), and {:.0} µs more for each MiB written since the last one. \
             Syncs of one disk follow each other, those of different disks do not wait for each other; reads and writes take the time of memory. \
             Checked with fdatasync after writes of {SMALL} bytes, p50 / p95 / p99: the real disk {}, a modelled one {} (the median is {off:+.0} % from the model).{}",
            self.model.sync_us,
            self.model.mib_us,
            three(&self.real),
            three(&self.modelled),
            if off.abs() > AGREES * 100.0 {
                " **The modelled disk is not what the model says: other work disturbed.**"
            } else {
                ""
            }
        )
    }
}

impl Drop for Separate {
    fn drop(&mut self) {
        drop(self.mounted.take());
        remove_leftover(&self.dir);
    }
}

/// A modelled disk that is mounted. It goes when this is dropped.
pub struct OwnDisk {
    disk: Disk,
    mount: PathBuf,
}

impl OwnDisk {
    pub fn dir(&self) -> &Path {
        &self.mount
    }
}

impl Drop for OwnDisk {
    fn drop(&mut self) {
        let _ = self.disk.remove();
        let _ = std::fs::remove_dir(&self.mount);
    }
}

/// Whether such disks can be had; the error says what is missing.
pub fn available() -> Result<(), String> {
    disks_available().map_err(|e| e.to_string())?;
    if !Path::new("/dev/fuse").exists() {
        return Err(
            "there is no /dev/fuse: modelled disks are a file system of this command, which needs FUSE".to_owned()
        );
    }
    Ok(())
}

/// A killed run leaves the mount, which answers nobody any more.
fn remove_leftover(images: &Path) {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    if mounts.lines().any(|line| line.split(' ').nth(1).is_some_and(|dir| Path::new(dir) == images)) {
        let mut umount = crate::tool::command("umount");
        umount.arg("--lazy").arg(images);
        let _ = crate::tool::run(umount, Duration::from_secs(10), &Cancel::default());
    }
    let _ = std::fs::remove_dir(images);
}

fn probed(dir: &Path, size: usize) -> Result<Histogram, String> {
    probe::undisturbed(dir, size, PROBE).map_err(|e| format!("{}: {e}", dir.display()))
}

fn median(latency: &Histogram) -> f64 {
    latency.quantile(0.5) as f64 / 1e3
}

fn micros(latency: &Histogram, q: f64) -> String {
    format!("{:.0}", latency.quantile(q) as f64 / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::Way;

    /// Every way to sync pays the modelled time, and two disks sync at the same time.
    #[test]
    fn syncs_take_the_modelled_time_whatever_asks_for_them() {
        if let Err(reason) = available() {
            println!("skipped: {reason}");
            return;
        }
        let dir = trireme_private::fresh_dir(Path::new("/var/tmp"), "trireme-bench-disks").unwrap();
        let asked = Asked { sync_us: Some(20_000.0), mib_us: Some(100_000.0) };
        let separate = match Separate::new(&dir, asked) {
            Ok(separate) => separate,
            Err(reason) => {
                std::fs::remove_dir_all(&dir).unwrap();
                println!("skipped: {reason}");
                return;
            }
        };
        let disks = ["one", "two"].map(|name| separate.disk(name, &dir.join(name), 64).unwrap());
        let time = Duration::from_millis(600);
        let syncs = |dirs: &[PathBuf], way, size| probe::syncs(dirs, way, size, time).unwrap();
        let one = [disks[0].dir().to_owned()];
        for way in Way::ALL {
            let shortest = syncs(&one, way, SMALL).quantile(0.0);
            // The sleep alone, without the way to it that is part of the model.
            assert!(shortest >= 10_000_000, "{way:?}: {shortest} ns");
        }
        let large = syncs(&one, Way::Fdatasync, LARGE).quantile(0.0);
        assert!(large >= 100_000_000, "a MiB: {large} ns");
        let alone = syncs(&one, Way::Fdatasync, SMALL).total();
        let both = syncs(&[one[0].clone(), disks[1].dir().to_owned()], Way::Fdatasync, SMALL).total();
        assert!(both as f64 > alone as f64 * 1.4, "{alone} syncs on one disk, {both} on two");
        assert!(separate.told().contains("20000 µs for each sync (as asked for)"), "{}", separate.told());
        drop(disks);
        drop(separate);
        assert!(std::fs::read_dir(&dir).unwrap().next().is_none(), "nothing is left");
        std::fs::remove_dir(&dir).unwrap();
    }
}
