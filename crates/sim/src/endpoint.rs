//! One end of a TCP flow as a node: a connection, the bytes it is to carry, and when it begins.

use nilometer_tcp::{Config, Connection, State};
use nilometer_wire::{Node, Port, Time};

use crate::packet::{Packet, Protocol, Route};

/// The IPv4 header without options, bytes.
pub const IP_HEADER_BYTES: u16 = 20;

/// Bytes of a transfer that never ends.
pub const ENDLESS: u64 = u64::MAX / 2;

/// One end of a flow. In this order in memory: what every packet needs stands together.
#[derive(Debug)]
#[repr(C)]
pub struct Endpoint {
    /// Whether the connection may send: a client may from its start on, a server at once.
    is_open: bool,
    /// Whether it closes as soon as the connection stands; closing before would end it.
    closes: bool,
    route: Route,
    start: Time,
    /// What this end receives when all has come.
    expects: u64,
    finished: Option<Time>,
    connection: Connection,
}

impl Endpoint {
    /// The end that opens the connection at `start` and sends `bytes` on `route`, or
    /// [`ENDLESS`]; when all is sent it closes.
    pub fn client(
        config: Config,
        route: Route,
        start: Time,
        bytes: u64,
        initial_sequence: u32,
    ) -> Endpoint {
        let mut connection = Connection::connect(config, initial_sequence);
        connection.write(bytes);
        let is_open = start == Time::ZERO;
        let (closes, expects) = (bytes < ENDLESS, u64::MAX);
        Endpoint { connection, is_open, route, start, closes, expects, finished: None }
    }

    /// The end that waits for a connection that brings `expects` bytes and answers on `route`.
    pub fn server(config: Config, route: Route, expects: u64, initial_sequence: u32) -> Endpoint {
        let connection = Connection::listen(config, initial_sequence);
        let start = Time::ZERO;
        let closes = false;
        Endpoint { connection, is_open: true, route, start, closes, expects, finished: None }
    }

    /// The connection.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// When it was to begin.
    pub fn start(&self) -> Time {
        self.start
    }

    /// When the last of the bytes that this end expected was delivered in order.
    pub fn finished(&self) -> Option<Time> {
        self.finished
    }
}

impl Node<Packet> for Endpoint {
    #[inline(always)]
    fn receive(&mut self, now: Time, _port: Port, packet: &Packet, _: &mut ()) {
        self.connection.receive(now, &packet.segment, packet.ecn);
        if self.finished.is_none() && self.connection.delivered() >= self.expects {
            self.finished = Some(now);
        }
        match self.connection.state() {
            State::CloseWait => self.connection.close(),
            State::Established if self.closes => self.connection.close(),
            _ => {}
        }
    }

    fn handle_timeout(&mut self, now: Time, _: &mut ()) {
        if self.is_open {
            self.connection.handle_timeout(now);
        } else {
            self.is_open = self.start <= now;
        }
    }

    #[inline(always)]
    fn poll_transmit(&mut self, now: Time, packet: &mut Packet, _: &mut ()) -> Option<Port> {
        if !self.is_open {
            return None;
        }
        packet.ecn = self.connection.poll_transmit_into(now, &mut packet.segment)?;
        let headers = IP_HEADER_BYTES + packet.segment.header_bytes() as u16;
        packet.bytes = headers + packet.segment.length;
        packet.route = self.route;
        packet.protocol = Protocol::Tcp;
        Some(Port(0))
    }

    #[inline]
    fn poll_timeout(&self) -> Option<Time> {
        if self.is_open { self.connection.poll_timeout() } else { Some(self.start) }
    }
}
