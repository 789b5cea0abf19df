//! The library in a program of its own: this one, started again with it in front.

use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::thread;

fn library() -> PathBuf {
    // Built beside the tests.
    let library = std::env::current_exe().unwrap().with_file_name("libtrireme_connect.so");
    assert!(library.is_file(), "{} is not there", library.display());
    library
}

/// Says its name to everybody who comes.
fn server(name: u8) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            use std::io::Write;
            let _ = stream.unwrap().write_all(&[name]);
        }
    });
    port
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// What a program reads that connects so often to this port.
fn names(port: u16, times: usize, variables: &[(&str, String)]) -> String {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--nocapture", "program"])
        .env("LD_PRELOAD", library())
        .env("PORT", port.to_string())
        .env("TIMES", times.to_string())
        .envs(variables.iter().map(|(name, value)| (name, value)))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().find_map(|line| line.split_once("names="));
    line.unwrap_or_else(|| panic!("{text}{}", String::from_utf8_lossy(&output.stderr))).1.to_owned()
}

#[test]
#[ignore = "is started by the others"]
fn program() {
    let port: u16 = std::env::var("PORT").unwrap().parse().unwrap();
    let times: usize = std::env::var("TIMES").unwrap().parse().unwrap();
    let mut names = String::new();
    for _ in 0..times {
        let mut name = [b'-'; 1];
        match TcpStream::connect(("127.0.0.1", port)) {
            Ok(mut stream) => stream.read_exact(&mut name).unwrap(),
            Err(error) => println!("{error}"),
        }
        names.push(char::from(name[0]));
    }
    println!("names={names}");
}

#[test]
fn connections_go_to_the_targets_in_turn_and_past_one_that_is_down() {
    let (a, b, down, bind) = (server(b'a'), server(b'b'), free_port(), free_port());
    let variables =
        [("GLB_BIND", bind.to_string()), ("GLB_TARGETS", format!("127.0.0.1:{a},127.0.0.1:{down},127.0.0.1:{b}"))];
    let names = names(bind, 8, &variables);
    assert_eq!(names.matches('-').count(), 0, "{names}");
    assert!(names.matches('a').count() >= 3 && names.matches('b').count() >= 3, "{names}");
}

#[test]
fn other_addresses_and_a_wrong_environment_change_nothing() {
    let (a, own) = (server(b'a'), server(b'o'));
    let target = format!("127.0.0.1:{a}");
    assert_eq!(names(own, 1, &[("GLB_BIND", free_port().to_string()), ("GLB_TARGETS", target.clone())]), "o");
    assert_eq!(names(own, 1, &[("GLB_BIND", format!("127.0.0.2:{own}")), ("GLB_TARGETS", target)]), "o");
    assert_eq!(names(own, 1, &[("GLB_BIND", own.to_string()), ("GLB_TARGETS", "x:y:z".into())]), "o");
    assert_eq!(names(own, 1, &[]), "o");
}

#[test]
fn a_command_line_of_glbd_works_too() {
    let (a, b, bind) = (server(b'a'), server(b'b'), free_port());
    let options = format!("-S {bind} 127.0.0.1:{a} 127.0.0.1:{b}:2");
    assert_eq!(names(bind, 4, &[("GLB_OPTIONS", options)]), "bbbb");
}

#[test]
fn when_all_are_down_the_error_is_theirs() {
    let (down, bind) = (free_port(), free_port());
    let variables = [("GLB_BIND", bind.to_string()), ("GLB_TARGETS", format!("127.0.0.1:{down}"))];
    assert_eq!(names(bind, 2, &variables), "--");
}
