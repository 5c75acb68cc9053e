//! Packets held for a while: by a constant delay, or one that varies.
//!
//! A plugin cannot keep a packet, so this one keeps a copy, drops the packet, and emits the copy when it is due. An
//! emitted packet is looked up like the router's own packets and passes no filters. On the input side the router has
//! not yet counted the hop, and does not for its own packets: the copy's hop limit is one less, and a packet without
//! a hop left continues at once, for the router to answer.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use nilometer_plugin::{Context, Decision, Packet, Plugin, Settings};

const PACKETS: usize = 0;
const EMITTED: usize = 1;
const FULL: usize = 2;
const TOO_LONG: usize = 3;
const LAST_HOP: usize = 4;
const NOT_SENT: usize = 5;

const MS_NS: f64 = 1e6;
/// The longest delay, with its jitter: 10 s.
const MS_MAX: f64 = 10_000.0;
/// Packets that can be held, of 1,500 bytes at most: less than the memory of a sandbox.
const HELD_MAX: usize = 8_192;
/// Packets emitted in a call, fewer than a call may emit.
const EMITTED_AT_ONCE: usize = 128;

/// Holds packets.
///
/// Settings: `delay=MS`, milliseconds, as `20` or `0.5`; `jitter=MS`, by which it is longer or shorter, each delay in
/// between as likely as any other, 0 unless given and at most the delay; `order=free` lets packets overtake each other
/// by that, where otherwise one waits for those before it; `packets=N` held at most (1024): those that find no room
/// are dropped.
pub struct Delay {
    delay_ns: u64,
    jitter_ns: u64,
    keeps_order: bool,
    packets_max: usize,
    /// By the time at which each is due, and their order.
    held: BTreeMap<(u64, u64), Vec<u8>>,
    number: u64,
    last_due_ns: u64,
}

impl Delay {
    /// When a packet that arrives now is due.
    fn due_ns(&mut self, context: &mut Context<'_>) -> u64 {
        let varied = match self.jitter_ns {
            0 => 0,
            jitter => (context.random().unit() * 2.0 * jitter as f64) as u64,
        };
        let due = context.now_ns() + self.delay_ns - self.jitter_ns + varied;
        self.last_due_ns = if self.keeps_order { due.max(self.last_due_ns) } else { due };
        self.last_due_ns
    }

    fn await_first(&self, context: &mut Context<'_>) {
        match self.held.first_key_value() {
            Some(((due, _), _)) => context.set_timer(*due),
            None => context.clear_timer(),
        }
    }
}

/// Decrements a packet's hop limit, and updates its header checksum (RFC 1624); false if no hop is left.
fn take_hop(packet: &mut [u8]) -> bool {
    let at = if packet[0] >> 4 == 4 { 8 } else { 7 };
    match packet.get(at) {
        Some(2..) => packet[at] -= 1,
        _ => return false,
    }
    if at == 8 {
        let sum = u32::from(u16::from_be_bytes([packet[10], packet[11]])) + 0x100;
        let sum = (sum & 0xffff) + (sum >> 16);
        packet[10..12].copy_from_slice(&(sum as u16).to_be_bytes());
    }
    true
}

