//! A packet as a plugin sees it: its visible bytes and header fields.

use core::net::IpAddr;

use crate::headers::Headers;
use crate::labels::{LabelDecision, LabelRefusal, Relabelling};

/// What was to be changed lies beyond what the plugin sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unseen;

/// An IP packet, from its first byte to the last that the plugin sees.
pub struct Packet<'a> {
    pub(crate) bytes: &'a mut [u8],
    ip_bytes: u16,
    is_changed: bool,
    is_labelled: bool,
    labels: Option<LabelDecision>,
}

impl<'a> Packet<'a> {
    /// Of the `bytes` that are seen, of an IP packet that has `ip_bytes`.
    pub fn new(bytes: &'a mut [u8], ip_bytes: u16) -> Packet<'a> {
        Packet { bytes, ip_bytes, is_changed: false, is_labelled: false, labels: None }
    }

    /// Marks it as beginning with a label stack.
    #[must_use]
    pub fn labelled(self) -> Packet<'a> {
        Packet { is_labelled: true, ..self }
    }

    /// Whether it begins with a label stack ([`crate::labels`]), which its bytes and its length then include.
    pub fn is_labelled(&self) -> bool {
        self.is_labelled
    }

    /// Changes its label stack, and sends it to a next hop: it leaves the chain, whatever the plugin returns. (In a
    /// module of WebAssembly, whose interface does not support labels, nothing happens.)
    pub fn relabel(&mut self, change: Relabelling) {
        self.labels = Some(LabelDecision::Relabel(change));
    }

    /// Drops it because of its labels.
    pub fn refuse(&mut self, why: LabelRefusal) {
        self.labels = Some(LabelDecision::Refuse(why));
    }

    /// The decision about its labels.
    pub fn label_decision(&self) -> Option<&LabelDecision> {
        self.labels.as_ref()
    }

    /// The bytes that are seen.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        self.bytes
    }

    /// The same bytes, mutable.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.is_changed = true;
        self.bytes
    }

    /// Bytes of the whole IP packet, seen or not.
    pub fn ip_bytes(&self) -> u16 {
        self.ip_bytes
    }

    /// Whether its bytes were given away to be changed.
    pub fn is_changed(&self) -> bool {
        self.is_changed
    }

    /// Its headers, as far as they are visible; `None` if it is not an IP packet.
    pub fn headers(&self) -> Option<Headers> {
        Headers::read(self.bytes)
    }

    /// Its source and destination address.
    pub fn addresses(&self) -> Option<(IpAddr, IpAddr)> {
        self.headers().map(|headers| (headers.source, headers.destination))
    }

    /// Its source and destination port.
    pub fn ports(&self) -> Option<(u16, u16)> {
        self.headers()?.ports(self.bytes)
    }

    /// The differentiated services code point (RFC 2474).
    pub fn dscp(&self) -> Option<u8> {
        let [first, second] = *self.bytes.first_chunk::<2>()?;
        match first >> 4 {
            4 => Some(second >> 2),
            6 => Some((first & 0xf) << 2 | second >> 6),
            _ => None,
        }
    }
}
