//! Money: none appears, none vanishes.

use crate::finding::{Class, Findings, Reader};
use crate::operation::{Account, BankRules, Body, History, OpId, Outcome, Transfer, TransferId};
use std::collections::{BTreeMap, BTreeSet};

pub(crate) fn check(history: &History, findings: &mut Findings) {
    let Some(rules) = history.header.bank else { return };
    let mut asked: BTreeMap<TransferId, OpId> = BTreeMap::new();
    for (id, operation) in history.each() {
        if let Body::Transfer(transfer) = &operation.body {
            asked.insert(transfer.id, id);
        }
    }
    let mut first: Option<(OpId, &Body)> = None;
    for (id, operation) in history.each().filter(|(_, operation)| operation.outcome == Outcome::Ok) {
        match &operation.body {
            Body::Balances(balances) => check_balances(rules, id, balances, findings),
            Body::Ledger { balances, transfers } => {
                check_balances(rules, id, balances, findings);
                check_ledger(rules, id, balances, transfers, findings);
                check_outcomes(history, id, &asked, transfers, findings);
                let (reference, body) = *first.get_or_insert((id, &operation.body));
                if *body != operation.body {
                    let text = format!(
                        "accounts or transfers differ between node{} and node{}",
                        history.get(reference).node,
                        operation.node
                    );
                    findings.add(Class::Divergence, Reader::ReadOnly, vec![reference, id], text);
                }
            }
            Body::Transaction(_) | Body::Transfer(_) => {}
        }
    }
}

fn check_balances(rules: BankRules, id: OpId, balances: &[(Account, i64)], findings: &mut Findings) {
    let total: i64 = balances.iter().map(|(_, balance)| balance).sum();
    if total != rules.total() {
        let text = format!("T{} sees {total} instead of {}: {balances:?}", id.0, rules.total());
        findings.add(Class::WrongTotal, Reader::ReadOnly, vec![id], text);
    }
    if !rules.negative_allowed
        && let Some((account, balance)) = balances.iter().find(|(_, balance)| *balance < 0)
    {
        findings.add(
            Class::NegativeBalance,
            Reader::ReadOnly,
            vec![id],
            format!("T{}: account {} has {balance}", id.0, account.0),
        );
    }
}

/// Balances against the list of transfers.
fn check_ledger(
    rules: BankRules,
    id: OpId,
    balances: &[(Account, i64)],
    transfers: &[Transfer],
    findings: &mut Findings,
) {
    let mut expected: BTreeMap<Account, i64> = BTreeMap::new();
    for transfer in transfers {
        *expected.entry(transfer.from).or_default() -= transfer.amount;
        *expected.entry(transfer.to).or_default() += transfer.amount;
    }
    for (account, balance) in balances {
        let sum = rules.initial + expected.get(account).copied().unwrap_or_default();
        if sum != *balance {
            let text = format!("T{}: account {} has {balance}, its transfers make {sum}", id.0, account.0);
            findings.add(Class::WrongBalance, Reader::ReadOnly, vec![id], text);
        }
    }
}

/// The list of transfers against what clients were told.
fn check_outcomes(
    history: &History,
    id: OpId,
    asked: &BTreeMap<TransferId, OpId>,
    transfers: &[Transfer],
    findings: &mut Findings,
) {
    let mut there = BTreeSet::new();
    for transfer in transfers {
        let name = transfer.id.0;
        if !there.insert(transfer.id) {
            findings.add(Class::Duplicate, Reader::ReadOnly, vec![id], format!("transfer {name} is there twice"));
        }
        match asked.get(&transfer.id).map(|op| (op, history.get(*op))) {
            None => {
                findings.add(Class::InventedValue, Reader::ReadOnly, vec![id], format!("nobody asked for {name}"));
            }
            Some((op, operation)) if operation.outcome == Outcome::Failed => {
                let error = operation.error.as_deref().unwrap_or("rolled back");
                let text = format!("transfer {name} is there, and its client was told: {error}");
                findings.add(Class::AbortedRead, Reader::ReadOnly, vec![*op, id], text);
            }
            Some(_) => {}
        }
    }
    for (transfer, op) in asked.iter().filter(|(transfer, _)| !there.contains(transfer)) {
        if history.get(*op).outcome == Outcome::Ok {
            let text = format!("transfer {} was acknowledged, node{} lacks it", transfer.0, history.get(id).node);
            findings.add(Class::LostWrite, Reader::Writes, vec![*op, id], text);
        }
    }
}
