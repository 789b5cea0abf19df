//! Options that are set while the node runs, and what takes effect then.

use super::Node;
use crate::command::{Command, KeysRefused};
use crate::settings::{DURABILITY, LEVEL_HOLD, SettingsError, durability};
use crate::shared::Shared;
use crate::slot::Slot;
use crate::{Code, Level};
use std::num::ParseIntError;
use std::sync::Arc;
use std::time::{Duration, Instant};
use trireme_flight::Event;
use trireme_replicator::message::AppMessage;
use trireme_surface::options::text;
use trireme_surface::{OptionError, texts};
use trireme_transport::{InvalidIsolation, Isolation, Shows};
use trireme_types::{Member, Uuid, Weight};

impl Node {
    /// Several assignments in one string.
    pub fn options_set(&self, text: &str) -> Code {
        match self.set_options(text) {
            Ok(()) => Code::Ok,
            Err(error) => {
                for line in error.log_lines() {
                    self.shared.host.server.log(Level::Warn, &line);
                }
                Code::NodeFail
            }
        }
    }

    pub fn options_get(&self) -> String {
        self.shared.host.settings.print()
    }

    /// `SET GLOBAL wsrep_provider_options`: left to right; what precedes a failure stays applied.
    fn set_options(&self, given: &str) -> Result<(), OptionError> {
        let shared = &self.shared;
        let settings = &shared.host.settings;
        for (name, value) in text::pairs(given)? {
            let change = settings.with(|o| o.check_runtime(&name, &value))?;
            // The durability mode is the cluster's: another node may have changed what is still shown here.
            if change.nothing_to_do && change.name != DURABILITY {
                continue;
            }
            // Without the lock: a weight change waits for its delivery.
            act(shared, change.name, &change.value).map_err(|reason| OptionError::Refused {
                name: name.clone(),
                value: value.clone(),
                reason: reason.to_string(),
            })?;
            let (name, value) = (change.name.to_owned(), change.value.clone());
            shared.host.flight.note(Event::Option { name, value });
            let flow = change.name.starts_with("gcs.");
            let order =
                change.name.starts_with("evs.") || change.name.starts_with("pc.ignore") || change.name == LEVEL_HOLD;
            settings.with(|o| o.store(change));
            settings.cache();
            if flow {
                shared.commands.push(Command::FlowOptions);
            }
            if order {
                let fresh = settings.order(Member::default());
                shared.commands.push(Command::Configure(Box::new(move |config| {
                    config.timeouts = fresh.timeouts;
                    config.ignore_sb = fresh.ignore_sb;
                    config.ignore_quorum = fresh.ignore_quorum;
                    config.level_hold = fresh.level_hold;
                })));
            }
        }
        Ok(())
    }
}

/// Why a setting that has passed the table's checks does not come into effect.
#[derive(Debug, thiserror::Error)]
enum NoEffect {
    #[error(transparent)]
    Number(#[from] ParseIntError),
    #[error(transparent)]
    Isolation(#[from] InvalidIsolation),
    #[error("not a UUID")]
    Uuid,
    /// Files do not fit.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error(transparent)]
    LogKeys(#[from] KeysRefused),
    #[error("weights change only in a primary view")]
    WeightWithoutView,
    #[error("evictions are decided in a primary view only")]
    EvictionWithoutView,
    #[error("this node waits for the disk with its log: set it on another one")]
    Out,
}

/// The server lets nobody see or change a variable meanwhile.
const WEIGHT_PATIENCE: Duration = Duration::from_secs(5);

/// Puts a setting into effect outside the table.
fn act(shared: &Shared, name: &str, value: &str) -> Result<(), NoEffect> {
    match name {
        "pc.bootstrap" => {
            if shared.status.group().member {
                shared.host.log(Level::Info, texts::IGNORING_PC_BOOTSTRAP.into());
            } else {
                shared.commands.push(Command::ForcePrimary);
            }
        }
        "pc.weight" => {
            let weight = value.parse::<u8>()?;
            let slot = Arc::new(Slot::default());
            shared.commands.push(Command::Weight { weight: Weight(weight), slot: slot.clone() });
            match slot.wait_until(Instant::now() + WEIGHT_PATIENCE) {
                Some(true) => {}
                Some(false) => return Err(NoEffect::WeightWithoutView),
                None => {
                    let text = format!(
                        "pc.weight={value} is not in force yet: it will be as soon as a majority can decide without the weight that this node has now"
                    );
                    shared.host.log(Level::Warn, text);
                }
            }
        }
        "gmcast.isolate" => {
            let mode = value.parse::<i32>()?;
            let mode = Isolation::try_from(mode)?;
            let text = match mode {
                Isolation::Off => texts::ISOLATION_OFF,
                Isolation::On => texts::ISOLATION_ON,
                Isolation::ForceQuit => texts::ISOLATION_FORCE_QUIT,
            };
            shared.host.log(Level::Info, text.into());
            shared.commands.push(Command::Isolate(mode));
        }
        // The server's FLUSH SSL knows only the first name.
        "socket.ssl_reload" | "repl.secret_reload" => {
            if let Some(context) = shared.host.settings.tls(None)? {
                let text = match context.shows() {
                    Shows::Certificates => texts::SSL_RELOADED,
                    Shows::Secret => texts::SECRET_RELOADED,
                };
                shared.host.log(Level::Info, text.into());
                shared.host.warn_of_files(&context);
                shared.commands.push(Command::Tls(context));
            }
        }
        "socket.ssl_peer_names" => {
            if let Some(context) = shared.host.settings.tls(Some(value))? {
                shared.host.warn_of_files(&context);
                shared.commands.push(Command::Tls(context));
            }
        }
        "repl.log_key_reload" => {
            if let Some(keys) = shared.host.settings.log_keys()? {
                let slot = Arc::new(Slot::default());
                shared.commands.push(Command::LogKeys { keys, slot: slot.clone() });
                slot.wait()?;
                shared.host.log(Level::Info, texts::LOG_KEYS_RELOADED.into());
            }
        }
        DURABILITY if shared.outage.is_out() => {
            return Err(NoEffect::Out);
        }
        DURABILITY => {
            shared.commands.push(Command::Durability(durability(value)));
        }
        "evs.evict" => {
            let member = if value.is_empty() { Uuid::NIL } else { Uuid::parse(value).ok_or(NoEffect::Uuid)? };
            let slot = Arc::new(Slot::default());
            let message = AppMessage::Evict { member };
            shared.commands.push(Command::App { message, slot: Some(slot.clone()) });
            if !slot.wait() {
                return Err(NoEffect::EvictionWithoutView);
            }
        }
        _ => {}
    }
    Ok(())
}
