//! BBR flows over one bottleneck: how much they use, how they share, how long the queue gets.
//!
//! The sender here is not TCP: packets have numbers, each is acknowledged by itself, and one is lost when a packet
//! three later was acknowledged, or when nothing came for a second. It measures delivery rates as
//! draft-ietf-ccwg-bbr-06, 4.1.2, says. Lost data is not repeated; new data takes its place.

use alloc::collections::{BTreeMap, BinaryHeap};
use alloc::vec::Vec;
use core::cmp::Reverse;

use super::*;
use crate::controller::Delivery;

const MSS: u64 = 1_460;

/// What is remembered of a packet under way.
#[derive(Clone, Copy)]
struct Sent {
    at: Time,
    delivered: u64,
    delivered_at: Time,
    first_sent_at: Time,
    sent_in_flight: u64,
    lost: u64,
}

struct Flow {
    bbr: Bbr,
    window: Window,
    next: u64,
    under_way: BTreeMap<u64, Sent>,
    next_send: Time,
    delivered: u64,
    delivered_at: Time,
    first_sent_at: Time,
    lost: u64,
    srtt: Option<Span>,
    recover: u64,
    starts: Time,
    has_alarm: bool,
    timeouts: u32,
}

impl Flow {
    fn new(seed: u64) -> Flow {
        let window = Window { cwnd: 10 * MSS, ssthresh: u64::MAX, mss: MSS as u32 };
        Flow {
            bbr: Bbr::new(&window, seed),
            window,
            next: 0,
            under_way: BTreeMap::new(),
            next_send: Time::ZERO,
            delivered: 0,
            delivered_at: Time::ZERO,
            first_sent_at: Time::ZERO,
            lost: 0,
            srtt: None,
            recover: 0,
            starts: Time::ZERO,
            has_alarm: false,
            timeouts: 0,
        }
    }

    fn in_flight(&self) -> u64 {
        self.under_way.len() as u64 * MSS
    }

    fn send(&mut self, now: Time) -> u64 {
        if self.under_way.is_empty() {
            (self.first_sent_at, self.delivered_at) = (now, now);
        }
        let sent = Sent {
            at: now,
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            first_sent_at: self.first_sent_at,
            sent_in_flight: self.in_flight() + MSS,
            lost: self.lost,
        };
        self.under_way.insert(self.next, sent);
        self.next += 1;
        let rate = self.bbr.pacing_rate().expect("BBR paces");
        self.next_send = self.next_send.max(now) + rate.span_of(MSS);
        self.next - 1
    }

    fn acknowledge(&mut self, now: Time, number: u64) {
        let Some(sent) = self.under_way.remove(&number) else { return };
        self.delivered += MSS;
        self.delivered_at = now;
        self.first_sent_at = sent.at;
        while let Some((&first, &missing)) = self.under_way.first_key_value()
            && first + 3 <= number
        {
            self.lose(now, first, missing);
        }
        let rtt = now.since(sent.at);
        self.srtt = Some(self.srtt.map_or(rtt, |srtt| (srtt * 7 + rtt) / 8));
        let interval = now.since(sent.delivered_at).max(sent.at.since(sent.first_sent_at));
        let volume = self.delivered - sent.delivered;
        let delivery = Delivery {
            bytes_per_second: (volume as f64 / interval.as_secs_f64()) as u64,
            is_app_limited: false,
            lost: self.lost - sent.lost,
            delivered: self.delivered,
            prior_delivered: sent.delivered,
            sent_in_flight: sent.sent_in_flight,
        };
        let acked = Acked {
            now,
            bytes: MSS,
            rtt: Some(rtt),
            smoothed_rtt: self.srtt,
            in_flight: self.in_flight(),
            is_window_limited: self.in_flight() + 2 * MSS > self.window.cwnd,
            in_recovery: number < self.recover,
            round_ended: false,
            delivery: Some(delivery),
        };
        self.bbr.on_ack(&mut self.window, &acked);
    }

