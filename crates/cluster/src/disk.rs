//! A disk per node: an ext4 file system in an image, whose power can be cut, which can fill up, hang or turn read-only.
//!
//! A cut drops what was not synced, as a machine that loses power does: ext4 is shut down without writing its journal, and
//! what was only in memory is gone once the file system is mounted again. All that was synced has reached the image. The
//! node's processes see another boot id afterwards: they run in a mount namespace in which that file is another one, so the
//! provider needs no hook for it.

use crate::error::{During, Error, Result};
use crate::node::{Node, NodeId};
use crate::process::{have, run, search_path};
use crate::wait::{Cancel, until};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// `EXT4_IOC_SHUTDOWN`, the same number as `FS_IOC_SHUTDOWN`.
const SHUTDOWN: libc::c_ulong = 0x8004_587d;
/// Without writing the journal.
const NO_LOG_FLUSH: u32 = 2;
/// Dying processes keep a file system busy for a moment.
const UMOUNT_LIMIT: Duration = Duration::from_secs(30);
/// The kernel tells every process by this file which boot it is.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The content of a node's disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Holds {
    /// The data directory: engine, write-set log, state files. The error log lies elsewhere, so that it can be read after
    /// everything that happens to the disk.
    Data,
    /// The write-set log (`gcache.dir`) alone.
    Log,
}

/// The disks of a cluster's nodes, all alike.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disks {
    pub holds: Holds,
    pub mib: u32,
    /// Where the images lie; `None`: beside the nodes' directories.
    #[serde(default)]
    pub images: Option<PathBuf>,
}

impl Disks {
    /// Room for a small data directory and the default write-set log.
    pub fn of_data() -> Disks {
        Disks { holds: Holds::Data, mib: 700, images: None }
    }

    pub fn of_log(mib: u32) -> Disks {
        Disks { holds: Holds::Log, mib, images: None }
    }
}

/// Whether such disks can be had here; the error says what is missing.
pub fn check() -> Result<()> {
    if !nix::unistd::geteuid().is_root() {
        return Err(Error::BadSpec("disks per node need root, for loop devices and mounts".to_owned()));
    }
    for program in ["mkfs.ext4", "mount", "unshare", "fsfreeze"] {
        if !have(program) {
            return Err(Error::Missing {
                what: program.to_owned(),
                advice: "install it with `scripts/install-deps.sh`".to_owned(),
            });
        }
    }
    let base = std::env::temp_dir();
    let probe = trireme_private::fresh_dir(&base, "trireme-disk-probe")
        .during(|| format!("cannot create a directory in {}", base.display()))?;
    let disk = Disk { image: probe.join("image"), mount: probe.join("mount") };
    let outcome = disk.create(16).and_then(|()| disk.remove());
    let _ = std::fs::remove_dir_all(&probe);
    outcome.map_err(|error| Error::BadSpec(format!("this machine gives no loop devices: {error}")))
}

/// One node's disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    image: PathBuf,
    mount: PathBuf,
}

impl Disk {
    pub(crate) fn of(disks: &Disks, node: &Node) -> Disk {
        let mount = match disks.holds {
            Holds::Data => node.data(),
            Holds::Log => node.log_dir(),
        };
        let beside = node.dir.with_extension("disk");
        let image = match (&disks.images, beside.file_name()) {
            (Some(dir), Some(name)) => dir.join(name),
            _ => beside,
        };
        Disk { image, mount }
    }

    /// A disk outside a cluster: its image, and the directory in which it is seen. Nothing is made yet.
    pub fn new(image: PathBuf, mount: PathBuf) -> Disk {
        Disk { image, mount }
    }

    /// Makes the image with an empty file system on it, and mounts it.
    pub fn create(&self, mib: u32) -> Result<()> {
        // Left behind by a failed start. The new one is never made through a link.
        let _ = std::fs::remove_file(&self.image);
        let image = File::create_new(&self.image).during(|| format!("cannot create {}", self.image.display()))?;
        image.set_len(u64::from(mib) << 20).during(|| format!("cannot size {}", self.image.display()))?;
        // Small journal, nothing initialised later: a node's disk is made in a moment.
        tool("mkfs.ext4", ["-q", "-F", "-b", "4096", "-m", "0", "-J", "size=4"], &self.image)?;
        std::fs::create_dir_all(&self.mount).during(|| format!("cannot create {}", self.mount.display()))?;
        self.mount()?;
        // A server takes every directory for a schema.
        let lost = self.mount.join("lost+found");
        std::fs::remove_dir(&lost).during(|| format!("cannot remove {}", lost.display()))
    }

