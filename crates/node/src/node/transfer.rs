//! Full copies, and whether what is here may be gone on with (contract 3.3, 3.5).

use super::Node;
use crate::command::Command;
use crate::threads::lock;
use crate::{Code, Gtid, Level, RecvCtx, copying, engine};
use trireme_flight::Event;
use trireme_replicator::message::AppMessage;
use trireme_replicator::position::Word;
use trireme_surface::texts;
use trireme_types::{NodeId, Seqno};

impl Node {
    pub(super) fn request_state(&self, data: bool) {
        let shared = &self.shared;
        match shared.host.server.sst_request() {
            Ok(request) if request.is_empty() && data => {
                let reason = "State transfer is needed, but the running server cannot take a full copy: restart it";
                shared.give_up(reason.into(), false);
            }
            Ok(request) => {
                shared.host.flight.note(Event::AsksForState { full: data });
                copying::look(&shared.host, &request);
                if data && !shared.begin_copy() {
                    return;
                }
                shared.commands.push(Command::StateRequest { request });
            }
            Err(()) => {
                shared.die(texts::SST_REQUEST_FAILED.into());
            }
        }
    }

    /// The engine runs: is it where this node goes on from?
    pub(super) fn compare(&self, position: Seqno, word: Word) {
        let shared = &self.shared;
        let history = shared.data.history();
        if let Err(found) = engine::compare(&*shared.host.server, (history, position), word) {
            let advice = match word {
                Word::Engine => {
                    "When the server is started again it goes on from where the engine is, or takes a full copy. If --wsrep-start-position \
                     names another position, remove it"
                }
                Word::Operator => "Start the server with a wsrep_sst_method that brings a full copy",
            };
            // A server that stays without its group is restarted by nobody; what has been opened now cannot be taken back.
            shared.die(format!(
                "the storage engine is {found}, not at {history}:{position}, where this node was to go on from: rows would be missing, or \
                 written twice. The server ends. {advice}"
            ));
        }
    }

    pub fn sst_sent(&self, position: Gtid, code: i32) -> Code {
        let ok = code == 0 && position.seqno.is_some();
        if !ok {
            self.shared.host.log(Level::Warn, format!("SST sending failed: {code}"));
        }
        if self.donor_done(ok) { Code::Ok } else { Code::ConnFail }
    }

    pub fn sst_received(&self, position: Gtid, code: i32) -> Code {
        let shared = &self.shared;
        let group = shared.data.history();
        let (position, answer) = match position.seqno {
            Some(_) if code == 0 && position.history != group => {
                shared
                    .host
                    .log(Level::Error, format!("SST brought history {}, the group has {group}", position.history));
                (None, Code::NodeFail)
            }
            Some(seqno)
                if code == 0
                    && let Err(found) = engine::compare(&*shared.host.server, (group, seqno), Word::Engine) =>
            {
                let text = format!("SST brought position {group}:{seqno}, but the storage engine is {found}");
                shared.host.log(Level::Error, text);
                (None, Code::NodeFail)
            }
            Some(_)
                if code == 0
                    && let Err(error) = engine::sync_copy(shared.host.args.data_dir()) =>
            {
                shared.host.log(Level::Error, format!("the full copy cannot be synced to disk: {error}"));
                (None, Code::NodeFail)
            }
            Some(seqno) if code == 0 => {
                shared.host.log(Level::Info, format!("SST received: {}:{seqno}", position.history));
                (Some(seqno), Code::Ok)
            }
            Some(_) | None => {
                shared.host.log(Level::Error, format!("SST failed: {code}"));
                (None, Code::Ok)
            }
        };
        let seqno = position.unwrap_or(Seqno::ZERO);
        shared.host.flight.note(Event::StateReceived { seqno, ok: position.is_some() });
        if shared.commands.push(Command::StateReceived { position }) { answer } else { Code::ConnFail }
    }

    pub(super) fn donate(&self, ctx: RecvCtx, joiner: NodeId, request: &[u8], position: Option<Seqno>, at: Seqno) {
        let shared = &self.shared;
        if shared.monitor.wait_handed(at).is_ok() && self.begin_donating(joiner) {
            copying::look(&shared.host, request);
            let gtid = Gtid { history: shared.data.history(), seqno: Some(position.unwrap_or(at)) };
            if !shared.host.server.sst_donate(ctx, request, gtid, position.is_some()) {
                self.donor_done(false);
            }
        }
        shared.monitor.lift_barrier(at);
    }

    /// False: the script for another joiner, or for an earlier life of this one, has not ended. Its end would be taken for that of the next.
    fn begin_donating(&self, joiner: NodeId) -> bool {
        let mut donating = lock(&self.shared.donating);
        if donating.is_some() {
            let text =
                "asked for a full copy while the script of the one before runs: refused, the joiner has to ask again";
            self.shared.host.log(Level::Warn, text.into());
            self.say_done(joiner, false);
            return false;
        }
        *donating = Some(joiner);
        true
    }

    fn donor_done(&self, ok: bool) -> bool {
        let Some(joiner) = lock(&self.shared.donating).take() else { return false };
        self.shared.host.flight.note(Event::Donated { ok });
        self.say_done(joiner, ok);
        true
    }

    fn say_done(&self, joiner: NodeId, ok: bool) {
        self.shared.commands.push(Command::App { message: AppMessage::DonorDone { joiner, ok }, slot: None });
    }
}
