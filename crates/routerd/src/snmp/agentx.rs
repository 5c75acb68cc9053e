//! AgentX (RFC 2741): the PDUs between an SNMP daemon and a subagent, read and written.
//!
//! Only the PDUs of a subagent without settable objects. Everything is written in network byte
//! order, and read in that of its flag. A length that does not fit is an error, never a panic.

use anyhow::{Result, bail, ensure};

/// An object's name.
pub type Oid = Vec<u32>;

/// Bytes before the payload.
pub const HEADER_BYTES: usize = 20;
/// The most that a daemon may send at once.
pub const PAYLOAD_BYTES_MAX: usize = 1 << 16;
/// Subidentifiers of a name (RFC 2578, 3.5).
const OID_MAX: usize = 128;
const VERSION: u8 = 1;
const NETWORK_ORDER: u8 = 0x10;
const NON_DEFAULT_CONTEXT: u8 = 0x08;

/// Kinds of PDUs (6.1).
pub mod kind {
    /// A session begins.
    pub const OPEN: u8 = 1;
    /// It ends.
    pub const CLOSE: u8 = 2;
    /// A subtree is ours.
    pub const REGISTER: u8 = 3;
    /// Values of these names.
    pub const GET: u8 = 5;
    /// The names that follow these, with their values.
    pub const GET_NEXT: u8 = 6;
    /// Many that follow.
    pub const GET_BULK: u8 = 7;
    /// Whether something may be set.
    pub const TEST_SET: u8 = 8;
    /// The end of what was to be set.
    pub const CLEANUP_SET: u8 = 11;
    /// An answer.
    pub const RESPONSE: u8 = 18;
}

/// Errors of answers (6.2.16, RFC 1905).
pub mod error {
    /// Done.
    pub const NONE: u16 = 0;
    /// Nothing here can be set.
    pub const NOT_WRITABLE: u16 = 17;
    /// What was sent cannot be read.
    pub const PARSE: u16 = 266;
}

/// A value (5.4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// INTEGER and Integer32.
    Integer(i32),
    /// OCTET STRING.
    Octets(Vec<u8>),
    /// Counter32: the lower 32 bits of a count.
    Counter(u64),
    /// Gauge32 and Unsigned32; more than that is the most.
    Gauge(u64),
    /// TimeTicks: hundredths of a second.
    Ticks(u32),
    /// Counter64.
    Counter64(u64),
    /// There is no such object.
    NoSuchObject,
    /// There is, but not this instance.
    NoSuchInstance,
    /// Nothing of ours follows.
    EndOfMibView,
}

/// A requested range: the name where it begins, whether that name is included, and the name before
/// which it ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// Where to begin.
    pub start: Oid,
    /// Whether `start` itself is included.
    pub includes_start: bool,
    /// The name before which it ends; no end where empty.
    pub end: Oid,
}

/// A PDU's header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// One of [`kind`].
    pub kind: u8,
    /// Of the session, the request and the packet, to be repeated in the answer.
    pub numbers: [u32; 3],
    /// Bytes that follow.
    pub payload_bytes: usize,
    flags: u8,
}

/// Reads a header.
///
/// # Errors
/// For another version, or a payload of more than [`PAYLOAD_BYTES_MAX`].
pub fn header(bytes: &[u8; HEADER_BYTES]) -> Result<Header> {
    ensure!(bytes[0] == VERSION, "AgentX of version {}, where 1 is spoken", bytes[0]);
    let mut reader = Reader { rest: &bytes[4..], is_network: bytes[2] & NETWORK_ORDER != 0 };
    let numbers = [reader.word()?, reader.word()?, reader.word()?];
    let payload_bytes = reader.word()? as usize;
    ensure!(payload_bytes <= PAYLOAD_BYTES_MAX, "a PDU of {payload_bytes} bytes");
    Ok(Header { kind: bytes[1], numbers, payload_bytes, flags: bytes[2] })
}