    fn mount(&self) -> Result<()> {
        run(command("mount").args(["-t", "ext4", "-o", "loop"]).arg(&self.image).arg(&self.mount)).map(drop)
    }

    /// From now on nothing reaches the disk, every operation on it fails, and what was not synced is lost.
    pub fn cut_power(&self) -> Result<()> {
        let root = File::open(&self.mount).during(|| format!("cannot open {}", self.mount.display()))?;
        shut_down(&root).during(|| format!("cannot shut down {}", self.mount.display()))
    }

    /// Mounts the file system anew. All its users must have ended.
    pub fn power_on(&self) -> Result<()> {
        until(format!("{} comes back", self.mount.display()), UMOUNT_LIMIT, &Cancel::default(), || {
            if let Err(error) = self.unmount() {
                return Ok(Err(error.to_string()));
            }
            self.mount()?;
            // As long as anybody keeps the dead file system, mounting gives the same one again.
            let probe = self.mount.join("power-on");
            Ok(std::fs::write(&probe, "").and_then(|()| std::fs::remove_file(&probe)).map_err(|e| e.to_string()))
        })
    }

    /// Everything written so far survives a cut.
    pub fn sync(&self) -> Result<()> {
        run(command("sync").arg("-f").arg(&self.mount)).map(drop)
    }

    /// A disk that hangs: who writes waits.
    pub fn freeze(&self) -> Result<()> {
        tool("fsfreeze", ["--freeze"], &self.mount)
    }

    pub fn thaw(&self) -> Result<()> {
        tool("fsfreeze", ["--unfreeze"], &self.mount)
    }

    /// Thaws it if it is frozen: else it cannot be unmounted, and who waits for it cannot be killed.
    pub(crate) fn let_go(&self) {
        // One that is not frozen refuses to be thawed.
        if self.is_mounted() {
            let _ = self.thaw();
        }
    }

    /// As the kernel does after an error with `errors=remount-ro`, files open for writing or not.
    pub fn make_read_only(&self) -> Result<()> {
        // `mount -o remount,ro` refuses while files are open for writing; an error that is reported to ext4 does not ask.
        tool("mount", ["-o", "remount,errors=remount-ro"], &self.mount)?;
        let device = run(command("findmnt").args(["-n", "-o", "SOURCE"]).arg(&self.mount))?;
        let device = String::from_utf8_lossy(&device).trim().trim_start_matches("/dev/").to_owned();
        let trigger = format!("/sys/fs/ext4/{device}/trigger_fs_error");
        std::fs::write(&trigger, "made by trireme").during(|| format!("cannot write {trigger}"))
    }

    /// Leaves no byte free; [`Disk::make_room`] undoes it.
    pub fn fill_up(&self) -> Result<()> {
        let mut ballast =
            File::create(self.ballast()).during(|| format!("cannot create {}", self.ballast().display()))?;
        // Ends with "no space left on device", which is the point; the last bytes go one small piece at a time.
        for size in [1 << 20, 4096, 1] {
            let piece = vec![0u8; size];
            while std::io::Write::write_all(&mut ballast, &piece).is_ok() {}
        }
        Ok(())
    }

    pub fn make_room(&self) -> Result<()> {
        std::fs::remove_file(self.ballast()).during(|| format!("cannot remove {}", self.ballast().display()))
    }

    fn ballast(&self) -> PathBuf {
        self.mount.join("ballast")
    }

    fn is_mounted(&self) -> bool {
        let Ok(mounts) = std::fs::read_to_string("/proc/self/mounts") else { return false };
        mounts.lines().any(|line| line.split(' ').nth(1).is_some_and(|dir| Path::new(dir) == self.mount))
    }

    fn unmount(&self) -> Result<()> {
        if !self.is_mounted() {
            return Ok(());
        }
        run(command("umount").arg(&self.mount)).map(drop)
    }

