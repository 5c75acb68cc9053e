//! Network address and port translation of IPv4 (NAPT), in the terms of RFC 4787.
//!
//! Mapping is endpoint-independent (REQ-1) and so is filtering (REQ-8, where transparency matters most). Ports are
//! preserved where they are free, else another of the same parity is drawn (REQ-3, REQ-4); none is used for two
//! mappings. Mappings of UDP live 5 minutes and are refreshed by outbound packets (REQ-5, REQ-6), of TCP 2 hours and
//! 4 minutes, or 4 minutes while they open or close (RFC 5382, REQ-5), of ICMP queries 60 seconds (RFC 5508, REQ-2).
//! Hosts inside reach each other by their outside addresses (hairpinning, REQ-9), and ICMP errors are translated with
//! the packet inside them (RFC 5508).
//!
//! Not here: fragments, which are dropped and counted (REQ-14 requires translating them); several outside addresses;
//! protocols other than TCP, UDP and ICMP; application level gateways, which RFC 4787 wants disabled anyway.

mod errors;
mod mappings;

use alloc::format;
use alloc::string::String;
use core::net::{IpAddr, Ipv4Addr};

use nilometer_plugin::headers::{Fragment, ICMP, TCP, UDP, word};
use nilometer_plugin::{Context, Decision, Headers, Packet, Plugin, Prefix, Settings, Unseen};

use errors::{End, translate_error};
use mappings::{Endpoint, Mappings, Ports, TcpStep, Timeouts};

const OUTBOUND: usize = 0;
const INBOUND: usize = 1;
const HAIRPINNED: usize = 2;
const ERRORS: usize = 3;
const UNTOUCHED: usize = 4;
const UNMATCHED: usize = 5;
const EXHAUSTED: usize = 6;
const FRAGMENTS: usize = 7;
const UNSUPPORTED: usize = 8;
const MAPPINGS: usize = 9;

const MAPPINGS_MAX: usize = 65_536;

/// Translates addresses and ports.
///
/// Settings: `inside=PREFIX`, `outside=ADDRESS`; `ports=FIRST-LAST` (1024-65535), `mappings=N` at most (4096),
/// `udp_timeout=S` (300), `tcp_timeout=S` (7440), `transitory_timeout=S` (240), `icmp_timeout=S` (60);
/// `unmatched=drop|forward` for packets to the outside address that no mapping is for: `forward` where the address is the
/// router's own.
pub struct Nat {
    inside: Prefix,
    outside: Ipv4Addr,
    mappings: Mappings,
    forwards_unmatched: bool,
}

/// Why a packet is not translated.
enum Untranslated {
    /// It is counted there, and dropped.
    Dropped(usize),
    /// It continues unchanged.
    Passed,
}

impl From<Unseen> for Untranslated {
    fn from(_: Unseen) -> Untranslated {
        Untranslated::Dropped(UNSUPPORTED)
    }
}

