//! Reassembly by the same rules over plain lists of fragments, described by their fields.

use nilometer_router::forward::icmp::Problem;
use nilometer_router::forward::reassemble::{
    Expired, Outcome, Reason, ReassemblyCounters, Settings,
};
use nilometer_wire::checksum::internet_checksum;
use nilometer_wire::time::Time;

/// A fragment, described by its fields.
#[derive(Clone)]
pub struct FragmentFields {
    pub is_v6: bool,
    /// Which 32-bit word of the address differs from zero, or which byte of an IPv4 address.
    pub source: usize,
    pub destination: usize,
    pub id: u32,
    pub protocol: u8,
    /// Of its header, or of destination options before the fragment header.
    pub option_bytes: usize,
    pub start: usize,
    pub more: bool,
    pub payload: Vec<u8>,
}

impl FragmentFields {
    pub fn packet(&self) -> Vec<u8> {
        let mut packet;
        if self.is_v6 {
            let options = match self.option_bytes {
                0 => vec![],
                _ => vec![44, 0, 1, 4, 0, 0, 0, 0],
            };
            let mut inside = vec![self.protocol, 0];
            inside.extend((self.start as u16 | u16::from(self.more)).to_be_bytes());
            inside.extend(self.id.to_be_bytes());
            packet = self.ipv6(if options.is_empty() { 44 } else { 60 });
            packet.extend([options, inside].concat());
        } else {
            packet = self.ipv4((self.start / 8) as u16 | u16::from(self.more) << 13);
        }
        packet.extend(&self.payload);
        self.finish(packet)
    }

    /// The packet without a trace of fragmentation.
    pub fn whole(&self, payload: &[u8]) -> Vec<u8> {
        let mut packet = match (self.is_v6, self.option_bytes) {
            (false, _) => self.ipv4(0),
            (true, 0) => self.ipv6(self.protocol),
            (true, _) => [self.ipv6(60), vec![self.protocol, 0, 1, 4, 0, 0, 0, 0]].concat(),
        };
        packet.extend(payload);
        self.finish(packet)
    }

    fn ipv4(&self, offset: u16) -> Vec<u8> {
        let words = 5 + self.option_bytes / 4;
        let mut packet = vec![0x40 | words as u8, 0, 0, 0];
        packet.extend((self.id as u16).to_be_bytes());
        packet.extend(offset.to_be_bytes());
        packet.extend([64, self.protocol, 0, 0]);
        for at in [self.source, self.destination] {
            let mut address = [0; 4];
            address[at] = 1;
            packet.extend(address);
        }
        packet.extend(std::iter::repeat_n(1, self.option_bytes));
        packet
    }

    fn ipv6(&self, next: u8) -> Vec<u8> {
        let mut packet = vec![0x60, 0, 0, 0, 0, 0, next, 64];
        for at in [self.source, self.destination] {
            let mut address = [0; 16];
            address[4 * at + 3] = 1;
            packet.extend(address);
        }
        packet
    }

