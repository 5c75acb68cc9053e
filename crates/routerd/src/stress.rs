//! The stress test of distributed queueing on a running router (DER paper, section 8, Table 4).
//!
//! The load is the simulator's own, [`StressLoad`]: at each broadcast it sees what the ports announce,
//! and aims its sources at one output after the other. The rest is the real router: packets are made in
//! the forwarding thread between two turns, as if they had just arrived at the ports, and then pass the
//! whole pipeline, the fabric and the links of the outputs, by the machine's clock. Table 4's `N`, `S`,
//! `L` and `D` are those of the running fabric.
//!
//! # Scale
//!
//! A thread that the kernel keeps waiting makes a broadcast late, and the result of `T` periods is
//! measured in broadcasts. So a period must be long compared with such a wait: with `L` = 7 Mb/s and `D`
//! = 5 ms a period has the bytes that Table 4's 70 Mb/s and 500 us give it, and everything happens ten
//! times slower. Broadcasts that were late by more than half a period are counted, one that was late by
//! several for each of them. A shorter wait costs something, too: links stand idle once it exceeds what
//! they make up for. If the thread overslept in this way for more periods than broadcasts were late,
//! these periods count instead. A run in which more than [`LATE_MOST`] were late is reported and proves
//! nothing.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use nilometer_queue::distributed::SwitchShape;
use nilometer_router::memory::{Memory, Place};
use nilometer_router::pipeline::Router;
use nilometer_sim::overload::{Load, Row};
use nilometer_sim::stress::{StressError, StressLoad, StressPlan};
use nilometer_wire::build::{ethernet, udp};
use nilometer_wire::{Span, Time};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use nilometer_linux::memory::PacketMemory;

/// Packets that a source makes up for in one turn, after the thread was held up.
const MADE_UP_AT_ONCE: u32 = 4_096;
/// The share of late broadcasts up to which a run is valid: what is measured by broadcasts is off by as
/// much, and 3 % is promised.
pub const LATE_MOST: f64 = 0.02;

/// Bytes of the headers before the payload of a datagram in a frame.
const HEADERS: usize = 14 + 20 + 8;
/// The source address of the test's packets: of a network that no port has.
const FROM: Ipv4Addr = Ipv4Addr::new(198, 19, 254, 254);
/// The discard service (RFC 863).
const SERVICE: u16 = 9;

/// Parameters of the stress test (Table 4), except those of the fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StressBody {
    /// `K`: number of sources, one per input.
    pub sources: usize,
    /// `R`: number of stages, each with its own output.
    pub stages: usize,
    /// `M`: frame size in bytes, 64 to 1,500.
    pub packet_bytes: u32,
    /// `T1`: length of the first stage in periods.
    pub t1_periods: u32,
}

impl Default for StressBody {
    /// Table 4.
    fn default() -> StressBody {
        let StressPlan { sources, stages, packet_bytes, t1_periods, .. } = StressPlan::default();
        StressBody { sources, stages, packet_bytes, t1_periods }
    }
}

impl StressBody {
    /// The simulator's plan of the same test, on a fabric of this shape.
    pub fn plan(&self, shape: &SwitchShape) -> StressPlan {
        StressPlan {
            ports: shape.ports(),
            speedup: shape.speedup(),
            link: shape.link(),
            period: shape.period(),
            packet_bytes: self.packet_bytes,
            sources: self.sources,
            stages: self.stages,
            t1_periods: self.t1_periods,
            ..StressPlan::default()
        }
    }
}

/// Progress or result of a stress test.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StressView {
    /// True once the test has finished.
    pub is_over: bool,
    /// Broadcasts so far.
    pub periods: u64,
    /// The broadcasts at which the stages ended, so far.
    pub stages: Vec<u64>,
    /// The first output's backlog at `T1`.
    pub output_backlog_bytes_at_t1: u64,
    /// The first input's backlog for that output at `T1`.
    pub input_backlog_bytes_at_t1: u64,
    /// The first input's rate at `T1` for the last port, whose virtual output queue is idle; Mb/s.
    pub idle_voq_mbps: f64,
    /// The first input's rate for the last stage's output, averaged over periods 10 to 60 of that stage; Mb/s.
    pub last_stage_mbps: f64,
    /// Packets generated.
    pub sent_packets: u64,
    /// Packets not generated for lack of a buffer.
    pub starved_packets: u64,
    /// Packets skipped because the thread was too far behind schedule.
    pub missed_packets: u64,
    /// Broadcasts late by more than half a period (one that is several periods late counts once per period), or, if
    /// larger, the number of periods in which links were idle because the thread woke up late.
    pub late_broadcasts: u64,
    /// True if few enough broadcasts were late, and no packet was skipped or lacked a buffer.
    pub is_valid: bool,
}

