//! A stateful firewall: lets in replies to flows begun inside, and flows begun outside where they are allowed.
//!
//! A flow is a five-tuple, seen from inside; echoes of ICMP have their identifier for a port. TCP follows the steps of its
//! handshake and its end, without looking at sequence numbers. Timeouts are those that NATs must have: RFC 5382 (TCP),
//! RFC 4787 (UDP), RFC 5508 (ICMP). An ICMP error passes when the packet that it is about belongs to a flow.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use nilometer_plugin::headers::{Fragment, ICMP, ICMPV6, TCP, UDP, address_bits, word};
use nilometer_plugin::{Context, Decision, Headers, Packet, Plugin, Prefix, Settings};

use crate::SECOND_NS;
use crate::expiring::Expiring;

const OUTBOUND: usize = 0;
const INBOUND: usize = 1;
const FLOWS: usize = 2;
const ERRORS: usize = 3;
const UNSOLICITED: usize = 4;
const NO_SYN: usize = 5;
const TABLE_FULL: usize = 6;
const FRAGMENTS: usize = 7;
const UNREADABLE: usize = 8;

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

const TABLE_MAX: usize = 65_536;
/// Services that may be allowed.
const SERVICES_MAX: usize = 64;

/// A five-tuple; the fields that differ most often are compared first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Flow {
    inside_port: u16,
    outside_port: u16,
    outside: u128,
    inside: u128,
    protocol: u8,
}

/// How far a TCP connection is; other protocols are `Open` from their first packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// A SYN was seen, from inside or not.
    SynSent { from_inside: bool },
    /// It was answered.
    SynReceived { from_inside: bool },
    /// Packets pass both ways.
    Open,
    /// One end has sent a FIN.
    HalfClosed { from_inside: bool },
    /// Both have, or one has reset it.
    Closed,
}

impl State {
    /// After a segment with these flags.
    fn after(self, flags: u8, from_inside: bool) -> State {
        if flags & RST != 0 {
            return State::Closed;
        }
        match self {
            State::SynSent { from_inside: begun } if begun != from_inside => match flags {
                _ if flags & (SYN | ACK) == SYN | ACK => State::SynReceived { from_inside: begun },
                // Both open at once (RFC 9293, figure 7).
                _ if flags & SYN != 0 => State::SynReceived { from_inside: begun },
                _ => self,
            },
            State::SynReceived { from_inside: begun }
                if begun == from_inside && flags & SYN == 0 =>
            {
                State::Open.after(flags, from_inside)
            }
            State::Open if flags & FIN != 0 => State::HalfClosed { from_inside },
            State::HalfClosed { from_inside: first }
                if flags & FIN != 0 && first != from_inside =>
            {
                State::Closed
            }
            // The five-tuple is used again.
            State::Closed if flags & (SYN | ACK) == SYN => State::SynSent { from_inside },
            _ => self,
        }
    }
}

/// Lets in replies to flows begun inside.
///
/// Settings: `inside=PREFIX`; `allow=tcp:80,udp:53` for services inside that may be begun from outside; `table=N` flows at
/// most (8192); `strict=yes` to have TCP begin with a SYN from inside, too; `fragments=forward` to pass later fragments,
/// which have no ports; `udp_timeout=S` (120), `tcp_timeout=S` (7440), `transitory_timeout=S` (240), `icmp_timeout=S` (60).
pub struct Firewall {
    inside: Prefix,
    services: Vec<(u8, u16)>,
    flows: Expiring<Flow, State>,
    is_strict: bool,
    forwards_fragments: bool,
    timeouts: Timeouts,
}

