//! Panics and standstills on purpose, for tests; nothing without the feature `panics`.

#[cfg(feature = "panics")]
use std::collections::BTreeSet;
#[cfg(feature = "panics")]
use std::sync::{Condvar, Mutex, MutexGuard};

#[cfg(feature = "panics")]
#[derive(Default)]
struct Wishes {
    panics: BTreeSet<String>,
    stalls: BTreeSet<String>,
    /// Where somebody stands.
    stalled: BTreeSet<String>,
}

/// Places that are to panic when they are next come by, or to be passed by nobody.
#[cfg(feature = "panics")]
#[derive(Default)]
pub struct Panics {
    wishes: Mutex<Wishes>,
    changed: Condvar,
}

#[cfg(feature = "panics")]
impl Panics {
    fn lock(&self) -> MutexGuard<'_, Wishes> {
        self.wishes.lock().expect("no holder panics")
    }

    pub fn arm(&self, place: &str) {
        self.lock().panics.insert(place.to_owned());
    }

    /// Until the same with `false`.
    pub fn stall(&self, place: &str, stall: bool) {
        let mut wishes = self.lock();
        if stall {
            wishes.stalls.insert(place.to_owned());
        } else {
            wishes.stalls.remove(place);
        }
        self.changed.notify_all();
    }

    pub fn is_stalled(&self, place: &str) -> bool {
        self.lock().stalled.contains(place)
    }

    /// For who must not wait itself: is the place to be passed by nobody? Then somebody stands there from now on.
    pub fn holds(&self, place: &str) -> bool {
        let mut wishes = self.lock();
        let holds = wishes.stalls.contains(place);
        if holds {
            wishes.stalled.insert(place.to_owned());
        }
        holds
    }

    /// Each line of this file names a place that is to panic; `stall PLACE` is one to be passed by nobody, until `pass PLACE`.
    pub fn take_file(&self, data_dir: &str) {
        let path = std::path::Path::new(data_dir).join("panic-in");
        // The thread that removes it has it.
        if let Ok(text) = std::fs::read_to_string(&path)
            && text.ends_with('\n')
            && std::fs::remove_file(&path).is_ok()
        {
            for line in text.lines() {
                match line.split_once(' ') {
                    Some(("stall", place)) => self.stall(place, true),
                    Some(("pass", place)) => self.stall(place, false),
                    Some(_) | None => self.arm(line),
                }
            }
        }
    }

    pub fn come_by(&self, place: &str) {
        let mut wishes = self.lock();
        while wishes.stalls.contains(place) {
            wishes.stalled.insert(place.to_owned());
            wishes = self.changed.wait(wishes).expect("no holder panics");
        }
        wishes.stalled.remove(place);
        let armed = wishes.panics.remove(place);
        drop(wishes);
        assert!(!armed, "injected in {place}");
    }
}

#[cfg(not(feature = "panics"))]
#[derive(Default)]
pub struct Panics {}

#[cfg(not(feature = "panics"))]
impl Panics {
    #[inline(always)]
    pub fn come_by(&self, _place: &str) {}
}
