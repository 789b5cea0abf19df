//! A browser, driven by WebDriver: HTTP and JSON, by hand.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::{free_port, until};

pub struct Browser {
    driver: Child,
    port: u16,
    session: String,
    profile: PathBuf,
}

/// A page takes its time on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(60);

fn program(names: &[&str]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    names.iter().find_map(|name| std::env::split_paths(&path).map(|dir| dir.join(name)).find(|file| file.is_file()))
}

impl Browser {
    /// `Err`: there is none on this machine.
    pub fn start(profile: &Path) -> Result<Browser, String> {
        let missing = |what: &str| format!("there is no {what}: scripts/install-deps.sh --browser");
        let driver = program(&["chromedriver"]).ok_or_else(|| missing("chromedriver"))?;
        let chromium =
            program(&["chromium", "chromium-browser", "google-chrome"]).ok_or_else(|| missing("chromium"))?;
        let port = free_port();
        let child = Command::new(driver)
            .arg(format!("--port={port}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| error.to_string())?;
        let mut browser = Browser { driver: child, port, session: String::new(), profile: profile.to_path_buf() };
        until("the driver", || browser.call("GET", "/status", None).is_some_and(|v| v["value"]["ready"] == true));
        let arguments = [
            "--headless=new".to_owned(),
            // The tests run as root, in a container without the rest.
            "--no-sandbox".to_owned(),
            "--disable-dev-shm-usage".to_owned(),
            "--disable-gpu".to_owned(),
            "--force-device-scale-factor=1".to_owned(),
            "--lang=en".to_owned(),
            format!("--user-data-dir={}", profile.display()),
        ];
        let asked = json!({ "capabilities": { "alwaysMatch": {
            "goog:chromeOptions": { "binary": chromium, "args": arguments },
            "goog:loggingPrefs": { "browser": "ALL", "performance": "ALL" },
        } } });
        let answer = browser.call("POST", "/session", Some(&asked)).expect("the driver answers");
        let session = answer["value"]["sessionId"].as_str().unwrap_or_else(|| panic!("no session: {answer}"));
        browser.session = session.to_owned();
        Ok(browser)
    }

    fn call(&self, method: &str, path: &str, body: Option<&Value>) -> Option<Value> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).ok()?;
        let body = body.map_or_else(String::new, Value::to_string);
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            self.port,
            body.len()
        )
        .ok()?;
        // The driver keeps the connection, whatever it is asked: the length counts.
        let mut reply = Vec::new();
        let mut chunk = [0; 65536];
        loop {
            let text = String::from_utf8_lossy(&reply).into_owned();
            if let Some((head, _)) = text.split_once("\r\n\r\n") {
                let length = head.lines().find_map(|line| {
                    let (name, value) = line.split_once(':')?;
                    name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
                });
                let begin = reply.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
                if reply.len() - begin >= length? {
                    return serde_json::from_slice(&reply[begin..]).ok();
                }
            }
            match stream.read(&mut chunk).ok()? {
                0 => return None,
                n => reply.extend_from_slice(&chunk[..n]),
            }
        }
    }

    fn command(&self, method: &str, path: &str, body: Option<&Value>) -> Value {
        let path = format!("/session/{}{path}", self.session);
        let answer = self.call(method, &path, body).unwrap_or_else(|| panic!("no answer to {path}"));
        assert!(answer["value"]["error"].is_null(), "{path}: {answer}");
        answer["value"].clone()
    }

    pub fn open(&self, url: &str) {
        self.command("POST", "/url", Some(&json!({ "url": url })));
    }

    /// The value that a script returns.
    pub fn run(&self, script: &str) -> Value {
        self.command("POST", "/execute/sync", Some(&json!({ "script": script, "args": [] })))
    }

    pub fn text(&self, selector: &str) -> String {
        self.run(&format!("return document.querySelector({selector:?}).innerText"))
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }

    /// The complaints of the page and the browser.
    pub fn complaints(&self) -> Vec<Value> {
        let entries = self.command("POST", "/se/log", Some(&json!({ "type": "browser" })));
        entries.as_array().cloned().unwrap_or_default()
    }

    /// All addresses that were asked for since the last call.
    pub fn requests(&self) -> Vec<String> {
        let entries = self.command("POST", "/se/log", Some(&json!({ "type": "performance" })));
        let one = |entry: &Value| {
            let message: Value = serde_json::from_str(entry["message"].as_str()?).ok()?;
            let message = &message["message"];
            (message["method"] == "Network.requestWillBeSent")
                .then(|| message["params"]["request"]["url"].as_str().map(str::to_owned))?
        };
        entries.as_array().map(|entries| entries.iter().filter_map(one).collect()).unwrap_or_default()
    }

    /// Of what the page looks like on a screen so wide and high.
    pub fn screen(&self, width: u32, height: u32, mobile: bool, dark: bool) {
        let of = |command: &str, params: Value| {
            self.command("POST", "/goog/cdp/execute", Some(&json!({ "cmd": command, "params": params })));
        };
        let metrics = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile });
        of("Emulation.setDeviceMetricsOverride", metrics);
        let scheme = if dark { "dark" } else { "light" };
        of("Emulation.setEmulatedMedia", json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] }));
    }

    pub fn key(&self, key: &str) {
        for kind in ["keyDown", "keyUp"] {
            let params = json!({ "type": kind, "key": key, "code": key });
            self.command(
                "POST",
                "/goog/cdp/execute",
                Some(&json!({ "cmd": "Input.dispatchKeyEvent", "params": params })),
            );
        }
    }

    /// PNG.
    pub fn picture(&self) -> Vec<u8> {
        let text = self.command("GET", "/screenshot", None);
        decode_base64(text.as_str().unwrap_or_default())
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !self.session.is_empty() {
            let _ = self.call("DELETE", &format!("/session/{}", self.session), None);
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
        let _ = std::fs::remove_dir_all(&self.profile);
    }
}

fn decode_base64(text: &str) -> Vec<u8> {
    let value = |c: u8| match c {
        b'A'..=b'Z' => Some(c - b'A'),
        b'a'..=b'z' => Some(c - b'a' + 26),
        b'0'..=b'9' => Some(c - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let digits: Vec<u8> = text.bytes().filter_map(value).collect();
    let mut out = Vec::new();
    for group in digits.chunks(4) {
        let bits = group.iter().fold(0u32, |bits, digit| bits << 6 | u32::from(*digit)) << (6 * (4 - group.len()));
        out.extend_from_slice(&bits.to_be_bytes()[1..group.len()]);
    }
    out
}
