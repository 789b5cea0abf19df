//! The process in which this node lives, as it was told at the start: the server, what it called `init` with, and the options. It stays the
//! same as long as the node does.

use std::sync::{Arc, mpsc};

use trireme_flight::{Event, Recorder};
use trireme_transport::{NetConfig, TlsContext};

use crate::jobs::Chore;
use crate::settings::{Settings, SettingsError};
use crate::{InitArgs, Level, Server};

/// See the module. Any thread may look into it.
pub struct Host {
    pub server: Arc<dyn Server>,
    pub args: InitArgs,
    pub settings: Settings,
    /// The records that are to outlive the process.
    pub flight: Recorder,
    /// For `trireme-chores`.
    chores: mpsc::Sender<Chore>,
}

/// Highest application protocol of the server that is known to work.
const PROTOCOL_MAX: i32 = 4;

impl Host {
    pub fn new(
        server: Arc<dyn Server>,
        args: InitArgs,
        settings: Settings,
        chores: mpsc::Sender<Chore>,
        flight: Recorder,
    ) -> Host {
        Host { server, args, settings, flight, chores }
    }

    /// The application protocol that is spoken with the server.
    pub fn protocol(&self) -> i32 {
        self.args.protocol.min(PROTOCOL_MAX)
    }

    /// For the server's log, by way of a thread of its own: for any thread, the group thread included (rule 29).
    pub fn log(&self, level: Level, text: String) {
        if level == Level::Debug && !self.settings.debug() {
            return;
        }
        match level {
            Level::Warn => self.flight.note(Event::Warned { text: text.clone() }),
            Level::Error => self.flight.note(Event::Error { text: text.clone() }),
            // A panic is noted as what it is.
            Level::Fatal | Level::Info | Level::Debug => {}
        }
        let _ = self.chores.send(Chore::Log(level, text));
    }

    /// Ends the process, after the reason has been logged and everything that was logged before it.
    pub fn end(&self, text: String) {
        self.flight.note(Event::Error { text: text.clone() });
        let _ = self.chores.send(Chore::Die(text));
    }

    /// How connections are protected. Says what is amiss with the files although they can be used.
    pub fn protect(&self, net: &mut NetConfig) -> Result<(), SettingsError> {
        self.settings.protect(net)?;
        if let Some(context) = &net.tls {
            self.warn_of_files(context);
        }
        Ok(())
    }

    pub fn warn_of_files(&self, context: &TlsContext) {
        for (level, line) in self.settings.complaints(context) {
            self.log(level, line);
        }
    }
}
