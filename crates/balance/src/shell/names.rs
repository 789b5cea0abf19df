//! Addresses of names. A name is looked up at every connection, so that a changed entry counts. While the resolver does not answer, the
//! addresses that it gave last go on to count: the servers live, and only their names cannot be read.

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{LazyLock, Mutex, MutexGuard};
use std::time::Duration;

use tokio::net::lookup_host;
use tokio::sync::watch;
use tokio::time::timeout;

/// For the resolver, where an older answer is known. Clients wait for it, and give up a server after a second.
const PATIENCE: Duration = Duration::from_millis(250);
/// Names whose addresses are kept: more than a table has servers.
const NAMES_MAX: usize = 1024;

/// Of the whole process: its resolver is one too.
static NAMES: LazyLock<Names> = LazyLock::new(Names::default);

#[derive(Debug, Default)]
struct Names(Mutex<HashMap<String, Name>>);

#[derive(Debug, Default)]
struct Name {
    /// As they were told last.
    addresses: Vec<SocketAddr>,
    /// The answer to the question that is open. Each takes a thread until the resolver gives up, so there is one for a name.
    asking: Option<watch::Receiver<Option<Told>>>,
}

/// The resolver's answer. An error is kept as its parts, of which there can be copies.
type Told = Result<Vec<SocketAddr>, (io::ErrorKind, String)>;

/// One address at least.
pub async fn resolve(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(ip, port)]);
    }
    let name = host.to_owned();
    let asked = async move { lookup_host((name.as_str(), 0)).await.map(Iterator::collect) };
    let mut addresses = NAMES.resolve(host, asked).await?;
    addresses.iter_mut().for_each(|address| address.set_port(port));
    Ok(addresses)
}

impl Names {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Name>> {
        self.0.lock().expect("a map of addresses")
    }

    /// `lookup` asks the resolver. It goes on in the background where it is not waited for.
    async fn resolve(
        &'static self,
        host: &str,
        lookup: impl Future<Output = io::Result<Vec<SocketAddr>>> + Send + 'static,
    ) -> io::Result<Vec<SocketAddr>> {
        let asked = {
            let mut names = self.lock();
            if names.len() < NAMES_MAX || names.contains_key(host) {
                let name = names.entry(host.to_owned()).or_default();
                if name.asking.is_some() && !name.addresses.is_empty() {
                    return Ok(name.addresses.clone());
                }
                let answer = name.asking.get_or_insert_with(|| self.ask(host.to_owned(), lookup)).clone();
                Ok((name.addresses.clone(), answer))
            } else {
                Err(lookup)
            }
        };
        let (known, mut answer) = match asked {
            Ok(asked) => asked,
            Err(lookup) => return one_at_least(lookup.await),
        };
        let told = async {
            match answer.wait_for(Option::is_some).await.as_deref() {
                Ok(Some(Ok(addresses))) => Ok(addresses.clone()),
                Ok(Some(Err((kind, text)))) => Err(io::Error::new(*kind, text.clone())),
                Ok(None) | Err(_) => Err(io::Error::other("the question for an address was broken off")),
            }
        };
        if known.is_empty() {
            return told.await;
        }
        match timeout(PATIENCE, told).await {
            Ok(Err(error)) if is_silent(&error) => Ok(known),
            Ok(told) => told,
            Err(_) => Ok(known),
        }
    }

    /// Asks the resolver, for all who want to know.
    fn ask(
        &'static self,
        host: String,
        lookup: impl Future<Output = io::Result<Vec<SocketAddr>>> + Send + 'static,
    ) -> watch::Receiver<Option<Told>> {
        let (tell, answer) = watch::channel(None);
        tokio::spawn(async move {
            let outcome = one_at_least(lookup.await);
            let mut names = self.lock();
            let name = names.entry(host).or_default();
            name.asking = None;
            match &outcome {
                Ok(addresses) => name.addresses.clone_from(addresses),
                Err(error) if is_silent(error) => {}
                // There is no such name any more. Its old address may be somebody else's.
                Err(_) => name.addresses.clear(),
            }
            tell.send_replace(Some(outcome.map_err(|error| (error.kind(), error.to_string()))));
        });
        answer
    }
}

