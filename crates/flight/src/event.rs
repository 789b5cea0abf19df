//! The events in the life of a node.

use std::time::Duration;

use trireme_types::{DecodeError, LogIndex, Reader, Seqno, Writer};

/// The subject of an event: the words of `--kind`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Topic {
    /// Starts, stops, panics, and why a node cannot go on.
    Life,
    /// Terms, and the votes in which they begin.
    Term,
    View,
    Link,
    /// Members that are not heard.
    Silence,
    /// Stops, rates, and who applies nothing.
    Flow,
    /// Syncs of the write-set log that took long.
    Sync,
    /// Threads or the whole process that did not run.
    Delay,
    /// The slowest commits, by stage.
    Commit,
    Conflict,
    /// Local transactions that gave way to an applier.
    Abort,
    /// Votes on data that differ.
    Vote,
    Transfer,
    Option,
    /// The write-set log and its disk.
    Log,
    /// The clock of the machine.
    Clock,
    /// The recorder's words about itself.
    Recorder,
}

impl Topic {
    pub const ALL: [Topic; 17] = [
        Topic::Life,
        Topic::Term,
        Topic::View,
        Topic::Link,
        Topic::Silence,
        Topic::Flow,
        Topic::Sync,
        Topic::Delay,
        Topic::Commit,
        Topic::Conflict,
        Topic::Abort,
        Topic::Vote,
        Topic::Transfer,
        Topic::Option,
        Topic::Log,
        Topic::Clock,
        Topic::Recorder,
    ];

    pub fn word(self) -> &'static str {
        match self {
            Topic::Life => "life",
            Topic::Term => "term",
            Topic::View => "view",
            Topic::Link => "link",
            Topic::Silence => "silence",
            Topic::Flow => "flow",
            Topic::Sync => "sync",
            Topic::Delay => "delay",
            Topic::Commit => "commit",
            Topic::Conflict => "conflict",
            Topic::Abort => "abort",
            Topic::Vote => "vote",
            Topic::Transfer => "transfer",
            Topic::Option => "option",
            Topic::Log => "log",
            Topic::Clock => "clock",
            Topic::Recorder => "recorder",
        }
    }

    pub fn parse(word: &str) -> Option<Topic> {
        Topic::ALL.into_iter().find(|topic| topic.word() == word)
    }
}

/// A value in an event, for those that print it.
#[derive(Clone, PartialEq, Debug)]
pub enum Fact {
    Number(u64),
    Yes(bool),
    Text(String),
    List(Vec<String>),
    /// In seconds.
    Time(f64),
}

/// Bytes of one text, at most; the rest is cut off.
pub const TEXT_MAX: usize = 480;
/// Members of one list, at most.
pub const LIST_MAX: usize = 24;
/// Bytes of one text in a list, at most.
const ITEM_MAX: usize = 64;

