//! Carries bytes both ways until both sides have ended.
//!
//! A connection that does nothing owns no buffer: bytes are read into one of the thread's, and only what the other side does not take
//! at once is kept. While something is kept, nothing more is read: so a slow reader slows its writer.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Read at once at most, and so kept at most for each direction of a connection.
const SCRATCH: usize = 64 * 1024;
/// So many reads, then others of this thread come first.
const TURN: u32 = 16;
/// A client that does not close after its server has closed is left after this.
pub const LINGER: Duration = Duration::from_secs(5);

thread_local! {
    static SCRATCH_BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; SCRATCH]);
}

/// Counts of the bytes carried to and from one server.
#[derive(Debug, Default)]
pub struct Traffic {
    pub to_server_bytes: AtomicU64,
    pub to_client_bytes: AtomicU64,
    pub reads: AtomicU64,
    pub writes: AtomicU64,
}

/// Sender and receiver of one direction, and where their bytes are counted.
struct Ends<'a, S> {
    from: &'a mut S,
    to: &'a mut S,
    bytes: &'a AtomicU64,
    traffic: &'a Traffic,
}

/// One direction.
#[derive(Debug, Default)]
struct Way {
    kept: Vec<u8>,
    written: usize,
    state: WayState,
    /// The receiver need not be told of the end.
    silent: bool,
    /// Something came this way.
    carried: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum WayState {
    #[default]
    Open,
    /// The sender has ended; what is kept goes out, then the end itself.
    Ending,
    Done,
}

/// The bytes under way between a client and its server. It can be left and gone on with.
#[derive(Debug, Default)]
pub struct Pump {
    up: Way,
    down: Way,
}

impl Pump {
    /// The server has said something.
    pub fn is_answered(&self) -> bool {
        self.down.carried
    }

