//! The feed of the server: whether it goes on from its own data, takes a full copy, or waits, and from which seqno on it
//! gets what is ordered.

use trireme_types::{LogIndex, NodeId, Seqno, Timestamp, Uuid, View};

use crate::failures::Failures;

/// A place in a history.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Position {
    pub history: Uuid,
    pub seqno: Seqno,
}

/// The kind of a member before it has seen a view with its own incarnation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Start {
    /// There is no server: an arbitrator.
    Nobody,
    /// A server that has been told nothing yet. `position`: where its data are, `None` when that is not known. `fallback`: where data
    /// with a statement cut off in them are (rule 26). `script`: a donor's script brings something even to a server that needs no data.
    /// `failures`: what was last kept of [`crate::Effect::Remember`] and what failed since.
    Server { position: Option<Position>, fallback: Option<Seqno>, script: bool, failures: Option<Failures> },
    /// A server that was in the group before, and has been running since: it knows nothing but a loss of the majority. `floor`: what came
    /// up to there was in its data when it was first fed, but for `failures`. `heard_upto`: delivered up to there before.
    /// `synced`: it was told that it is synced.
    Return { position: Position, floor: Seqno, failures: Option<Failures>, heard_upto: LogIndex, synced: bool },
}

/// A full copy that is asked for, until it is here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// The server's opaque bytes.
    pub bytes: Vec<u8>,
    pub stage: Stage,
    /// How often it was said and is not ordered yet: what was said before a loss of the majority may still come.
    pub in_flight: u32,
    /// The branch in which it was said first. The donor that was chosen there may still give, whatever becomes of it in another one.
    pub said_in: Option<Uuid>,
}

impl Request {
    pub fn new(bytes: Vec<u8>, now: Timestamp) -> Request {
        Request { bytes, stage: Stage::AskAt(now), in_flight: 0, said_in: None }
    }

    /// Was a donor chosen, and is the order of another branch gone on with since?
    pub fn is_forked(&self, branch: Uuid) -> bool {
        matches!(self.stage, Stage::Given { branch: chosen, .. } | Stage::Done { branch: chosen } if chosen != branch)
    }

    /// May data that are here be taken? If nobody was asked, a person has brought them, or a script of the joiner's own.
    pub fn is_done(&self) -> bool {
        match self.stage {
            Stage::Done { .. } => true,
            Stage::AskAt(_) => self.said_in.is_none(),
            Stage::Said | Stage::Given { .. } => false,
        }
    }

    /// Nobody gives what was asked for, and nothing that was said can be ordered any more.
    pub fn is_in_vain(&self) -> bool {
        self.said_in.is_some() && self.in_flight == 0 && matches!(self.stage, Stage::AskAt(_))
    }

    /// All that was said was ordered and refused, or will never be ordered. `branch`: the one that says so.
    pub fn is_answered(&self, branch: Uuid) -> bool {
        self.in_flight == 0 && self.said_in.is_none_or(|said_in| said_in == branch)
    }
}

/// The server says that it needs no data, or will get them by other means, or (empty) can run no script any more.
pub fn is_trivial(request: &[u8]) -> bool {
    let words = request.strip_suffix(b"\0").unwrap_or(request);
    words == b"trivial" || words == b"none" || words.is_empty()
}

/// How far a request is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// To be said in the order as soon as it is that late.
    AskAt(Timestamp),
    /// Said, not ordered yet.
    Said,
    /// This member gives. `branch`: in which it was chosen, since a copy from before a fork is of no use behind it (rule 33).
    Given { donor: NodeId, branch: Uuid },
    /// The donor has said in the order of that branch that it is done.
    Done { branch: Uuid },
}

/// Why data are gone on with only if nobody has better ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flaw {
    /// A statement was cut off in them.
    CutOff,
    /// They are older than the moment when another member went on from data with a flaw, and executed a statement twice or in part.
    Overtaken,
    /// They contradict the result of the vote on this.
    Outvoted(Seqno),
}

/// Data with a flaw: the server has been told nothing, since whether it needs a full copy depends on what the others have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HalfDone {
    pub flaw: Flaw,
    /// Where the data are.
    pub position: Seqno,
    /// The first view with this incarnation.
    pub own_view: Seqno,
    pub view: View,
    /// A message about it is on its way.
    pub said: bool,
    /// The operator knows for whom this waits.
    pub explained: bool,
    /// This member is the one that goes on, as soon as its log is synced.
    pub chosen: bool,
}