/// A source, and the packet that it is sending.
#[derive(Clone, Copy, Debug, Default)]
struct Source {
    aim: Option<u32>,
    underway: Option<(Time, u32)>,
    /// Packets that were left out.
    missed: u64,
}

impl Source {
    fn start(&mut self, now: Time, took: Span) {
        if self.underway.is_none() {
            self.underway = self.aim.map(|output| (now + took, output));
        }
    }

    /// Where the next packet goes that is wholly sent by `now`. Of a turn that has none `left` all that are
    /// due are missed: to make them up would take longer than they last, and the thread would never be
    /// back.
    fn take(&mut self, now: Time, took: Span, left: &mut u32) -> Option<u32> {
        let (due, output) = self.underway.take_if(|underway| underway.0 <= now)?;
        if *left == 0 {
            self.missed += 1 + now.since(due).0 / took.0.max(1);
            self.start(now, took);
            return None;
        }
        *left -= 1;
        self.start(due, took);
        Some(output)
    }
}

/// A stress test that runs.
#[derive(Debug)]
pub struct Stress {
    plan: StressPlan,
    load: StressLoad,
    /// The frame to each stage's output; its Ethernet destination is the port's that it is to come by.
    frames: Vec<Vec<u8>>,
    sources: Vec<Source>,
    aims: Vec<Option<u32>>,
    /// Broadcasts of the fabric before it began.
    before: Option<u64>,
    heard_at: Time,
    rows: Vec<Row>,
    view: StressView,
    /// How long links stood idle because the thread overslept.
    overslept: Span,
}

impl Stress {
    /// A test by `plan`, whose packets to stage j's output go to the j-th of `targets`.
    ///
    /// # Errors
    /// When there cannot be such a load.
    pub fn new(plan: StressPlan, targets: &[IpAddr]) -> Result<Stress, StressError> {
        let load = plan.load()?;
        let payload = vec![0; (plan.packet_bytes as usize).saturating_sub(HEADERS)];
        let frame = |target: &IpAddr| {
            let [from, to] = [FROM.into(), *target].map(|it| SocketAddr::new(it, SERVICE));
            ethernet(&udp(from, to, &payload))
        };
        Ok(Stress {
            plan,
            load,
            frames: targets.iter().map(frame).collect(),
            sources: vec![Source::default(); plan.ports],
            aims: vec![None; plan.ports],
            before: None,
            heard_at: Time::ZERO,
            rows: Vec::new(),
            view: StressView::default(),
            overslept: Span::ZERO,
        })
    }

    /// Records that the thread woke `by` later than requested, where links make up for `made_up`.
    pub fn oversleep(&mut self, by: Span, made_up: Span) {
        self.overslept = Span(self.overslept.0 + by.0.saturating_sub(made_up.0));
    }

    /// How it goes.
    pub fn view(&self) -> StressView {
        let row = |period: u64| self.rows.get(period as usize);
        let last = self.plan.stages - 1;
        let mut view = self.view.clone();
        view.stages = self.load.ends().to_vec();
        let overslept = self.overslept.0 / self.plan.period.0;
        view.late_broadcasts = view.late_broadcasts.max(overslept);
        view.missed_packets = self.sources.iter().map(|source| source.missed).sum();
        let late_most = view.periods as f64 * LATE_MOST;
        let is_whole = view.starved_packets == 0 && view.missed_packets == 0;
        view.is_valid = is_whole && view.late_broadcasts as f64 <= late_most;
        if let Some(at) = row(u64::from(self.plan.t1_periods)) {
            view.output_backlog_bytes_at_t1 = at.output_backlog_bytes[0];
            view.input_backlog_bytes_at_t1 = at.input_backlog_bytes[0];
            view.idle_voq_mbps = at.rate_mbps[self.plan.ports - 1];
        }
        if let Some(end) = view.stages.get(last - 1) {
            let settled = (end + 10..end + 60).filter_map(row).map(|row| row.rate_mbps[last]);
            let settled: Vec<f64> = settled.collect();
            view.last_stage_mbps = settled.iter().sum::<f64>() / settled.len().max(1) as f64;
        }
        view
    }

