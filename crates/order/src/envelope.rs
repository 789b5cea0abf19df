//! Messages that are said in one term of one branch. Both stand on the envelope, once for all kinds, and are compared before it is opened
//! ([`counts`]).

use bytes::Bytes;
use trireme_types::{Base, DecodeError, EntryHeader, LogIndex, Reader, Seqno, Term, Uuid, Writer};

use crate::message::{Class, Message, WireEntry};

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Envelope<C = Content> {
    /// To which the term and all indexes belong.
    pub branch: Uuid,
    pub term: Term,
    pub content: C,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Content {
    /// Sequencer to a peer: entries.
    Append(Append),
    /// The peer's log does not hold the entry before those that were sent; `last` is a position from which to look further back.
    Reject {
        prev_index: LogIndex,
        last: LogIndex,
    },
    /// The peer lacks bodies from `from` on.
    NeedBodies {
        from: LogIndex,
    },
    /// Member to everybody: I hold the log of this term's sequencer up to here (durably, in mode `disk`).
    Ack {
        index: LogIndex,
    },
    /// Sequencer to everybody.
    Heartbeat(Heartbeat),
    HeartbeatAck {
        round: u64,
    },
    /// Would you vote for me in this term?
    PreVote {
        last: LogEnd,
    },
    /// `whole`: and my log is evidence of what was committed (rules 16, 17).
    PreVoteReply {
        granted: bool,
        whole: bool,
    },
    /// `transfer`: the sequencer itself asked for this election.
    Vote {
        last: LogEnd,
        transfer: bool,
    },
    VoteReply {
        granted: bool,
        whole: bool,
    },
    /// Sequencer to its successor: stand now.
    TimeoutNow,
    ReadRequest {
        batch: u64,
    },
    ReadReply {
        batch: u64,
        seqno: Seqno,
    },
    /// The first word on a link but one: this is the newest acknowledgement that I have of you (rule 12).
    Recall {
        index: LogIndex,
    },
    /// From the one to whom all voters have given their promises of this term, to the one with the best log, who has no vote: decide what
    /// is gone on with.
    Entrust,
    /// From the same, to the one whose data reach beyond all logs: begin a branch at `index` with these data (rule 18).
    BeginFromData {
        index: LogIndex,
        seqno: Seqno,
    },
}

/// The last entry of a log. Of two logs of one branch the greater one is the better one: it holds all that is committed if the other does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct LogEnd {
    pub term: Term,
    pub index: LogIndex,
}

/// The end of a log that holds no more than its base.
impl From<&Base> for LogEnd {
    fn from(base: &Base) -> LogEnd {
        LogEnd { term: base.term, index: base.index }
    }
}

impl LogEnd {
    fn encode(self, w: &mut Writer) {
        w.u64(self.term.0);
        w.u64(self.index.0);
    }

    fn decode(r: &mut Reader<'_>) -> Result<LogEnd, DecodeError> {
        Ok(LogEnd { term: r.term()?, index: r.index()? })
    }
}

/// Entries after `prev_index`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Append {
    pub prev_index: LogIndex,
    pub prev_term: Term,
    /// Committed up to here.
    pub commit: LogIndex,
    pub entries: Vec<WireEntry>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Heartbeat {
    /// Committed up to here.
    pub commit: LogIndex,
    /// End of the sequencer's log: who holds it up to here holds all that it ever acknowledged in this term.
    pub last: LogIndex,
    pub round: u64,
    /// It hears a majority, and the receiver is among those that it serves.
    pub majority: bool,
}

/// Where a content counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Counts {
    /// Anywhere: it opens a branch or a term, or brings news of one. Its handler compares.
    Anywhere,
    /// In the present branch. A later term is news, and an earlier one may be worth remembering.
    InBranch,
    /// In the present branch and the present term.
    InTerm,
}

/// The table of where each kind counts.
pub(crate) fn counts(content: &Content) -> Counts {
    match content {
        Content::Append(_)
        | Content::Heartbeat(_)
        | Content::PreVote { .. }
        | Content::Vote { .. }
        | Content::Recall { .. }
        | Content::Entrust
        | Content::BeginFromData { .. } => Counts::Anywhere,
        Content::Ack { .. }
        | Content::HeartbeatAck { .. }
        | Content::PreVoteReply { .. }
        | Content::VoteReply { .. } => Counts::InBranch,
        Content::Reject { .. }
        | Content::NeedBodies { .. }
        | Content::TimeoutNow
        | Content::ReadRequest { .. }
        | Content::ReadReply { .. } => Counts::InTerm,
    }
}

impl Content {
    pub fn class(&self) -> Class {
        match self {
            Content::Append(_) => Class::Bulk,
            Content::Reject { .. }
            | Content::NeedBodies { .. }
            | Content::Ack { .. }
            | Content::Heartbeat(_)
            | Content::HeartbeatAck { .. }
            | Content::PreVote { .. }
            | Content::PreVoteReply { .. }
            | Content::Vote { .. }
            | Content::VoteReply { .. }
            | Content::TimeoutNow
            | Content::ReadRequest { .. }
            | Content::ReadReply { .. }
            | Content::Recall { .. }
            | Content::Entrust
            | Content::BeginFromData { .. } => Class::Control,
        }
    }

    pub fn in_term(self, branch: Uuid, term: Term) -> Message {
        Message::InTerm(Envelope { branch, term, content: self })
    }