impl Header {
    /// A reader of the payload that belongs to this header.
    ///
    /// # Errors
    /// When its context cannot be read.
    pub fn reader<'a>(&self, payload: &'a [u8]) -> Result<Reader<'a>> {
        let is_network = self.flags & NETWORK_ORDER != 0;
        let mut reader = Reader { rest: payload, is_network };
        if self.flags & NON_DEFAULT_CONTEXT != 0 {
            reader.octets()?;
        }
        Ok(reader)
    }
}

/// Reads a payload, piece after piece.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
    is_network: bool,
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let Some((some, rest)) = self.rest.split_at_checked(count) else {
            bail!("an AgentX PDU ends early");
        };
        self.rest = rest;
        Ok(some)
    }

    fn word(&mut self) -> Result<u32> {
        let bytes: [u8; 4] = self.take(4)?.try_into()?;
        Ok(if self.is_network { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
    }

    /// Two numbers of sixteen bits.
    ///
    /// # Errors
    /// When the bytes end before them.
    pub fn pair(&mut self) -> Result<[u16; 2]> {
        let bytes = self.take(4)?;
        let number = |at: usize| [bytes[at], bytes[at + 1]];
        Ok([0, 2].map(|at| match self.is_network {
            true => u16::from_be_bytes(number(at)),
            false => u16::from_le_bytes(number(at)),
        }))
    }

    fn octets(&mut self) -> Result<&'a [u8]> {
        let count = self.word()? as usize;
        let bytes = self.take(count)?;
        self.take(count.next_multiple_of(4) - count)?;
        Ok(bytes)
    }

    fn oid(&mut self) -> Result<(Oid, bool)> {
        let &[count, prefix, include, _] = self.take(4)? else { bail!("no name") };
        ensure!(usize::from(count) <= OID_MAX, "a name of {count} numbers");
        let mut oid = match prefix {
            0 => Oid::new(),
            prefix => vec![1, 3, 6, 1, u32::from(prefix)],
        };
        for _ in 0..count {
            oid.push(self.word()?);
        }
        Ok((oid, include != 0))
    }

    /// The ranges of a request, to its end.
    ///
    /// # Errors
    /// When one cannot be read.
    pub fn ranges(&mut self) -> Result<Vec<Range>> {
        let mut ranges = Vec::new();
        while !self.rest.is_empty() {
            let ((start, includes_start), (end, _)) = (self.oid()?, self.oid()?);
            ranges.push(Range { start, includes_start, end });
        }
        Ok(ranges)
    }

    /// Time, error and index of a response; the rest of it is skipped.
    ///
    /// # Errors
    /// When the bytes end before them.
    pub fn response(&mut self) -> Result<u16> {
        self.word()?;
        Ok(self.pair()?[0])
    }
}