impl Plugin for Nat {
    const NAME: &'static str = "nat";
    const VERSION: &'static str = "1.0.0";
    /// Two headers with options, and eight bytes of ICMP and of a transport: an ICMP error as far as it matters.
    const SEEN_BYTES: u16 = 144;
    const COUNTERS: &'static [&'static str] = &[
        "outbound",
        "inbound",
        "hairpinned",
        "icmp_errors",
        "untouched",
        "unmatched",
        "exhausted",
        "fragments",
        "unsupported",
        "mappings_made",
    ];

    fn new(configuration: &str) -> Result<Nat, String> {
        let mut settings = Settings::parse(configuration)?;
        let inside = settings.required("inside")?;
        let outside = settings.required("outside")?;
        let ports = match settings.text("ports") {
            Some(text) => Ports::parse(text)?,
            None => Ports::default(),
        };
        let mappings_max: usize = settings.or("mappings", 4_096)?;
        if !(1..=MAPPINGS_MAX).contains(&mappings_max) {
            return Err(format!("`mappings=` must be from 1 to {MAPPINGS_MAX}"));
        }
        let timeouts = Timeouts {
            udp_s: settings.or("udp_timeout", 300)?,
            tcp_s: settings.or("tcp_timeout", 7_440)?,
            transitory_s: settings.or("transitory_timeout", 240)?,
            icmp_s: settings.or("icmp_timeout", 60)?,
        };
        let forwards_unmatched = match settings.text("unmatched") {
            None | Some("drop") => false,
            Some("forward") => true,
            Some(other) => return Err(format!("`unmatched={other}` is neither drop nor forward")),
        };
        settings.finish()?;
        let mappings = Mappings::new(mappings_max, ports, timeouts);
        Ok(Nat { inside, outside, mappings, forwards_unmatched })
    }

    fn process(&mut self, packet: &mut Packet<'_>, context: &mut Context<'_>) -> Decision {
        let outcome = match packet.headers() {
            Some(headers) => self.translate(packet, &headers, context),
            None => Err(Untranslated::Passed),
        };
        match outcome {
            Ok(counter) => context.count(counter, 1),
            Err(Untranslated::Passed) => context.count(UNTOUCHED, 1),
            Err(Untranslated::Dropped(counter)) => {
                context.count(counter, 1);
                return Decision::Drop;
            }
        }
        Decision::Forward
    }

    fn message(&mut self, message: &str, context: &mut Context<'_>) -> Result<String, String> {
        match message {
            "mappings" => Ok(self.mappings.listed(context.now_ns())),
            _ => Err(format!("`{message}` is not a message; `mappings` is one")),
        }
    }
}

impl Nat {
    /// Translates a packet: where it is counted.
    fn translate(
        &mut self,
        packet: &mut Packet<'_>,
        headers: &Headers,
        context: &mut Context<'_>,
    ) -> Result<usize, Untranslated> {
        let is_outbound = self.inside.contains(headers.source)
            && (!self.inside.contains(headers.destination) || self.is_outside(headers.destination));
        let is_inbound = self.is_outside(headers.destination);
        if !is_outbound && !is_inbound {
            return Err(Untranslated::Passed);
        }
        if headers.fragment != Fragment::Whole {
            return Err(Untranslated::Dropped(FRAGMENTS));
        }
        if is_error(packet, headers) {
            return self.translate_error(packet, headers, is_outbound, context.now_ns());
        }
        if is_outbound {
            self.outbound(packet, headers, context)?;
        }
        if is_inbound {
            self.inbound(packet, headers, context.now_ns())?;
        }
        Ok(match (is_outbound, is_inbound) {
            (true, true) => HAIRPINNED,
            (true, false) => OUTBOUND,
            _ => INBOUND,
        })
    }

    fn is_outside(&self, address: IpAddr) -> bool {
        address == IpAddr::V4(self.outside)
    }

    fn outbound(
        &mut self,
        packet: &mut Packet<'_>,
        headers: &Headers,
        context: &mut Context<'_>,
    ) -> Result<(), Untranslated> {
        let unsupported = Untranslated::Dropped(UNSUPPORTED);
        let (IpAddr::V4(address), Some(identifier)) =
            (headers.source, identifier(packet, headers, End::Source))
        else {
            return Err(unsupported);
        };
        let inside = Endpoint { protocol: headers.protocol, address, port: identifier };
        let step = tcp_step(packet, headers, true);
        let now_ns = context.now_ns();
        let (port, is_new) = match self.mappings.outside_of(&inside, step, now_ns) {
            Some(port) => (port, false),
            None => match self.mappings.make(inside, step, now_ns, context.random()) {
                Some(port) => (port, true),
                None => return Err(Untranslated::Dropped(EXHAUSTED)),
            },
        };
        context.count(MAPPINGS, u64::from(is_new));
        set_identifier(packet, headers, End::Source, port)?;
        packet.set_source(self.outside.into())?;
        Ok(())
    }