    /// Until the server has ended and the client too, or has had its time. Errors are ends.
    pub async fn run<S: AsyncRead + AsyncWrite + Unpin>(&mut self, client: &mut S, server: &mut S, traffic: &Traffic) {
        let Pump { up, down } = self;
        poll_fn(|cx| {
            // Both ways have ended: what would say so to the client is said by the close that follows.
            down.silent = up.state == WayState::Done;
            let mut answers = Ends { from: &mut *server, to: &mut *client, bytes: &traffic.to_client_bytes, traffic };
            let ended = down.poll(cx, &mut answers).is_ready();
            let mut questions = Ends { from: &mut *client, to: &mut *server, bytes: &traffic.to_server_bytes, traffic };
            let _ = up.poll(cx, &mut questions);
            if ended { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        let mut questions = Ends { from: client, to: server, bytes: &traffic.to_server_bytes, traffic };
        let rest = poll_fn(|cx| up.poll(cx, &mut questions));
        let _ = tokio::time::timeout(LINGER, rest).await;
    }
}

/// As [`Pump::run`], from the beginning.
pub async fn pump<S: AsyncRead + AsyncWrite + Unpin>(client: &mut S, server: &mut S, traffic: &Traffic) {
    Pump::default().run(client, server, traffic).await;
}

impl Way {
    /// Ready: nothing more will come this way.
    fn poll<S: AsyncRead + AsyncWrite + Unpin>(&mut self, cx: &mut Context<'_>, ends: &mut Ends<'_, S>) -> Poll<()> {
        if self.state == WayState::Done {
            return Poll::Ready(());
        }
        // An error ends this way only: whoever does not take bytes any more may still have sent some.
        let _ = ready!(self.poll_open(cx, ends));
        self.state = WayState::Ending;
        (self.kept, self.written) = (Vec::new(), 0);
        if !self.silent {
            let _ = ready!(Pin::new(&mut *ends.to).poll_shutdown(cx));
        }
        self.state = WayState::Done;
        Poll::Ready(())
    }

    fn poll_open<S: AsyncRead + AsyncWrite + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        ends: &mut Ends<'_, S>,
    ) -> Poll<io::Result<()>> {
        for _ in 0..TURN {
            while self.written < self.kept.len() {
                let n = ready!(Pin::new(&mut *ends.to).poll_write(cx, &self.kept[self.written..]))?;
                if n == 0 {
                    return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
                }
                self.written += n;
                ends.traffic.writes.fetch_add(1, Relaxed);
            }
            if self.written > 0 {
                (self.kept, self.written) = (Vec::new(), 0);
            }
            if self.state == WayState::Ending {
                return Poll::Ready(Ok(()));
            }
            ready!(SCRATCH_BUFFER.with_borrow_mut(|scratch| self.poll_move(cx, ends, scratch)))?;
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// One read, and the write of what came.
    fn poll_move<S: AsyncRead + AsyncWrite + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        ends: &mut Ends<'_, S>,
        scratch: &mut [u8],
    ) -> Poll<io::Result<()>> {
        let mut buffer = ReadBuf::new(scratch);
        ready!(Pin::new(&mut *ends.from).poll_read(cx, &mut buffer))?;
        let got = buffer.filled();
        if got.is_empty() {
            self.state = WayState::Ending;
            return Poll::Ready(Ok(()));
        }
        self.carried = true;
        ends.traffic.reads.fetch_add(1, Relaxed);
        ends.bytes.fetch_add(got.len() as u64, Relaxed);
        match Pin::new(&mut *ends.to).poll_write(cx, got) {
            Poll::Ready(Ok(n)) => {
                ends.traffic.writes.fetch_add(1, Relaxed);
                if n < got.len() {
                    self.kept = got[n..].to_vec();
                }
            }
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            Poll::Pending => self.kept = got.to_vec(),
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    /// Ends of client and server, with a pump between them.
    fn between(buffer: usize) -> (DuplexStream, DuplexStream, tokio::task::JoinHandle<()>) {
        let (client, mut inner_client) = duplex(buffer);
        let (server, mut inner_server) = duplex(buffer);
        let task = tokio::spawn(async move {
            pump(&mut inner_client, &mut inner_server, &Traffic::default()).await;
        });
        (client, server, task)
    }

    /// Left in the middle again and again; a session does it once.
    #[tokio::test]
    async fn a_pump_that_was_left_goes_on_where_it_was() {
        let (mut client, mut inner_client) = duplex(64);
        let (mut server, mut inner_server) = duplex(64);
        let task = tokio::spawn(async move {
            let (mut pump, traffic) = (Pump::default(), Traffic::default());
            let mut left = 0;
            loop {
                let run = pump.run(&mut inner_client, &mut inner_server, &traffic);
                match tokio::time::timeout(Duration::from_micros(300), run).await {
                    Ok(()) => return left,
                    Err(_) => left += 1,
                }
            }
        });
        let sent: Vec<u8> = (0..200_000u32).map(|i| (i / 3) as u8).collect();
        let up = sent.clone();
        let writer = tokio::spawn(async move {
            for part in up.chunks(5_000) {
                client.write_all(part).await.unwrap();
                // Time for it to be left while nothing moves, too.
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            client.shutdown().await.unwrap();
            let mut rest = Vec::new();
            client.read_to_end(&mut rest).await.unwrap();
            rest
        });
        let mut got = Vec::new();
        server.read_to_end(&mut got).await.unwrap();
        server.write_all(b"answer").await.unwrap();
        drop(server);
        let rest = writer.await.unwrap();
        assert!(got == sent && rest == b"answer", "{} of {} bytes, {rest:?}", got.len(), sent.len());
        assert!(task.await.unwrap() > 0, "it was never left");
    }

    #[tokio::test]
    async fn everything_arrives_both_ways_through_small_buffers() {
        let (mut client, mut server, task) = between(7);
        let sent: Vec<u8> = (0..300_000u32).map(|i| i as u8).collect();
        let (up, down) = (sent.clone(), sent.clone());
        let client = tokio::spawn(async move {
            let mut got = Vec::new();
            let (mut read, mut write) = tokio::io::split(&mut client);
            let send = async {
                write.write_all(&up).await.unwrap();
                write.shutdown().await.unwrap();
            };
            let (_, result) = tokio::join!(send, read.read_to_end(&mut got));
            result.unwrap();
            got
        });
        let mut got = Vec::new();
        let (mut read, mut write) = tokio::io::split(&mut server);
        // The answer goes out after the question's end: half a connection is enough for it.
        read.read_to_end(&mut got).await.unwrap();
        assert!(got == sent);
        write.write_all(&down).await.unwrap();
        write.shutdown().await.unwrap();
        assert!(client.await.unwrap() == sent);
        task.await.unwrap();
    }

    #[tokio::test]
    async fn a_reader_that_does_not_read_stops_its_writer() {
        let (mut client, _server, _task) = between(1024);
        let mut sent = 0;
        while let Ok(n) = tokio::time::timeout(Duration::from_millis(200), client.write(&[0; 4096])).await {
            sent += n.unwrap();
            assert!(sent < 2 * SCRATCH + 64 * 1024, "{sent} bytes are kept somewhere");
        }
        assert!(sent > 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_never_closes_is_left_after_its_server() {
        let (_client, server, task) = between(64);
        drop(server);
        tokio::time::timeout(LINGER * 2, task).await.unwrap().unwrap();
    }
}
