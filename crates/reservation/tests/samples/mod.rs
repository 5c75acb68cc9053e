//! Messages of every type with every choice that the format has, drawn from a seed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use nilometer_reservation::message::*;
use nilometer_stat::Rng;

pub const PURPOSE: u32 = u32::from_be_bytes(*b"rsvp");

fn address(rng: &mut Rng, is_v6: bool) -> IpAddr {
    let last = 1 + rng.below(250) as u8;
    match is_v6 {
        false => Ipv4Addr::new(198, 18, rng.below(4) as u8, last).into(),
        true => Ipv6Addr::new(0x2001, 0xdb8, 0, rng.below(9) as u16, 0, 0, 0, last.into()).into(),
    }
}

fn tspec(rng: &mut Rng) -> Tspec {
    let rate = 1_000.0 + rng.below(1_000_000) as f32;
    let peak_rate = if rng.below(2) == 0 { f32::INFINITY } else { rate * 2.0 };
    Tspec { peak_rate, ..Tspec::new(rate, 1_500.0 + rng.below(20_000) as f32) }
}

fn flowspec(rng: &mut Rng) -> FlowSpec {
    let tspec = tspec(rng);
    let guaranteed = Service::Guaranteed { rate: tspec.rate * 1.5, slack_us: rng.below(99) as u32 };
    let service = if rng.below(2) == 0 { Service::ControlledLoad } else { guaranteed };
    FlowSpec { service, tspec }
}

fn sender(rng: &mut Rng, is_v6: bool) -> Sender {
    Sender { source: address(rng, is_v6), port: rng.below(65_536) as u16 }
}

fn route(rng: &mut Rng, is_v6: bool) -> Option<ExplicitRoute> {
    let nodes: Vec<RouteNode> = (0..rng.below(5))
        .map(|_| RouteNode {
            is_loose: rng.below(2) == 0,
            ..RouteNode::strict(address(rng, is_v6))
        })
        .collect();
    (!nodes.is_empty()).then_some(ExplicitRoute(nodes))
}

fn plugins(rng: &mut Rng) -> Option<FlowPlugins> {
    let plugins: Vec<NamedPlugin> = (0..rng.below(5))
        .map(|_| NamedPlugin {
            class: ["counter", "wave-video", "mark@0.1.0-rc.1", "a"][rng.below(4) as usize].into(),
            configuration: "rate=0.1 \u{2264} x".repeat(rng.below(4) as usize),
        })
        .collect();
    (!plugins.is_empty()).then(|| FlowPlugins::new(plugins).expect("they fit"))
}

fn flows(rng: &mut Rng, style: Style, is_v6: bool) -> Vec<FlowDescriptor> {
    let senders = |rng: &mut Rng, count| (0..count).map(|_| sender(rng, is_v6)).collect();
    match style {
        Style::WildcardFilter => vec![FlowDescriptor { flowspec: flowspec(rng), senders: vec![] }],
        Style::SharedExplicit => {
            let count = 1 + rng.below(6);
            vec![FlowDescriptor { flowspec: flowspec(rng), senders: senders(rng, count) }]
        }
        Style::FixedFilter => (0..1 + rng.below(5))
            .map(|_| FlowDescriptor { flowspec: flowspec(rng), senders: senders(rng, 1) })
            .collect(),
    }
}

/// A message of this type.
pub fn message(rng: &mut Rng, kind: MessageType) -> Message {
    let is_v6 = rng.below(2) == 1;
    let destination = address(rng, is_v6);
    let protocol = if rng.below(2) == 0 { 6 } else { 17 };
    let session = Session { destination, protocol, port: rng.below(65_536) as u16 };
    let hop = Hop { address: address(rng, is_v6), handle: rng.below(8) as u32 };
    let refresh_ms = 30_000;
    let style = Style::ALL[rng.below(3) as usize];
    let sender = sender(rng, is_v6);
    let error = ErrorSpec {
        node: address(rng, is_v6),
        is_in_place: rng.below(2) == 0,
        is_not_guilty: rng.below(2) == 0,
        error: ErrorCode::BANDWIDTH_UNAVAILABLE,
    };
    let mtu = rng.below(9_000) as u32;
    let adspec = AdSpec::NEW.through(1e6, mtu);
    match kind {
        MessageType::Path => {
            let (route, adspec) = (route(rng, is_v6), (rng.below(2) == 0).then_some(adspec));
            Message::Path(Path {
                session,
                hop,
                refresh_ms,
                route,
                sender,
                tspec: tspec(rng),
                adspec,
            })
        }
        MessageType::Resv => {
            let confirm = (rng.below(2) == 0).then(|| address(rng, is_v6));
            let flows = flows(rng, style, is_v6);
            Message::Resv(Resv { session, hop, refresh_ms, confirm, style, flows })
        }
        MessageType::PathErr => {
            let error = ErrorSpec { error: ErrorCode::NO_ROUTE, ..error };
            Message::PathErr(PathErr { session, error, sender, tspec: tspec(rng) })
        }
        MessageType::ResvErr => {
            let flow = flows(rng, style, is_v6).swap_remove(0);
            Message::ResvErr(ResvErr { session, hop, error, style, flow })
        }
        MessageType::PathTear => {
            Message::PathTear(PathTear { session, hop, sender, tspec: Some(tspec(rng)) })
        }
        MessageType::ResvTear => {
            let senders = flows(rng, style, is_v6).into_iter().flat_map(|flow| flow.senders);
            Message::ResvTear(ResvTear { session, hop, style, senders: senders.collect() })
        }
        MessageType::ResvConf => {
            let error = ErrorSpec::new(error.node, ErrorCode::CONFIRMATION);
            let (receiver, flows) = (address(rng, is_v6), flows(rng, style, is_v6));
            Message::ResvConf(ResvConf { session, error, receiver, style, flows })
        }
        MessageType::FlowSetup => {
            let (route, flowspec) = (route(rng, is_v6), flowspec(rng));
            let plugins = plugins(rng);
            Message::FlowSetup(FlowSetup {
                session,
                hop,
                refresh_ms,
                route,
                sender,
                flowspec,
                adspec,
                plugins,
            })
        }
        MessageType::FlowRelease => Message::FlowRelease(FlowRelease { session, hop, sender }),
    }
}