    /// Unmounts and removes the image; fine if it is gone.
    pub fn remove(&self) -> Result<()> {
        until(format!("{} is unmounted", self.mount.display()), UMOUNT_LIMIT, &Cancel::default(), || {
            self.let_go();
            Ok(self.unmount().map_err(|error| error.to_string()))
        })?;
        match std::fs::remove_file(&self.image) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).during(|| format!("cannot remove {}", self.image.display()))
            }
            _ => Ok(()),
        }
    }
}

/// Mounts below `dir` reach, and leave, the namespaces of all nodes: else those would keep each other's dead disks.
pub(crate) fn share_mounts(dir: &Path) -> Result<()> {
    run(command("mount").arg("--bind").arg(dir).arg(dir))?;
    run(command("mount").arg("--make-shared").arg(dir)).map(drop)
}

/// The reverse; fine if it was not done.
pub(crate) fn unshare_mounts(dir: &Path) {
    // Lazily: the cluster's own lock file is open below.
    let _ = run(command("umount").arg("--lazy").arg(dir));
}

/// Where a node's machine keeps its boot id: beside the disk, not on it.
pub(crate) fn boot_file(node: &Node) -> PathBuf {
    node.dir.with_extension("boot_id")
}

/// A new boot of the node's machine.
pub(crate) fn boot(node: &Node) -> Result<()> {
    let random = std::fs::read_to_string("/proc/sys/kernel/random/uuid").during(|| "cannot draw a uuid".to_owned())?;
    let file = boot_file(node);
    std::fs::write(&file, random).during(|| format!("cannot write {}", file.display()))
}

/// The words before a command that is to see the boot id in `file`.
pub(crate) fn on_machine(file: &Path) -> Vec<String> {
    let script = format!("mount --bind \"$0\" {BOOT_ID} && exec \"$@\"");
    ["unshare", "--mount", "--propagation", "slave", "sh", "-c", &script, &file.display().to_string()]
        .map(str::to_owned)
        .to_vec()
}

fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    command.env("PATH", search_path());
    command
}

fn tool<const N: usize>(program: &str, arguments: [&str; N], target: &Path) -> Result<()> {
    run(command(program).args(arguments).arg(target)).map(drop)
}

#[allow(unsafe_code)] // no safe wrapper of this request exists
fn shut_down(root: &File) -> std::io::Result<()> {
    let how = NO_LOG_FLUSH;
    // SAFETY: the descriptor is open during the call, and the kernel only reads the four bytes.
    let result = unsafe { libc::ioctl(root.as_raw_fd(), SHUTDOWN, &raw const how) };
    if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

/// Named in errors that concern a node's disk.
pub(crate) fn missing(node: NodeId) -> Error {
    Error::BadSpec(format!("{node} has no disk of its own: ask for `disks` when the cluster is made"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The claim that everything above rests on.
    #[test]
    fn a_cut_keeps_what_was_synced_and_drops_the_rest() {
        if let Err(error) = check() {
            println!("skipped: {error}");
            return;
        }
        let dir = std::env::temp_dir().join(format!("trireme-disk-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let disk = Disk { image: dir.join("image"), mount: dir.join("mount") };
        disk.create(64).unwrap();
        let synced = File::create(disk.mount.join("synced")).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&synced, b"kept", 0).unwrap();
        synced.sync_all().unwrap();
        disk.sync().unwrap();
        std::os::unix::fs::FileExt::write_all_at(&synced, b"lost", 4).unwrap();
        std::fs::write(disk.mount.join("unsynced"), "lost").unwrap();
        disk.cut_power().unwrap();
        assert!(std::fs::write(disk.mount.join("later"), "x").is_err());
        drop(synced);
        disk.power_on().unwrap();
        assert_eq!(std::fs::read(disk.mount.join("synced")).unwrap(), b"kept");
        assert!(!disk.mount.join("unsynced").exists());

        disk.fill_up().unwrap();
        assert!(std::fs::write(disk.mount.join("more"), "x").is_err());
        disk.make_room().unwrap();
        std::fs::write(disk.mount.join("more"), "x").unwrap();
        let open = File::options().write(true).open(disk.mount.join("more")).unwrap();
        disk.make_read_only().unwrap();
        let error = std::fs::write(disk.mount.join("again"), "x").unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EROFS));
        drop(open);
        disk.remove().unwrap();
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