fn cut(text: &str, max: usize) -> &str {
    if text.len() <= max {
        return text;
    }
    let mut end = max;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// The parts of an event.
trait Part: Sized {
    fn encode(&self, w: &mut Writer);
    fn decode(r: &mut Reader) -> Result<Self, DecodeError>;
    fn fact(&self) -> Fact;
}

impl Part for u64 {
    fn encode(&self, w: &mut Writer) {
        w.u64(*self);
    }
    fn decode(r: &mut Reader) -> Result<u64, DecodeError> {
        r.u64()
    }
    fn fact(&self) -> Fact {
        Fact::Number(*self)
    }
}

impl Part for Seqno {
    fn encode(&self, w: &mut Writer) {
        w.u64(self.0);
    }
    fn decode(r: &mut Reader) -> Result<Seqno, DecodeError> {
        r.seqno()
    }
    fn fact(&self) -> Fact {
        Fact::Number(self.0)
    }
}

impl Part for LogIndex {
    fn encode(&self, w: &mut Writer) {
        w.u64(self.0);
    }
    fn decode(r: &mut Reader) -> Result<LogIndex, DecodeError> {
        r.index()
    }
    fn fact(&self) -> Fact {
        Fact::Number(self.0)
    }
}

impl Part for bool {
    fn encode(&self, w: &mut Writer) {
        w.bool(*self);
    }
    fn decode(r: &mut Reader) -> Result<bool, DecodeError> {
        r.bool()
    }
    fn fact(&self) -> Fact {
        Fact::Yes(*self)
    }
}

impl Part for Duration {
    fn encode(&self, w: &mut Writer) {
        w.u64(u64::try_from(self.as_nanos()).unwrap_or(u64::MAX));
    }
    fn decode(r: &mut Reader) -> Result<Duration, DecodeError> {
        r.u64().map(Duration::from_nanos)
    }
    fn fact(&self) -> Fact {
        Fact::Time(self.as_secs_f64())
    }
}

impl Part for String {
    fn encode(&self, w: &mut Writer) {
        let text = cut(self, TEXT_MAX);
        w.u16(text.len() as u16);
        w.raw(text.as_bytes());
    }
    fn decode(r: &mut Reader) -> Result<String, DecodeError> {
        text(r, TEXT_MAX)
    }
    fn fact(&self) -> Fact {
        Fact::Text(self.clone())
    }
}

impl Part for Vec<String> {
    fn encode(&self, w: &mut Writer) {
        let kept = &self[..self.len().min(LIST_MAX)];
        w.u16(kept.len() as u16);
        for item in kept {
            let item = cut(item, ITEM_MAX);
            w.u16(item.len() as u16);
            w.raw(item.as_bytes());
        }
    }
    fn decode(r: &mut Reader) -> Result<Vec<String>, DecodeError> {
        let count = usize::from(r.u16()?);
        if count > LIST_MAX {
            return Err(DecodeError::TooLong("list"));
        }
        (0..count).map(|_| text(r, ITEM_MAX)).collect()
    }
    fn fact(&self) -> Fact {
        Fact::List(self.clone())
    }
}

fn text(r: &mut Reader, max: usize) -> Result<String, DecodeError> {
    let len = usize::from(r.u16()?);
    if len > max {
        return Err(DecodeError::TooLong("text"));
    }
    String::from_utf8(r.take(len)?.to_vec()).map_err(|_| DecodeError::Invalid("UTF-8"))
}

macro_rules! events {
    ($($(#[doc = $doc:literal])+ $code:literal $word:literal $topic:ident $name:ident { $($field:ident: $type:ty),* $(,)? })*) => {
        /// Something that happened. Codes and fields stay what they are; new fields come last.
        #[derive(Clone, PartialEq, Debug)]
        pub enum Event {
            $($(#[doc = $doc])+ $name { $($field: $type),* },)*
            /// Of a version that is not known here.
            Unknown { code: u16 },
        }

        impl Event {
            fn code(&self) -> u16 {
                match self {
                    $(Event::$name { .. } => $code,)*
                    Event::Unknown { code } => *code,
                }
            }

            /// One word for the kind.
            pub fn word(&self) -> &'static str {
                match self {
                    $(Event::$name { .. } => $word,)*
                    Event::Unknown { .. } => "unknown",
                }
            }

            pub fn topic(&self) -> Topic {
                match self {
                    $(Event::$name { .. } => Topic::$topic,)*
                    Event::Unknown { .. } => Topic::Recorder,
                }
            }

            /// Its values, by name.
            pub fn facts(&self) -> Vec<(&'static str, Fact)> {
                match self {
                    $(Event::$name { $($field),* } => vec![$((stringify!($field), $field.fact())),*],)*
                    Event::Unknown { code } => vec![("code", Fact::Number(u64::from(*code)))],
                }
            }

            pub(crate) fn encode(&self, w: &mut Writer) {
                w.u16(self.code());
                match self {
                    $(Event::$name { $($field),* } => { $($field.encode(w);)* })*
                    Event::Unknown { .. } => {}
                }
            }

            /// Bytes behind the fields that are known here are of a later version, and skipped.
            pub(crate) fn decode(r: &mut Reader) -> Result<Event, DecodeError> {
                let code = r.u16()?;
                Ok(match code {
                    $($code => Event::$name { $($field: Part::decode(r)?),* },)*
                    _ => Event::Unknown { code },
                })
            }
        }

        /// Topic, kind and meaning of every event, in the order of topics.
        pub fn kinds() -> Vec<(Topic, &'static str, String)> {
            let mut all = vec![$((Topic::$topic, $word, [$($doc),+].concat().trim().to_owned())),*];
            all.sort_by_key(|(topic, ..)| *topic);
            all
        }

        #[cfg(test)]
        const CODES: &[u16] = &[$($code),*];
    };
}

events! {
    /// the node was started
    1 "started" Life Started { name: String, node: String, version: String, process: u64 }
    /// the node was stopped in order
    2 "stopped" Life Stopped {}
    /// the server connects to the group
    3 "connecting" Life Connecting { cluster: String, bootstrap: bool }
    /// it was said in the error log, as an error
    4 "error" Life Error { text: String }
    /// a thread of the node panicked
    5 "panicked" Life Panicked { thread: String, said: String }
    /// the group was left
    6 "left" Life Left {}
    /// it was said in the error log, as a warning
    7 "warned" Life Warned { text: String }

    /// a term began, with this sequencer; none: nobody orders yet
    10 "term" Term Term { sequencer: String }
    /// this node stands for sequencer in a term
    11 "stands" Term Stands { term: u64 }
    /// this node gave its vote, or refused it
    12 "voted" Term Voted { term: u64, to: String, granted: bool }

    /// a view of the primary component
    20 "view" View View { number: u64, seqno: Seqno, members: Vec<String> }
    /// the majority is lost; who can still be heard
    21 "non-primary" View NonPrimary { reachable: Vec<String> }
    /// the group threw this node out
    22 "evicted" View Evicted {}

    /// a link to a member came about
    30 "link-up" Link LinkUp { peer: String }
    /// a link ended: reset, bye, silent, replaced, garbage, local
    31 "link-down" Link LinkDown { peer: String, cause: String }
    /// a connection was turned away
    32 "refused" Link Refused { address: String, reason: String }

    /// a member is not heard
    40 "silent" Silence Silent { peer: String }
    /// it is heard again
    41 "heard" Silence Heard { peer: String, after: Duration }

    /// this node asks the others to write less, or no longer does
    50 "asks-to-stop" Flow AsksToStop { stop: bool }
    /// whom the writers wait for from now on; rate 0: it applies nothing. Thousandths of write sets per second
    51 "slowed-by" Flow SlowedBy { by: String, rate: u64, backlog: u64 }
    /// nobody slows the writers any more
    52 "unslowed" Flow Unslowed {}
    /// how long writers of this node were held back in the last second
    53 "held-back" Flow HeldBack { by: String, time: Duration }
    /// this node applies nothing and no longer slows the others
    54 "gave-up" Flow GaveUp { patience: Duration }
    /// nothing was applied here for so long, and what stands first
    55 "applies-nothing" Flow AppliesNothing { after: Seqno, backlog: u64, time: Duration }
    /// it is applied again
    56 "applies-again" Flow AppliesAgain { after: Duration }

    /// the disk took so long for a write or a sync of the write-set log
    60 "slow-sync" Sync SlowSync { time: Duration }
    /// the disk has not answered for so long to a write or a sync
    61 "sync-hangs" Sync SyncHangs { time: Duration }

    /// the whole process did not run: frozen, or starved of processors
    70 "stood-still" Delay StoodStill { time: Duration }
    /// the thread of the group took so long to notice a question
    71 "group-late" Delay GroupLate { time: Duration }

    /// the slowest commit of a while, by stage, and how many commits there were
    80 "slow-commit" Commit SlowCommit {
        seqno: Seqno,
        total: Duration,
        send: Duration,
        hold: Duration,
        order: Duration,
        wait: Duration,
        engine: Duration,
        commits: u64,
    }
    /// a commit was sent, and the client got no answer on its outcome
    81 "unknown-outcome" Commit UnknownOutcome { count: u64 }

    /// a local transaction lost a conflict, with which write set, and the hash of the key
    90 "conflict" Conflict Conflict { seqno: Seqno, with: Seqno, key: u64, why: String }

    /// a local transaction gave way to an applier
    100 "aborted" Abort Aborted { by: Seqno, stage: String }

    /// a member found an error that the others may not have
    110 "vote-begun" Vote VoteBegun { seqno: Seqno }
    /// how this node voted: 0 is success, else the class of its error
    111 "vote-cast" Vote VoteCast { seqno: Seqno, class: u64 }
    /// what the group decided
    112 "vote-done" Vote VoteDone { seqno: Seqno, winner: u64 }
    /// the data here are not the group's
    113 "inconsistent" Vote Inconsistent { reason: String }

    /// this node asks for its state, with or without a full copy
    120 "asks-for-state" Transfer AsksForState { full: bool }
    /// this node gives a full copy
    121 "donates" Transfer Donates { to: String, at: Seqno }
    /// giving it has ended
    122 "donated" Transfer Donated { ok: bool }
    /// a full copy arrived, or failed
    123 "state-received" Transfer StateReceived { seqno: Seqno, ok: bool }
    /// the node gets from the log what it missed
    124 "catches-up" Transfer CatchesUp { from: Seqno, to: Seqno }
    /// it is done
    125 "caught-up" Transfer CaughtUp { at: Seqno }
    /// the node is synced
    126 "synced" Transfer Synced { at: Seqno }

    /// an option was changed at run time
    130 "option" Option Option { name: String, value: String }
    /// the durability mode of the cluster
    131 "durability" Option Durability { mode: String }

    /// the write-set log failed
    140 "log-failed" Log LogFailed { reason: String }
    /// the write-set log works again
    141 "log-works" Log LogWorks {}

    /// the clock of the machine was set
    150 "clock-set" Clock ClockSet { ahead: bool, by: Duration }

    /// so many more conflicts, aborts and stops there were in the second before
    161 "more" Recorder More { count: u64 }
    /// so many events were dropped, because they came faster than they are written or could not be written
    160 "dropped" Recorder Dropped { count: u64 }
}

/// `1.25 s`, `3 ms`, `40 µs`.
pub fn time(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    match time.as_micros() {
        0..1_000 => format!("{} µs", time.as_micros()),
        1_000..10_000 => format!("{:.1} ms", seconds * 1e3),
        10_000..1_000_000 => format!("{:.0} ms", seconds * 1e3),
        1_000_000..100_000_000 => format!("{seconds:.1} s"),
        _ => format!("{seconds:.0} s"),
    }
}

impl Event {
    /// A sentence, without the node that it happened to.
    pub fn sentence(&self) -> String {
        match self {
            Event::Started { name: _, node, version, process } => {
                format!("started: Trireme {version}, process {process}, id {node}")
            }
            Event::Stopped {} => "stopped in order".into(),
            Event::Connecting { cluster, bootstrap: false } => format!("connects to the group {cluster}"),
            Event::Connecting { cluster, bootstrap: true } => format!("founds the group {cluster}"),
            Event::Error { text } => format!("error: {text}"),
            Event::Panicked { thread, said } => format!("internal error in thread {thread}: {said}"),
            Event::Left {} => "left the group".into(),
            Event::Warned { text } => format!("warning: {text}"),
            Event::Term { sequencer } if sequencer.is_empty() => "a new term, without a sequencer yet".into(),
            Event::Term { sequencer } => format!("{sequencer} orders"),
            Event::Stands { term } => format!("stands for sequencer in term {term}"),
            Event::Voted { term, to, granted: true } => format!("votes for {to} in term {term}"),
            Event::Voted { term, to, granted: false } => format!("refuses {to} its vote in term {term}"),
            Event::View { number, seqno, members } => {
                format!("view {number} at seqno {seqno}: {}", members.join(", "))
            }
            Event::NonPrimary { reachable } => format!("the majority is lost; heard: {}", reachable.join(", ")),
            Event::Evicted {} => "was evicted".into(),
            Event::LinkUp { peer } => format!("link to {peer}"),
            Event::LinkDown { peer, cause } => format!("the link to {peer} ended: {cause}"),
            Event::Refused { address, reason } => format!("turned away {address}: {reason}"),
            Event::Silent { peer } => format!("does not hear {peer}"),
            Event::Heard { peer, after } => format!("hears {peer} again, after {}", time(*after)),
            Event::AsksToStop { stop: true } => {
                "asks the others to write less: it has more to apply than it can".into()
            }
            Event::AsksToStop { stop: false } => "no longer asks the others to write less".into(),
            Event::SlowedBy { by, rate: 0, backlog } => {
                format!("writers wait for {by}, which applies nothing and has {backlog} write sets to apply")
            }
            Event::SlowedBy { by, rate, backlog } => {
                format!(
                    "writers wait for {by}, which has {backlog} write sets to apply: {:.1} per second",
                    *rate as f64 / 1e3
                )
            }
            Event::Unslowed {} => "writers wait for nobody".into(),
            Event::HeldBack { by, time: held } if by.is_empty() => {
                format!("writers were held back for {}", time(*held))
            }
            Event::HeldBack { by, time: held } => format!("writers were held back for {}, by {by}", time(*held)),
            Event::GaveUp { patience } => {
                format!(
                    "applied nothing for {} (a lock, a huge transaction, a full disk?) and no longer slows the others",
                    time(*patience)
                )
            }
            Event::AppliesNothing { after, backlog, time: since } => {
                format!(
                    "has applied nothing for {} (a lock, a huge transaction, a full disk?): {backlog} write sets wait after seqno {after}",
                    time(*since)
                )
            }
            Event::AppliesAgain { after } => format!("applies again, after {}", time(*after)),
            Event::SlowSync { time: took } => {
                format!("the disk took {} for a write or a sync of the write-set log", time(*took))
            }
            Event::SyncHangs { time: since } => {
                format!("the disk has not answered for {} to a write or a sync of the write-set log", time(*since))
            }
            Event::StoodStill { time: since } => {
                format!("the process did not run for {}: it was frozen, or had no processor", time(*since))
            }
            Event::GroupLate { time: took } => {
                format!("the thread of the group took {} to notice a question", time(*took))
            }
            Event::SlowCommit { seqno, total, send, hold, order, wait, engine, commits } => {
                let longest = [("send", send), ("hold", hold), ("order", order), ("wait", wait), ("engine", engine)]
                    .into_iter()
                    .max_by_key(|(_, took)| **took)
                    .map_or("", |(name, _)| name);
                format!(
                    "the slowest of {commits} commits, seqno {seqno}, took {}, longest in {longest} (send {}, hold {}, order {}, wait {}, engine {})",
                    time(*total),
                    time(*send),
                    time(*hold),
                    time(*order),
                    time(*wait),
                    time(*engine)
                )
            }
            Event::UnknownOutcome { count } => format!("{count} commits ended without an answer on their outcome"),
            Event::Conflict { seqno, with: Seqno(0), key: _, why } => {
                format!("a local transaction (seqno {seqno}) failed: {why}")
            }
            Event::Conflict { seqno, with, key, why: _ } => {
                format!("a local transaction (seqno {seqno}) lost a conflict with {with} on key {key:016x}")
            }
            Event::Aborted { by: Seqno(0), stage } => format!("a local transaction ({stage}) gave way to an applier"),
            Event::Aborted { by, stage } => format!("a local transaction ({stage}) gave way to write set {by}"),
            Event::VoteBegun { seqno } => format!("a vote on write set {seqno} began: a member failed to apply it"),
            Event::VoteCast { seqno, class: 0 } => format!("votes that write set {seqno} was applied"),
            Event::VoteCast { seqno, class } => format!("votes that write set {seqno} failed, with error {class:x}"),
            Event::VoteDone { seqno, winner: 0 } => format!("the group decided that write set {seqno} applies"),
            Event::VoteDone { seqno, winner } => {
                format!("the group decided that write set {seqno} fails, with error {winner:x}")
            }
            Event::Inconsistent { reason } => format!("its data are not the group's: {reason}"),
            Event::AsksForState { full: true } => "asks for a full copy".into(),
            Event::AsksForState { full: false } => "asks for what it missed".into(),
            Event::Donates { to, at } => format!("gives {to} a full copy, at seqno {at}"),
            Event::Donated { ok: true } => "has given a full copy".into(),
            Event::Donated { ok: false } => "failed to give a full copy".into(),
            Event::StateReceived { seqno, ok: true } => format!("a full copy arrived, at seqno {seqno}"),
            Event::StateReceived { ok: false, .. } => "a full copy failed".into(),
            Event::CatchesUp { from, to } => format!("catches up from its log: seqnos {from} to {to}"),
            Event::CaughtUp { at } => format!("has caught up, at seqno {at}"),
            Event::Synced { at } => format!("is synced, at seqno {at}"),
            Event::Option { name, value } => format!("option {name} = {value}"),
            Event::Durability { mode } => format!("repl.durability is {mode}"),
            Event::LogFailed { reason } => format!("the write-set log failed: {reason}"),
            Event::LogWorks {} => "the write-set log works again".into(),
            Event::ClockSet { ahead, by } => {
                format!("the clock of the machine was set {} by {}", if *ahead { "ahead" } else { "back" }, time(*by))
            }
            Event::More { count } => format!("{count} more conflicts, aborts and stops in a second"),
            Event::Dropped { count } => format!("{count} events were not recorded"),
            Event::Unknown { code } => format!("an event of kind {code}, which this version does not know"),
        }
    }

    /// Does it tell of trouble?
    pub fn is_trouble(&self) -> bool {
        match self {
            Event::Error { .. }
            | Event::Panicked { .. }
            | Event::Warned { .. }
            | Event::NonPrimary { .. }
            | Event::Evicted {}
            | Event::LinkDown { .. }
            | Event::Refused { .. }
            | Event::Silent { .. }
            | Event::AsksToStop { stop: true }
            | Event::SlowedBy { .. }
            | Event::HeldBack { .. }
            | Event::GaveUp { .. }
            | Event::AppliesNothing { .. }
            | Event::SlowSync { .. }
            | Event::SyncHangs { .. }
            | Event::StoodStill { .. }
            | Event::GroupLate { .. }
            | Event::UnknownOutcome { .. }
            | Event::VoteBegun { .. }
            | Event::VoteCast { .. }
            | Event::VoteDone { .. }
            | Event::Inconsistent { .. }
            | Event::Donated { ok: false }
            | Event::StateReceived { ok: false, .. }
            | Event::LogFailed { .. }
            | Event::ClockSet { .. }
            | Event::Dropped { .. } => true,
            Event::Term { sequencer } => sequencer.is_empty(),
            Event::Started { .. }
            | Event::Stopped {}
            | Event::Connecting { .. }
            | Event::Left {}
            | Event::Stands { .. }
            | Event::Voted { .. }
            | Event::View { .. }
            | Event::LinkUp { .. }
            | Event::Heard { .. }
            | Event::AsksToStop { stop: false }
            | Event::Unslowed {}
            | Event::AppliesAgain { .. }
            | Event::SlowCommit { .. }
            | Event::Conflict { .. }
            | Event::Aborted { .. }
            | Event::AsksForState { .. }
            | Event::Donates { .. }
            | Event::Donated { ok: true }
            | Event::StateReceived { ok: true, .. }
            | Event::CatchesUp { .. }
            | Event::CaughtUp { .. }
            | Event::Synced { .. }
            | Event::Option { .. }
            | Event::Durability { .. }
            | Event::LogWorks {}
            | Event::More { .. }
            | Event::Unknown { .. } => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn codes_and_words_are_unique_and_every_topic_occurs() {
        assert_eq!(CODES.iter().collect::<BTreeSet<_>>().len(), CODES.len());
        let kinds = kinds();
        assert_eq!(kinds.iter().map(|(_, word, _)| *word).collect::<BTreeSet<_>>().len(), CODES.len());
        let topics: BTreeSet<Topic> = kinds.iter().map(|(topic, ..)| *topic).collect();
        assert_eq!(topics.len(), Topic::ALL.len());
        for topic in Topic::ALL {
            assert_eq!(Topic::parse(topic.word()), Some(topic));
        }
        assert_eq!(Topic::parse("nothing"), None);
    }

    #[test]
    fn every_kind_of_event_is_read_back_from_the_fewest_bytes() {
        for code in CODES {
            let mut bytes = code.to_le_bytes().to_vec();
            // Zeros are a value of every part.
            bytes.extend([0; 128]);
            let event = Event::decode(&mut Reader::new(&bytes)).unwrap();
            let mut w = Writer::new();
            event.encode(&mut w);
            assert_eq!(Event::decode(&mut Reader::new(&w.buf)).unwrap(), event);
            assert!(!event.sentence().is_empty() && !event.word().is_empty());
            // Every shorter text of it is refused, or known to be nothing else.
            for len in 0..w.buf.len() {
                assert!(Event::decode(&mut Reader::new(&w.buf[..len])).is_err(), "{event:?} in {len} bytes");
            }
        }
    }

    #[test]
    fn the_page_has_a_row_for_every_kind_and_no_other() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operations/flight.md");
        let page = std::fs::read_to_string(path).unwrap();
        let rows: Vec<&str> = page
            .lines()
            .filter(|line| Topic::ALL.iter().any(|t| line.starts_with(&format!("| {} |", t.word()))))
            .collect();
        let kinds: Vec<String> = kinds()
            .iter()
            .map(|(topic, word, meaning)| format!("| {} | `{word}` | {meaning} |", topic.word()))
            .collect();
        assert!(rows == kinds, "docs/operations/flight.md should have these rows:\n{}", kinds.join("\n"));
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let event = Event::Error { text: "é".repeat(1000) };
        let mut w = Writer::new();
        event.encode(&mut w);
        assert_eq!(Event::decode(&mut Reader::new(&w.buf)).unwrap(), Event::Error { text: "é".repeat(TEXT_MAX / 2) });
        let members = vec!["m".repeat(100); 100];
        let mut w = Writer::new();
        Event::NonPrimary { reachable: members }.encode(&mut w);
        let Event::NonPrimary { reachable } = Event::decode(&mut Reader::new(&w.buf)).unwrap() else { panic!() };
        assert_eq!((reachable.len(), reachable[0].len()), (LIST_MAX, ITEM_MAX));
    }

    #[test]
    fn times_are_told_in_fitting_units() {
        for (micros, text) in
            [(7, "7 µs"), (1500, "1.5 ms"), (250_000, "250 ms"), (3_210_000, "3.2 s"), (300_000_000, "300 s")]
        {
            assert_eq!(time(Duration::from_micros(micros)), text);
        }
    }

    #[test]
    fn an_event_of_a_later_version_is_no_damage() {
        let bytes = [0xff, 0x7f, 1, 2, 3];
        assert_eq!(Event::decode(&mut Reader::new(&bytes)), Ok(Event::Unknown { code: 0x7fff }));
    }
}
