//! What the group thread would like to do with the server and must not (rule 29). What may block is not in the way of anything else: each of
//! the three kinds has a thread of its own.

use std::sync::Arc;
use std::sync::mpsc::Receiver;

use trireme_transport::AdmitToken;

use crate::command::Command;
use crate::queue::Beside;
use crate::shared::Shared;
use crate::{Level, ServerView};

/// Words for the server's log, and its end. The logger does not wait for anything but a file.
pub enum Chore {
    Log(Level, String),
    /// Log the reason and end the process.
    Die(String),
    End,
}

/// Questions to the server's services, which may read tables.
pub enum Service {
    /// May the connection from this address be listened to?
    Allow {
        token: AdmitToken,
        address: String,
    },
    /// Tell whoever reads the server's events: a name, and a value in JSON.
    Event(&'static str, String),
    End,
}

/// A view that is told beside the queue. The server runs `wsrep_notify_cmd` meanwhile, which takes as long as an operator's script does.
pub enum Notice {
    /// The majority is lost, see [`Shared::tell_non_primary`].
    NonPrimary(ServerView, Beside),
    End,
}

/// Until [`Chore::End`]. Everything asked for before is done.
pub fn run_chores(shared: &Arc<Shared>, chores: &Receiver<Chore>) {
    while let Ok(chore) = chores.recv() {
        shared.panics.come_by("trireme-chores");
        match chore {
            Chore::Log(level, text) => shared.server.log(level, &text),
            Chore::Die(text) => {
                shared.server.end(&text);
                shared.outlive(text);
            }
            Chore::End => return,
        }
    }
}

/// Until [`Service::End`].
pub fn run_services(shared: &Arc<Shared>, asked: &Receiver<Service>) {
    while let Ok(service) = asked.recv() {
        shared.panics.come_by("trireme-services");
        match service {
            Service::Allow { token, address } => {
                let allowed = shared.server.allowed(&address);
                shared.commands.push(Command::Admit { token, allowed });
            }
            Service::Event(name, value) => shared.server.event(name, &value),
            Service::End => return,
        }
    }
}

/// Until [`Notice::End`].
pub fn run_notices(shared: &Arc<Shared>, notices: &Receiver<Notice>) {
    while let Ok(notice) = notices.recv() {
        match notice {
            Notice::NonPrimary(view, beside) => {
                shared.panics.come_by("trireme-notices");
                shared.deliver_non_primary(&view);
                drop(beside);
            }
            Notice::End => return,
        }
    }
}
