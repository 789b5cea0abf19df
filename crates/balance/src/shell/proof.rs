//! Proofs that a reader is up to date, for reads of `--split` with `--causal own`.
//!
//! One connection to each reader asks a question behind `wsrep_sync_wait=1` as soon as a client has heard from the writer. The answer proves that
//! the reader has everything that was committed before the question began. So whoever heard from the writer before that reads there without a wait,
//! and one question serves all clients. **Invariant:** nothing but such an answer counts, and only for the very server that gave it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout};

use crate::address::Address;
use crate::shell::balancer::Balancer;
use crate::shell::client::{Client, Login, Trouble};

/// A read waits for a proof for so long; then the writer answers it.
const PATIENCE: Duration = Duration::from_secs(1);
/// Servers wait for 30 s by default until they give up themselves.
const GIVE_UP: Duration = Duration::from_secs(60);
/// Between two questions while no read waits for the second.
const PACE: Duration = Duration::from_millis(2);
/// After a failure.
const AGAIN: Duration = Duration::from_millis(100);

/// The proof of one reader.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// It has everything that was committed before this.
    has: Option<Instant>,
    /// The address that proved it.
    peer: Option<SocketAddr>,
    /// Since when a question is open.
    asking: Option<Instant>,
    /// The last question was not answered as it should.
    failed: bool,
}

impl State {
    fn covers(&self, since: Instant, peer: Option<SocketAddr>) -> bool {
        self.peer == peer && self.has.is_some_and(|has| has >= since)
    }

    /// No proof is near.
    fn is_stuck(&self) -> bool {
        self.failed || self.asking.is_some_and(|at| at.elapsed() > PATIENCE)
    }
}

#[derive(Debug, Default)]
pub struct Proof {
    state: watch::Sender<State>,
    asked: Notify,
    /// A read waits.
    urgent: Notify,
}

/// Whether a reader has what a client may have seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reached {
    /// It was known before.
    Already,
    Now,
    /// It is late, or says nothing.
    No,
}

impl Proof {
    /// A client has heard from the writer just now, and may read soon.
    pub fn ask(&self) {
        self.asked.notify_one();
    }

    /// Whether the server at `peer` has all that was committed before `since`.
    pub async fn reaches(&self, since: Instant, peer: Option<SocketAddr>) -> Reached {
        let now = *self.state.borrow();
        if now.covers(since, peer) {
            return Reached::Already;
        }
        self.ask();
        if now.is_stuck() {
            return Reached::No;
        }
        self.urgent.notify_one();
        let mut states = self.state.subscribe();
        let covered = states.wait_for(|state| state.covers(since, peer) || state.failed);
        match timeout(PATIENCE, covered).await {
            Ok(Ok(state)) if state.covers(since, peer) => Reached::Now,
            Ok(Ok(_) | Err(_)) | Err(_) => Reached::No,
        }
    }
}

/// Asks the server whenever somebody wants to know, until it is aborted.
pub async fn prove(balancer: Arc<Balancer>, address: Address, proof: Arc<Proof>) {
    let (mut client, mut by_tls) = (None, false);
    loop {
        proof.asked.notified().await;
        // All who asked are served by this one.
        let begun = Instant::now();
        proof.state.send_modify(|state| state.asking = Some(begun));
        match timeout(GIVE_UP, question(&balancer, &address, &mut client, &mut by_tls)).await {
            Ok(Ok(peer)) => {
                proof.state.send_replace(State { has: Some(begun), peer, asking: None, failed: false });
                tokio::select! {
                    () = sleep(PACE) => {}
                    () = proof.urgent.notified() => {}
                }
            }
            Ok(Err(_)) | Err(_) => {
                client = None;
                proof.state.send_modify(|state| (state.asking, state.failed) = (None, true));
                sleep(AGAIN).await;
            }
        }
    }
}

/// The one that answered.
async fn question(
    balancer: &Balancer,
    address: &Address,
    client: &mut Option<Client>,
    by_tls: &mut bool,
) -> Result<Option<SocketAddr>, Trouble> {
    if client.is_none() {
        let config = balancer.config();
        let ca = config.tls_ca.as_deref();
        let mut login = Login { user: &config.user, password: &config.password, by_tls: *by_tls, ca };
        let mut new = Client::enter(address, &mut login).await?;
        *by_tls = login.by_tls;
        new.begin_proofs().await?;
        *client = Some(new);
    }
    let Some(client) = client else { return Ok(None) };
    client.prove().await?;
    Ok(client.peer())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_a_question_that_began_later_proves_and_only_for_the_server_that_answered() {
        let (proof, peer) = (Proof::default(), Some(SocketAddr::from(([127, 0, 0, 1], 1))));
        let since = Instant::now();
        assert_eq!(proof.reaches(since, peer).await, Reached::No, "nobody has asked");
        let early = since.checked_sub(Duration::from_nanos(1));
        for (has, at, reached) in [
            (early, peer, Reached::No),
            (Some(since), peer, Reached::Already),
            (Some(since), None, Reached::No),
            (Some(since), Some(SocketAddr::from(([127, 0, 0, 1], 2))), Reached::No),
        ] {
            proof.state.send_replace(State { has, peer: at, ..State::default() });
            assert_eq!(proof.reaches(since, peer).await, reached, "{has:?} {at:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_waits_for_the_proof_and_not_for_a_server_that_stands() {
        let proof = Arc::new(Proof::default());
        let since = Instant::now();
        let waits = tokio::spawn({
            let proof = proof.clone();
            async move { proof.reaches(since, None).await }
        });
        proof.asked.notified().await;
        proof.state.send_replace(State { has: Some(since), ..State::default() });
        assert_eq!(waits.await.unwrap(), Reached::Now);
        let later = Instant::now() + PATIENCE * 3;
        proof.state.send_modify(|state| state.asking = Some(Instant::now()));
        tokio::time::advance(PATIENCE * 2).await;
        let began = Instant::now();
        assert_eq!(proof.reaches(later, None).await, Reached::No);
        proof.state.send_modify(|state| (state.asking, state.failed) = (None, true));
        assert_eq!(proof.reaches(later, None).await, Reached::No);
        assert_eq!(began.elapsed(), Duration::ZERO, "at once");
    }
}
