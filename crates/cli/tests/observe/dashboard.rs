//! The dashboard in a real browser, on a real cluster under load.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use trireme_cluster::{Cluster, Endpoint, Node, NodeId, Start};

use crate::webdriver::Browser;
use crate::{Process, cluster_of_three, get, machine_load, trireme_command, until_seen};

/// Clients that write until they are dropped. One in ten writes the row that all write, so that there are conflicts.
pub struct Load {
    stop: Arc<AtomicBool>,
    pause: Arc<AtomicBool>,
    /// All write the row that is all clients' all the time.
    meet: Arc<AtomicBool>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Load {
    pub fn start(endpoints: Vec<Endpoint>) -> Load {
        let [stop, pause, meet] = [(); 3].map(|()| Arc::new(AtomicBool::new(false)));
        let one = |(place, endpoint): (usize, Endpoint)| {
            let (stop, pause, meet) = (stop.clone(), pause.clone(), meet.clone());
            thread::spawn(move || {
                let mut session = None;
                for n in 0u64.. {
                    if stop.load(Relaxed) {
                        return;
                    }
                    if pause.load(Relaxed) {
                        thread::sleep(Duration::from_millis(10));
                        continue;
                    }
                    let Some(open) = &mut session else {
                        session = endpoint.session_in(Some("d")).ok();
                        thread::sleep(Duration::from_millis(20));
                        continue;
                    };
                    let row = if n % 10 == 0 || meet.load(Relaxed) { 0 } else { 1 + place };
                    // Failures are the business of other tests.
                    if let Err(error) = open.query(&format!("UPDATE load_ SET n = n + 1 WHERE id = {row}")) {
                        if error.code().is_none() {
                            session = None;
                        }
                    }
                    thread::sleep(Duration::from_millis(3));
                }
            })
        };
        Load { threads: endpoints.into_iter().enumerate().map(one).collect(), stop, pause, meet }
    }

    pub fn pause(&self, pause: bool) {
        self.pause.store(pause, Relaxed);
    }

    pub fn meet(&self, meet: bool) {
        self.meet.store(meet, Relaxed);
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Tables for [`Load`].
pub fn schema(cluster: &Cluster) {
    let first = NodeId::new(1).unwrap();
    for statement in [
        "CREATE DATABASE d",
        "CREATE TABLE d.load_ (id INT PRIMARY KEY, n INT)",
        "INSERT INTO d.load_ VALUES (0, 0), (1, 0), (2, 0), (3, 0), (4, 0)",
    ] {
        cluster.sql(first, statement).unwrap();
    }
}

/// A monitor beside each node, all at one port.
pub fn monitors(cluster: &Cluster, port: u16) -> Vec<Process> {
    let start = |node: &Node| {
        let data = node.data();
        let listen = format!("{}:{port}", node.address);
        Process(
            trireme_command(&["monitor", "--data-dir", data.to_str().unwrap(), "--listen", &listen])
                .stdout(Stdio::null())
                .spawn()
                .unwrap(),
        )
    };
    cluster.nodes().iter().map(start).collect()
}

const CHARTS: [&str; 10] =
    ["commits", "latency", "stages", "syncs", "backlog", "lag", "held", "conflicts", "delay", "away"];
/// For what has to be seen at once.
const AT_ONCE: Duration = Duration::from_secs(2);

fn points(browser: &Browser, chart: &str) -> u64 {
    let script = format!("return document.getElementById('plot-{chart}').dataset.points");
    browser.run(&script).as_str().and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// The greatest value that a chart shows of one line.
fn most(browser: &Browser, chart: &str, line: &str) -> f64 {
    let shown = browser.run(&format!("return document.getElementById('plot-{chart}').dataset.most"));
    let shown: Value = serde_json::from_str(shown.as_str().unwrap_or_default()).unwrap_or_default();
    shown[line].as_f64().unwrap_or(0.0)
}

/// Until it is so; else the whole page is in the message.
fn shows(browser: &Browser, what: &str, mut done: impl FnMut() -> bool) {
    until_seen(what, || if done() { Ok(()) } else { Err(all_of(browser)) });
}

/// Everything that the page says, and its charts' greatest values.
fn all_of(browser: &Browser) -> String {
    let script = "return document.body.innerText + '\\n' + [...document.querySelectorAll('[id^=plot-]')].map(plot => plot.id + ' ' + plot.dataset.most).join('\\n')";
    browser.run(script).as_str().unwrap_or_default().to_owned()
}

fn is_well(browser: &Browser) -> bool {
    browser.text("#level").eq_ignore_ascii_case("well")
}

/// The text of a panel changes.
fn moves(browser: &Browser, panel: &str) {
    let before = browser.text(panel);
    shows(browser, &format!("{panel} to move"), || browser.text(panel) != before);
}

/// When a node has more to apply than the others go on with: on a slow disk writers need a while to make so much.
struct BehindAt(thread::JoinHandle<Instant>);

impl BehindAt {
    /// `gcs.fc_limit` in a group of three.
    const LIMIT: u64 = 28;

    fn watch(endpoint: Endpoint) -> BehindAt {
        let mut session = endpoint.session().unwrap();
        let mut backlog = move || -> u64 {
            let answer = session.query("SHOW GLOBAL STATUS LIKE 'wsrep_local_recv_queue'").unwrap().texts();
            answer[0][1].parse().unwrap()
        };
        BehindAt(thread::spawn(move || {
            until_seen("a backlog", || match backlog() {
                behind if behind > BehindAt::LIMIT => Ok(Instant::now()),
                few => Err(format!("{few} write sets wait to be applied")),
            })
        }))
    }

    fn get(self) -> Instant {
        self.0.join().expect("there is a backlog")
    }
}

/// Seconds for which the writers of each node were held back so far, as its server tells them.
fn paused_times(cluster: &Cluster) -> Vec<f64> {
    let of = |id| {
        let answer = cluster.sql(id, "SHOW GLOBAL STATUS LIKE 'wsrep_flow_control_paused_ns'").unwrap().texts();
        answer[0][1].parse::<f64>().unwrap() / 1e9
    };
    cluster.ids().into_iter().map(of).collect()
}

fn picture(browser: &Browser, name: &str) {
    let png = browser.picture();
    assert!(png.starts_with(b"\x89PNG"), "no picture");
    if std::env::var_os("UPDATE_PAGES").is_some() {
        let dir = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/operations/img"));
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join(name), png).unwrap();
    }
}

#[test]
#[ignore = "starts real servers: PROVIDER=… cargo test -p trireme-cli --test observe -- --ignored"]
fn the_dashboard_in_a_browser() {
    let profile = std::env::temp_dir().join(format!("trireme-browser-{}", std::process::id()));
    let browser = match Browser::start(&profile) {
        Ok(browser) => browser,
        Err(why) => {
            println!("SKIPPED the dashboard in a browser: {why}");
            return;
        }
    };
    let mut cluster = cluster_of_three("dashboard", 100);
    schema(&cluster);
    cluster.sql(NodeId::new(1).unwrap(), "CREATE TABLE d.apart (id INT PRIMARY KEY)").unwrap();
    let load = Load::start(cluster.endpoints());
    let port = cluster.nodes()[0].ports.sql + 50;
    let _monitors = monitors(&cluster, port);
    let at = cluster.nodes()[1].address.clone();
    until_seen("the monitor to see all", || {
        let (_, body) = get((&*at, port), "/cluster").ok_or("it does not answer")?;
        let cluster: Value = serde_json::from_str(&body).unwrap_or_default();
        let all = cluster["nodes"]
            .as_array()
            .is_some_and(|nodes| nodes.len() == 3 && nodes.iter().all(|node| node["health"] == "synced"));
        if all { Ok(()) } else { Err(body) }
    });

    // The whole cluster on one page, by any node's monitor.
    browser.screen(1280, 1700, false, false);
    let origin = format!("http://{at}:{port}/");
    browser.open(&origin);
    shows(&browser, "the page to show all is well", || is_well(&browser));
    assert!(browser.text("#verdict").contains("3 of 3 voters are there"), "{}", browser.text("#verdict"));
    for name in ["node1", "node2", "node3"] {
        assert!(browser.text("#members").contains(name), "{}", browser.text("#members"));
    }
    // Each panel has data, and they move.
    for chart in CHARTS {
        shows(&browser, &format!("points in {chart}"), || points(&browser, chart) > 0);
        let before = points(&browser, chart);
        shows(&browser, &format!("more points in {chart}"), || points(&browser, chart) > before);
        let drawn = browser.run(&format!("return document.getElementById('plot-{chart}').dataset.drawn"));
        assert!(drawn.as_str().is_some_and(|time| time.parse::<f64>().is_ok()), "{chart} draws nothing: {drawn}");
    }
    for chart in ["commits", "latency", "stages", "syncs", "delay", "away"] {
        let last = || browser.run(&format!("return document.getElementById('plot-{chart}').dataset.last"));
        let before = last();
        shows(&browser, &format!("{chart} to move"), || last() != before);
    }
    moves(&browser, "#members");
    moves(&browser, "#log");
    for (panel, words) in [
        ("#trips", " / "),
        ("#log", "iB"),
        ("#transfers", "None at present"),
        ("#throttle", "node3"),
        ("#facts", "term"),
    ] {
        assert!(browser.text(panel).contains(words), "{panel}: {}", browser.text(panel));
    }
    assert!(
        !browser.text("#trips").contains("unknown"),
        "each measures the way to both others: {}",
        browser.text("#trips")
    );
    // In the chart of stages each line has its mark, in the line's colour.
    let marks = browser.run(
        "return [...document.querySelectorAll('#stage-marks > span')].map(e => e.innerText.trim() + ' ' + \
         getComputedStyle(e.querySelector('.mark')).backgroundColor)",
    );
    let marks: Vec<&str> = marks.as_array().unwrap().iter().filter_map(Value::as_str).collect();
    let (names, colours): (Vec<&str>, BTreeSet<&str>) = marks.iter().filter_map(|mark| mark.split_once(' ')).unzip();
    assert_eq!((names, colours.len()), (vec!["send", "hold", "order", "wait", "engine"], 5), "{marks:?}");
    // Without a mouse: a chart has the focus, and arrow keys read it.
    browser.run("document.getElementById('plot-commits').focus()");
    browser.key("ArrowLeft");
    shows(&browser, "an earlier value to be read", || {
        browser.text("#read-commits").contains(':') && !browser.text("#read-commits").starts_with("now")
    });
    browser.key("Escape");
    let unnamed = browser.run(
        "return [...document.querySelectorAll('button, select, [role=img], [role=region]')].filter(e => !(e.innerText || e.getAttribute('aria-label') \
         || e.getAttribute('aria-labelledby') || e.labels?.length)).map(e => e.outerHTML)",
    );
    assert_eq!(unnamed, serde_json::json!([]));
    // Frozen, it stays as it is, and the stream goes on.
    let freeze = || browser.run("document.getElementById('freeze').click()");
    let frames = || browser.run("return Number(document.documentElement.dataset.frames)").as_f64().unwrap_or(0.0);
    freeze();
    let (before, shown) = (frames(), browser.text("#members"));
    shows(&browser, "three more answers", || frames() >= before + 3.0);
    assert_eq!(browser.text("#members"), shown);
    freeze();
    moves(&browser, "#members");
    thread::sleep(Duration::from_secs(3)); // For the picture: some seconds of lines.
    picture(&browser, "dashboard-wide.png");
    browser.screen(390, 844, true, true);
    shows(&browser, "the page to fit a phone", || {
        browser.run("return document.documentElement.scrollWidth <= 390") == true
    });
    thread::sleep(Duration::from_millis(600));
    picture(&browser, "dashboard-phone.png");
    browser.screen(1280, 1700, false, false);

    // Clients that write one row: conflicts.
    let names = ["node1", "node2", "node3"];
    let conflicts = || names.map(|name| most(&browser, "conflicts", name)).into_iter().fold(0.0, f64::max);
    let before = conflicts();
    load.meet(true);
    shows(&browser, "more conflicts", || conflicts() > before);
    load.meet(false);

    // A locked table: its node is named. Before anything freezes: nobody waits for a node for what it missed, nor for what comes in the two seconds after.
    let mut locker = cluster.session(NodeId::new(3).unwrap()).unwrap();
    // Writers wait for as long as it takes to look.
    locker.query("SET GLOBAL wsrep_provider_options='gcs.fc_patience=PT10S'").unwrap();
    load.pause(true);
    // A write that comes late takes the lock away while it is waited for.
    locker.query("SET SESSION lock_wait_timeout = 1").unwrap();
    shows(&browser, "the lock", || locker.query("LOCK TABLES d.load_ WRITE").is_ok());
    let held = || most(&browser, "held", "node1").max(most(&browser, "held", "node2"));
    let before = (held(), most(&browser, "backlog", "node3"), most(&browser, "lag", "node3"));
    let paused = paused_times(&cluster);
    let behind = BehindAt::watch(cluster.endpoint(NodeId::new(3).unwrap()).unwrap());
    load.pause(false);
    let locked = Instant::now();
    let hot = "return [...document.querySelectorAll('#throttle tbody tr')].flatMap(row => [...row.cells].map((cell, n) => cell.className.includes('hot') ? \
               document.querySelectorAll('#throttle thead th')[n].innerText : null)).filter(x => x)";
    shows(&browser, "the matrix to name node3", || {
        browser.run(hot).as_array().is_some_and(|named| named.iter().any(|name| name == "node3"))
    });
    let named = Instant::now();
    let (took, behind) = (named - locked, behind.get());
    println!(
        "the throttle matrix named node3 {took:?} after the lock, which took {:?} to make it behind",
        behind - locked
    );
    assert!(
        named.saturating_duration_since(behind) < AT_ONCE,
        "the throttle matrix took {took:?} after the lock; after {:?} node3 was behind. Seconds for which the writers of each node had been held back \
         when it was locked: {:?}, and afterwards: {:?}; the load of the machine: {}\n{}",
        behind - locked,
        paused,
        paused_times(&cluster),
        machine_load(),
        all_of(&browser)
    );
    shows(&browser, "the time line to tell", || browser.text("#changes").contains("writers wait for node3"));
    // Chosen, it is marked; its line in the charts is drawn on a canvas, where no test can look.
    let chosen = || browser.run("return document.querySelectorAll('#changes button[aria-pressed=true]').length");
    assert_eq!(chosen(), 0);
    browser.run("document.querySelector('#changes button').click()");
    assert_eq!(chosen(), 1);
    shows(&browser, "the chart of those who are held back", || held() > before.0);
    shows(&browser, "the chart of backlogs", || most(&browser, "backlog", "node3") > before.1);
    locker.query("UNLOCK TABLES").unwrap();
    // As long as it was locked.
    shows(&browser, "the chart of what is applied late", || most(&browser, "lag", "node3") > before.2.max(0.5));
    shows(&browser, "nobody to wait", || browser.text("#throttle-words") == "Nobody waits.");
    shows(&browser, "all to be well again", || is_well(&browser));

    // A frozen node: the way to it takes as long as it is.
    let far = "const at = [...document.querySelectorAll('#trips thead th')].findIndex(cell => cell.innerText === 'node3'); \
               return [...document.querySelectorAll('#trips tbody tr')].map(row => row.cells[at].innerText.split(' / ')[1] || '')";
    let seconds = |text: &str| match text.split_once(' ') {
        Some((number, "s")) => number.parse().unwrap_or(0.0),
        Some((number, "ms")) => number.parse::<f64>().unwrap_or(0.0) / 1e3,
        _ => 0.0,
    };
    cluster.pause(NodeId::new(3).unwrap()).unwrap();
    until_seen("the way to node3 to be long", || {
        let ways = browser.run(far);
        let long = ways.as_array().into_iter().flatten().filter_map(Value::as_str).any(|way| seconds(way) > 0.6);
        if long { Ok(()) } else { Err(ways.to_string()) }
    });
    shows(&browser, "the banner to turn for it", || !is_well(&browser));
    cluster.resume(NodeId::new(3).unwrap()).unwrap();
    shows(&browser, "all to be well", || is_well(&browser));

    // A node is killed: the banner turns.
    let killed = Instant::now();
    cluster.kill(NodeId::new(3).unwrap()).unwrap();
    shows(&browser, "the banner to turn", || !is_well(&browser));
    let took = killed.elapsed();
    println!("the banner turned after {took:?}");
    assert!(
        took < AT_ONCE,
        "the banner took {took:?}; the load of the machine: {}\n{}",
        machine_load(),
        all_of(&browser)
    );
    shows(&browser, "the verdict to name it", || {
        browser.text("#verdict").contains("2 of 3 voters are there (node3 is not)")
    });
    shows(&browser, "the time line to tell of it", || browser.text("#changes").contains("node3 was synced, is gone"));

    // It comes back without data. Its donor cannot begin to copy as long as a table is locked there.
    let lock = |n| {
        let mut session = cluster.session(NodeId::new(n).unwrap()).unwrap();
        session.query("LOCK TABLES d.apart WRITE").unwrap();
        session
    };
    let locks = [lock(1), lock(2)];
    std::fs::remove_file(cluster.nodes()[2].data().join("grastate.dat")).unwrap();
    cluster.launch(NodeId::new(3).unwrap(), Start::Plain).unwrap();
    shows(&browser, "the transfer to be shown", || {
        let shown = browser.text("#transfers");
        shown.contains("node3 is Joining") && shown.contains("is Donor/Desynced")
    });
    drop(locks);
    shows(&browser, "its end to be shown", || {
        let shown = browser.text("#transfers");
        shown.contains("None at present") && shown.contains("node3 is Synced, was Jo")
    });
    shows(&browser, "all to be well in the end", || is_well(&browser));
    drop(load);

    // Nobody complained, and nothing was asked of anywhere else.
    let complaints = browser.complaints();
    assert!(complaints.is_empty(), "{complaints:?}");
    let requests = browser.requests();
    assert!(requests.iter().any(|url| url.ends_with("/watch")), "{requests:?}");
    for url in requests {
        // The browser's own first page is of itself.
        if url.starts_with("chrome:") {
            continue;
        }
        assert!(url.starts_with(&origin) || url.starts_with("data:") || url == "about:blank", "{url}");
    }

    // The same cluster from another node.
    browser.open(&format!("http://{}:{port}/", cluster.nodes()[0].address));
    shows(&browser, "that page to show all", || {
        let members = browser.text("#members");
        is_well(&browser) && names.iter().all(|name| members.contains(name))
    });
}
