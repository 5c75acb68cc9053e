//! Which planned connection a server has accepted: the plan by the caller's address and port.

use std::net::{IpAddr, SocketAddr};

use nilometer_traffic::plan::PlannedConnection;

/// One planned connection: its caller, its server, its time, and its place in the plan.
#[derive(Clone, Copy, Debug)]
struct Caller {
    from: SocketAddr,
    to: IpAddr,
    start_ns: u64,
    index: u32,
    has_called: bool,
}

/// Every connection of a plan, by caller and server.
#[derive(Debug)]
pub(super) struct Callers {
    sorted: Vec<Caller>,
}

impl Callers {
    /// The callers of a plan.
    pub fn of(plan: &[PlannedConnection]) -> Callers {
        let caller = |(index, planned): (usize, &PlannedConnection)| Caller {
            from: SocketAddr::new(planned.source, planned.source_port),
            to: planned.destination,
            start_ns: planned.start.as_nanos(),
            index: index as u32,
            has_called: false,
        };
        let mut sorted: Vec<Caller> = plan.iter().enumerate().map(caller).collect();
        sorted.sort_unstable_by_key(|caller| (caller.from, caller.to, caller.index));
        Callers { sorted }
    }

    /// The place in the plan of a connection that was just accepted. Where the plan has several
    /// between the same ends, it is the last that may have begun; each is returned once.
    pub fn take(&mut self, from: SocketAddr, to: IpAddr, now_ns: u64) -> Option<u32> {
        // A flow label or scope of the other end is nothing that a plan knows.
        let from = SocketAddr::new(from.ip(), from.port());
        let first = self.sorted.partition_point(|caller| (caller.from, caller.to) < (from, to));
        let same = self.sorted[first..].iter_mut().take_while(|c| (c.from, c.to) == (from, to));
        let mut found: Option<&mut Caller> = None;
        for caller in same.filter(|caller| !caller.has_called) {
            if found.is_none() || caller.start_ns <= now_ns {
                found = Some(caller);
            }
        }
        let caller = found?;
        caller.has_called = true;
        Some(caller.index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nilometer_wire::Time;

    #[test]
    fn connections_with_a_reused_port_are_distinguished_by_time() {
        let planned = |port, start_ns| PlannedConnection {
            start: Time::from_nanos(start_ns),
            session: 0,
            interval: 0,
            source: [10, 0, 0, 1].into(),
            destination: [10, 0, 0, 2].into(),
            size_bytes: 0,
            request_bytes: 0,
            segment_bytes: 0,
            source_port: port,
            script: Some(0),
        };
        let plan = [planned(7, 10), planned(8, 20), planned(7, 30), planned(7, 50)];
        let mut callers = Callers::of(&plan);
        let (from, to) = (SocketAddr::from(([10, 0, 0, 1], 7)), IpAddr::from([10, 0, 0, 2]));
        assert_eq!(callers.take(from, to, 12), Some(0));
        assert_eq!(callers.take(from, to, 31), Some(2));
        assert_eq!(callers.take(from, to, 31), Some(3), "the only one left");
        assert_eq!(callers.take(from, to, 60), None);
        assert_eq!(callers.take(SocketAddr::from(([10, 0, 0, 1], 8)), from.ip(), 60), None);
        assert_eq!(callers.take(SocketAddr::from(([10, 0, 0, 1], 8)), to, 60), Some(1));
    }
}