    fn kind(&self) -> u8 {
        match self {
            Content::Append(_) => 2,
            Content::Reject { .. } => 3,
            Content::NeedBodies { .. } => 4,
            Content::Ack { .. } => 5,
            Content::Heartbeat(_) => 6,
            Content::HeartbeatAck { .. } => 7,
            Content::PreVote { .. } => 8,
            Content::PreVoteReply { .. } => 9,
            Content::Vote { .. } => 10,
            Content::VoteReply { .. } => 11,
            Content::TimeoutNow => 12,
            Content::ReadRequest { .. } => 16,
            Content::ReadReply { .. } => 17,
            Content::Recall { .. } => 25,
            Content::BeginFromData { .. } => 26,
            Content::Entrust => 27,
        }
    }
}

impl Envelope {
    /// On the wire: kind, branch, term, and the content's fields. Bodies follow as chunks of their own.
    pub(crate) fn encode(&self, mut w: Writer, out: &mut Vec<Bytes>) {
        w.u8(self.content.kind());
        w.uuid(self.branch);
        w.u64(self.term.0);
        match &self.content {
            Content::Append(append) => {
                w.u64(append.prev_index.0);
                w.u64(append.prev_term.0);
                w.u64(append.commit.0);
                w.u32(append.entries.len() as u32);
                for (header, body) in &append.entries {
                    header.encode(&mut w);
                    // Length plus one; zero: no body.
                    w.u64(body.as_ref().map_or(0, |b| b.len() as u64 + 1));
                }
                out.push(Bytes::from(w.buf));
                out.extend(append.entries.iter().filter_map(|(_, body)| body.clone()));
                return;
            }
            Content::Reject { prev_index, last } => {
                w.u64(prev_index.0);
                w.u64(last.0);
            }
            Content::NeedBodies { from } => w.u64(from.0),
            Content::Ack { index } | Content::Recall { index } => w.u64(index.0),
            Content::Heartbeat(heartbeat) => {
                w.u64(heartbeat.commit.0);
                w.u64(heartbeat.last.0);
                w.u64(heartbeat.round);
                w.bool(heartbeat.majority);
            }
            Content::HeartbeatAck { round } => w.u64(*round),
            Content::PreVote { last } => last.encode(&mut w),
            Content::Vote { last, transfer } => {
                last.encode(&mut w);
                w.bool(*transfer);
            }
            Content::PreVoteReply { granted, whole } | Content::VoteReply { granted, whole } => {
                w.bool(*granted);
                w.bool(*whole);
            }
            Content::TimeoutNow | Content::Entrust => {}
            Content::ReadRequest { batch } => w.u64(*batch),
            Content::ReadReply { batch, seqno } => {
                w.u64(*batch);
                w.u64(seqno.0);
            }
            Content::BeginFromData { index, seqno } => {
                w.u64(index.0);
                w.u64(seqno.0);
            }
        }
        out.push(Bytes::from(w.buf));
    }

    /// Decodes the rest of a message, behind its kind. `None`: the kind is none of these, and nothing was read. Bodies are slices of `bytes`, which `r` reads.
    pub(crate) fn decode(kind: u8, bytes: &Bytes, r: &mut Reader<'_>) -> Result<Option<Envelope>, DecodeError> {
        if !matches!(kind, 2..=12 | 16 | 17 | 25..=27) {
            return Ok(None);
        }
        let (branch, term) = (r.uuid()?, r.term()?);
        let content = match kind {
            2 => Content::Append(decode_append(bytes, r)?),
            3 => Content::Reject { prev_index: r.index()?, last: r.index()? },
            4 => Content::NeedBodies { from: r.index()? },
            5 => Content::Ack { index: r.index()? },
            6 => Content::Heartbeat(Heartbeat {
                commit: r.index()?,
                last: r.index()?,
                round: r.number("round")?,
                majority: r.bool()?,
            }),
            7 => Content::HeartbeatAck { round: r.number("round")? },
            8 => Content::PreVote { last: LogEnd::decode(r)? },
            9 => Content::PreVoteReply { granted: r.bool()?, whole: r.bool()? },
            10 => Content::Vote { last: LogEnd::decode(r)?, transfer: r.bool()? },
            11 => Content::VoteReply { granted: r.bool()?, whole: r.bool()? },
            12 => Content::TimeoutNow,
            16 => Content::ReadRequest { batch: r.number("batch of reads")? },
            17 => Content::ReadReply { batch: r.number("batch of reads")?, seqno: r.seqno()? },
            25 => Content::Recall { index: r.index()? },
            26 => Content::BeginFromData { index: r.index()?, seqno: r.seqno()? },
            27 => Content::Entrust,
            0 | 1 | 13..=15 | 18..=24 | 28.. => return Err(DecodeError::Invalid("message kind")),
        };
        Ok(Some(Envelope { branch, term, content }))
    }
}

fn decode_append(bytes: &Bytes, r: &mut Reader<'_>) -> Result<Append, DecodeError> {
    let prev_index = r.index()?;
    let prev_term = r.term()?;
    let commit = r.index()?;
    let count = r.count(1 << 24)?;
    let mut heads = Vec::with_capacity(count.min(r.remaining() / EntryHeader::ENCODED + 1));
    for _ in 0..count {
        heads.push((EntryHeader::decode(r)?, r.u64()?));
    }
    let mut entries = Vec::with_capacity(heads.len());
    for (header, length) in heads {
        let body = match length.checked_sub(1) {
            None => None,
            Some(n) => {
                let at = bytes.len() - r.remaining();
                let n = usize::try_from(n).map_err(|_| DecodeError::Truncated)?;
                r.take(n)?;
                Some(bytes.slice(at..at + n))
            }
        };
        entries.push((header, body));
    }
    Ok(Append { prev_index, prev_term, commit, entries })
}