impl Plugin for Firewall {
    const NAME: &'static str = "firewall";
    const VERSION: &'static str = "1.0.0";
    /// An ICMP error, and of the packet in it a header and its ports.
    const SEEN_BYTES: u16 = 144;
    const COUNTERS: &'static [&'static str] = &[
        "outbound",
        "inbound",
        "flows_made",
        "icmp_errors",
        "dropped_unsolicited",
        "dropped_no_syn",
        "dropped_table_full",
        "dropped_fragments",
        "dropped_unreadable",
    ];

    fn new(configuration: &str) -> Result<Firewall, String> {
        let mut settings = Settings::parse(configuration)?;
        let mut seconds = |name: &str, usual: u64| -> Result<u64, String> {
            Ok(settings.or(name, usual)?.saturating_mul(SECOND_NS))
        };
        let timeouts = Timeouts {
            udp_ns: seconds("udp_timeout", 120)?,
            tcp_ns: seconds("tcp_timeout", 7_440)?,
            transitory_ns: seconds("transitory_timeout", 240)?,
            icmp_ns: seconds("icmp_timeout", 60)?,
        };
        let inside = settings.required("inside")?;
        let table: usize = settings.or("table", 8_192)?;
        if !(1..=TABLE_MAX).contains(&table) {
            return Err(format!("`table=` must be from 1 to {TABLE_MAX}"));
        }
        let services = services(settings.text("allow").unwrap_or_default())?;
        let is_strict = one_of(&mut settings, "strict", ["no", "yes"])?;
        let forwards_fragments = one_of(&mut settings, "fragments", ["drop", "forward"])?;
        settings.finish()?;
        let flows = Expiring::new(table);
        Ok(Firewall { inside, services, flows, is_strict, forwards_fragments, timeouts })
    }

    fn process(&mut self, packet: &mut Packet<'_>, context: &mut Context<'_>) -> Decision {
        let outcome = match packet.headers() {
            Some(headers) => self.decide(packet.bytes(), &headers, context),
            None => Err(UNREADABLE),
        };
        context.count(outcome.unwrap_or_else(|counter| counter), 1);
        match outcome {
            Ok(_) => Decision::Forward,
            Err(_) => Decision::Drop,
        }
    }
}

impl Firewall {
    /// The counter of a packet: `Ok` if it passes, `Err` if it is dropped.
    fn decide(
        &mut self,
        bytes: &[u8],
        headers: &Headers,
        context: &mut Context<'_>,
    ) -> Result<usize, usize> {
        let from_inside = self.inside.contains(headers.source);
        let passed = if from_inside { OUTBOUND } else { INBOUND };
        if headers.fragment == Fragment::Later {
            return if self.forwards_fragments { Ok(passed) } else { Err(FRAGMENTS) };
        }
        let now_ns = context.now_ns();
        if let Some(about) = error_about(bytes, headers) {
            let flow = flow(about.0, &about.1, !from_inside).ok_or(UNREADABLE)?;
            return match self.flows.get(&flow, now_ns) {
                Some(_) => Ok(ERRORS),
                None => Err(UNSOLICITED),
            };
        }
        let flow = flow(bytes, headers, from_inside).ok_or(UNREADABLE)?;
        let flags = tcp_flags(bytes, headers);
        if let Some((state, until)) = self.flows.get_mut(&flow, now_ns) {
            *state = state.after(flags, from_inside);
            *until = now_ns.saturating_add(self.timeouts.span_ns(flow.protocol, *state));
            return Ok(passed);
        }
        let state = self.first(&flow, flags, from_inside)?;
        let until = now_ns.saturating_add(self.timeouts.span_ns(flow.protocol, state));
        if !self.flows.insert(flow, state, until, now_ns, |_, _| {}) {
            return Err(TABLE_FULL);
        }
        context.count(FLOWS, 1);
        Ok(passed)
    }

    /// The state of a flow after its first packet, if it may begin so.
    fn first(&self, flow: &Flow, flags: u8, from_inside: bool) -> Result<State, usize> {
        let is_syn = flags & (SYN | ACK | RST) == SYN;
        let is_service = self.services.contains(&(flow.protocol, flow.inside_port));
        match (flow.protocol == TCP, from_inside) {
            (false, true) => Ok(State::Open),
            (false, false) if is_service => Ok(State::Open),
            (true, true) if is_syn => Ok(State::SynSent { from_inside }),
            (true, false) if is_syn && is_service => Ok(State::SynSent { from_inside }),
            // A connection that is older than the firewall, unless it is being reset.
            (true, true) if !self.is_strict && flags & RST == 0 => Ok(State::Open),
            (true, true) => Err(NO_SYN),
            _ => Err(UNSOLICITED),
        }
    }
}

/// How long flows live without a packet.
#[derive(Clone, Copy, Debug)]
struct Timeouts {
    udp_ns: u64,
    tcp_ns: u64,
    transitory_ns: u64,
    icmp_ns: u64,
}

impl Timeouts {
    fn span_ns(&self, protocol: u8, state: State) -> u64 {
        match (protocol, state) {
            (TCP, State::Open) => self.tcp_ns,
            (TCP, _) => self.transitory_ns,
            (ICMP | ICMPV6, _) => self.icmp_ns,
            _ => self.udp_ns,
        }
    }
}

