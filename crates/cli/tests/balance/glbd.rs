//! The command under the name `glbd`: a process of its own, as its users' scripts start and command it.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use crate::free_port::free_port;
use crate::support::*;

/// The name under which the command is called decides.
fn glbd(place: &Place) -> Command {
    // In the background it is the user `daemon`, who makes the FIFO here.
    std::fs::set_permissions(&place.0, std::fs::Permissions::from_mode(0o777)).unwrap();
    let link = place.path("glbd");
    let _ = symlink(env!("CARGO_BIN_EXE_trireme"), &link);
    let mut command = Command::new(link);
    command.current_dir(&place.0);
    command
}

fn is_fifo(path: &str) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_fifo())
}

/// A question to the control socket.
fn ask_at(port: u16, command: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(format!("{command}\n").as_bytes()).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn name_behind(port: u16) -> String {
    let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    greeted(&mut client).unwrap()
}

/// Killed when dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn words(fifo: &str, control: u16, listen: u16, server: &Server) -> Vec<String> {
    let (control, listen) = (control.to_string(), format!("127.0.0.1:{listen}"));
    ["--fifo", fifo, "-c", &control, &listen, &server.address].map(str::to_owned).to_vec()
}

#[test]
fn commands_come_by_the_fifo_and_by_tcp_and_sighup_ends_it() {
    let place = Place::new();
    let (one, two) = (Server::start("one", Manner::Echo), Server::start("two", Manner::Echo));
    let (fifo, control, listen) = (place.path("fifo"), free_port(), free_port());
    let mut running = Running(glbd(&place).args(words(&fifo, control, listen, &one)).spawn().unwrap());
    await_that("it serves", || TcpStream::connect(("127.0.0.1", control)).is_ok());
    assert!(is_fifo(&fifo));
    await_that("it has the server of its list", || ask_at(control, "getinfo").contains(&one.address));
    assert_eq!(name_behind(listen), "one");

    // A second one leaves the first one's FIFO alone.
    let Output { status, stderr, .. } =
        glbd(&place).args(words(&fifo, free_port(), free_port(), &one)).output().unwrap();
    let stderr = String::from_utf8_lossy(&stderr);
    assert!(status.code() == Some(1) && stderr.contains("exists: another glbd runs"), "{status}: {stderr}");
    assert!(is_fifo(&fifo));

    let command = |text: String| {
        let mut writer = std::fs::OpenOptions::new().write(true).open(&fifo).unwrap();
        writer.write_all(text.as_bytes()).unwrap();
    };
    command(format!("{}:1\n", two.address));
    await_that("the other one was added", || ask_at(control, "getinfo").contains(&two.address));
    command("no such command\n".to_owned());
    command(format!("{}:-1\n", one.address));
    await_that("the first one was removed", || !ask_at(control, "getinfo").contains(&one.address));
    assert_eq!(name_behind(listen), "two");
    assert_eq!(ask_at(control, &format!("{}:1", one.address)), "Ok\n");
    assert!(ask_at(control, "nonsense").starts_with("Error"));

    let pid = running.0.id().to_string();
    assert!(Command::new("kill").args(["-HUP", &pid]).status().unwrap().success());
    assert_eq!(running.0.wait().unwrap().code(), Some(0));
    assert!(!Path::new(&fifo).exists());
}

/// The process whose command line has this word.
fn pid_with(word: &str) -> Option<u32> {
    let has = |pid: &u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|one| one == word.as_bytes())
    };
    let pids = std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter(|pid| *pid != std::process::id()).find(has)
}

#[test]
fn in_the_background_it_serves_when_the_command_is_done() {
    let (place, one) = (Place::new(), Server::start("one", Manner::Echo));
    let (control, listen) = (free_port(), free_port());
    // Below the directory in which it was started, though the background has another.
    let started =
        glbd(&place).arg("-d").args(words("fifo", control, listen, &one)).stdout(Stdio::null()).status().unwrap();
    assert!(started.success(), "{started}");
    // Nothing is waited for.
    assert!(ask_at(control, "getinfo").contains(&one.address));
    assert_eq!(name_behind(listen), "one");
    let fifo = place.path("fifo");
    assert!(is_fifo(&fifo));
    let pid = pid_with(&format!("127.0.0.1:{listen}")).expect("it runs").to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    await_that("it ends and removes its FIFO", || !Path::new(&fifo).exists());
}

#[test]
fn what_cannot_start_in_the_background_says_why() {
    let (place, one) = (Place::new(), Server::start("one", Manner::Echo));
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = taken.local_addr().unwrap().port();
    let Output { status, stderr, .. } =
        glbd(&place).arg("-d").args(words("fifo", free_port(), listen, &one)).output().unwrap();
    let stderr = String::from_utf8_lossy(&stderr);
    assert!(status.code() == Some(1) && stderr.contains("cannot listen at 127.0.0.1"), "{status}: {stderr}");
    assert!(!Path::new(&place.path("fifo")).exists());
}
