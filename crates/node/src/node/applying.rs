//! The appliers' work: they take items from the queue, in order, and hand them to the server.

use super::{LAST_COMMITS, Node, OnDrop};
use crate::api::APPLIER;
use crate::command::Command;
use crate::item::{ApplyItem, Item};
use crate::outage::{Look, Unread};
use crate::prompt::Prompt;
use crate::threads::lock;
use crate::{Code, ConnId, Handle, Level, Meta, RecvCtx, ServerView, Source, TrxId, flags};
use bytes::Bytes;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};
use trireme_certification::{Head, WriteSet};
use trireme_types::Seqno;

/// How often an applier looks for an entry that the log lost in an outage.
const LOOK_FOR_ENTRY: Duration = Duration::from_millis(100);

impl Node {
    pub fn recv(&self, ctx: RecvCtx) -> Code {
        let shared = &self.shared;
        let queue = &shared.queue;
        let mut prompt = Prompt::begin();
        queue.arrive();
        // Also when a callback panics: the queue must know.
        let _departure = OnDrop(|| queue.depart());
        let sank = || {
            self.shared.commands.push(Command::BacklogSank);
        };
        let linger = |waiting: &AtomicUsize| shared.appliers.until(|| waiting.load(Relaxed) > 0);
        while let Some(item) = queue.take(sank, linger) {
            prompt.look(queue.len());
            let write_set = item.is_write_set();
            let _done = OnDrop(|| queue.done(write_set));
            if let Some(code) = self.handle(ctx, item) {
                return code;
            }
        }
        Code::ConnFail
    }

    /// For a thread whose `recv` panicked: waits for the last item, which tells the server of the end. The items before it
    /// are left to the other threads, or to the next start.
    pub fn recv_end(&self, ctx: RecvCtx) -> Code {
        let queue = &self.shared.queue;
        queue.arrive();
        let _departure = OnDrop(|| queue.depart());
        while let Some(item) = queue.take(|| (), |_| ()) {
            let write_set = item.is_write_set();
            let _done = OnDrop(|| queue.done(write_set));
            if matches!(item, Item::Final { .. }) {
                self.handle(ctx, item);
            }
        }
        Code::NodeFail
    }

    /// `Some` when this thread is to return.
    fn handle(&self, ctx: RecvCtx, item: Item) -> Option<Code> {
        let shared = &self.shared;
        if shared.life.is_server_gone() {
            return matches!(item, Item::Final { .. }).then_some(Code::NodeFail);
        }
        shared.panics.come_by(item.place());
        if shared.life.is_halted() && !matches!(item, Item::Final { .. }) {
            return None;
        }
        match item {
            Item::Connected(view) => {
                if !shared.host.server.connected(&view) {
                    shared.give_up("the server refused the connection".into(), false);
                }
                None
            }
            Item::View { view, closes } => {
                shared.main_thread.await_sleep();
                self.deliver_view(ctx, &view, closes);
                None
            }
            Item::Compare { position, word } => {
                self.compare(position, word);
                None
            }
            Item::SstRequest { data } => {
                shared.main_thread.is_joiner();
                self.request_state(data);
                None
            }
            Item::Apply(item) => self.apply(ctx, item),
            Item::Donate { joiner, request, position, at } => {
                self.donate(ctx, joiner, &request, position, at);
                None
            }
            Item::Synced { at } => {
                if shared.monitor.wait_handed(at).is_ok() && !shared.host.server.synced() {
                    shared.give_up("the server failed to become synced".into(), false);
                }
                None
            }
            Item::Final { view, last } => {
                // Local transactions that are ordered may still be on their way into the engine, also when they have left commit order.
                let _ = shared.monitor.wait_ended(last, Some(Instant::now() + LAST_COMMITS));
                shared.settle_position();
                shared.host.server.view(ctx, &view);
                Some(Code::Ok)
            }
        }
    }

