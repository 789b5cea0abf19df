//! Money.

use trireme_history::{
    Account, BankRules, Body, Class, Findings, Header, History, Isolation, Micros, Operation, Outcome, Transfer,
    TransferId, check,
};

const RULES: BankRules = BankRules { initial: 10, accounts: 2, negative_allowed: false };

fn transfer(id: u64, amount: i64) -> Transfer {
    Transfer { id: TransferId(id), from: Account(0), to: Account(1), amount }
}

fn balances(a: i64, b: i64) -> Vec<(Account, i64)> {
    vec![(Account(0), a), (Account(1), b)]
}

fn judge(operations: Vec<(Outcome, Body)>) -> Findings {
    let mut header = Header::new(Isolation::Snapshot);
    header.bank = Some(RULES);
    let operations = operations
        .into_iter()
        .zip(0..)
        .map(|((outcome, body), n)| Operation {
            process: 1,
            node: 1 + n as u8,
            invoked: Micros(10 * n),
            completed: Some(Micros(10 * n + 5)),
            outcome,
            error: None,
            last: matches!(body, Body::Ledger { .. }),
            body,
        })
        .collect();
    check(&History { header, operations })
}

fn assert_counts(operations: Vec<(Outcome, Body)>, class: Class) {
    let findings = judge(operations);
    assert!(findings.classes.get(&class).is_some_and(|tally| tally.counted > 0), "{findings:#?}");
}

fn ledger(balances: Vec<(Account, i64)>, transfers: Vec<Transfer>) -> (Outcome, Body) {
    (Outcome::Ok, Body::Ledger { balances, transfers })
}

#[test]
fn nothing_in_correct_accounts() {
    let findings = judge(vec![
        (Outcome::Ok, Body::Transfer(transfer(1, 4))),
        (Outcome::Failed, Body::Transfer(transfer(2, 4))),
        (Outcome::Unknown, Body::Transfer(transfer(3, 1))),
        (Outcome::Ok, Body::Balances(balances(6, 14))),
        ledger(balances(5, 15), vec![transfer(1, 4), transfer(3, 1)]),
    ]);
    assert!(findings.classes.is_empty(), "{findings:#?}");
}

#[test]
fn wrong_total_in_one_read() {
    assert_counts(vec![(Outcome::Ok, Body::Balances(balances(6, 10)))], Class::WrongTotal);
}

#[test]
fn negative_balance() {
    assert_counts(vec![(Outcome::Ok, Body::Balances(balances(-1, 21)))], Class::NegativeBalance);
}

#[test]
fn update_lost_from_a_balance() {
    let twice = vec![transfer(1, 4), transfer(2, 4)];
    assert_counts(vec![ledger(balances(6, 14), twice)], Class::WrongBalance);
}

#[test]
fn lost_acknowledged_transfer() {
    let asked = (Outcome::Ok, Body::Transfer(transfer(1, 4)));
    assert_counts(vec![asked, ledger(balances(10, 10), vec![])], Class::LostWrite);
}

#[test]
fn transfer_that_was_rolled_back_is_there() {
    let asked = (Outcome::Failed, Body::Transfer(transfer(1, 4)));
    assert_counts(vec![asked, ledger(balances(6, 14), vec![transfer(1, 4)])], Class::AbortedRead);
}

#[test]
fn transfer_twice_or_from_nowhere() {
    let twice = vec![transfer(1, 4), transfer(1, 4)];
    assert_counts(vec![ledger(balances(2, 18), twice.clone())], Class::Duplicate);
    assert_counts(vec![ledger(balances(2, 18), twice)], Class::InventedValue);
}

#[test]
fn nodes_that_differ() {
    let asked = (Outcome::Ok, Body::Transfer(transfer(1, 4)));
    let done = ledger(balances(6, 14), vec![transfer(1, 4)]);
    assert_counts(vec![asked, done, ledger(balances(10, 10), vec![])], Class::Divergence);
}
