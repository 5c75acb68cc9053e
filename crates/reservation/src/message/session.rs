//! Sessions, senders and hops: the objects of a message that name ends of flows (RFC 2205, A.1, A.2, A.9, A.10).

use alloc::vec::Vec;
use core::net::IpAddr;

use crate::message::bytes::{Contents, c_type_of, put_address, put_object};
use crate::message::class;
use crate::message::malformed::Malformed;

/// SESSION: the destination of the flows that a reservation is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Session {
    /// DestAddress, of a host or a group.
    pub destination: IpAddr,
    /// IANA protocol number, not 0.
    pub protocol: u8,
    /// DstPort; 0 where the protocol has none.
    pub port: u16,
}

impl Session {
    pub(crate) fn read(mut contents: Contents<'_>) -> Result<Session, Malformed> {
        let destination = contents.address(contents.is_v6()?)?;
        let [protocol, _flags] = contents.take()?;
        let port = contents.half()?;
        contents.end()?;
        if protocol == 0 {
            return Err(contents.value("a session of protocol 0"));
        }
        Ok(Session { destination, protocol, port })
    }

    pub(crate) fn write(&self, to: &mut Vec<u8>) {
        put_object(to, class::SESSION, c_type_of(self.destination), |to| {
            put_address(to, self.destination);
            to.extend([self.protocol, 0]);
            to.extend(self.port.to_be_bytes());
        });
    }
}

/// SENDER_TEMPLATE and FILTER_SPEC: the source of one flow of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sender {
    /// SrcAddress.
    pub source: IpAddr,
    /// SrcPort; 0 where the protocol has none.
    pub port: u16,
}

impl Sender {
    pub(crate) fn read(mut contents: Contents<'_>) -> Result<Sender, Malformed> {
        let source = contents.address(contents.is_v6()?)?;
        contents.half()?;
        let port = contents.half()?;
        contents.end()?;
        Ok(Sender { source, port })
    }

    /// Writes it as an object of `class`.
    pub(crate) fn write(&self, class: u8, to: &mut Vec<u8>) {
        put_object(to, class, c_type_of(self.source), |to| {
            put_address(to, self.source);
            to.extend([0, 0]);
            to.extend(self.port.to_be_bytes());
        });
    }
}

/// RSVP_HOP: the interface of the router that sent the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hop {
    /// The address of the interface through which the message was sent.
    pub address: IpAddr,
    /// LIH, the logical interface handle: of a Path, that of its sender's output, which Resv messages return.
    pub handle: u32,
}

impl Hop {
    pub(crate) fn read(mut contents: Contents<'_>) -> Result<Hop, Malformed> {
        let address = contents.address(contents.is_v6()?)?;
        let handle = contents.word()?;
        contents.end()?;
        Ok(Hop { address, handle })
    }

    pub(crate) fn write(&self, to: &mut Vec<u8>) {
        put_object(to, class::HOP, c_type_of(self.address), |to| {
            put_address(to, self.address);
            to.extend(self.handle.to_be_bytes());
        });
    }
}
