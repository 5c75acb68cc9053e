//! The effects of one call on a router, observed from outside: by its memory and its counters.

use nilometer_queue::Reason;
use nilometer_router::discard::Discard;
use nilometer_router::memory::{Memory, Place};
use nilometer_router::pipeline::Router;

use super::event::{Response, digest};

/// A memory that notes which frames are given back, and when it has no room.
pub struct ObservedMemory<'a, M> {
    inner: &'a mut M,
    response: &'a mut Response,
    /// Buffers requested in this call.
    requests: u64,
    /// Those of them that are to be refused, as the recorded ones were; none where the memory decides.
    refuse: Option<&'a [u64]>,
}

impl<'a, M: Memory> ObservedMemory<'a, M> {
    pub fn new(
        inner: &'a mut M,
        response: &'a mut Response,
        refuse: Option<&'a [u64]>,
    ) -> ObservedMemory<'a, M> {
        ObservedMemory { inner, response, requests: 0, refuse }
    }
}

impl<M: Memory> Memory for ObservedMemory<'_, M> {
    fn take(&mut self, bytes: u16) -> Option<Place> {
        let number = self.requests;
        self.requests += 1;
        let is_refused = self.refuse.is_some_and(|refused| refused.contains(&number));
        let taken = if is_refused { None } else { self.inner.take(bytes) };
        if taken.is_none() {
            self.response.refused.push(number);
        }
        taken
    }

    fn give(&mut self, place: Place) {
        self.response.gone.push(digest(self.inner.frame(place)));
        self.inner.give(place);
    }

    fn frame(&self, place: Place) -> &[u8] {
        self.inner.frame(place)
    }

    fn expect(&self, place: Place) {
        self.inner.expect(place);
    }

    fn frame_mut(&mut self, place: Place) -> &mut [u8] {
        self.inner.frame_mut(place)
    }
}

/// Counters of all that goes no further, by port and reason.
#[derive(Debug, Default)]
pub struct Counters {
    before: Vec<u64>,
    now: Vec<u64>,
}

/// Reasons of a port.
const OF_A_PORT: usize = Discard::ALL.len() + 2 * Reason::ALL.len();

impl Counters {
    fn read(router: &Router, into: &mut Vec<u64>) {
        into.clear();
        for (number, port) in router.ports().iter().enumerate() {
            let discards = port.discards();
            into.extend(Discard::ALL.iter().map(|&why| discards.of(why)));
            for ledger in
                [router.fabric().input_ledger(number), router.fabric().output_ledger(number)]
            {
                into.extend(Reason::ALL.iter().map(|&reason| ledger.drops.packets(reason)));
            }
        }
    }

    /// Looks how they are.
    pub fn begin(&mut self, router: &Router) {
        Counters::read(router, &mut self.before);
    }

    /// The counters that have risen since the last call, by number and by how much.
    pub fn risen(&mut self, router: &Router) -> Vec<(u64, u64)> {
        Counters::read(router, &mut self.now);
        let pairs = self.before.iter().zip(&self.now).zip(0..);
        let risen = pairs.filter(|((before, now), _)| before != now);
        let risen = risen.map(|((before, now), number)| (number, now.saturating_sub(*before)));
        let risen = risen.collect();
        std::mem::swap(&mut self.before, &mut self.now);
        risen
    }

    /// What a counter counts, in words.
    pub fn name(router: &Router, number: u64) -> String {
        let (port, at) = (number as usize / OF_A_PORT, number as usize % OF_A_PORT);
        let port = router.ports().get(port).map_or("?", |port| port.plan().name.as_str());
        let queue = |at: usize| Reason::ALL[at].name();
        let (discards, reasons) = (Discard::ALL.len(), Reason::ALL.len());
        if at < discards {
            return format!("port {port}: discarded: {}", Discard::ALL[at].name());
        }
        match at - discards {
            at if at < reasons => format!("port {port}: input queue: {}", queue(at)),
            at => format!("port {port}: discipline: {}", queue(at - reasons)),
        }
    }
}