    fn finish(&self, mut packet: Vec<u8>) -> Vec<u8> {
        let bytes = packet.len() as u16;
        if self.is_v6 {
            packet[4..6].copy_from_slice(&(bytes - 40).to_be_bytes());
        } else {
            packet[2..4].copy_from_slice(&bytes.to_be_bytes());
            let header_bytes = 20 + self.option_bytes;
            let sum = internet_checksum(&[&packet[..header_bytes]]);
            packet[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        packet
    }

    /// What it shares with the other fragments of its datagram.
    fn belongs(&self) -> (bool, usize, usize, u32, u8) {
        let protocol = if self.is_v6 { 0 } else { self.protocol };
        (self.is_v6, self.source, self.destination, self.id, protocol)
    }

    fn end(&self) -> usize {
        self.start + self.payload.len()
    }
}

#[derive(Clone)]
pub struct Datagram {
    pub began: Time,
    port: u16,
    belongs: (bool, usize, usize, u32, u8),
    fragments: Vec<FragmentFields>,
    is_void: bool,
}

/// Reassembly by the same rules over plain lists.
pub struct Naive {
    pub settings: Settings,
    /// In the order in which they began.
    pub datagrams: Vec<Datagram>,
    account: ReassemblyCounters,
}

impl Naive {
    pub fn new(settings: Settings) -> Naive {
        Naive { settings, datagrams: vec![], account: ReassemblyCounters::default() }
    }

    pub fn account(&self) -> ReassemblyCounters {
        let waiting = self.datagrams.iter().map(|one| one.fragments.len() as u64).sum();
        ReassemblyCounters { waiting, ..self.account }
    }

    pub fn bytes(&self) -> usize {
        self.datagrams
            .iter()
            .flat_map(|one| &one.fragments)
            .map(|fields| fields.payload.len())
            .sum()
    }

    fn drop(&mut self, reason: Reason, problem: Option<Problem>) -> Outcome {
        self.account.dropped[reason as usize] += 1;
        Outcome::Dropped(reason, problem)
    }

    fn remove_oldest(&mut self, reason: Reason) -> Datagram {
        let oldest = self.datagrams.remove(0);
        self.account.dropped[reason as usize] += oldest.fragments.len() as u64;
        oldest
    }

    pub fn push(&mut self, now: Time, port: u16, fields: &FragmentFields) -> Outcome {
        self.account.received += 1;
        let (bytes, is_only) = (fields.payload.len(), fields.start == 0 && !fields.more);
        if bytes == 0 && !is_only || fields.more && bytes % 8 != 0 {
            let problem = fields.is_v6.then_some(Problem::Parameter { pointer: 4 });
            return self.drop(Reason::Unsound, problem);
        }
        let is_first = fields.start == 0 && fields.more;
        if fields.protocol == 6 && !fields.is_v6 && (is_first && bytes < 16 || fields.start == 8) {
            return self.drop(Reason::Tiny, None);
        }
        if fields.is_v6 && is_only {
            self.account.delivered += 1;
            return Outcome::Whole(fields.whole(&fields.payload));
        }
        let belongs = fields.belongs();
        if !self.datagrams.iter().any(|one| one.belongs == belongs) {
            if self.datagrams.len() == self.settings.datagrams_max {
                self.remove_oldest(Reason::Evicted);
            }
            let (began, fragments) = (now, vec![]);
            self.datagrams.push(Datagram { began, port, belongs, fragments, is_void: false });
        }
        let place = self.datagrams.iter().position(|one| one.belongs == belongs);
        let place = place.expect("it is there");
        let Datagram { fragments: there, is_void, .. } = &mut self.datagrams[place];
        let is_same = |other: &FragmentFields| {
            (other.start, other.more, &other.payload)
                == (fields.start, fields.more, &fields.payload)
        };
        if there.iter().any(is_same) {
            self.account.repeated += 1;
            return Outcome::Waiting;
        }
        let disagrees = |other: &FragmentFields| {
            other.start < fields.end() && fields.start < other.end()
                || !other.more && (!fields.more || fields.end() > other.end())
                || !fields.more && other.end() > fields.end()
        };
        if *is_void || there.iter().any(disagrees) {
            self.account.dropped[Reason::Overlap as usize] += there.len() as u64;
            there.clear();
            *is_void = true;
            return self.drop(Reason::Overlap, None);
        }
        there.push(fields.clone());
        there.sort_by_key(|one| one.start);
        let payload = there.iter().flat_map(|one| one.payload.clone()).collect::<Vec<u8>>();
        let last = &there[there.len() - 1];
        if there[0].start == 0 && !last.more && last.end() == payload.len() {
            self.account.delivered += there.len() as u64;
            return Outcome::Whole(self.datagrams.remove(place).fragments[0].whole(&payload));
        }
        while self.bytes() > self.settings.bytes_max && self.datagrams.len() > 1 {
            self.remove_oldest(Reason::Evicted);
        }
        Outcome::Waiting
    }

    pub fn expire(&mut self, now: Time) -> Option<Expired> {
        if self.datagrams.first()?.began + self.settings.patience > now {
            return None;
        }
        let oldest = self.remove_oldest(Reason::Expired);
        let first = oldest.fragments.first().filter(|first| first.start == 0);
        Some(Expired { port: oldest.port, first: first.map(FragmentFields::packet) })
    }
}
