//! Writes netlink messages and FPM frames as zebra 8.4 does, for tests and measurements.

#![allow(dead_code, reason = "each test uses its own part of this one")]

use std::net::IpAddr;

use nilometer_router::rtnetlink;

/// `RTN_UNICAST`, an ordinary route.
pub const UNICAST: u8 = 1;
/// `rtm_protocol` of BGP at FRR.
pub const BGP: u8 = 186;

/// A message under construction.
pub struct Message(Vec<u8>);

impl Message {
    pub fn new(kind: u16, fixed: &[u8]) -> Message {
        let mut bytes = vec![0; 16];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes.extend(fixed);
        Message(bytes)
    }

    pub fn attribute(mut self, kind: u16, value: &[u8]) -> Message {
        self.0.extend((value.len() as u16 + 4).to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    pub fn number(self, kind: u16, value: u32) -> Message {
        self.attribute(kind, &value.to_ne_bytes())
    }

    pub fn address(self, kind: u16, value: IpAddr) -> Message {
        self.attribute(kind, &octets(value))
    }

    pub fn bytes(mut self) -> Vec<u8> {
        let length = self.0.len() as u32;
        self.0[..4].copy_from_slice(&length.to_ne_bytes());
        self.0
    }
}

pub fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// A route of the main table, its ways still open; `kind` is `RTN_`.
pub fn route(message: u16, to: IpAddr, length: u8, protocol: u8, kind: u8) -> Message {
    let family = if to.is_ipv4() { 2 } else { 10 };
    let fixed = [family, length, 0, 0, 254, protocol, 0, kind, 0, 0, 0, 0];
    Message::new(message, &fixed).address(1, to).number(6, 20)
}

/// A route to a next-hop object.
pub fn via_object(to: IpAddr, length: u8, id: u32) -> Vec<u8> {
    route(rtnetlink::NEW_ROUTE, to, length, BGP, UNICAST).number(30, id).bytes()
}

/// A withdrawal, which is of no type.
pub fn withdrawal(to: IpAddr, length: u8) -> Vec<u8> {
    route(rtnetlink::DELETE_ROUTE, to, length, BGP, 0).bytes()
}

/// A next-hop object: out of a link, to a gateway.
pub fn object(id: u32, link: u32, gateway: IpAddr) -> Vec<u8> {
    let family = if gateway.is_ipv4() { 2 } else { 10 };
    let message = Message::new(rtnetlink::NEW_NEXT_HOP, &[family, 0, 11, 0, 0, 0, 0, 0]);
    message.number(1, id).number(5, link).address(6, gateway).bytes()
}

/// A group of next-hop objects, each with its weight.
pub fn group(id: u32, members: &[(u32, u8)]) -> Vec<u8> {
    let mut value = Vec::new();
    for (member, weight) in members {
        value.extend(member.to_ne_bytes());
        value.extend([weight - 1, 0, 0, 0]);
    }
    let message = Message::new(rtnetlink::NEW_NEXT_HOP, &[0, 0, 11, 0, 0, 0, 0, 0]);
    message.number(1, id).attribute(2, &value).bytes()
}

pub fn forget(id: u32) -> Vec<u8> {
    Message::new(rtnetlink::DELETE_NEXT_HOP, &[0; 8]).number(1, id).bytes()
}

/// An FPM frame around messages.
pub fn frame(messages: &[Vec<u8>]) -> Vec<u8> {
    let body = messages.concat();
    let mut frame = vec![1, 1];
    frame.extend((body.len() as u16 + 4).to_be_bytes());
    frame.extend(body);
    frame
}
