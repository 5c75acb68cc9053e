//! IPv4 options on the slow path: what a router reads of them, fills into them, and refuses.
//!
//! Two steps. [`Options::read`] walks the options once, before anything is changed, and finds every
//! fault that RFC 791 defines: a length that leads nowhere, a pointer into the option's own head, an
//! area with some room but not enough for an entry, or an option twice that may occur only once. A
//! fault is answered by Parameter Problem with the octet at which it shows. Unknown options (security
//! of any age, stream identifiers, ...) pass unchanged (RFC 1812, 5.3.13.1 to 5.3.13.3).
//!
//! When the next hop is known, [`Options::fill`] writes a router's entries: its address on the
//! outgoing link into a record route (5.3.13.5), its time into a timestamp of all three kinds
//! (5.3.13.6), and mends the checksum. An area that is full stays as it is; a timestamp then counts
//! an overflow, unless the list is of prescribed addresses, where having no entry left means that no
//! further router was asked. A sixteenth that cannot be counted is a fault (RFC 791).
//!
//! Source routes let a sender go around filters, and the advice is to refuse them unless configured
//! otherwise (RFC 7126, 4.3 and 4.4; RFC 6274). So [`SourceRouting::Refuse`] is the default, against
//! RFC 1812's 5.3.13.4, and the packet is answered as prohibited. When followed, they work as that
//! clause says: a packet that has reached an address of the router continues to the next address in
//! the list, which is replaced by the router's address on the link towards it (5.2.4.1).

use super::fragment::sum_header;
use super::icmp::Problem;
use super::{double_word, ipv4_extent};

const END: u8 = 0;
const NO_OPERATION: u8 = 1;
const RECORD_ROUTE: u8 = 7;
const TIMESTAMP: u8 = 68;
const LOOSE_SOURCE_ROUTE: u8 = 131;
const STRICT_SOURCE_ROUTE: u8 = 137;
const ROUTER_ALERT: u8 = 148;
const HEADER_BYTES: usize = 20;

/// Timestamps that are not milliseconds since midnight UT have this bit (RFC 791).
pub const NOT_STANDARD: u32 = 1 << 31;

/// What is done with source routes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SourceRouting {
    /// The packet is discarded and answered as prohibited.
    #[default]
    Refuse,
    /// The option is passed over and left as it is.
    Ignore,
    /// RFC 1812, 5.3.13.4.
    Follow,
}

/// A source route that has not come to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceRoute {
    /// Where the option stands in the packet.
    pub at: usize,
    /// The next address must be a neighbour (else 3/5, source route failed).
    pub is_strict: bool,
    /// The next address; nothing when the route is at its end.
    pub next: Option<u32>,
}

/// Where in a header the options stand that a router looks at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The source route.
    pub source_route: Option<SourceRoute>,
    /// The record route.
    pub record_route_at: Option<usize>,
    /// The timestamp.
    pub timestamp_at: Option<usize>,
    /// The router shall look into the packet, though it is not addressed (RFC 2113).
    pub has_router_alert: bool,
    router_alert_at: Option<usize>,
}

/// What a router has to fill in.
#[derive(Clone, Copy)]
pub struct Visit<'a> {
    /// The router's address on the link by which the packet leaves.
    pub outgoing: u32,
    /// Milliseconds since midnight UT, or anything with [`NOT_STANDARD`].
    pub stamp: u32,
    /// Whether an address is one of the router's.
    pub is_own: &'a dyn Fn(u32) -> bool,
}

impl Options {
    /// Reads the options of the IPv4 packet that begins here.
    ///
    /// # Errors
    /// The problem to report; the packet is discarded.
    pub fn read(packet: &[u8], source_routing: SourceRouting) -> Result<Options, Problem> {
        let fault = |at: usize| Problem::Parameter { pointer: at as u16 };
        let (header_bytes, _) = ipv4_extent(packet).ok_or(fault(0))?;
        let mut found = Options::default();
        let mut at = HEADER_BYTES;
        while at < header_bytes {
            let length = match packet[at] {
                END => break,
                NO_OPERATION => 1,
                _ if at + 1 == header_bytes => return Err(fault(at)),
                _ => match usize::from(packet[at + 1]) {
                    length if length >= 2 && at + length <= header_bytes => length,
                    _ => return Err(fault(at + 1)),
                },
            };
            let option = &packet[at..at + length];
            found.note(at, option).map_err(|octet| fault(at + octet))?;
            at += length;
        }
        match (found.source_route, source_routing) {
            (Some(_), SourceRouting::Refuse) => Err(Problem::Prohibited),
            (_, SourceRouting::Ignore) => Ok(Options { source_route: None, ..found }),
            _ => Ok(found),
        }
    }