    fn inbound(
        &mut self,
        packet: &mut Packet<'_>,
        headers: &Headers,
        now_ns: u64,
    ) -> Result<(), Untranslated> {
        let found = identifier(packet, headers, End::Destination).and_then(|port| {
            let step = tcp_step(packet, headers, false);
            self.mappings.inside_of(headers.protocol, port, step, now_ns)
        });
        let Some(inside) = found else { return Err(self.unmatched()) };
        set_identifier(packet, headers, End::Destination, inside.port)?;
        packet.set_destination(inside.address.into())?;
        Ok(())
    }

    fn unmatched(&self) -> Untranslated {
        if self.forwards_unmatched {
            Untranslated::Passed
        } else {
            Untranslated::Dropped(UNMATCHED)
        }
    }

    /// An ICMP error is about a packet that went the other way: that packet's end on our side is translated in it.
    fn translate_error(
        &mut self,
        packet: &mut Packet<'_>,
        headers: &Headers,
        is_outbound: bool,
        now_ns: u64,
    ) -> Result<usize, Untranslated> {
        if is_outbound {
            let outside = self.outside;
            let mappings = &self.mappings;
            translate_error(packet, headers, End::Destination, |end| {
                let port = mappings.port_of(&end, now_ns)?;
                Some(Endpoint { protocol: end.protocol, address: outside, port })
            })
            .ok_or(Untranslated::Dropped(UNMATCHED))?;
            packet.set_source(outside.into())?;
            return Ok(ERRORS);
        }
        let outside = self.outside;
        let mappings = &self.mappings;
        let inside = translate_error(packet, headers, End::Source, |end| {
            (end.address == outside).then_some(())?;
            mappings.endpoint_of(end.protocol, end.port, now_ns)
        });
        let Some(inside) = inside else { return Err(self.unmatched()) };
        packet.set_destination(inside.address.into())?;
        Ok(ERRORS)
    }
}

/// The port of an end, or the identifier of an ICMP query, which is the same for both.
fn identifier(packet: &Packet<'_>, headers: &Headers, end: End) -> Option<u16> {
    let bytes = packet.bytes();
    match headers.protocol {
        TCP | UDP => {
            let (source, destination) = headers.ports(bytes)?;
            Some(if end == End::Source { source } else { destination })
        }
        ICMP => {
            let at = headers.transport_at?;
            let is_query = matches!(bytes.get(at)?, 0 | 8 | 13..=16);
            (is_query && bytes.len() >= at + 8).then(|| word(bytes, at + 4))
        }
        _ => None,
    }
}

fn set_identifier(
    packet: &mut Packet<'_>,
    headers: &Headers,
    end: End,
    new: u16,
) -> Result<(), Unseen> {
    match (headers.protocol, end) {
        (ICMP, _) => packet.set_transport_word(4, new),
        (_, End::Source) => packet.set_source_port(new),
        (_, End::Destination) => packet.set_destination_port(new),
    }
}

/// Destination unreachable, source quench, redirect, time exceeded, parameter problem.
fn is_error(packet: &Packet<'_>, headers: &Headers) -> bool {
    let kind = headers.transport_at.and_then(|at| packet.bytes().get(at));
    headers.protocol == ICMP && matches!(kind, Some(3 | 4 | 5 | 11 | 12))
}

/// What a segment does to its connection.
fn tcp_step(packet: &Packet<'_>, headers: &Headers, is_outbound: bool) -> TcpStep {
    const FIN: u8 = 1;
    const SYN: u8 = 2;
    const RST: u8 = 4;
    let flags = headers.transport_at.and_then(|at| packet.bytes().get(at + 13)).copied();
    match flags.filter(|_| headers.protocol == TCP) {
        None => TcpStep::None,
        Some(flags) if flags & RST != 0 => TcpStep::Reset,
        Some(flags) if flags & FIN != 0 => TcpStep::Fin { is_outbound },
        Some(flags) if flags & SYN != 0 => TcpStep::Syn { is_outbound },
        Some(_) => TcpStep::None,
    }
}

#[cfg(test)]
mod tests;