/// Writes a payload, piece after piece.
#[derive(Clone, Debug, Default)]
pub struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    /// The whole PDU.
    pub fn pdu(self, kind: u8, numbers: [u32; 3]) -> Vec<u8> {
        let mut pdu = vec![VERSION, kind, NETWORK_ORDER, 0];
        for number in numbers.into_iter().chain([self.bytes.len() as u32]) {
            pdu.extend(number.to_be_bytes());
        }
        pdu.extend(self.bytes);
        pdu
    }

    /// How many bytes were written.
    pub fn written(&self) -> usize {
        self.bytes.len()
    }

    /// Four bytes as they are.
    pub fn raw(&mut self, bytes: [u8; 4]) {
        self.bytes.extend(bytes);
    }

    /// A number.
    pub fn word(&mut self, word: u32) {
        self.bytes.extend(word.to_be_bytes());
    }

    /// Two numbers of sixteen bits.
    pub fn pair(&mut self, [one, two]: [u16; 2]) {
        self.word(u32::from(one) << 16 | u32::from(two));
    }

    /// A string, padded.
    pub fn octets(&mut self, octets: &[u8]) {
        self.word(octets.len() as u32);
        self.bytes.extend(octets);
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    /// A name; longer ones than SNMP has are cut.
    pub fn oid(&mut self, oid: &[u32]) {
        let (prefix, rest) = match oid {
            [1, 3, 6, 1, prefix @ 1..=255, rest @ ..] => (*prefix as u8, rest),
            _ => (0, oid),
        };
        let rest = &rest[..rest.len().min(OID_MAX)];
        self.raw([rest.len() as u8, prefix, 0, 0]);
        rest.iter().for_each(|number| self.word(*number));
    }

    /// A name and its value (5.4).
    pub fn bind(&mut self, oid: &[u32], value: &Value) {
        let (kind, long) = match value {
            Value::Integer(_) => (2, None),
            Value::Octets(_) => (4, None),
            Value::Counter(_) => (65, None),
            Value::Gauge(_) => (66, None),
            Value::Ticks(_) => (67, None),
            Value::Counter64(count) => (70, Some(*count)),
            Value::NoSuchObject => (128, None),
            Value::NoSuchInstance => (129, None),
            Value::EndOfMibView => (130, None),
        };
        self.pair([kind, 0]);
        self.oid(oid);
        match value {
            Value::Integer(number) => self.word(*number as u32),
            Value::Octets(octets) => self.octets(octets),
            Value::Counter(count) => self.word(*count as u32),
            Value::Gauge(count) => self.word(u32::try_from(*count).unwrap_or(u32::MAX)),
            Value::Ticks(ticks) => self.word(*ticks),
            _ => {}
        }
        if let Some(count) = long {
            self.bytes.extend(count.to_be_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nilometer_stat::Rng;

    fn parts(pdu: &[u8]) -> (Header, &[u8]) {
        let (head, payload) = pdu.split_at(HEADER_BYTES);
        (header(head.try_into().expect("as long")).expect("a header"), payload)
    }

    #[test]
    fn writing_and_reading_round_trip() {
        let mut writer = Writer::default();
        let oid = [1, 3, 6, 1, 2, 1, 2, 2, 1, 10, 3];
        writer.oid(&oid);
        writer.oid(&[]);
        let pdu = writer.pdu(kind::GET_NEXT, [7, 8, 9]);
        let (header, payload) = parts(&pdu);
        assert_eq!((header.kind, header.numbers), (kind::GET_NEXT, [7, 8, 9]));
        let ranges = header.reader(payload).expect("no context").ranges().expect("ranges");
        let end = Oid::new();
        assert_eq!(ranges, [Range { start: oid.to_vec(), includes_start: false, end }]);
    }

    /// Section 6.2.5 has an example: get-next of sysDescr.0 to the end of interfaces, little-endian here.
    #[test]
    fn the_other_byte_order_is_read() {
        let words: [u32; 4] = [1, 2, 3, 24];
        let mut pdu = vec![VERSION, kind::GET, 0, 0];
        words.iter().for_each(|word| pdu.extend(word.to_le_bytes()));
        pdu.extend([3, 2, 1, 0]);
        [1u32, 1, 0].iter().for_each(|number| pdu.extend(number.to_le_bytes()));
        pdu.extend([1, 2, 0, 0]);
        pdu.extend(2u32.to_le_bytes());
        let (header, payload) = parts(&pdu);
        let ranges = header.reader(payload).expect("no context").ranges().expect("ranges");
        assert_eq!(ranges[0].start, [1, 3, 6, 1, 2, 1, 1, 0]);
        assert_eq!((ranges[0].includes_start, &ranges[0].end[..]), (true, &[1, 3, 6, 1, 2, 2][..]));
    }

    #[test]
    fn hostile_bytes_are_refused_or_read() {
        let mut rng = Rng::new(2741, 1, 0);
        for _ in 0..100_000 {
            let mut bytes = [0; 84];
            bytes.iter_mut().for_each(|byte| *byte = (rng.next_u64() & 0x1f) as u8);
            bytes[0] = VERSION;
            let Ok(header) = header(bytes[..HEADER_BYTES].try_into().expect("as long")) else {
                continue;
            };
            let payload = &bytes[HEADER_BYTES..];
            if let Ok(mut reader) = header.reader(payload) {
                let read = reader.clone().ranges().map_or(0, |ranges| ranges.len());
                assert!(read <= payload.len() / 8);
                let _ = (reader.pair(), reader.response());
            }
        }
    }
}
