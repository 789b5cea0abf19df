//! Tells systemd, or whoever else started us with `NOTIFY_SOCKET`, that we serve, and which process is the service from now on
//! (sd_notify(3)). Without that variable nothing happens.

use std::ffi::OsStr;
use std::io::{IoSlice, PipeReader, Read};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::mpsc::channel;
use std::time::Duration;

use nix::sys::socket::{AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, UnixAddr, sendmsg, socket};

/// For the other side to have read what was sent.
const LIMIT: Duration = Duration::from_secs(2);

pub const READY: &str = "READY=1";
pub const STOPPING: &str = "STOPPING=1";

/// Best effort.
pub fn tell(state: &str) -> Result<(), String> {
    match std::env::var_os("NOTIFY_SOCKET") {
        Some(path) => send(&path, state, &[]),
        None => Ok(()),
    }
}

/// The service is this process from now on. Returns when the other side knows: we may end then. Blocks.
pub fn hand_on(process: u32) -> Result<(), String> {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return Ok(()) };
    send(&path, &format!("MAINPID={process}\n{READY}"), &[])?;
    let (read, write) = std::io::pipe().map_err(|e| e.to_string())?;
    // The other side closes it when it has dealt with all that came before.
    send(&path, "BARRIER=1", &[write.as_raw_fd()])?;
    drop(write);
    await_end(read)
}

fn await_end(mut pipe: PipeReader) -> Result<(), String> {
    let (done, wait) = channel();
    std::thread::spawn(move || {
        let _ = pipe.read(&mut [0]);
        let _ = done.send(());
    });
    wait.recv_timeout(LIMIT).map_err(|_| format!("it was not read within {} s", LIMIT.as_secs()))
}

fn send(path: &OsStr, state: &str, descriptors: &[i32]) -> Result<(), String> {
    let address = match path.as_bytes() {
        [b'@', name @ ..] => UnixAddr::new_abstract(name),
        name => UnixAddr::new(name),
    };
    let address = address.map_err(|e| format!("NOTIFY_SOCKET {}: {e}", path.display()))?;
    let flags = SockFlag::SOCK_CLOEXEC;
    let from = socket(AddressFamily::Unix, SockType::Datagram, flags, None).map_err(|e| e.to_string())?;
    let passed = [ControlMessage::ScmRights(descriptors)];
    let passed = if descriptors.is_empty() { &[] } else { &passed[..] };
    sendmsg(from.as_raw_fd(), &[IoSlice::new(state.as_bytes())], passed, MsgFlags::MSG_NOSIGNAL, Some(&address))
        .map(drop)
        .map_err(|e| format!("NOTIFY_SOCKET {}: {e}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixDatagram;

    #[test]
    fn both_kinds_of_addresses_are_reached_and_a_barrier_comes_with_a_descriptor() {
        let path = std::env::temp_dir().join(format!("trireme-notify-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let named = UnixDatagram::bind(&path).unwrap();
        let read = |socket: &UnixDatagram| {
            let mut bytes = [0; 64];
            let len = socket.recv(&mut bytes).unwrap();
            String::from_utf8_lossy(&bytes[..len]).into_owned()
        };
        send(path.as_os_str(), READY, &[]).unwrap();
        assert_eq!(read(&named), READY);
        let (pipe, write) = std::io::pipe().unwrap();
        send(path.as_os_str(), "BARRIER=1", &[write.as_raw_fd()]).unwrap();
        drop(write);
        // A receiver that does not take the descriptor closes it.
        assert_eq!(read(&named), "BARRIER=1");
        await_end(pipe).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(send(path.as_os_str(), READY, &[]).unwrap_err().contains("NOTIFY_SOCKET"));

        use std::os::linux::net::SocketAddrExt;
        let name = format!("trireme-notify-{}", std::process::id());
        let address = std::os::unix::net::SocketAddr::from_abstract_name(&name).unwrap();
        let hidden = UnixDatagram::bind_addr(&address).unwrap();
        send(OsStr::new(&format!("@{name}")), STOPPING, &[]).unwrap();
        assert_eq!(read(&hidden), STOPPING);
    }
}
