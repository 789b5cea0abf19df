//! The texts that operators write: options, addresses, state files.

use trireme_surface::address::{ClusterAddress, Endpoint, HostPort};
use trireme_surface::grastate::SavedState;
use trireme_surface::gvwstate::SavedView;
use trireme_surface::options::text;
use trireme_surface::{Defaults, OptionError, Options};
use trireme_types::{Seqno, Uuid};

/// An option string at start; then, behind a line break, one at run time. A printed string can be read back and means the
/// same.
pub fn options(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (start, later) = text.split_once('\n').unwrap_or((&text, ""));
    let mut options = Options::new(Defaults::default());
    if options.set_at_start(start).is_err() {
        return;
    }
    read_all(&options);
    let _ = set(&mut options, later);
    read_all(&options);
    let printed = options.print();
    for (name, value) in text::pairs(&printed).unwrap() {
        assert!(options.check_runtime(&name, &value).unwrap().nothing_to_do, "{name} is set to what it is");
    }
}

/// At run time, as a node does it.
fn set(options: &mut Options, given: &str) -> Result<(), OptionError> {
    for (name, value) in text::pairs(given)? {
        let change = options.check_runtime(&name, &value)?;
        options.store(change);
    }
    Ok(())
}

/// The typed getters do not panic on any value that was accepted.
fn read_all(options: &Options) {
    use trireme_surface::options::Kind;
    for (spec, text) in options.enumerate() {
        // A hidden one that nobody set may have no value.
        if text.is_empty() && !options.is_set(spec.name) {
            continue;
        }
        match spec.kind {
            Kind::Period { .. } => drop(options.period(spec.name)),
            Kind::Size { .. } => drop(options.size(spec.name)),
            Kind::AutoSize => drop(options.auto_size(spec.name)),
            Kind::Int { .. } | Kind::Mask => drop(options.int(spec.name)),
            Kind::Bool => drop(options.bool(spec.name)),
            Kind::Real { .. } => drop(options.real(spec.name)),
            Kind::Address | Kind::Text | Kind::Choice(_) | Kind::Uuid => drop(options.text(spec.name).len()),
        }
    }
    let _ = (options.listen(), options.ist_recv(), options.base_port(), options.tls());
}

pub fn option_seeds() -> Vec<Vec<u8>> {
    let all = Options::new(Defaults::default()).print();
    let each = all.split("; ").filter(|one| !one.is_empty()).map(|one| one.as_bytes().to_vec());
    let more =
        ["pc.weight=2;evs.suspect_timeout=PT1.5S\nrepl.durability=process", "gcache.size=1G\npc.bootstrap=1", "a\\;=b"];
    each.chain(more.iter().map(|one| one.as_bytes().to_vec())).collect()
}

/// Addresses of members and of the cluster. A printed address is read back the same.
pub fn addresses(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Ok(one) = HostPort::parse(&text) {
        // A bare IPv6 literal has no port to keep apart.
        assert_eq!(HostPort::parse(&one.to_string()), Ok(one));
    }
    let _ = Endpoint::parse(&text);
    if let Ok(cluster) = ClusterAddress::parse(&text) {
        let _ = cluster.port();
        for peer in cluster.peers {
            assert_eq!(HostPort::parse(&peer.to_string()), Ok(peer));
        }
    }
}

pub fn address_seeds() -> Vec<Vec<u8>> {
    [
        "a:1",
        "[::1]:2",
        "::1",
        "tcp://0.0.0.0:4567",
        "gcomm://h1:1, h2,[::1]:3 ?pc.weight=2&a=b",
        "h1:1,h2:2",
        "dummy://",
    ]
    .map(|one| one.as_bytes().to_vec())
    .to_vec()
}

/// `grastate.dat` and `gvwstate.dat`.
pub fn state_files(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let state = SavedState::parse(&text);
    assert_eq!(SavedState::parse(&state.print()), state);
    if let Some(view) = SavedView::parse(&text) {
        assert_eq!(SavedView::parse(&view.print()), Some(view));
    }
}

pub fn state_file_seeds() -> Vec<Vec<u8>> {
    let id = Uuid([0xab; 16]);
    let running = SavedState { uuid: id, seqno: None, unfinished: id, ..SavedState::NONE };
    let stopped = SavedState { uuid: id, seqno: Some(Seqno(17)), on_disk: Some((id, Seqno(17))), ..SavedState::NONE };
    let view =
        SavedView { my_uuid: id, view_uuid: id, view_seqno: 3, bootstrap: false, members: vec![(id, 0), (id, 2)] };
    let states = [running, stopped, SavedState::NONE];
    states.iter().map(SavedState::print).chain([view.print()]).map(String::into_bytes).collect()
}
