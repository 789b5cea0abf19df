//! Listeners go from one process to the next over the control socket: one line of JSON that names them, with their descriptors. No
//! client is lost, because the sockets with their queues stay open all the time.

#![allow(unsafe_code)] // a received descriptor has no owner yet

use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};

use crate::address::Address;

/// The kernel passes 253 at most.
pub const LISTENERS_MAX: usize = 64;
const MESSAGE_MAX: usize = 32 * 1024;
const LIMIT: Duration = Duration::from_secs(5);

/// Sends the listeners, and waits until the other side has them. Blocks.
pub fn give(stream: &UnixStream, listeners: &[(String, RawFd)]) -> Result<(), String> {
    let names: Vec<&str> = listeners.iter().map(|(name, _)| name.as_str()).collect();
    let fds: Vec<RawFd> = listeners.iter().map(|(_, fd)| *fd).collect();
    let line = serde_json::to_string(&names).expect("strings") + "\n";
    let io = |e: std::io::Error| e.to_string();
    stream.set_read_timeout(Some(LIMIT)).map_err(io)?;
    sendmsg::<()>(
        stream.as_raw_fd(),
        &[IoSlice::new(line.as_bytes())],
        &[ControlMessage::ScmRights(&fds)],
        MsgFlags::empty(),
        None,
    )
    .map_err(|e| e.to_string())?;
    let mut answer = [0; 6];
    let mut stream = stream;
    stream.read_exact(&mut answer).map_err(|e| format!("the new process did not say that it has them: {e}"))?;
    if &answer == b"taken\n" { Ok(()) } else { Err("the new process did not take them".to_owned()) }
}

/// Listeners of another process that serves until [`Taken::done`] says that we do.
pub struct Taken {
    stream: UnixStream,
    pub listeners: Vec<(Address, OwnedFd)>,
}

impl Taken {
    /// From the process with this control socket. Blocks.
    pub fn from(control: &Path) -> Result<Taken, String> {
        take(control).map_err(|reason| format!("cannot take over from {}: {reason}", control.display()))
    }

    /// The listener with this address, if there was one.
    pub fn remove(&mut self, address: &Address) -> Option<OwnedFd> {
        let at = self.listeners.iter().position(|(other, _)| other == address)?;
        Some(self.listeners.swap_remove(at).1)
    }

    /// The other process may leave now.
    pub fn done(mut self) -> Result<(), String> {
        self.stream.write_all(b"taken\n").map_err(|e| format!("the old process has gone: {e}"))
    }
}

fn take(control: &Path) -> Result<Taken, String> {
    let mut stream = UnixStream::connect(control).map_err(|e| e.to_string())?;
    stream.set_read_timeout(Some(LIMIT)).map_err(|e| e.to_string())?;
    stream.write_all(b"handover\n").map_err(|e| e.to_string())?;
    let mut bytes = vec![0; MESSAGE_MAX];
    let mut space = nix::cmsg_space!([RawFd; LISTENERS_MAX]);
    let mut fds: Vec<OwnedFd> = Vec::new();
    let len = {
        let mut slices = [IoSliceMut::new(&mut bytes)];
        let message = recvmsg::<()>(stream.as_raw_fd(), &mut slices, Some(&mut space), MsgFlags::MSG_CMSG_CLOEXEC)
            .map_err(|e| e.to_string())?;
        for control in message.cmsgs().map_err(|e| e.to_string())? {
            if let ControlMessageOwned::ScmRights(raw) = control {
                // SAFETY: the kernel has just made these descriptors for us, and nobody else knows them.
                fds.extend(raw.into_iter().map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }));
            }
        }
        message.bytes
    };
    let text = String::from_utf8_lossy(&bytes[..len]);
    let names: Vec<String> =
        serde_json::from_str(text.trim()).map_err(|_| format!("its answer was: {}", text.trim()))?;
    if names.len() != fds.len() {
        return Err(format!("{} listeners are named and {} came", names.len(), fds.len()));
    }
    let addresses: Result<Vec<Address>, String> = names.iter().map(|name| Address::listener(name, "::")).collect();
    Ok(Taken { stream, listeners: addresses?.into_iter().zip(fds).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_listener_goes_to_another_process_with_those_who_wait_in_it() {
        let path = std::env::temp_dir().join(format!("trireme-handover-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let control = UnixListener::bind(&path).unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let _waits = std::net::TcpStream::connect(address).unwrap();
        let old = std::thread::spawn(move || {
            let (mut stream, _) = control.accept().unwrap();
            let mut line = [0; 9];
            stream.read_exact(&mut line).unwrap();
            give(&stream, &[(address.to_string(), listener.as_raw_fd())]).unwrap();
            drop(listener);
        });
        let mut taken = Taken::from(&path).unwrap();
        let fd = taken.remove(&Address::listener(&address.to_string(), "::").unwrap()).unwrap();
        taken.done().unwrap();
        old.join().unwrap();
        std::net::TcpListener::from(fd).accept().unwrap();
        std::fs::remove_file(&path).unwrap();
    }
}