fn one_at_least(outcome: io::Result<Vec<SocketAddr>>) -> io::Result<Vec<SocketAddr>> {
    match outcome {
        Ok(none) if none.is_empty() => Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address")),
        outcome => outcome,
    }
}

/// No resolver answered: EAI_AGAIN, of which only the C library's text is left here (glibc's, musl's).
fn is_silent(error: &io::Error) -> bool {
    let text = error.to_string();
    text.contains("Temporary failure in name resolution") || text.contains("Try again")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> &'static Names {
        Box::leak(Box::default())
    }

    fn at(n: u8) -> Vec<SocketAddr> {
        vec![SocketAddr::from(([10, 0, 0, n], 0))]
    }

    fn silent() -> io::Error {
        io::Error::other("failed to lookup address information: Temporary failure in name resolution")
    }

    #[tokio::test]
    async fn the_newest_answer_counts() {
        let names = names();
        for n in [1, 2] {
            assert_eq!(names.resolve("db", async move { Ok(at(n)) }).await.unwrap(), at(n));
        }
        assert!(names.resolve("other", async { Err(silent()) }).await.is_err());
    }

    #[tokio::test]
    async fn while_the_resolver_is_down_the_last_answer_counts() {
        let names = names();
        names.resolve("db", async { Ok(at(1)) }).await.unwrap();
        for _ in 0..3 {
            assert_eq!(names.resolve("db", async { Err(silent()) }).await.unwrap(), at(1));
        }
        assert_eq!(names.resolve("db", async { Ok(at(2)) }).await.unwrap(), at(2));
    }

    #[tokio::test]
    async fn a_name_that_is_gone_leads_nowhere() {
        let names = names();
        names.resolve("db", async { Ok(at(1)) }).await.unwrap();
        let gone = || io::Error::other("failed to lookup address information: Name or service not known");
        assert!(names.resolve("db", async move { Err(gone()) }).await.is_err());
        assert!(names.resolve("db", async { Err(silent()) }).await.is_err(), "forgotten");
        assert!(names.resolve("db", async { Ok(Vec::new()) }).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_resolver_that_hangs_is_asked_once_and_nobody_waits_for_it() {
        let names = names();
        names.resolve("db", async { Ok(at(1)) }).await.unwrap();
        let (answer, late) = tokio::sync::oneshot::channel();
        let hangs = async move { Ok(late.await.unwrap()) };
        let began = tokio::time::Instant::now();
        assert_eq!(names.resolve("db", hangs).await.unwrap(), at(1));
        assert_eq!(began.elapsed(), PATIENCE);
        for _ in 0..100 {
            let never = async { panic!("one question is open") };
            assert_eq!(names.resolve("db", never).await.unwrap(), at(1));
        }
        assert_eq!(began.elapsed(), PATIENCE);
        answer.send(at(2)).unwrap();
        while names.lock()["db"].asking.is_some() {
            tokio::task::yield_now().await;
        }
        assert_eq!(names.lock()["db"].addresses, at(2));
    }

    #[tokio::test]
    async fn a_name_that_never_had_an_address_is_asked_for_once_and_all_wait_for_the_answer() {
        let names = names();
        let (answer, late) = tokio::sync::oneshot::channel();
        let first = tokio::spawn(names.resolve("db", async move { Ok(late.await.unwrap()) }));
        while !names.lock().contains_key("db") {
            tokio::task::yield_now().await;
        }
        let others: Vec<_> =
            (0..100).map(|_| tokio::spawn(names.resolve("db", async { panic!("one question is open") }))).collect();
        tokio::task::yield_now().await;
        answer.send(at(1)).unwrap();
        assert_eq!(first.await.unwrap().unwrap(), at(1));
        for other in others {
            assert_eq!(other.await.unwrap().unwrap(), at(1));
        }
    }
}