/// The flow of a packet; `None` if its ports are not visible.
fn flow(bytes: &[u8], headers: &Headers, from_inside: bool) -> Option<Flow> {
    let (from, to) = match headers.protocol {
        TCP | UDP => headers.ports(bytes)?,
        ICMP | ICMPV6 => {
            let at = headers.transport_at?;
            let is_query = match headers.protocol {
                ICMP => matches!(bytes[at], 0 | 8 | 13..=16),
                _ => matches!(bytes[at], 128 | 129),
            };
            if !is_query || bytes.len() < at + 6 {
                return None;
            }
            (word(bytes, at + 4), word(bytes, at + 4))
        }
        _ => (0, 0),
    };
    let (source, destination) = (address_bits(headers.source), address_bits(headers.destination));
    let protocol = headers.protocol;
    Some(if from_inside {
        Flow { inside_port: from, outside_port: to, outside: destination, inside: source, protocol }
    } else {
        Flow { inside_port: to, outside_port: from, outside: source, inside: destination, protocol }
    })
}

/// The packet that an ICMP error is about, as far as it is seen.
fn error_about<'a>(bytes: &'a [u8], headers: &Headers) -> Option<(&'a [u8], Headers)> {
    let at = headers.transport_at?;
    let is_error = match headers.protocol {
        ICMP => matches!(bytes[at], 3 | 4 | 5 | 11 | 12),
        ICMPV6 => matches!(bytes[at], 1..=4),
        _ => false,
    };
    let about = bytes.get(at + 8..).filter(|_| is_error)?;
    Headers::read(about).map(|inside| (about, inside))
}

/// The flags of a segment; of other packets none.
fn tcp_flags(bytes: &[u8], headers: &Headers) -> u8 {
    let at = headers.transport_at.filter(|_| headers.protocol == TCP);
    at.and_then(|at| bytes.get(at + 13)).copied().unwrap_or(0)
}

fn services(text: &str) -> Result<Vec<(u8, u16)>, String> {
    let mut services = Vec::new();
    for entry in text.split(',').filter(|entry| !entry.is_empty()) {
        let read = entry.split_once(':').and_then(|(protocol, port)| {
            let protocol = match protocol {
                "tcp" => TCP,
                "udp" => UDP,
                _ => return None,
            };
            Some((protocol, port.parse().ok()?))
        });
        services.push(read.ok_or_else(|| format!("`{entry}` is not tcp:PORT or udp:PORT"))?);
    }
    if services.len() > SERVICES_MAX {
        return Err(format!("`allow=` takes at most {SERVICES_MAX} services"));
    }
    Ok(services)
}

