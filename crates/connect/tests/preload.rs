//! The library in a program of its own: this one, started again with it in front.

mod free_port;

use free_port::free_port;
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

/// The names that a program reads when it connects so often to this port.
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
    let number = |name: &str, default| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let pause = std::time::Duration::from_millis(number("PAUSE_MS", 0));
    let threads: Vec<thread::JoinHandle<String>> = (0..number("THREADS", 1))
        .map(|_| {
            thread::spawn(move || {
                let mut names = String::new();
                for _ in 0..times {
                    let mut name = [b'-'; 1];
                    match TcpStream::connect(("127.0.0.1", port)) {
                        Ok(mut stream) => {
                            if std::env::var_os("TWICE").is_some() {
                                let address =
                                    socket2::SockAddr::from(std::net::SocketAddr::from(([127, 0, 0, 1], port)));
                                let connect = || socket2::SockRef::from(&stream).connect(&address);
                                // The kernel calls the first one after a connection without waiting a success.
                                let _ = connect();
                                assert_eq!(connect().unwrap_err().raw_os_error(), Some(libc::EISCONN));
                            }
                            stream.read_exact(&mut name).unwrap();
                        }
                        Err(error) => println!("{error}"),
                    }
                    names.push(char::from(name[0]));
                    thread::sleep(pause);
                }
                names
            })
        })
        .collect();
    let names: String = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
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
fn a_socket_that_is_connected_stays_so_when_it_is_to_connect_once_more() {
    let (a, bind) = (server(b'a'), free_port());
    let variables =
        [("GLB_BIND", bind.to_string()), ("GLB_TARGETS", format!("127.0.0.1:{a}")), ("TWICE", "yes".into())];
    assert_eq!(names(bind, 1, &variables), "a");
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

/// Says its name to so many, and ends. The port is free from then on.
fn server_for(name: u8, times: usize) -> (u16, thread::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let thread = thread::spawn(move || {
        for _ in 0..times {
            use std::io::Write;
            let (mut stream, _) = listener.accept().unwrap();
            // Closed before anybody can see the name: no later connection is in the queue.
            stream.write_all(&[name]).unwrap();
        }
    });
    (port, thread)
}

#[test]
fn a_target_that_dies_in_the_middle_is_passed_over_and_nobody_notices() {
    let ((a, dies), b, bind) = (server_for(b'a', 2), server(b'b'), free_port());
    let targets = format!("127.0.0.1:{a},127.0.0.1:{b}");
    let variables = [("GLB_BIND", bind.to_string()), ("GLB_TARGETS", targets), ("PAUSE_MS", "30".to_owned())];
    let names = names(bind, 12, &variables);
    assert_eq!((names.matches('a').count(), names.matches('b').count()), (2, 10), "{names}");
    dies.join().unwrap();
}

#[test]
fn a_target_that_comes_back_is_used_again() {
    let (b, bind, a) = (server(b'b'), free_port(), free_port());
    thread::spawn(move || {
        use std::io::Write;
        thread::sleep(std::time::Duration::from_millis(300));
        let listener = TcpListener::bind(("127.0.0.1", a)).unwrap();
        listener.incoming().for_each(|stream| stream.unwrap().write_all(b"a").unwrap());
    });
    let targets = format!("127.0.0.1:{a},127.0.0.1:{b}");
    // It is avoided for two seconds.
    let variables = [("GLB_BIND", bind.to_string()), ("GLB_TARGETS", targets), ("PAUSE_MS", "200".to_owned())];
    let names = names(bind, 25, &variables);
    assert!(names.starts_with('b') && names.contains('a') && !names.contains('-'), "{names}");
}

/// Its kernel answers nobody: the queue is full, and no one is accepted.
struct Standing {
    _listener: socket2::Socket,
    _waiting: Vec<socket2::Socket>,
    port: u16,
}

impl Standing {
    fn start() -> Standing {
        use socket2::{Domain, Socket, Type};
        use std::net::SocketAddr;
        let tcp = || Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let listener = tcp();
        listener.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        listener.listen(0).unwrap();
        let address = listener.local_addr().unwrap();
        let waiting: Vec<Socket> = (0..4)
            .map(|_| {
                let socket = tcp();
                socket.set_nonblocking(true).unwrap();
                let _ = socket.connect(&address);
                socket
            })
            .collect();
        Standing { _listener: listener, _waiting: waiting, port: address.as_socket().unwrap().port() }
    }
}

#[test]
fn a_target_that_stands_still_costs_a_second_and_then_nothing() {
    let (standing, b, bind) = (Standing::start(), server(b'b'), free_port());
    let targets = format!("127.0.0.1:{},127.0.0.1:{b}", standing.port);
    let began = std::time::Instant::now();
    assert_eq!(names(bind, 6, &[("GLB_BIND", bind.to_string()), ("GLB_TARGETS", targets)]), "bbbbbb");
    let took = began.elapsed().as_secs_f64();
    assert!(took < 10.0, "{took} s: it is not tried again each time");
}

#[test]
fn all_threads_of_a_program_are_led() {
    let (a, b, bind) = (server(b'a'), server(b'b'), free_port());
    let targets = format!("127.0.0.1:{a},127.0.0.1:{b}");
    let variables = [("GLB_BIND", bind.to_string()), ("GLB_TARGETS", targets), ("THREADS", "8".to_owned())];
    let names = names(bind, 25, &variables);
    assert_eq!(names.matches('a').count() + names.matches('b').count(), 200, "{names}");
    assert!(names.matches('a').count() >= 50 && names.matches('b').count() >= 50, "{names}");
}
