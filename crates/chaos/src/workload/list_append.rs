//! Transactions of one to four steps, each of which reads a list or appends to it.

use super::{Failure, Moment, SCHEMA, Work, commit, early};
use std::sync::atomic::{AtomicU64, Ordering};
use trireme_cluster::Dice;
use trireme_cluster::{Answer, Session, SqlError};
use trireme_history::{Body, Element, Key, Step};

/// Lists in use at a time; few, so that transactions meet.
const ACTIVE: u64 = 8;
/// A list gets about so many appends before a new one takes its place, since every read returns all of it.
const APPENDS: u64 = 100;
const STEPS_MAX: u64 = 4;

#[derive(Default)]
pub(crate) struct ListAppend {
    appends: AtomicU64,
}

impl Work for ListAppend {
    fn prepare(&self, session: &mut Session) -> Result<(), SqlError> {
        session.query(&format!("CREATE TABLE {SCHEMA}.list (k BIGINT PRIMARY KEY, v TEXT NOT NULL) ENGINE=InnoDB"))?;
        Ok(())
    }

    fn next(&self, dice: &mut Dice) -> Body {
        let steps = 1 + dice.below(STEPS_MAX);
        let step = |_| {
            if dice.one_in(2) {
                let n = self.appends.fetch_add(1, Ordering::Relaxed);
                Step::Append(key(n, dice), Element(n))
            } else {
                Step::Read(key(self.appends.load(Ordering::Relaxed), dice), None)
            }
        };
        Body::Transaction((0..steps).map(step).collect())
    }

    fn run(&self, session: &mut Session, body: &mut Body) -> Result<(), Failure> {
        let Body::Transaction(steps) = body else { unreachable!("made by `next`") };
        if let [step] = &mut steps[..] {
            // Alone it needs no transaction around it.
            let answer = commit(session, &statement(step))?;
            return fill(step, &answer);
        }
        early(session, "BEGIN")?;
        for step in steps {
            let answer = early(session, &statement(step))?;
            fill(step, &answer)?;
        }
        commit(session, "COMMIT").map(drop)
    }

    fn last(&self, session: &mut Session) -> Result<Body, SqlError> {
        let answer = session.query(&format!("SELECT k, v FROM {SCHEMA}.list"))?;
        let mut found = std::collections::BTreeMap::new();
        for row in answer.texts() {
            let [k, v] = &row[..] else { return Err(SqlError::Protocol("two columns expected")) };
            found.insert(number(k)?, elements(v)?);
        }
        // A list that is missing altogether was read as empty.
        let keys = self.appends.load(Ordering::Relaxed) / APPENDS + ACTIVE;
        let steps = (0..keys).map(|k| Step::Read(Key(k), Some(found.remove(&k).unwrap_or_default())));
        Ok(Body::Transaction(steps.collect()))
    }
}

/// One of the lists in use when so many appends were made.
fn key(appends: u64, dice: &mut Dice) -> Key {
    Key(appends / APPENDS + dice.below(ACTIVE))
}

fn statement(step: &Step) -> String {
    match step {
        Step::Append(Key(k), Element(e)) => format!(
            "INSERT INTO {SCHEMA}.list VALUES ({k}, '{e}') ON DUPLICATE KEY UPDATE v = CONCAT(v, ',', VALUES(v))"
        ),
        Step::Read(Key(k), _) => format!("SELECT v FROM {SCHEMA}.list WHERE k = {k}"),
    }
}

fn fill(step: &mut Step, answer: &Answer) -> Result<(), Failure> {
    if let Step::Read(_, list) = step {
        let read = answer.text().map_or(Ok(Vec::new()), |text| elements(&text));
        *list = Some(read.map_err(|error| Failure { error, at: Moment::BeforeCommit })?);
    }
    Ok(())
}

fn elements(text: &str) -> Result<Vec<Element>, SqlError> {
    text.split(',').map(|word| number(word).map(Element)).collect()
}

fn number(text: &str) -> Result<u64, SqlError> {
    text.parse().map_err(|_| SqlError::Protocol("a number expected"))
}
