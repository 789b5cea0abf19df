//! What the group thread would like to do with the server and must not (rule 29): a thread of its own does it.

use std::sync::Arc;
use std::sync::mpsc::Receiver;

use trireme_transport::AdmitToken;

use crate::core::Command;
use crate::node::Shared;
use crate::{Level, ServerView};

pub enum Chore {
    Log(Level, String),
    /// May the connection from this address be listened to?
    Allow {
        token: AdmitToken,
        address: String,
    },
    /// Tell whoever reads the server's events: a name, and a value in JSON.
    Event(&'static str, String),
    /// Tell the server that the majority is lost, see [`Shared::tell_non_primary`].
    NonPrimary(ServerView),
    /// Log the reason and end the process.
    Die(String),
    End,
}

/// Until [`Chore::End`]. Everything asked for before is done.
pub fn run_chores(shared: &Arc<Shared>, chores: &Receiver<Chore>) {
    while let Ok(chore) = chores.recv() {
        shared.panics.come_by("trireme-chores");
        match chore {
            Chore::Log(level, text) => shared.server.log(level, &text),
            Chore::Allow { token, address } => {
                let allowed = shared.server.allowed(&address);
                shared.commands.push(Command::Admit { token, allowed });
            }
            Chore::NonPrimary(view) => shared.deliver_non_primary(&view),
            Chore::Event(name, value) => shared.server.event(name, &value),
            Chore::Die(text) => {
                shared.server.log(Level::Fatal, &text);
                crate::threads::end_process();
            }
            Chore::End => return,
        }
    }
}