    fn deliver_view(&self, ctx: RecvCtx, view: &ServerView, closes: Option<Seqno>) {
        let shared = &self.shared;
        if let Some(seqno) = closes {
            if shared.monitor.wait_start_when_ended(seqno).is_err() {
                return;
            }
        }
        // The committed position must stay below the view until the callback returns (contract 3.8).
        *lock(&shared.viewed) = view.seqno.map(|seqno| (thread::current().id(), seqno));
        let taken = shared.host.server.view(ctx, view);
        *lock(&shared.viewed) = None;
        if !taken {
            return shared.on_view_refused();
        }
        if let Some(seqno) = closes {
            if shared.monitor.enter(seqno, None).is_ok() {
                self.leave_order(seqno);
                shared.monitor.end(seqno);
            }
        }
    }

    fn apply(&self, ctx: RecvCtx, item: ApplyItem) -> Option<Code> {
        let shared = &self.shared;
        if shared.monitor.wait_start(item.seqno, item.depends_on).is_err() {
            return None;
        }
        let body = match item.body {
            Some(body) => body,
            None => match self.read_body(&item) {
                Ok(body) => body,
                Err(Unread::Lost) => {
                    let reason = "the log holds it no more";
                    shared.give_up(format!("write set {} cannot be read back: {reason}", item.seqno), true);
                    return None;
                }
                Err(Unread::Ended) => {
                    // The connection ends. Nothing above this write set commits, so the data end before it.
                    let text = format!(
                        "write set {} is not applied: the connection ends before it can be read back",
                        item.seqno
                    );
                    shared.host.log(Level::Info, text);
                    // The queue stays: the final view may be in it.
                    shared.monitor.set_closed(true);
                    return None;
                }
            },
        };
        let parsed = WriteSet::parse(body);
        let head = parsed.as_ref().map_or_else(|_| Head::default(), |ws| *ws.head());
        let flags = if item.ok { head.flags } else { flags::ROLLBACK | flags::TRX_START | flags::TRX_END };
        let dummy = flags & flags::ROLLBACK != 0;
        let data = match parsed {
            Ok(ws) if !dummy => ws.data(),
            Ok(_) | Err(_) => Bytes::new(),
        };
        let toi = flags & flags::ISOLATION != 0;
        if toi {
            if shared.monitor.wait_start_when_ended(item.seqno).is_err() {
                return None;
            }
            if !self.begin_statement(item.seqno) {
                return None;
            }
        }
        let meta = Meta {
            gtid_history: shared.data.history(),
            seqno: item.seqno,
            origin: head.origin,
            source: Source { trx: TrxId(head.trx), conn: ConnId(head.conn) },
            depends_on: Some(item.depends_on),
        };
        let handle = Handle { trx: TrxId(head.trx), opaque: APPLIER };
        let begun = shared.metrics.clock();
        let applied = shared.host.server.apply(ctx, handle, flags, &data, &meta);
        if let Some(begun) = begun {
            shared.metrics.apply.record(begun.elapsed());
        }
        shared.monitor.end(item.seqno);
        if toi {
            self.end_statement(item.seqno);
        }
        // After a lost vote the failure is no news.
        if !applied.ok && !shared.monitor.is_closed() && !shared.data.is_inconsistent() {
            let reason =
                format!("Failed to apply write set {}:{}; leaving the group", shared.data.history(), item.seqno);
            shared.give_up(reason, true);
        }
        applied.exit_loop.then_some(Code::Ok)
    }

    /// Waits through an outage of the log's disk.
    fn read_body(&self, item: &ApplyItem) -> Result<Bytes, Unread> {
        let look = || {
            let Some(reader) = lock(&self.shared.reader).clone() else { return Look::NoLog };
            match reader.get(item.index) {
                Ok(Some(entry)) if entry.header.seqno == item.seqno => Look::Found(entry.payload),
                Ok(Some(_)) => Look::Missing { behind: false },
                Ok(None) => Look::Missing { behind: item.index > reader.held().1 },
                Err(_) => Look::Failed,
            }
        };
        self.shared.outage.read(LOOK_FOR_ENTRY, look)
    }
}