    /// What is played.
    pub fn plan(&self) -> &StressPlan {
        &self.plan
    }

    /// When it has something to do next.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.sources.iter().filter_map(|source| Some(source.underway?.0)).min()
    }

    /// Hears a broadcast, if there was one, and sends what is due, as far as that is no more than a turn
    /// may make up; whether anything was sent.
    pub fn turn(&mut self, now: Time, router: &mut Router, memory: &mut PacketMemory) -> bool {
        if self.view.is_over {
            return false;
        }
        self.hear(now, router);
        let took = self.plan.link.span_of(u64::from(self.plan.packet_bytes));
        let mut sent = false;
        for input in 0..self.sources.len() {
            let mut left = MADE_UP_AT_ONCE;
            while let Some(output) = self.sources[input].take(now, took, &mut left) {
                self.send(now, (input, output as usize), router, memory);
                sent = true;
            }
        }
        sent
    }

    fn hear(&mut self, now: Time, router: &Router) {
        let fabric = router.fabric();
        let updates = fabric.updates();
        let Some(allocator) = fabric.allocator(0) else {
            // Queueing was switched off meanwhile.
            return self.end();
        };
        let before = *self.before.get_or_insert(updates);
        if updates - before == self.view.periods {
            return;
        }
        let (period, announced) = (self.plan.period, fabric.announced());
        let update = self.view.periods;
        if update > 0 {
            let periods = (now.since(self.heard_at).0 + period.0 / 2) / period.0;
            self.view.late_broadcasts += periods.saturating_sub(1);
        }
        self.heard_at = now;
        self.view.periods += 1;
        let link_mbps = self.plan.link.bits_per_second() as f64 / 1e6;
        self.rows.push(Row {
            period: update,
            output_backlog_bytes: announced
                .iter()
                .map(|announcement| announcement.output_backlog_bytes)
                .collect(),
            input_backlog_bytes: announced[0].input_backlog_bytes.clone(),
            rate_mbps: allocator.rates().iter().map(|rate| rate / 1e6).collect(),
            minimum_rate_mbps: allocator.lo().iter().map(|lo| lo * link_mbps).collect(),
        });
        if !self.load.aim(update, announced, &mut self.aims) || update >= self.plan.periods_most() {
            return self.end();
        }
        let took = self.plan.link.span_of(u64::from(self.plan.packet_bytes));
        for (source, aim) in self.sources.iter_mut().zip(&self.aims) {
            source.aim = *aim;
            source.start(now, took);
        }
    }

    /// Sends no more.
    pub fn end(&mut self) {
        self.view.is_over = true;
        for source in &mut self.sources {
            *source = Source { missed: source.missed, ..Source::default() };
        }
    }

    fn send(
        &mut self,
        now: Time,
        (input, output): (usize, usize),
        router: &mut Router,
        memory: &mut PacketMemory,
    ) {
        let frame = &self.frames[output];
        let Some(place) = memory_take(memory, frame.len()) else {
            self.view.starved_packets += 1;
            return;
        };
        let mac = router.ports()[input].plan().mac;
        let bytes = memory.frame_mut(&place);
        bytes.copy_from_slice(frame);
        bytes[..6].copy_from_slice(&mac);
        self.view.sent_packets += 1;
        router.receive(now, input, &[place], memory, &mut ());
    }
}

fn memory_take(memory: &mut PacketMemory, bytes: usize) -> Option<Place> {
    Memory::take(memory, u16::try_from(bytes).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_sends_a_limited_number_of_packets_and_counts_the_missed() {
        let took = Span(7);
        let mut source = Source { aim: Some(3), ..Source::default() };
        source.start(Time(0), took);
        let mut take = |now: u64| {
            let mut left = 10;
            let sent = std::iter::from_fn(|| source.take(Time(now), took, &mut left));
            let sent = sent.inspect(|output| assert_eq!(*output, 3)).count();
            (sent, source.missed)
        };
        assert_eq!(take(6), (0, 0));
        assert_eq!(take(70), (10, 0), "as many as there may be");
        // A hundred more are due; ninety of them are left out.
        assert_eq!(take(770), (10, 90));
        assert_eq!(take(776), (0, 90));
        assert_eq!(take(777), (1, 90), "it goes on from there");
    }
}