impl Plugin for Delay {
    const NAME: &'static str = "delay";
    const VERSION: &'static str = "1.0.0";
    /// All that can be emitted.
    const SEEN_BYTES: u16 = 1_500;
    const COUNTERS: &'static [&'static str] =
        &["packets", "emitted", "dropped_full", "too_long", "last_hop", "not_sent"];

    fn new(configuration: &str) -> Result<Delay, String> {
        let mut settings = Settings::parse(configuration)?;
        let delay: f64 = settings.required("delay")?;
        let jitter: f64 = settings.or("jitter", 0.0)?;
        let packets_max: usize = settings.or("packets", 1_024)?;
        let keeps_order = match settings.text("order") {
            None | Some("keep") => true,
            Some("free") => false,
            Some(other) => return Err(format!("`order={other}` is neither keep nor free")),
        };
        settings.finish()?;
        // NaN is refused by this, too.
        if !(delay > 0.0 && delay + jitter <= MS_MAX && (0.0..=delay).contains(&jitter)) {
            return Err(format!(
                "`delay=` must be more than 0, `jitter=` at most as much, and both at most {MS_MAX} ms"
            ));
        }
        if !(1..=HELD_MAX).contains(&packets_max) {
            return Err(format!("`packets=` must be from 1 to {HELD_MAX}"));
        }
        Ok(Delay {
            delay_ns: (delay * MS_NS) as u64,
            jitter_ns: (jitter * MS_NS) as u64,
            keeps_order,
            packets_max,
            held: BTreeMap::new(),
            number: 0,
            last_due_ns: 0,
        })
    }

    fn process(&mut self, packet: &mut Packet<'_>, context: &mut Context<'_>) -> Decision {
        context.count(PACKETS, 1);
        let bytes = packet.bytes();
        if bytes.len() < usize::from(packet.ip_bytes()) || bytes.len() < 20 {
            context.count(TOO_LONG, 1);
            return Decision::Forward;
        }
        if self.held.len() >= self.packets_max {
            context.count(FULL, 1);
            return Decision::Drop;
        }
        let mut copy = bytes.to_vec();
        if context.output().is_none() && !take_hop(&mut copy) {
            context.count(LAST_HOP, 1);
            return Decision::Forward;
        }
        let due_ns = self.due_ns(context);
        self.held.insert((due_ns, self.number), copy);
        self.number += 1;
        self.await_first(context);
        Decision::Drop
    }

    fn timeout(&mut self, context: &mut Context<'_>) {
        for _ in 0..EMITTED_AT_ONCE {
            let Some(first) = self.held.first_entry() else { break };
            if first.key().0 > context.now_ns() {
                break;
            }
            let counter = if context.emit(&first.remove()) { EMITTED } else { NOT_SENT };
            context.count(counter, 1);
        }
        self.await_first(context);
    }

    fn message(&mut self, message: &str, _: &mut Context<'_>) -> Result<String, String> {
        match message {
            "held" => Ok(format!("{} packets", self.held.len())),
            _ => Err(format!("`{message}` is not a message; `held` is one")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Bench, holds, refused, udp, udp_of};

    fn numbered(number: u8) -> Vec<u8> {
        udp_of("10.0.0.1:5", "10.0.0.2:6", &[number])
    }

    /// The times at which packets come out, in ms, with their content; one goes in every `gap_ms`.
    fn delays(bench: &mut Bench<Delay>, packets: u8, gap_ms: u64) -> Vec<(u64, u8)> {
        let mut out = Vec::new();
        for tick in 0..u64::from(packets) * gap_ms + 200 {
            if tick.is_multiple_of(gap_ms) && tick / gap_ms < u64::from(packets) {
                bench.dropped(&mut numbered((tick / gap_ms) as u8));
            }
            bench.wait(1_000_000);
            for packet in bench.wishes.emitted.drain(..) {
                assert!(holds(&packet), "checksums");
                out.push((tick, *packet.last().expect("a byte")));
            }
        }
        out
    }

    #[test]
    fn a_constant_delay_keeps_order_and_gaps() {
        let mut bench = Bench::<Delay>::new("delay=20");
        let out = delays(&mut bench, 50, 3);
        // (A packet due at the end of a millisecond leaves in the tick that ends with it.)
        let expected: Vec<(u64, u8)> = (0..50).map(|at| (u64::from(at) * 3 + 19, at)).collect();
        assert_eq!(out, expected);
        assert_eq!(bench.counters()[..3], [50, 50, 0]);
        assert_eq!(bench.message("held").expect("a number"), "0 packets");
    }

    #[test]
    fn jitter_is_within_its_bounds_and_overtakes_only_where_it_may() {
        for (configuration, keeps) in
            [("delay=20 jitter=15", true), ("delay=20 jitter=15 order=free", false)]
        {
            let mut bench = Bench::<Delay>::new(configuration);
            let out = delays(&mut bench, 100, 2);
            assert_eq!(out.len(), 100);
            let waits: Vec<u64> =
                out.iter().map(|(at, number)| at - u64::from(*number) * 2).collect();
            assert!(waits.iter().all(|wait| (4..=35).contains(wait)), "{waits:?}");
            let (least, most) = (waits.iter().min(), waits.iter().max());
            assert!(least < Some(&12) || keeps, "{waits:?}");
            assert!(most > Some(&28), "{waits:?}");
            assert_eq!(out.is_sorted_by_key(|(_, number)| *number), keeps, "{configuration}");
        }
    }

    #[test]
    fn memory_is_bounded_and_packets_without_room_are_counted() {
        let mut bench = Bench::<Delay>::new("delay=20 packets=10");
        for number in 0..15 {
            bench.dropped(&mut numbered(number));
        }
        assert_eq!(bench.message("held").expect("a number"), "10 packets");
        bench.wait(30_000_000);
        assert_eq!((bench.wishes.emitted.len(), bench.counters()[FULL]), (10, 5));
        bench.dropped(&mut numbered(0));
        assert_eq!(bench.counters()[FULL], 5, "there is room again");
    }

    #[test]
    fn many_that_are_due_at_once_leave_call_by_call() {
        let mut bench = Bench::<Delay>::new("delay=5 packets=1000");
        for _ in 0..300 {
            bench.dropped(&mut numbered(1));
        }
        bench.wait(5_000_000);
        assert_eq!(bench.wishes.emitted.len(), 300);
        assert_eq!(bench.counters()[EMITTED], 300);
    }

    /// On the input side; on the output side the router has done it (`tests` of the router hold the ports).
    #[test]
    fn a_hop_is_taken_and_the_last_one_is_the_routers_to_answer() {
        let mut bench = Bench::<Delay>::new("delay=1");
        bench.dropped(&mut numbered(1));
        bench.wait(2_000_000);
        assert_eq!(bench.wishes.emitted[0][8], 63);
        let mut six = udp("[fd00::1]:5", "[fd00::2]:6", 3);
        bench.dropped(&mut six);
        bench.wait(2_000_000);
        assert_eq!(bench.wishes.emitted[1][7], 63);
        let mut last = udp("[fd00::1]:5", "[fd00::2]:6", 3);
        last[7] = 1;
        bench.forwarded(&mut last);
        assert_eq!(bench.counters()[LAST_HOP], 1);
        // A header's checksum stays right, whatever it was.
        for identification in 0..=u16::MAX {
            let mut packet = numbered(0);
            packet[4..6].copy_from_slice(&identification.to_be_bytes());
            packet[10..12].fill(0);
            let sum = nilometer_plugin::checksum::checksum(&packet[..20]);
            packet[10..12].copy_from_slice(&sum.to_be_bytes());
            assert!(take_hop(&mut packet));
            assert_eq!(nilometer_plugin::checksum::checksum(&packet[..20]), 0, "{identification}");
        }
    }

    #[test]
    fn packets_too_long_to_be_emitted_are_forwarded_at_once() {
        let mut bench = Bench::<Delay>::new("delay=1");
        bench.forwarded(&mut udp("10.0.0.1:5", "10.0.0.2:6", 1_600));
        bench.forwarded(&mut [0x45, 0]);
        assert_eq!(bench.counters()[TOO_LONG], 2);
    }

    #[test]
    fn settings_are_checked() {
        assert_eq!(refused::<Delay>(""), "`delay=` is missing");
        for wrong in
            ["delay=0", "delay=NaN", "delay=5 jitter=6", "delay=9999 jitter=2", "delay=5 jitter=-1"]
        {
            assert!(refused::<Delay>(wrong).contains("jitter"), "{wrong}");
        }
        assert!(refused::<Delay>("delay=1 packets=0").contains("8192"));
        assert!(refused::<Delay>("delay=1 order=some").contains("free"));
    }
}