impl HalfDone {
    pub fn new(flaw: Flaw, position: Seqno, own_view: Seqno, view: View) -> HalfDone {
        HalfDone { flaw, position, own_view, view, said: false, explained: false, chosen: false }
    }
}

/// A full copy, or a script's answer, is awaited: the server was told that it is connected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Copying {
    /// Seqno of the first view with this incarnation.
    pub joined_at: Seqno,
    /// Where the server's own data are, when only a script's answer is awaited.
    pub own: Option<Seqno>,
    /// The server has not said yet what it wants, `None`.
    pub request: Option<Request>,
    /// The server has data up to here. They are waited with until the order says that the donor is done: one that was cut off may have gone on
    /// by itself, and its copy holds what this branch never had (rule 33).
    pub arrived: Option<Seqno>,
    /// The operator was told that nobody here has data, when these voters were missing.
    pub told: Option<Vec<NodeId>>,
}

/// The beginning of a server that has been told nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Idle {
    /// Where its data are, as far as the log goes on from there; `None`: a full copy is needed.
    pub position: Option<Position>,
    /// The same when it was started, whatever log there is.
    pub started_at: Option<Position>,
    /// Where the data are if they are gone on with only when nobody has better ones.
    pub fallback: Option<(Seqno, Flaw)>,
    pub script: bool,
}

/// Where the server stands. The driver keeps back what is ordered before it is [`Feed::Live`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Feed {
    /// An arbitrator: everything is done as soon as it is delivered. `connected`: it was told of a view.
    Nobody {
        connected: bool,
        request: Option<Request>,
    },
    /// No view with this incarnation yet.
    Idle(Idle),
    /// The same for a server that was fed before.
    Returning {
        position: Position,
        floor: Seqno,
    },
    HalfDone(HalfDone),
    Copying(Copying),
    /// It gets everything beyond `handed`. All up to `floor` was in its data when it was first fed.
    Live {
        handed: Seqno,
        floor: Seqno,
    },
    /// This member cannot go on, and has said so: nothing more is for the server. `connected`: it was told that it is.
    Ended {
        connected: bool,
        handed: Seqno,
    },
}

/// The driver's part when something closes a seqno.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Offer {
    /// Kept back until the server has its data.
    Keep,
    /// To the server.
    Hand,
    /// It has that.
    Skip,
    /// There is no server: done.
    Pass,
}

impl Feed {
    pub fn new(start: Start) -> Feed {
        match start {
            Start::Nobody => Feed::Nobody { connected: false, request: None },
            Start::Server { position, fallback, script, failures: _ } => {
                let fallback = fallback.map(|at| (at, Flaw::CutOff));
                Feed::Idle(Idle { position, started_at: position, fallback, script })
            }
            Start::Return { position, floor, failures: _, heard_upto: _, synced: _ } => {
                Feed::Returning { position, floor }
            }
        }
    }

    /// Ordered items go on to the server, or there is none that would have to be waited for.
    pub fn is_live(&self) -> bool {
        matches!(self, Feed::Live { .. } | Feed::Nobody { connected: true, .. })
    }

    /// The server is told of `seqno`, or will be.
    pub fn offer(&mut self, seqno: Seqno) -> Offer {
        match self {
            Feed::Nobody { .. } => Offer::Pass,
            Feed::Idle(_) | Feed::Returning { .. } | Feed::HalfDone(_) | Feed::Copying(_) => Offer::Keep,
            Feed::Ended { .. } => Offer::Skip,
            Feed::Live { handed, .. } if seqno <= *handed => Offer::Skip,
            Feed::Live { handed, .. } => {
                *handed = seqno;
                Offer::Hand
            }
        }
    }

    pub fn request_mut(&mut self) -> Option<&mut Request> {
        match self {
            Feed::Nobody { request, .. } | Feed::Copying(Copying { request, .. }) => request.as_mut(),
            Feed::Idle(_) | Feed::Returning { .. } | Feed::HalfDone(_) | Feed::Live { .. } | Feed::Ended { .. } => None,
        }
    }
}
