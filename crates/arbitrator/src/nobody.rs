//! The server that is not there.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use trireme_node::{Applied, EngineLog, Gtid, Handle, Level, Meta, RecvCtx, Server, ServerProcess, ServerView};
use trireme_types::{Seqno, Uuid};

use crate::log::Log;
use crate::status;

pub struct Nobody {
    pub log: Arc<Log>,
    /// The newest view.
    pub view: Mutex<Option<ServerView>>,
    /// Goes with the process.
    pub status_file: Option<PathBuf>,
}

impl Nobody {
    fn see(&self, view: &ServerView) -> bool {
        *self.view.lock().expect("no holder of the view panics") = Some(view.clone());
        true
    }
}

impl Server for Nobody {
    fn connected(&self, view: &ServerView) -> bool {
        self.see(view)
    }
    fn view(&self, _ctx: RecvCtx, view: &ServerView) -> bool {
        self.see(view)
    }
    fn wants_script(&self) -> bool {
        false
    }
    fn process(&self) -> Option<ServerProcess> {
        None
    }

    fn engine_position(&self) -> Option<(Uuid, Seqno)> {
        None
    }
    fn engine_log(&self) -> EngineLog {
        EngineLog::Closed
    }
    fn sst_request(&self) -> Result<Vec<u8>, ()> {
        // Never asked: an arbitrator has its state when it is a member.
        Err(())
    }
    fn apply(&self, _ctx: RecvCtx, _handle: Handle, _flags: u32, _data: &[u8], _meta: &Meta) -> Applied {
        Applied { ok: true, exit_loop: false }
    }
    fn sst_donate(&self, _ctx: RecvCtx, _request: &[u8], _gtid: Gtid, _bypass: bool) -> bool {
        false
    }
    fn synced(&self) -> bool {
        true
    }
    fn log(&self, level: Level, text: &str) {
        for line in text.lines() {
            self.log.line(level, line);
        }
    }
    fn end(&self, reason: &str) {
        self.log(Level::Fatal, reason);
        if let Some(file) = &self.status_file {
            status::remove(file);
        }
        std::process::exit(1)
    }
    fn allowed(&self, _address: &str) -> bool {
        true
    }
    fn event(&self, _name: &str, _value: &str) {}
}
