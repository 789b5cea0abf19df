//! Money moves between accounts, and a list keeps every transfer.

use super::{Failure, Moment, SCHEMA, Work, commit, early};
use crate::options::BANK;
use std::sync::atomic::{AtomicU64, Ordering};
use trireme_cluster::Dice;
use trireme_cluster::{Session, SqlError};
use trireme_history::{Account, Body, Transfer, TransferId};

const AMOUNT_MAX: u64 = 20;

pub(crate) struct Bank {
    /// Lock what is read before it is written, as an application must where the isolation level does not notice.
    locking: bool,
    transfers: AtomicU64,
}

impl Bank {
    pub fn new(locking: bool) -> Bank {
        Bank { locking, transfers: AtomicU64::new(0) }
    }
}

impl Work for Bank {
    fn prepare(&self, session: &mut Session) -> Result<(), SqlError> {
        session.query(&format!("CREATE TABLE {SCHEMA}.account (id INT PRIMARY KEY, balance BIGINT) ENGINE=InnoDB"))?;
        session.query(&format!(
            "CREATE TABLE {SCHEMA}.transfer (id BIGINT PRIMARY KEY, source INT, target INT, amount BIGINT) ENGINE=InnoDB"
        ))?;
        let rows: Vec<String> = (0..BANK.accounts).map(|id| format!("({id}, {})", BANK.initial)).collect();
        session.query(&format!("INSERT INTO {SCHEMA}.account VALUES {}", rows.join(", "))).map(drop)
    }

    fn next(&self, dice: &mut Dice) -> Body {
        if dice.one_in(2) {
            return Body::Balances(Vec::new());
        }
        let accounts = u64::from(BANK.accounts);
        let from = dice.below(accounts);
        let to = (from + 1 + dice.below(accounts - 1)) % accounts;
        Body::Transfer(Transfer {
            id: TransferId(self.transfers.fetch_add(1, Ordering::Relaxed)),
            from: Account(from as u32),
            to: Account(to as u32),
            amount: 1 + dice.below(AMOUNT_MAX) as i64,
        })
    }

    fn run(&self, session: &mut Session, body: &mut Body) -> Result<(), Failure> {
        match body {
            Body::Balances(balances) => {
                let answer = session.query(&all_balances());
                *balances = answer
                    .and_then(|answer| numbers(&answer.texts()))
                    .and_then(|rows| rows.into_iter().map(balance).collect())
                    .map_err(|error| Failure { error, at: Moment::AtCommit })?;
                Ok(())
            }
            Body::Transfer(transfer) => self.transfer(session, *transfer),
            Body::Transaction(_) | Body::Ledger { .. } => unreachable!("not made by `next`"),
        }
    }

    fn last(&self, session: &mut Session) -> Result<Body, SqlError> {
        // One snapshot for both.
        session.query("START TRANSACTION WITH CONSISTENT SNAPSHOT")?;
        let balances = numbers(&session.query(&all_balances())?.texts())?;
        let answer = session.query(&format!("SELECT id, source, target, amount FROM {SCHEMA}.transfer ORDER BY id"))?;
        session.query("COMMIT")?;
        let transfers = numbers(&answer.texts())?.into_iter().map(|row| {
            let [id, from, to, amount] = row[..] else { return Err(SqlError::Protocol("four columns expected")) };
            let (from, to) = (Account(from as u32), Account(to as u32));
            Ok(Transfer { id: TransferId(id as u64), from, to, amount })
        });
        Ok(Body::Ledger {
            balances: balances.into_iter().map(balance).collect::<Result<_, _>>()?,
            transfers: transfers.collect::<Result<_, _>>()?,
        })
    }
}

impl Bank {
    fn transfer(&self, session: &mut Session, transfer: Transfer) -> Result<(), Failure> {
        let Transfer { id, from, to, amount } = transfer;
        let lock = if self.locking { " FOR UPDATE" } else { "" };
        early(session, "BEGIN")?;
        let mut balance_of = |account: Account| {
            let answer =
                early(session, &format!("SELECT balance FROM {SCHEMA}.account WHERE id = {}{lock}", account.0))?;
            answer
                .text()
                .and_then(|text| text.parse::<i64>().ok())
                .ok_or(Failure { error: SqlError::Protocol("an account without a balance"), at: Moment::BeforeCommit })
        };
        let (source, target) = (balance_of(from)?, balance_of(to)?);
        if source < amount && !BANK.negative_allowed {
            return Err(Failure { error: SqlError::Protocol("not enough money"), at: Moment::BeforeCommit });
        }
        for (account, balance) in [(from, source - amount), (to, target + amount)] {
            early(session, &format!("UPDATE {SCHEMA}.account SET balance = {balance} WHERE id = {}", account.0))?;
        }
        early(session, &format!("INSERT INTO {SCHEMA}.transfer VALUES ({}, {}, {}, {amount})", id.0, from.0, to.0))?;
        commit(session, "COMMIT").map(drop)
    }
}

fn all_balances() -> String {
    format!("SELECT id, balance FROM {SCHEMA}.account ORDER BY id")
}

fn balance(row: Vec<i64>) -> Result<(Account, i64), SqlError> {
    let [account, balance] = row[..] else { return Err(SqlError::Protocol("two columns expected")) };
    Ok((Account(account as u32), balance))
}

fn numbers(rows: &[Vec<String>]) -> Result<Vec<Vec<i64>>, SqlError> {
    let cell = |text: &String| text.parse().map_err(|_| SqlError::Protocol("a number expected"));
    rows.iter().map(|row| row.iter().map(cell).collect()).collect()
}
