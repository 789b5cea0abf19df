//! Servers die under load: one that serves no client, then all, then the one on which most depends. The procedure is one for all systems.

use super::{FAULT_CLIENTS, dead_for};
use crate::field::{Context, pass_until};
use crate::record::Measured;
use crate::survivors::{Clients, Doors, Row, through};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// A gap that is longer is not waited for.
const GAP_MOST: Duration = Duration::from_secs(30);

/// Servers that can be killed. They have numbers from 1.
pub trait Mortal {
    fn nodes(&self) -> u8;
    /// Whether the others go on when one is dead.
    fn survives_one(&self) -> bool;
    /// The server on which most depends: the sequencer, the leader, the primary.
    fn chief(&self) -> Result<u8, String>;
    /// Where every client goes; `None`: each to a server of its own.
    fn primary(&self) -> Option<u8>;
    fn kill(&mut self, number: u8) -> Result<(), String>;
    /// Starts it and waits until it is a member again.
    fn bring_back(&mut self, number: u8) -> Result<(), String>;
    fn kill_all(&mut self) -> Result<(), String>;
    fn start_all(&mut self) -> Result<(), String>;
    /// Done at once after the chief's death, as a script of an operator would do it. The new primary, where there is one.
    fn take_over(&mut self, dead: u8) -> Result<Option<u8>, String>;
    /// Those of the rows that a server lacks.
    fn lacks(&self, number: u8, rows: &BTreeSet<Row>) -> Result<BTreeSet<Row>, String>;
}

/// When a server died, and when its death was over.
type Struck = (Duration, Duration);

struct Deaths {
    other: Option<Struck>,
    lost: BTreeSet<Row>,
    chief: Option<(Struck, u8)>,
}

pub fn run(context: &Context, servers: &mut dyn Mortal, doors: &Doors, measured: &mut Measured) -> Result<(), String> {
    let dead_for = dead_for(&context.settings);
    let pass = |time: Duration| pass_until(Instant::now() + time, &context.cancel);
    // A gap that lasts is waited for: cut off, it would look short.
    let dead_time = |clients: &Clients| {
        let end = Instant::now() + GAP_MOST;
        pass(dead_for)?;
        while clients.silence() > dead_for / 4 && Instant::now() < end {
            pass(Duration::from_millis(20))?;
        }
        Ok::<_, String>(clients.now())
    };
    let first_chief = servers.chief()?;
    let other = (1..=servers.nodes()).rev().find(|number| *number != first_chief).filter(|_| servers.survives_one());
    doors.spare(other);
    doors.lead_all_to(servers.primary());
    let (deaths, seen) = through(doors, FAULT_CLIENTS, |clients| {
        pass(dead_for)?;
        let mut deaths = Deaths { other: None, lost: BTreeSet::new(), chief: None };
        if let Some(number) = other {
            let at = clients.now();
            servers.kill(number)?;
            deaths.other = Some((at, dead_time(clients)?));
            servers.bring_back(number)?;
            pass(dead_for)?;
        }
        servers.kill_all()?;
        let dead = clients.now();
        servers.start_all()?;
        pass(dead_for / 2)?;
        let asked = servers.primary().unwrap_or(1);
        deaths.lost = servers.lacks(asked, &clients.acknowledged(dead))?;
        if servers.survives_one() {
            doors.spare(None);
            let number = servers.chief()?;
            let at = clients.now();
            servers.kill(number)?;
            doors.lead_all_to(servers.take_over(number)?);
            deaths.chief = Some(((at, dead_time(clients)?), number));
        }
        Ok(deaths)
    })?;
    if let Some((from, to)) = deaths.other {
        measured.set("gap_one_s", seen.longest_gap(from, to).as_secs_f64());
        measured.set("errors_one", seen.errors_between(from, to) as f64);
    }
    measured.set("acknowledged", seen.acknowledged.len() as f64);
    measured.set("lost", deaths.lost.len() as f64);
    if let Some(((from, to), dead)) = deaths.chief {
        measured.set("gap_chief_s", seen.longest_gap(from, to).as_secs_f64());
        measured.set("errors_chief", seen.errors_between(from, to) as f64);
        let asked = servers.primary().unwrap_or(if dead == 1 { 2 } else { 1 });
        let lacking = servers.lacks(asked, &seen.until(to))?;
        measured.set("lost_chief", lacking.difference(&deaths.lost).count() as f64);
    }
    Ok(())
}
