//! System calls of a process, counted by perf(1).

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::threads::UNNAMED;

/// By name of the thread.
pub type Calls = BTreeMap<String, u64>;

/// A perf that counts; ends with this.
pub struct Counting {
    perf: Child,
    pid: u32,
    _pipes: Pipes,
}

/// Removed from the file system with this, also where perf never starts.
struct Pipes([PathBuf; 2]);

impl Drop for Pipes {
    fn drop(&mut self) {
        self.0.iter().for_each(|p| drop(std::fs::remove_file(p)));
    }
}

const READY_LIMIT_MS: i32 = 5000;

impl Counting {
    /// Returns once perf counts. Threads that start later count for the one that started them.
    pub fn start(pid: u32) -> Result<Counting, String> {
        let path = |end| std::env::temp_dir().join(format!("trireme-bench-perf-{pid}.{end}"));
        let pipes = Pipes(["control", "ack"].map(path));
        let [mut control, mut ack] = [make_pipe(&pipes.0[0])?, make_pipe(&pipes.0[1])?];
        let perf = Command::new("perf")
            .args(["stat", "-x,", "--per-thread", "--delay=-1", "-e", "raw_syscalls:sys_enter", "-p", &pid.to_string()])
            .arg(format!("--control=fifo:{},{}", pipes.0[0].display(), pipes.0[1].display()))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn();
        let mut counting = Counting { perf: perf.map_err(|e| format!("perf: {e}"))?, pid, _pipes: pipes };
        control.write_all(b"enable\n").map_err(|e| e.to_string())?;
        let mut ready = libc::pollfd { fd: ack.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid structure.
        let answered = unsafe { libc::poll(&mut ready, 1, READY_LIMIT_MS) } == 1 && ack.read(&mut [0; 16]).is_ok();
        if answered { Ok(counting) } else { Err(format!("perf does not count: {}", counting.output().trim())) }
    }

    pub fn finish(mut self) -> Calls {
        parse(&self.output(), self.pid)
    }

    fn output(&mut self) -> String {
        // SAFETY: a plain system call; the process is our child and has not been waited for.
        unsafe { libc::kill(self.perf.id() as i32, libc::SIGINT) };
        let mut text = String::new();
        if let Some(mut pipe) = self.perf.stderr.take() {
            let _ = pipe.read_to_string(&mut text);
        }
        text
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        let _ = self.perf.kill();
        let _ = self.perf.wait();
    }
}

/// Opened for both directions, so that neither side waits for the other to open it.
fn make_pipe(path: &Path) -> Result<File, String> {
    let name = std::ffi::CString::new(path.as_os_str().as_bytes()).map_err(|e| e.to_string())?;
    // SAFETY: a C string that outlives the call.
    if unsafe { libc::mkfifo(name.as_ptr(), 0o600) } != 0 {
        return Err(format!("{}: {}", path.display(), std::io::Error::last_os_error()));
    }
    OpenOptions::new().read(true).write(true).open(path).map_err(|e| e.to_string())
}

/// Lines `name-tid,count,,event,…`; the count is no number where the thread did nothing.
fn parse(output: &str, pid: u32) -> Calls {
    let mut process = "";
    let mut found = Vec::new();
    for line in output.lines() {
        let mut fields = line.split(',');
        let Some((name, tid)) = fields.next().and_then(|thread| thread.rsplit_once('-')) else { continue };
        let (Ok(tid), Some(count)) = (tid.parse::<u32>(), fields.next()) else { continue };
        if tid == pid {
            process = name;
        }
        found.push((name, tid, count.parse::<u64>().unwrap_or(0)));
    }
    let mut calls = Calls::new();
    for (name, tid, count) in found {
        let name = if tid == pid {
            "client"
        } else if name == process {
            UNNAMED
        } else {
            name
        };
        *calls.entry(name.to_owned()).or_default() += count;
    }
    calls
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_threads_of_one_name_sum_up() {
        let output = "trireme-bench-7,40,,raw_syscalls:sys_enter,1,100.00,,\n\
            recv-8,3,,raw_syscalls:sys_enter,1,100.00,,\n\
            recv-9,4,,raw_syscalls:sys_enter,1,100.00,,\n\
            trireme-group-10,<not counted>,,raw_syscalls:sys_enter,0,100.00,,\n\
            trireme-bench-11,5,,raw_syscalls:sys_enter,1,100.00,,\n\nError: something else\n";
        let expected = [("client", 40), ("recv", 7), ("trireme-group", 0), (UNNAMED, 5)];
        assert_eq!(parse(output, 7), expected.map(|(name, count)| (name.to_owned(), count)).into());
        assert!(parse("event syntax error", 7).is_empty());
    }
}