    /// Notes one option, which stands at `at`; an error is the octet of it that is wrong.
    fn note(&mut self, at: usize, option: &[u8]) -> Result<(), usize> {
        let place = match option[0] {
            RECORD_ROUTE => &mut self.record_route_at,
            TIMESTAMP => &mut self.timestamp_at,
            ROUTER_ALERT => &mut self.router_alert_at,
            LOOSE_SOURCE_ROUTE | STRICT_SOURCE_ROUTE => {
                let is_strict = option[0] == STRICT_SOURCE_ROUTE;
                check_route(option)?;
                let pointer = usize::from(option[2]);
                let next = (pointer <= option.len()).then(|| double_word(option, pointer - 1));
                let route = SourceRoute { at, is_strict, next };
                return self.source_route.replace(route).map_or(Ok(()), |_| Err(0));
            }
            _ => return Ok(()),
        };
        if place.replace(at).is_some() {
            return Err(0);
        }
        match option[0] {
            RECORD_ROUTE => check_route(option),
            TIMESTAMP => check_timestamp(option),
            _ if option.len() != 4 => Err(1),
            _ => {
                // Values other than zero are reserved, and not for us (RFC 2113, 2.1).
                self.has_router_alert = option[2..4] == [0, 0];
                Ok(())
            }
        }
    }

    /// Whether [`Options::fill`] would have anything to do.
    pub fn asks_to_be_filled(&self) -> bool {
        self.record_route_at.is_some() || self.timestamp_at.is_some()
    }

    /// Advances one step along the source route, if there is one to take: the destination becomes the
    /// next address, and `outgoing`, the router's address on the link towards it, takes its place. To
    /// be done when the packet's destination is the router's, before [`Options::fill`]. `packet` is
    /// the one that was read.
    pub fn follow(&self, packet: &mut [u8], outgoing: u32) {
        let Some(SourceRoute { at, next: Some(next), .. }) = self.source_route else { return };
        let pointer = packet.get(at + 2).copied().unwrap_or(0);
        let slot = at + usize::from(pointer).saturating_sub(1);
        if pointer < 4 || packet.len() < HEADER_BYTES || slot + 4 > packet.len() {
            return; // not the packet that was read
        }
        packet[16..20].copy_from_slice(&next.to_be_bytes());
        packet[slot..slot + 4].copy_from_slice(&outgoing.to_be_bytes());
        packet[at + 2] = pointer.saturating_add(4);
        mend(packet);
    }

    /// Fills in the options' entries of the router by which `packet`, the one that was read, leaves.
    pub fn fill(&self, packet: &mut [u8], visit: Visit<'_>) {
        for at in [self.record_route_at, self.timestamp_at].into_iter().flatten() {
            let length = packet.get(at + 1).copied().map_or(0, usize::from);
            let Some(option) = packet.get_mut(at..at + length).filter(|_| length >= 3) else {
                continue; // not the packet that was read
            };
            match option[0] {
                RECORD_ROUTE => record(option, visit.outgoing),
                TIMESTAMP if length >= 4 => stamp(option, visit),
                _ => {}
            }
        }
        mend(packet);
    }
}

/// The checksum again, where there is a header.
fn mend(packet: &mut [u8]) {
    if ipv4_extent(packet).is_some() {
        sum_header(packet);
    }
}

/// Record routes and source routes: entries of four bytes behind a head of three.
fn check_route(option: &[u8]) -> Result<(), usize> {
    if option.len() < 3 {
        return Err(1);
    }
    let pointer = usize::from(option[2]);
    let is_full = pointer > option.len();
    if pointer < 4 || !is_full && pointer + 3 > option.len() { Err(2) } else { Ok(()) }
}

/// How many bytes an entry has under this flag of a timestamp option.
fn entry_bytes(flag: u8) -> Option<usize> {
    match flag & 0x0f {
        0 => Some(4),
        1 | 3 => Some(8),
        _ => None,
    }
}

fn check_timestamp(option: &[u8]) -> Result<(), usize> {
    if option.len() < 4 {
        return Err(1);
    }
    let pointer = usize::from(option[2]);
    let entry = entry_bytes(option[3]).ok_or(3usize)?;
    if pointer < 5 {
        return Err(2);
    }
    if pointer > option.len() {
        let is_counted = option[3] & 0x0f != 3;
        return if is_counted && option[3] >> 4 == 15 { Err(3) } else { Ok(()) };
    }
    if pointer + entry - 1 > option.len() { Err(2) } else { Ok(()) }
}

