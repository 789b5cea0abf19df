//! The thread that computes TLS handshakes.
//!
//! A handshake costs milliseconds of public-key arithmetic before the peer has shown anything, so a stranger could keep the
//! group thread busy by opening connections. Here it delays other strangers only: those whose address is a member's come first, then those
//! who have shown something already, then the newest. (The oldest first would serve nobody once more come than can be served:
//! each would be given up just before its turn.)

use std::sync::{Arc, Weak};

use crate::Waker;
use crate::helper::{Helper, HelperError, Turn};
use crate::tls::{Session, SessionError};

/// Asked by `step`.
pub(crate) type Handshaker = Helper<(Weak<()>, Session), Stepped>;

/// Names a step that was asked for. The step is skipped once the asker has dropped it: then its connection is gone, and
/// strangers who come and go in a hurry leave no work behind.
#[derive(Clone)]
pub(crate) struct Ticket(Arc<()>);

/// The answer for one step.
pub(crate) struct Stepped {
    ticket: Weak<()>,
    pub session: Session,
    /// Is the handshake done? The error says why it failed.
    pub result: Result<bool, SessionError>,
}

impl Stepped {
    pub fn answers(&self, ticket: &Ticket) -> bool {
        std::ptr::eq(self.ticket.as_ptr(), Arc::as_ptr(&ticket.0))
    }
}

pub(crate) fn handshaker(waker: Waker) -> Handshaker {
    Helper::new(waker, "trireme-tls", "the thread for TLS handshakes", |(ticket, mut session)| {
        if ticket.strong_count() == 0 {
            return None;
        }
        let result = session.handshake();
        Some(Stepped { ticket, session, result })
    })
}

impl Handshaker {
    /// Goes on with the handshake of `session`.
    pub fn step(&mut self, session: Session, turn: Turn) -> Result<Ticket, HelperError> {
        let ticket = Ticket(Arc::new(()));
        self.ask((Arc::downgrade(&ticket.0), session), turn)?;
        Ok(ticket)
    }
}
