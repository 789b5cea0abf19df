//! Looks after one server: asks it about itself again and again, and tells the pool what it heard.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use crate::address::Address;
use crate::config::{Check, Config};
use crate::health::{HURRY, Heard, Verdict};
use crate::pool::NodeId;
use crate::shell::balancer::Balancer;
use crate::shell::client::{Client, Login, Trouble};
use crate::shell::watchdog;

/// Without an answer for so long, a question is late: an answer takes some milliseconds as a rule.
const LATE: Duration = Duration::from_millis(150);
/// A frozen server may answer a question that is open as soon as it thaws; after this a new connection is tried.
const GIVE_UP: Duration = Duration::from_secs(30);
/// Between two logins that the server refuses: it writes a line about each.
const DENIED: Duration = Duration::from_secs(5);
/// Between two logins to a server without free connections.
const FULL: Duration = Duration::from_secs(1);
/// GLB tries a server that refused a client again after the interval and this.
const PASSIVE: Duration = Duration::from_secs(1);

/// Until it is aborted.
pub async fn watch(balancer: Arc<Balancer>, id: NodeId, address: Address, log_in: Arc<Notify>) {
    let mut by_tls = false;
    loop {
        let config = balancer.config();
        match &config.check {
            Check::Exec(command) => watchdog::watch(&balancer, id, &address, command).await,
            Check::Passive => {
                balancer.heard(id, Heard::Watchdog(Verdict::Ready, None));
                sleep(config.interval + PASSIVE).await;
            }
            Check::Login => {
                if let Err((trouble, logging_in)) = session(&balancer, id, &address, &log_in, &mut by_tls).await {
                    let heard = trouble.heard(logging_in);
                    let pause = balancer.jitter(match &heard {
                        Heard::Refused(_) => config.interval,
                        Heard::Full(_) => FULL,
                        _ => DENIED,
                    });
                    balancer.heard(id, heard);
                    sleep(pause).await;
                }
            }
        }
    }
}

/// One connection, until it fails or a new login is asked for. The flag: its login was not through. `by_tls`: it let us in that way only.
async fn session(
    balancer: &Arc<Balancer>,
    id: NodeId,
    address: &Address,
    log_in: &Notify,
    by_tls: &mut bool,
) -> Result<(), (Trouble, bool)> {
    let config = balancer.config();
    let gone = |text: &str| Trouble::Gone(std::io::Error::new(std::io::ErrorKind::TimedOut, text.to_owned()));
    let mut client = loop {
        let connect = timeout(config.timeout, Client::connect(address)).await;
        let mut client = match connect {
            // The kernel's own patience grows with each try; a host that is back would be noticed late.
            Err(_) => return Err((gone("no answer to a connection"), true)),
            Ok(outcome) => outcome.map_err(|trouble| (trouble, true))?,
        };
        let (user, password, ca) = (&config.user, &config.password, config.tls_ca.as_deref());
        let login = Login { user, password, by_tls: *by_tls, ca };
        let outcome = patiently(balancer, id, client.log_in(&login)).await;
        match outcome.ok_or_else(|| (gone("no greeting"), true))? {
            Ok(()) => break client,
            Err(trouble) if client.may_need_tls(&login, &trouble) => *by_tls = true,
            Err(trouble) => {
                *by_tls = false;
                return Err((trouble, true));
            }
        }
    };
    let mut asked_for_more = false;
    let mut hurry = balancer.hurry();
    loop {
        let look = patiently(balancer, id, client.look()).await.ok_or_else(|| (gone("no answer"), false))?;
        let report = match look {
            Ok(report) => report,
            // Somebody may have ended the connection only. A new one tells.
            Err(Trouble::Gone(_)) => return Ok(()),
            Err(trouble) => return Err((trouble, false)),
        };
        let tells_nothing = report.member().is_some_and(|m| m.trireme && m.primary && m.order.is_none());
        balancer.heard(id, Heard::Answer(report));
        if tells_nothing && !asked_for_more {
            asked_for_more = true;
            let asked = patiently(balancer, id, client.ask_for_more()).await;
            match asked.ok_or_else(|| (gone("no answer"), false))? {
                Ok(()) => {
                    balancer.log(&format!("{address}: repl.status_extended=yes was set, so that it says who orders"));
                    continue;
                }
                Err(Trouble::Gone(_)) => return Ok(()),
                Err(trouble) => balancer.log(&format!(
                    "{address}: does not say who orders, so the writer is chosen by index: put repl.status_extended=yes into its \
                     wsrep_provider_options ({trouble})"
                )),
            }
        }
        let pause = balancer.jitter(if hurry.borrow_and_update().0 { HURRY } else { config.interval });
        tokio::select! {
            () = sleep(pause) => {}
            _ = hurry.changed() => {}
            // A login of its own tells whether clients are let in, and makes the server forget those that broke off.
            () = log_in.notified() => return Ok(()),
        }
        let newest = balancer.config();
        let account = |config: &Config| (config.user.clone(), config.password.clone(), config.tls_ca.clone());
        if account(&newest) != account(&config) || newest.check != config.check {
            return Ok(());
        }
    }
}

/// Waits for an answer far longer than for a verdict: to go away would leave the server a login that was broken off. `None`: it was
/// too long at last.
pub async fn patiently<T>(balancer: &Arc<Balancer>, id: NodeId, answer: impl Future<Output = T>) -> Option<T> {
    let limit = balancer.config().timeout;
    let mut answer = pin!(answer);
    let late = LATE.min(limit);
    if let Ok(done) = timeout(late, &mut answer).await {
        return Some(done);
    }
    balancer.heard(id, Heard::Late);
    if let Ok(done) = timeout(limit.saturating_sub(late), &mut answer).await {
        return Some(done);
    }
    balancer.heard(id, Heard::TimedOut);
    timeout(GIVE_UP, &mut answer).await.ok()
}
