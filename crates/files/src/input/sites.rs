//! Private addresses that occur in several captures, and may be different hosts.
//!
//! Every site numbers its hosts from the same private blocks (RFC 1918), so that captures of two sites may
//! show one host where there are two. A packet does not identify its site. Pieces of one capture, as
//! `tcpdump -C` and `-G` write them, follow one another in time, and are harmless; inputs that overlap, or
//! lie far apart, may be from different sites, and cause a warning.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use super::summary::InputSpan;

/// Private addresses remembered at most, some 40 bytes each.
const ADDRESSES_MAX: usize = 1 << 16;
/// Inputs that are no farther apart count as pieces of one capture.
const APART_NS: u64 = 60 * 1_000_000_000;

/// The addresses that two inputs share.
#[derive(Debug)]
struct Shared {
    first: IpAddr,
    others: u64,
}

/// The private addresses of captures, each with the last input that had it.
#[derive(Debug, Default)]
pub(super) struct Sites {
    seen: HashMap<IpAddr, usize>,
    shared: BTreeMap<(usize, usize), Shared>,
    /// The spans of finished inputs; `None` for inputs without packets.
    spans: Vec<Option<InputSpan>>,
}

impl Sites {
    /// Notes an address of a packet of the current input.
    pub(super) fn note(&mut self, address: IpAddr) {
        if !is_private(address) {
            return;
        }
        let now = self.spans.len();
        let is_full = self.seen.len() >= ADDRESSES_MAX;
        let before = match self.seen.get_mut(&address) {
            Some(before) => std::mem::replace(before, now),
            None if is_full => return,
            None => {
                self.seen.insert(address, now);
                return;
            }
        };
        if before != now {
            let shared = self.shared.entry((before, now));
            shared
                .and_modify(|shared| shared.others += 1)
                .or_insert(Shared { first: address, others: 0 });
        }
    }

    /// Ends the current input.
    pub(super) fn input_ends(&mut self, span: Option<&InputSpan>) {
        self.spans.push(span.cloned());
    }

    /// One line of warning, if inputs share addresses and are not pieces of one capture.
    pub(super) fn warning(&self) -> Option<String> {
        let span = |at: usize| self.spans.get(at).and_then(Option::as_ref);
        let all = self.shared.iter().filter_map(|(&(a, b), shared)| {
            let (a, b) = (span(a)?, span(b)?);
            (!follow(a, b)).then_some((a, b, shared))
        });
        let all: Vec<_> = all.collect();
        let (a, b, shared) = all.first()?;
        let others = match shared.others {
            0 => " is".to_owned(),
            1 => " and another private address are".to_owned(),
            others => format!(" and {others} other private addresses are"),
        };
        let more = match all.len() - 1 {
            0 => String::new(),
            more => format!(" (and so with {more} more of the inputs)"),
        };
        Some(format!(
            "{}{others} in both {} and {}{more}, and taken for the same hosts. If these are captures of \
             different sites, play each by itself, or rewrite the addresses of one first (tcprewrite --pnat)",
            shared.first, a.name, b.name
        ))
    }
}

/// Does one of them begin where the other one ends?
fn follow(a: &InputSpan, b: &InputSpan) -> bool {
    let (first, second) = if a.first_ns <= b.first_ns { (a, b) } else { (b, a) };
    second.first_ns >= first.last_ns && second.first_ns - first.last_ns <= APART_NS
}

/// Is it in a block that every site may use: RFC 1918, RFC 6598, RFC 4193, link-local or loopback?
fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            let [a, b, ..] = v4.octets();
            let is_shared = a == 100 && (64..128).contains(&b);
            v4.is_private() || is_shared || v4.is_link_local() || v4.is_loopback()
        }
        IpAddr::V6(v6) => {
            let first = v6.segments()[0];
            first & 0xfe00 == 0xfc00 || first & 0xffc0 == 0xfe80 || v6.is_loopback()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    /// The warning for two inputs with these time spans in seconds, and these addresses.
    fn warned(spans: [(u64, u64); 2], addresses: [&[&str]; 2]) -> Option<String> {
        let mut sites = Sites::default();
        for ((name, (first, last)), addresses) in
            ["a.pcap", "b.pcap"].into_iter().zip(spans).zip(addresses)
        {
            for address in addresses.iter().chain(addresses) {
                sites.note(address.parse().expect("an address"));
            }
            sites.input_ends(Some(&InputSpan {
                name: name.to_owned(),
                first_ns: first * SECOND_NS,
                last_ns: last * SECOND_NS,
            }));
        }
        sites.warning()
    }

    #[test]
    fn private_addresses_of_two_sites_are_named() {
        let both: [&[&str]; 2] = [&["10.0.0.1", "10.0.0.2", "9.9.9.9"], &["10.0.0.2", "9.9.9.9"]];
        let line = warned([(0, 100), (50, 150)], both).expect("they overlap");
        assert!(line.starts_with("10.0.0.2 is in both a.pcap and b.pcap, and taken for"), "{line}");
        assert!(warned([(0, 100), (90_000, 90_100)], both).is_some(), "a day later");
        let more: [&[&str]; 2] = [&["fd00::1", "100.64.0.1"], &["100.64.0.1", "fd00::1"]];
        let line = warned([(0, 9), (0, 9)], more).expect("they overlap");
        assert!(line.contains("100.64.0.1 and another private address are"), "{line}");
    }

    #[test]
    fn pieces_of_one_capture_and_public_addresses_cause_no_warning() {
        let same: [&[&str]; 2] = [&["10.0.0.1"], &["10.0.0.1"]];
        assert_eq!(warned([(0, 100), (101, 150)], same), None);
        assert_eq!(warned([(101, 150), (0, 100)], same), None, "in whatever order");
        assert_eq!(warned([(0, 9), (0, 9)], [&["9.9.9.9"], &["9.9.9.9"]]), None);
        assert_eq!(warned([(0, 9), (0, 9)], [&["10.0.0.1"], &["10.0.0.2"]]), None);
    }
}
