//! A forwarding thread on the tables of a RIB thread: it looks up addresses, and takes newer next hops before
//! each batch.

#![allow(dead_code, reason = "each test file uses its own part of this one")]

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nilometer_router::{AnyPrefix, Hop, Lookups, Prefix, Source};
use nilometer_routerd::latest::HopsReader;
use nilometer_routerd::rib_thread::{RibThread, Selection};

/// Packets of a batch.
const BATCH: usize = 64;

pub struct Forwarder {
    pub v4: Box<dyn Lookups<u32>>,
    hops: HopsReader,
}

impl Forwarder {
    pub fn new(rib: &RibThread) -> Forwarder {
        Forwarder { v4: rib.lookups().expect("a place").v4, hops: rib.hops() }
    }

    /// The ways of packets to these addresses; nothing where there is no route.
    pub fn batch(&mut self, to: &[u32], flow: u32) -> Vec<Option<Hop>> {
        self.hops.newer();
        let mut found = vec![None; to.len()];
        self.v4.look_up(to, &mut found);
        let known = |next| *self.hops.current().resolve(next, flow).expect("a number it knows");
        let ways = found.into_iter().map(|next| next.map(known)).collect();
        self.hops.rest();
        ways
    }

    pub fn one(&mut self, to: &str) -> Option<Hop> {
        let to: Ipv4Addr = to.parse().expect("an address");
        self.batch(&[to.into()], 0)[0]
    }
}

/// Looks up `all` again and again until it is stopped.
pub struct Watch {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<u64>,
}

impl Watch {
    /// Every way found must satisfy `is_right`.
    pub fn start(
        mut forwarder: Forwarder,
        all: Vec<u32>,
        is_right: impl Fn(u32, Option<Hop>) -> bool + Send + 'static,
    ) -> Watch {
        let stop = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut rounds = 0;
            while !until.load(Ordering::Relaxed) || rounds == 0 {
                for to in all.chunks(BATCH) {
                    for (hop, to) in forwarder.batch(to, rounds as u32).into_iter().zip(to) {
                        assert!(is_right(*to, hop), "{}: {hop:?}", Ipv4Addr::from(*to));
                    }
                }
                rounds += 1;
                // Others need the processor as well.
                thread::sleep(Duration::from_millis(1));
            }
            rounds
        });
        Watch { stop, thread }
    }

    /// Returns how often all were looked up; panics where an answer was wrong.
    pub fn end(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("no packet without its way")
    }
}

/// Routes by prefix: by which port, to which gateway.
pub type Ways = BTreeMap<Prefix<u32>, (u16, Ipv4Addr)>;

/// The IPv4 routes of a source by which packets are sent to a gateway.
pub fn ways(rib: &RibThread, source: Source) -> Ways {
    let mut ways = Ways::new();
    let all = AnyPrefix::V4(Prefix::new(0, 0).expect("short enough"));
    let selection =
        Selection { source: Some(source), within: Some(all), most: usize::MAX, after: None };
    for route in rib.list(selection).routes {
        let AnyPrefix::V4(prefix) = route.prefix else { continue };
        if let Hop::Via { port, gateway: Some(IpAddr::V4(gateway)) } = route.members[0].hop {
            ways.insert(prefix, (port, gateway));
        }
    }
    ways
}

/// Waits until `condition` holds; returns how long that took. At least half of the time is left to
/// other threads, however long a check takes.
pub fn wait(what: &str, mut condition: impl FnMut() -> bool) -> Duration {
    const PATIENCE: Duration = Duration::from_secs(300);
    let begun = Instant::now();
    loop {
        let looked = Instant::now();
        if condition() {
            return begun.elapsed();
        }
        assert!(begun.elapsed() < PATIENCE, "no {what}");
        thread::sleep(looked.elapsed().max(Duration::from_millis(5)));
    }
}