    fn lose(&mut self, now: Time, number: u64, sent: Sent) {
        self.under_way.remove(&number);
        self.lost += MSS;
        let lost = Lost {
            now,
            bytes: MSS,
            lost: self.lost - sent.lost,
            delivered: self.delivered,
            sent_in_flight: sent.sent_in_flight,
            is_app_limited: false,
        };
        self.bbr.on_lost(&mut self.window, &lost);
        if number >= self.recover {
            self.recover = self.next;
            let in_flight = self.in_flight();
            self.bbr.on_congestion(now, &mut self.window, Congestion::Loss, in_flight);
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Acknowledge(usize, u64),
    Send(usize),
    /// A second passed.
    Watch(usize),
}

/// A bottleneck with a finite queue, and what it saw.
struct Bottleneck {
    rate: Rate,
    round_trip: Span,
    buffer: Span,
    /// One in this many packets is lost, besides those for which there is no room.
    loss_every: Option<u64>,
    free_at: Time,
    events: BinaryHeap<Reverse<(Time, u64, Event)>>,
    count: u64,
    packets: u64,
    drops: u64,
    waits: Vec<f64>,
}

impl Bottleneck {
    /// 10 Mb/s and 40 ms with room for `buffer` of waiting.
    fn new(buffer_ms: u64) -> Bottleneck {
        Bottleneck {
            rate: Rate::from_megabits(10),
            round_trip: Span::from_nanos(40_000_000),
            buffer: Span::from_nanos(buffer_ms * 1_000_000),
            loss_every: None,
            free_at: Time::ZERO,
            events: BinaryHeap::new(),
            count: 0,
            packets: 0,
            drops: 0,
            waits: Vec::new(),
        }
    }

    fn schedule(&mut self, at: Time, event: Event) {
        self.count += 1;
        self.events.push(Reverse((at, self.count, event)));
    }

    fn carry(&mut self, now: Time, flow: usize, number: u64) {
        let wait = self.free_at.since(now);
        self.packets += 1;
        let is_unlucky = self.loss_every.is_some_and(|every| self.packets.is_multiple_of(every));
        if wait > self.buffer || is_unlucky {
            self.drops += 1;
            return;
        }
        self.waits.push(wait.as_secs_f64());
        self.free_at = now + wait + self.rate.span_of(MSS + 40);
        self.schedule(self.free_at + self.round_trip, Event::Acknowledge(flow, number));
    }

    fn fill(&mut self, now: Time, index: usize, flow: &mut Flow) {
        while flow.in_flight() + MSS <= flow.window.cwnd {
            if flow.next_send > now {
                if !flow.has_alarm {
                    flow.has_alarm = true;
                    self.schedule(flow.next_send, Event::Send(index));
                }
                return;
            }
            let number = flow.send(now);
            self.carry(now, index, number);
        }
    }

    /// Gives up all that `flow` has under way if nothing came for a second.
    fn watch(&mut self, now: Time, index: usize, flow: &mut Flow) {
        let second = Span::from_secs(1);
        let quiet = now.since(flow.delivered_at);
        if quiet >= second && !flow.under_way.is_empty() {
            let in_flight = flow.in_flight();
            for (number, sent) in core::mem::take(&mut flow.under_way) {
                flow.lose(now, number, sent);
            }
            flow.bbr.on_congestion(now, &mut flow.window, Congestion::Timeout, in_flight);
            flow.timeouts += 1;
        }
        self.schedule(now + second, Event::Watch(index));
    }

    /// Runs `flows` until `end`; bytes that each delivered since `from`, per second.
    fn run(&mut self, flows: &mut [Flow], from: u64, end: u64) -> Vec<f64> {
        for (index, flow) in flows.iter_mut().enumerate() {
            flow.has_alarm = true;
            self.schedule(flow.starts, Event::Send(index));
            self.schedule(flow.starts, Event::Watch(index));
        }
        self.resume(flows, from, end)
    }

    fn resume(&mut self, flows: &mut [Flow], from: u64, end: u64) -> Vec<f64> {
        let mut before = alloc::vec![0; flows.len()];
        while let Some(Reverse((now, _, event))) = self.events.pop() {
            if now > second(end) {
                break;
            }
            if now < second(from) {
                before = flows.iter().map(|flow| flow.delivered).collect();
                self.waits.clear();
            }
            let index = match event {
                Event::Acknowledge(index, number) => {
                    flows[index].acknowledge(now, number);
                    index
                }
                Event::Watch(index) => {
                    self.watch(now, index, &mut flows[index]);
                    index
                }
                Event::Send(index) => {
                    flows[index].has_alarm = false;
                    index
                }
            };
            self.fill(now, index, &mut flows[index]);
        }
        let seconds = (end - from) as f64;
        flows
            .iter()
            .zip(before)
            .map(|(flow, old)| (flow.delivered - old) as f64 / seconds)
            .collect()
    }

    fn mean_wait(&self) -> f64 {
        self.waits.iter().sum::<f64>() / self.waits.len() as f64
    }
}

/// What the link delivers at most, bytes of payload per second.
const CAPACITY: f64 = 1_250_000.0 * MSS as f64 / (MSS + 40) as f64;

fn second(count: u64) -> Time {
    Time::ZERO + Span::from_secs(count)
}

#[test]
fn one_flow_fills_the_link_and_not_the_queue() {
    for buffer_ms in [20, 40, 200] {
        let mut bottleneck = Bottleneck::new(buffer_ms);
        let mut flows = [Flow::new(1)];
        let rates = bottleneck.run(&mut flows, 2, 60);
        let used = rates[0] / CAPACITY;
        assert!(used > 0.95, "{used} of the link with a buffer of {buffer_ms} ms");
        let wait = bottleneck.mean_wait();
        assert!(wait < 0.006, "{wait} s in a buffer of {buffer_ms} ms");
        let least = flows[0].bbr.min_rtt.least().expect("it measured");
        assert_eq!(least, Span(41_200_000_000), "40 ms and a packet's own time");
        let lost = bottleneck.drops as f64 / bottleneck.packets as f64;
        assert!(lost < 0.01, "{lost} lost with a buffer of {buffer_ms} ms");
    }
}

#[test]
fn two_flows_share_whenever_the_second_starts() {
    for start in [0, 3, 20] {
        for buffer_ms in [20, 40, 200] {
            let mut bottleneck = Bottleneck::new(buffer_ms);
            let mut flows = [Flow::new(1), Flow::new(2)];
            flows[1].starts = second(start);
            let rates = bottleneck.run(&mut flows, 30, 90);
            let used = (rates[0] + rates[1]) / CAPACITY;
            assert!(used > 0.95, "{used} of the link, start {start} s, buffer {buffer_ms} ms");
            let share = rates[0].min(rates[1]) / (rates[0] + rates[1]);
            assert!(share > 0.35, "share {share}, start {start} s, buffer {buffer_ms} ms");
            // Two flows never see the path empty but in ProbeRtt, which they come to do together.
            for flow in &flows {
                let least = flow.bbr.min_rtt.least().expect("it measured").as_secs_f64();
                assert!((0.0412..0.0433).contains(&least), "{least} s");
            }
            assert!(bottleneck.mean_wait() < 0.06, "{} s", bottleneck.mean_wait());
        }
    }
}

#[test]
fn scattered_losses_are_tolerated() {
    for (every, least) in [(1_000, 0.93), (100, 0.5)] {
        let mut bottleneck = Bottleneck::new(200);
        bottleneck.loss_every = Some(every);
        let rates = bottleneck.run(&mut [Flow::new(1)], 10, 60);
        let used = rates[0] / CAPACITY;
        // Reno would have sqrt(1.5 / p) segments per round trip: 12 of 34 at one in a hundred.
        assert!(used > least, "{used} with one in {every} lost");
    }
}

#[test]
fn a_link_that_slows_down_is_followed() {
    let mut bottleneck = Bottleneck::new(200);
    let mut flows = [Flow::new(1)];
    bottleneck.run(&mut flows, 2, 20);
    assert!((flows[0].bbr.model.max_bw() / CAPACITY - 1.0).abs() < 0.02);
    bottleneck.rate = Rate::from_megabits(5);
    bottleneck.events.push(Reverse((second(20), 0, Event::Send(0))));
    flows[0].has_alarm = true;
    let rates = bottleneck.resume(&mut flows, 40, 60);
    let used = rates[0] / (CAPACITY / 2.0);
    assert!((0.93..1.001).contains(&used), "{used}");
    assert!((flows[0].bbr.model.max_bw() / CAPACITY - 0.5).abs() < 0.02);
    assert!(bottleneck.mean_wait() < 0.012, "{} s", bottleneck.mean_wait());
}

#[test]
fn startup_doubles_and_drain_drains() {
    let mut bottleneck = Bottleneck::new(200);
    let mut flows = [Flow::new(1)];
    bottleneck.run(&mut flows, 0, 1);
    let bbr = &flows[0].bbr;
    assert!(bbr.model.full.is_reached && bbr.state.is_probe_bw(), "{:?}", bbr.state);
    // log2(34 / 10) rounds up to the rate, three without growth, and the drain.
    assert!(bbr.model.round_count < 25, "{}", bbr.model.round_count);
    assert!(flows[0].window.cwnd <= 2 * bbr.bdp(bbr.model.bw(), 1.0) + 12 * MSS);
}

#[test]
fn waits_between_probes_come_from_the_seed() {
    let waits = |seed| {
        let mut bbr = Flow::new(seed).bbr;
        let words: [u64; 8] = core::array::from_fn(|_| bbr.draw());
        words
    };
    assert_eq!(waits(7), waits(7));
    assert_ne!(waits(7), waits(8));
    // SplitMix64 of seed 0, as its authors' reference gives it.
    assert_eq!(waits(0)[..2], [0xE220_A839_7B1D_CDAF, 0x6E78_9E6A_A1B9_65F4]);
}

#[test]
fn a_timeout_leaves_one_segment_and_undo_restores_the_window() {
    let mut flows = [Flow::new(1)];
    Bottleneck::new(200).run(&mut flows, 0, 3);
    let Flow { bbr, window, .. } = &mut flows[0];
    let (before, longterm) = (*window, bbr.model.inflight_longterm);
    bbr.on_congestion(second(3), window, Congestion::Timeout, 20 * MSS);
    assert_eq!(window.cwnd, MSS);
    bbr.on_congestion(second(4), window, Congestion::Timeout, MSS);
    bbr.undo(second(5), window);
    assert_eq!(*window, before);
    assert_eq!(bbr.model.inflight_longterm, longterm);
    window.cwnd = MSS;
    bbr.undo(second(6), window);
    assert_eq!(window.cwnd, MSS, "what was given back once is forgotten");
}

/// 5.5.11.2: a phase that a spurious loss ended is resumed, unless the round-trip time is being probed.
#[test]
fn a_spurious_end_of_a_probe_is_undone_but_not_in_probe_rtt() {
    use State::{Down, Drain, ProbeRtt, Refill, Startup, Up};
    for (ended, state, expected, is_reached) in [
        (Some(Up), Down, Refill, true),
        (Some(Up), Up, Up, true),
        (Some(Up), ProbeRtt, ProbeRtt, true),
        (Some(Startup), Drain, Startup, false),
        (Some(Startup), Startup, Startup, true),
        (Some(Startup), ProbeRtt, ProbeRtt, false),
        (None, Down, Down, true),
    ] {
        let mut window = Window { cwnd: 10 * MSS, ssthresh: u64::MAX, mss: MSS as u32 };
        let mut bbr = Bbr::new(&window, 1);
        bbr.model.full.is_reached = true;
        (bbr.state, bbr.undo_state) = (state, ended);
        let (bw_shortterm, inflight_shortterm, inflight_longterm) = (1e6, 9 * MSS, 8 * MSS);
        bbr.before = Some(Before { bw_shortterm, inflight_shortterm, inflight_longterm });
        bbr.undo(Time::ZERO, &mut window);
        let after = (bbr.state, bbr.model.full.is_reached);
        assert_eq!(after, (expected, is_reached), "{ended:?} {state:?}");
        assert_eq!(bbr.undo_state, None);
    }
}

/// 5.3.4.3, MarkConnectionAppLimited: from its beginning until all that is under way is delivered,
/// what ProbeRtt measures is no limit of the path. A new one begins a new stretch.
#[test]
fn samples_in_probe_rtt_are_application_limited() {
    let mut window = Window { cwnd: 10 * MSS, ssthresh: u64::MAX, mss: MSS as u32 };
    let mut bbr = Bbr::new(&window, 1);
    bbr.state = State::ProbeRtt;
    let delivery = Delivery {
        bytes_per_second: 1_000_000,
        is_app_limited: false,
        lost: 0,
        delivered: 0,
        prior_delivered: 0,
        sent_in_flight: 0,
    };
    let acked = |in_flight, prior_delivered| Acked {
        now: Time::from_nanos(1_000_000),
        bytes: MSS,
        rtt: None,
        smoothed_rtt: None,
        in_flight,
        is_window_limited: false,
        in_recovery: false,
        round_ended: false,
        delivery: Some(Delivery { prior_delivered, ..delivery }),
    };
    let is_limited = |bbr: &Bbr, sent_at| {
        bbr.sample(&acked(0, sent_at)).expect("a sample").delivery.is_app_limited
    };
    assert!(!is_limited(&bbr, 0) && !is_limited(&bbr, u64::MAX));
    for (delivered, in_flight, limited) in [
        (0, 9_000, [0, 9_000]),
        (5_000, 5_000, [0, 10_000]),
        (10_000, 2_000, [0, 12_000]),
        (12_001, 3_000, [12_001, 15_001]),
        (13_000, 2_500, [12_001, 15_500]),
    ] {
        bbr.delivered = delivered;
        let sample = bbr.sample(&acked(in_flight, 0)).expect("a sample");
        bbr.hold_probe_rtt(&mut window, &sample);
        assert_eq!(bbr.limited, limited, "{delivered}");
    }
    let sent = [12_000, 12_001, 15_500, 15_501].map(|sent_at| is_limited(&bbr, sent_at));
    assert_eq!(sent, [false, true, true, false]);
}
