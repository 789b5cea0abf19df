//! The committed corpora and a bounded number of mutations of them, with fixed choices, on a stable toolchain.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::path::PathBuf;

use trireme_fuzz_targets::{TARGETS, Target};
use trireme_types::SplitMix;

/// No input of a few kilobytes may make a decoder ask for more at once. (A message's first chunk may announce its length and is
/// believed up to 32 MiB.)
const ALLOCATION_MAX: usize = 33 << 20;
const INPUT_MAX: usize = 4096;

struct Watched;

thread_local! {
    static LARGEST: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: hands everything to the system's allocator unchanged.
unsafe impl GlobalAlloc for Watched {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = LARGEST.try_with(|largest| largest.set(largest.get().max(layout.size())));
        unsafe { System.alloc(layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let _ = LARGEST.try_with(|largest| largest.set(largest.get().max(layout.size())));
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let _ = LARGEST.try_with(|largest| largest.set(largest.get().max(size)));
        unsafe { System.realloc(at, layout, size) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Watched = Watched;

fn corpus_dir() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus")
}

/// Sorted by name, so that every run makes the same mutations.
fn corpus(target: &Target) -> Vec<(String, Vec<u8>)> {
    let dir = corpus_dir().join(target.name);
    let files = std::fs::read_dir(&dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
    let mut out: Vec<_> = files
        .map(|file| file.unwrap())
        .map(|file| (file.file_name().into_string().unwrap(), std::fs::read(file.path()).unwrap()))
        .collect();
    out.sort();
    assert!(!out.is_empty(), "{} is empty", dir.display());
    out
}

/// Runs one input; says which when it fails.
fn run(target: &Target, name: &str, input: &[u8]) {
    struct Told<'a>(&'a str, &'a str, &'a [u8]);
    impl Drop for Told<'_> {
        fn drop(&mut self) {
            if std::thread::panicking() {
                let hex: String = self.2.iter().map(|b| format!("{b:02x}")).collect();
                eprintln!("target {}, input {}: {hex}", self.0, self.1);
            }
        }
    }
    let told = Told(target.name, name, input);
    LARGEST.set(0);
    (target.run)(input);
    let largest = LARGEST.get();
    assert!(largest <= ALLOCATION_MAX, "an input of {} bytes made it ask for {largest}", input.len());
    drop(told);
}

/// Any of `n`; 0 where there is none.
fn below(random: &mut SplitMix, n: usize) -> usize {
    random.below(n.max(1) as u64) as usize
}

fn mutate(random: &mut SplitMix, input: &mut Vec<u8>, others: &[(String, Vec<u8>)]) {
    for _ in 0..=below(random, 4) {
        let at = below(random, input.len());
        match below(random, 9) {
            0 => input.truncate(at),
            1 => {
                let other = &others[below(random, others.len())].1;
                let from = below(random, other.len());
                input.truncate(at);
                input.extend_from_slice(&other[from..]);
            }
            2 => input.insert(at.min(input.len()), random.next() as u8),
            3 if !input.is_empty() => drop(input.remove(at)),
            4 if input.len() >= at + 8 => input[at..at + 8].fill([0xff, 0x7f, 0][below(random, 3)]),
            5 if input.len() >= at + 4 => {
                let value = [0, 1, u32::MAX, 1 << 31, 1 << 20][below(random, 5)];
                input[at..at + 4].copy_from_slice(&u32::to_le_bytes(value));
            }
            6 | 7 if !input.is_empty() => input[at] ^= 1 << below(random, 8),
            _ if !input.is_empty() => input[at] = random.next() as u8,
            _ => input.push(0),
        }
    }
    input.truncate(INPUT_MAX);
}

fn replay(target: &Target) {
    for (name, input) in corpus(target) {
        run(target, &name, &input);
    }
    for (at, input) in (target.seeds)().iter().enumerate() {
        run(target, &format!("seed {at}"), input);
    }
}

fn explore(target: &Target) {
    let mut inputs = corpus(target);
    inputs.extend((target.seeds)().into_iter().map(|seed| ("seed".to_owned(), seed)));
    let mut random = SplitMix(1);
    for round in 0..target.mutations {
        let (name, input) = &inputs[below(&mut random, inputs.len())];
        let mut input = input.clone();
        mutate(&mut random, &mut input, &inputs);
        run(target, &format!("mutation {round} of {name}"), &input);
    }
}

macro_rules! targets {
    ($($name:ident),* $(,)?) => {
        const TESTED: &[&str] = &[$(stringify!($name)),*];
        $(
            mod $name {
                #[test]
                fn corpus_is_replayed() {
                    super::replay(trireme_fuzz_targets::target(stringify!($name)));
                }
                #[test]
                fn mutations_of_it_do_no_harm() {
                    super::explore(trireme_fuzz_targets::target(stringify!($name)));
                }
            }
        )*
    };
}

targets!(
    types_codecs,
    wslog_structures,
    wslog_recovery,
    wslog_operations,
    certification_writeset,
    certification_snapshot,
    certification_history,
    order_message,
    order_group,
    order_liar,
    transport_frames,
    transport_handshake,
    transport_secret,
    transport_gossip,
    transport_datagrams,
    replicator_messages,
    replicator_roster,
    surface_options,
    surface_addresses,
    surface_state_files,
    flight_file,
    balance_packets,
    balance_split,
    balance_proxy,
    balance_control,
);

/// Each target has its tests, its binary and its corpus, and nothing is left of one that is gone.
#[test]
fn targets_tests_binaries_and_corpora_belong_together() {
    let names: Vec<&str> = TARGETS.iter().map(|t| t.name).collect();
    assert_eq!(names, TESTED);
    let list = |dir: &str| {
        let dir = corpus_dir().join("..").join(dir);
        let mut found: Vec<String> = std::fs::read_dir(&dir)
            .unwrap_or_else(|e| panic!("{}: {e}", dir.display()))
            .map(|file| file.unwrap().file_name().into_string().unwrap().trim_end_matches(".rs").to_owned())
            .collect();
        found.sort();
        found
    };
    let mut sorted = names.clone();
    sorted.sort_unstable();
    assert_eq!(list("fuzz_targets"), sorted);
    assert_eq!(list("corpus"), sorted);
    let manifest = std::fs::read_to_string(corpus_dir().join("../Cargo.toml")).unwrap();
    for name in names {
        assert!(manifest.contains(&format!("name = \"{name}\"")), "{name} is not in fuzz/Cargo.toml");
    }
}