/// Whether a setting is the second of two words; the first is usual.
fn one_of(settings: &mut Settings<'_>, name: &str, words: [&str; 2]) -> Result<bool, String> {
    match settings.text(name) {
        None => Ok(false),
        Some(word) if word == words[0] => Ok(false),
        Some(word) if word == words[1] => Ok(true),
        Some(word) => Err(format!("`{name}={word}` is neither {} nor {}", words[0], words[1])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Bench, icmp_echo, icmp_error, refused, tcp, udp};

    const IN: &str = "10.0.0.1:5000";
    const OUT: &str = "192.0.2.1:80";

    fn bench(more: &str) -> Bench<Firewall> {
        Bench::new(&format!("inside=10.0.0.0/8 {more}"))
    }

    fn out(flags: u8) -> Vec<u8> {
        tcp(IN, OUT, flags)
    }

    fn back(flags: u8) -> Vec<u8> {
        tcp(OUT, IN, flags)
    }

    #[test]
    fn a_connection_begun_inside_passes_from_its_syn_to_its_end() {
        let mut bench = bench("strict=yes");
        bench.dropped(&mut back(SYN | ACK));
        bench.dropped(&mut out(ACK));
        bench.forwarded(&mut out(SYN));
        bench.forwarded(&mut back(SYN | ACK));
        bench.forwarded(&mut out(ACK));
        bench.wait(7_439 * SECOND_NS);
        bench.forwarded(&mut back(ACK));
        bench.forwarded(&mut back(FIN | ACK));
        bench.forwarded(&mut out(FIN | ACK));
        bench.forwarded(&mut back(ACK));
        bench.wait(241 * SECOND_NS);
        bench.dropped(&mut back(ACK));
        assert_eq!(bench.counters()[FLOWS], 1);
        assert_eq!((bench.counters()[UNSOLICITED], bench.counters()[NO_SYN]), (2, 1));
    }

    #[test]
    fn connections_that_are_not_established_end_soon() {
        let mut bench = bench("");
        bench.forwarded(&mut out(SYN));
        bench.wait(241 * SECOND_NS);
        bench.dropped(&mut back(SYN | ACK));
        bench.forwarded(&mut out(SYN));
        bench.forwarded(&mut back(RST | ACK));
        bench.wait(241 * SECOND_NS);
        bench.dropped(&mut back(ACK));
    }

    #[test]
    fn connections_from_outside_pass_where_allowed() {
        let mut bench = bench("allow=tcp:80,udp:53");
        bench.dropped(&mut tcp("192.0.2.1:999", "10.0.0.1:22", SYN));
        bench.forwarded(&mut tcp("192.0.2.1:999", "10.0.0.1:80", SYN));
        bench.forwarded(&mut tcp("10.0.0.1:80", "192.0.2.1:999", SYN | ACK));
        bench.forwarded(&mut tcp("192.0.2.1:999", "10.0.0.1:80", ACK));
        bench.dropped(&mut tcp("192.0.2.1:998", "10.0.0.1:80", ACK));
        bench.forwarded(&mut udp("192.0.2.1:999", "10.0.0.1:53", 8));
        bench.dropped(&mut udp("192.0.2.1:999", "10.0.0.1:54", 8));
        assert_eq!(bench.counters()[UNSOLICITED], 3);
    }

    #[test]
    fn datagrams_and_echoes_are_answered_while_their_flow_lives() {
        let mut bench = bench("");
        bench.forwarded(&mut udp(IN, OUT, 8));
        bench.wait(119 * SECOND_NS);
        bench.forwarded(&mut udp(OUT, IN, 8));
        bench.dropped(&mut udp("192.0.2.2:80", IN, 8));
        bench.wait(121 * SECOND_NS);
        bench.dropped(&mut udp(OUT, IN, 8));
        bench.forwarded(&mut icmp_echo("10.0.0.1", "192.0.2.1", 8, 5));
        bench.forwarded(&mut icmp_echo("192.0.2.1", "10.0.0.1", 0, 5));
        bench.dropped(&mut icmp_echo("192.0.2.1", "10.0.0.1", 0, 6));
        bench.dropped(&mut icmp_echo("192.0.2.1", "10.0.0.1", 8, 7));
    }

    #[test]
    fn ipv6_is_followed_as_well() {
        let mut bench = Bench::<Firewall>::new("inside=fd00::/8");
        bench.dropped(&mut udp("[2001:db8::1]:53", "[fd00::1]:9", 8));
        bench.forwarded(&mut udp("[fd00::1]:9", "[2001:db8::1]:53", 8));
        bench.forwarded(&mut udp("[2001:db8::1]:53", "[fd00::1]:9", 8));
        let sent = udp("[fd00::1]:9", "[2001:db8::1]:53", 8);
        bench.forwarded(&mut icmp_error("2001:db8::7", "fd00::1", &sent));
        bench.forwarded(&mut icmp_echo("fd00::1", "2001:db8::1", 128, 5));
        bench.forwarded(&mut icmp_echo("2001:db8::1", "fd00::1", 129, 5));
    }

    #[test]
    fn errors_pass_when_they_are_about_a_flow() {
        let mut bench = bench("");
        let mut sent = udp(IN, OUT, 20);
        bench.forwarded(&mut sent);
        bench.forwarded(&mut icmp_error("198.51.100.1", "10.0.0.1", &sent));
        let never = udp("10.0.0.1:5001", OUT, 20);
        bench.dropped(&mut icmp_error("198.51.100.1", "10.0.0.1", &never));
        let mut answer = udp(OUT, IN, 20);
        bench.forwarded(&mut answer);
        bench.forwarded(&mut icmp_error("10.0.0.1", "192.0.2.1", &answer));
        assert_eq!(bench.counters()[ERRORS], 2);
    }

    #[test]
    fn fragments_without_ports_are_dropped_unless_they_are_let() {
        let mut fragment = udp(IN, OUT, 20);
        fragment[7] = 1;
        bench("").dropped(&mut fragment.clone());
        bench("fragments=forward").forwarded(&mut fragment);
    }

    #[test]
    fn the_table_is_bounded_and_settings_are_checked() {
        let mut bench = bench("table=5");
        for port in 1..=10 {
            let mut packet = udp(&format!("10.0.0.1:{port}"), OUT, 8);
            let expected = if port <= 5 { Decision::Forward } else { Decision::Drop };
            assert_eq!(bench.decide(&mut packet), expected);
        }
        assert_eq!(bench.counters()[TABLE_FULL], 5);
        let refused = |more: &str| refused::<Firewall>(&format!("inside=::/0 {more}"));
        assert_eq!(refused("allow=sctp:1"), "`sctp:1` is not tcp:PORT or udp:PORT");
        assert_eq!(refused("strict=1"), "`strict=1` is neither no nor yes");
    }
}
