//! A host with RSVP: senders announce flows, receivers reserve for them, by raw sockets of IPv4 (RFC 2205, 3.11.1).
//!
//! The host has one interface, whose link refuses nothing: what is refused is refused by routers on the way.

use std::io::{ErrorKind, Read};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nilometer_reservation::message::{
    ExplicitRoute, FlowDescriptor, Sender, Session, Style, Tspec,
};
use nilometer_reservation::process::{Interface, NextHop, Routing, Settings, SetupRequest};
use nilometer_reservation::{Arrival, RsvpProcess, Upcall, packet};
use nilometer_wire::{Rate, Span, Time};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

/// The protocol of RSVP, and that of packets that are sent with their header.
const RSVP: i32 = 46;
const WITH_HEADER: i32 = 255;
/// How long a turn waits for a message.
const WAIT: Duration = Duration::from_millis(5);
/// The longest message that is read.
const PACKET_BYTES: usize = 65_536;
/// The capacity of the host's link, Mb/s: beyond any reservation, so that only routers refuse.
const LINK_MBPS: u64 = 1_000_000;

/// A host's RSVP, over raw sockets.
#[derive(Debug)]
pub struct RsvpHost {
    process: RsvpProcess,
    receiver: Socket,
    sender: Socket,
    began: Instant,
    buffer: Vec<u8>,
}

/// Every destination is behind the one interface.
struct OnLink;

impl Routing for OnLink {
    fn route_query(&self, destination: IpAddr, to: &mut Vec<NextHop>) {
        to.push(NextHop { port: 0, address: destination });
    }
}

/// The address of this host by which it reaches another one.
///
/// # Errors
/// When there is no route.
pub fn source_towards(destination: Ipv4Addr) -> Result<Ipv4Addr> {
    let step = || format!("no route to {destination}");
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).with_context(step)?;
    socket.connect((destination, 9)).with_context(step)?;
    match socket.local_addr().with_context(step)?.ip() {
        IpAddr::V4(own) => Ok(own),
        IpAddr::V6(_) => unreachable!("a socket of IPv4"),
    }
}

impl RsvpHost {
    /// A host of this address, whose messages are repeated in this period.
    ///
    /// # Errors
    /// When the system does not permit raw sockets.
    pub fn open(own: Ipv4Addr, refresh: Span) -> Result<RsvpHost> {
        let step = "raw sockets (they need root, or the capability CAP_NET_RAW)";
        let open = |protocol| Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(protocol)));
        let (receiver, sender) = (open(RSVP).context(step)?, open(WITH_HEADER).context(step)?);
        receiver.set_read_timeout(Some(WAIT))?;
        let interface = Interface::new([IpAddr::V4(own)], Rate::from_megabits(LINK_MBPS));
        let settings =
            Settings { refresh, ..Settings::new(vec![interface], u64::from(std::process::id())) };
        let process = RsvpProcess::new(settings);
        Ok(RsvpHost {
            process,
            receiver,
            sender,
            began: Instant::now(),
            buffer: vec![0; PACKET_BYTES],
        })
    }

    fn now(&self) -> Time {
        Time::from_nanos(self.began.elapsed().as_nanos() as u64)
    }

    /// Announces the flow of a sender, by the nodes of a route if there are any (PATH).
    ///
    /// # Errors
    /// As [`RsvpProcess::announce`]; when the message cannot be sent.
    pub fn announce(
        &mut self,
        session: Session,
        flow: (Sender, Tspec),
        route: Option<ExplicitRoute>,
    ) -> Result<()> {
        self.process.announce(self.now(), session, flow, route, &OnLink)?;
        self.send()
    }

    /// Ends the flow of a sender.
    ///
    /// # Errors
    /// When the message cannot be sent.
    pub fn withdraw(&mut self, session: Session, sender: Sender) -> Result<()> {
        self.process.withdraw(self.now(), session, sender);
        self.send()
    }

    /// Reserves for the senders of a session, with a message when all is reserved.
    ///
    /// # Errors
    /// As [`RsvpProcess::reserve`]; when the message cannot be sent.
    pub fn reserve(
        &mut self,
        session: Session,
        style: Style,
        flows: Vec<FlowDescriptor>,
    ) -> Result<()> {
        self.process.reserve(self.now(), session, style, flows, true)?;
        self.send()
    }

    /// Releases what is reserved for a session.
    ///
    /// # Errors
    /// When the message cannot be sent.
    pub fn release(&mut self, session: Session) -> Result<()> {
        self.process.release(self.now(), session);
        self.send()
    }

    /// Sets a flow up by one packet.
    ///
    /// # Errors
    /// As [`RsvpProcess::set_up`]; when the message cannot be sent.
    pub fn set_up(&mut self, request: SetupRequest) -> Result<()> {
        self.process.set_up(self.now(), request, &OnLink)?;
        self.send()
    }

    /// Releases a flow that was set up by one packet.
    ///
    /// # Errors
    /// When the message cannot be sent.
    pub fn take_back(&mut self, session: Session, sender: Sender) -> Result<()> {
        self.process.take_back(session, sender);
        self.send()
    }

    /// Waits a little for a message; processes it, and sends what is due. What happened is returned.
    ///
    /// # Errors
    /// When the network is gone.
    pub fn turn(&mut self) -> Result<Vec<Upcall>> {
        match self.receiver.read(&mut self.buffer) {
            // (What is no message of RSVP is not for us.)
            Ok(bytes) => {
                if let Ok((envelope, message)) = packet::read(&self.buffer[..bytes]) {
                    let arrival = Arrival { port: 0, source: envelope.source, ttl: envelope.ttl };
                    self.process.handle_message(self.now(), &arrival, message, &OnLink);
                }
            }
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                ) => {}
            Err(error) => return Err(error).context("messages of RSVP cannot be received"),
        }
        self.process.handle_timeout(self.now());
        self.send()?;
        Ok(std::iter::from_fn(|| self.process.poll_upcall()).collect())
    }

    fn send(&mut self) -> Result<()> {
        while let Some(sent) = self.process.poll_transmit() {
            let destination = sent.envelope.destination;
            let to = SockAddr::from(SocketAddr::new(destination, 0));
            let done = self.sender.send_to(&sent.packet(), &to);
            done.with_context(|| format!("a message of RSVP to {destination} is not sent"))?;
        }
        Ok(())
    }
}