fn record(option: &mut [u8], outgoing: u32) {
    let pointer = usize::from(option[2]);
    if pointer >= 4 && pointer + 3 <= option.len() {
        option[pointer - 1..pointer + 3].copy_from_slice(&outgoing.to_be_bytes());
        option[2] = option[2].saturating_add(4);
    }
}

fn stamp(option: &mut [u8], visit: Visit<'_>) {
    let pointer = usize::from(option[2]);
    let Some(entry) = entry_bytes(option[3]).filter(|_| pointer >= 5) else { return };
    let flag = option[3] & 0x0f;
    if pointer > option.len() {
        if flag != 3 && option[3] >> 4 < 15 {
            option[3] += 0x10;
        }
        return;
    }
    if pointer + entry - 1 > option.len() {
        return;
    }
    let first = pointer - 1;
    if flag == 3 && !(visit.is_own)(double_word(option, first)) {
        return;
    }
    if flag == 1 {
        option[first..first + 4].copy_from_slice(&visit.outgoing.to_be_bytes());
    }
    let time_at = first + entry - 4;
    option[time_at..time_at + 4].copy_from_slice(&visit.stamp.to_be_bytes());
    option[2] = option[2].saturating_add(entry as u8);
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use nilometer_wire::build;
    use nilometer_wire::checksum::ipv4_header_checksum_ok;

    const OWN: u32 = 0xc612_00fe;
    const VISIT: Visit<'_> = Visit { outgoing: OWN, stamp: 0x0102_0304, is_own: &|a| a == OWN };
    use SourceRouting::{Follow, Ignore, Refuse};

    fn packet(options: &[u8]) -> Vec<u8> {
        let (from, to) = ("198.18.0.1:7", "198.19.0.1:9");
        let plain = build::udp(from.parse().unwrap(), to.parse().unwrap(), b"data");
        let mut packet = plain[..20].to_vec();
        packet.extend(options);
        packet.resize(packet.len().next_multiple_of(4), 0);
        packet[0] = 0x40 | (packet.len() / 4) as u8;
        packet.extend(&plain[20..]);
        let total_bytes = packet.len() as u16;
        packet[2..4].copy_from_slice(&total_bytes.to_be_bytes());
        sum_header(&mut packet);
        packet
    }

    /// The options after a visit.
    fn visited(options: &[u8]) -> Vec<u8> {
        let mut packet = packet(options);
        let before = packet.clone();
        let found = Options::read(&packet, Refuse).expect("sound options");
        found.fill(&mut packet, VISIT);
        assert_eq!(ipv4_header_checksum_ok(&packet), Some(true));
        let at = 20 + options.len();
        assert_eq!((&packet[..10], &packet[at..]), (&before[..10], &before[at..]));
        packet[20..at].to_vec()
    }

    fn fault(options: &[u8]) -> Option<u16> {
        match Options::read(&packet(options), Follow) {
            Err(Problem::Parameter { pointer }) => Some(pointer),
            _ => None,
        }
    }

    #[test]
    fn a_record_route_records_until_it_is_full() {
        let room = [7, 11, 4, 0, 0, 0, 0, 0, 0, 0, 0];
        let once = visited(&room);
        assert_eq!(once, [7, 11, 8, 198, 18, 0, 254, 0, 0, 0, 0]);
        let twice = visited(&once);
        assert_eq!(twice, [7, 11, 12, 198, 18, 0, 254, 198, 18, 0, 254]);
        assert_eq!(visited(&twice), twice, "full");
    }

    #[test]
    fn all_three_timestamps_are_filled() {
        let alone = visited(&[68, 12, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(alone, [68, 12, 9, 0, 1, 2, 3, 4, 0, 0, 0, 0]);
        let addressed = visited(&[68, 12, 5, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(addressed, [68, 12, 13, 1, 198, 18, 0, 254, 1, 2, 3, 4]);
        let ours = visited(&[68, 12, 5, 3, 198, 18, 0, 254, 0, 0, 0, 0]);
        assert_eq!(ours, [68, 12, 13, 3, 198, 18, 0, 254, 1, 2, 3, 4]);
        let another = [68, 12, 5, 3, 198, 18, 0, 253, 0, 0, 0, 0];
        assert_eq!(visited(&another), another, "another router is asked");
    }

    #[test]
    fn a_full_timestamp_option_counts_overflows() {
        assert_eq!(visited(&[68, 4, 5, 0x00]), [68, 4, 5, 0x10]);
        assert_eq!(visited(&[68, 4, 5, 0xe1]), [68, 4, 5, 0xf1]);
        assert_eq!(fault(&[68, 4, 5, 0xf1]), Some(23), "a sixteenth");
        assert_eq!(visited(&[68, 4, 5, 0xf3]), [68, 4, 5, 0xf3]);
    }

    #[test]
    fn a_malformed_option_is_pointed_at() {
        let rows: [(&[u8], u16); 19] = [
            (&[7, 0], 21),                // no length at all
            (&[130, 1], 21),              // of any option
            (&[130, 41], 21),             // beyond the header
            (&[1, 1, 1, 7], 23),          // a type and no length
            (&[7, 2], 21),                // no room for a pointer
            (&[7, 7, 3, 0, 0, 0, 0], 22), // a pointer into the head
            (&[7, 7, 5, 0, 0, 0, 0], 22), // some room, not enough
            (&[131, 7, 0, 0, 0, 0, 0], 22),
            (&[137, 6, 4, 0, 0, 0], 22),
            (&[68, 3, 5], 21),
            (&[68, 8, 4, 0, 0, 0, 0, 0], 22),
            (&[68, 8, 5, 2, 0, 0, 0, 0], 23), // a kind that is not
            (&[68, 8, 5, 1, 0, 0, 0, 0], 22), // room for half an entry
            (&[68, 7, 5, 0, 0, 0, 0], 22),
            (&[148, 3, 0], 21),
            (&[7, 3, 4, 7, 3, 4], 23),     // the second of its kind
            (&[131, 3, 4, 137, 3, 4], 23), // of source routes
            (&[68, 4, 5, 0, 68, 4, 5, 0], 24),
            (&[148, 4, 0, 0, 148, 4, 0, 0], 24),
        ];
        for (options, pointer) in rows {
            assert_eq!(fault(options), Some(pointer), "{options:?}");
        }
    }

    #[test]
    fn unknown_options_pass_unchanged() {
        let security = [130, 11, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let stream = [136, 4, 0x12, 0x34];
        let unknown = [0x5e, 3, 9];
        let options = [&security[..], &stream[..], &[1], &unknown[..], &[0, 7, 0]].concat();
        assert_eq!(visited(&options), options, "nor is anything read behind the end");
        let found = Options::read(&packet(&options), Refuse).expect("sound");
        assert_eq!(found, Options::default());
        assert!(!found.asks_to_be_filled());
        let alert = Options::read(&packet(&[148, 4, 0, 0]), Refuse).expect("sound");
        assert!(alert.has_router_alert);
        let reserved = Options::read(&packet(&[148, 4, 0, 1]), Refuse).expect("sound");
        assert!(!reserved.has_router_alert);
    }

    #[test]
    fn source_routes_are_refused_by_default() {
        assert_eq!(SourceRouting::default(), Refuse);
        for kind in [131, 137] {
            let packet = packet(&[kind, 7, 4, 198, 18, 9, 9]);
            assert_eq!(Options::read(&packet, Refuse), Err(Problem::Prohibited));
            let passed_over = Options::read(&packet, Ignore).expect("sound");
            assert_eq!(passed_over.source_route, None);
            let route = Options::read(&packet, Follow).expect("sound").source_route;
            let next = Some(0xc612_0909);
            assert_eq!(route, Some(SourceRoute { at: 20, is_strict: kind == 137, next }));
        }
    }

    #[test]
    fn a_source_route_is_followed_to_its_end() {
        let mut packet = packet(&[1, 131, 11, 4, 198, 18, 7, 7, 198, 18, 8, 8]);
        for (hop, destination) in [(0xc612_0001u32, 0xc612_0707u32), (0xc612_0002, 0xc612_0808)] {
            let found = Options::read(&packet, Follow).expect("sound");
            assert_eq!(found.source_route.expect("a route").next, Some(destination));
            found.follow(&mut packet, hop);
            assert_eq!(packet[16..20], destination.to_be_bytes());
            assert_eq!(ipv4_header_checksum_ok(&packet), Some(true));
        }
        assert_eq!(packet[20..32], [1, 131, 11, 12, 198, 18, 0, 1, 198, 18, 0, 2]);
        let found = Options::read(&packet, Follow).expect("sound");
        assert_eq!(found.source_route.expect("a route").next, None);
        let at_the_end = packet.clone();
        found.follow(&mut packet, OWN);
        assert_eq!(packet, at_the_end);
    }
}
