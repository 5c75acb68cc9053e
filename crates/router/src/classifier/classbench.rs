//! The text of ClassBench (Taylor and Turner 2005): sets of filters, and traces of headers.
//!
//! A filter is a line: `@source/length destination/length low : high low : high protocol/mask
//! flags/mask`, source ports first, blanks or tabs between. The last column may be missing. Filters carry
//! no priority: the first in the file goes first. The column of flags has the TCP flags in its *upper*
//! octet: `0x0200/0x1200` is SYN without ACK. In a few filters for ICMP it has type and code instead;
//! a [`Key`] knows neither, so a filter that requires a bit of the lower octet matches nothing.
//!
//! A header is a line of decimal numbers: source, destination, source port, destination port, protocol,
//! and up to two more. The last of seven, or of six, is the number of the filter that the header was
//! made from. It matches, but need not be the *first* that does, so it is of no use here. The sixth of
//! seven holds that filter's flags, value above mask, or all ones where it had none.

use core::net::Ipv4Addr;

use alloc::vec::Vec;

use super::rule::{Action, Octet, Ports, Rule};
use crate::header::Key;
use crate::prefix::Prefix;

/// Where a text departs from the format, and in what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {fault}")]
pub struct Malformed {
    /// The line, counted from 1.
    pub line: usize,
    /// What is wrong with it.
    pub fault: Fault,
}

/// What is wrong with a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// A filter does not begin with `@`.
    #[error("a filter begins with @")]
    At,
    /// There are fewer or more columns than there may be.
    #[error(
        "wanted are @source destination low : high low : high protocol [flags], or, in a trace, \
         source destination port port protocol [flags] [filter]"
    )]
    Columns,
    /// The source or the destination is not an IPv4 address, a slash and a length up to 32.
    #[error("a prefix is an IPv4 address, a slash and a length up to 32")]
    Prefix,
    /// A range of ports is not two numbers up to 65535, the smaller first, with a colon between.
    #[error("ports are two numbers up to 65535, the smaller first, as in 0 : 1023")]
    Ports,
    /// The protocol is not two octets in hexadecimal with a slash between.
    #[error("a protocol is value/mask, two hexadecimal octets, as in 0x06/0xFF")]
    Protocol,
    /// The flags are not two numbers of 16 bits in hexadecimal with a slash between.
    #[error("flags are value/mask, 16 hexadecimal bits each, as in 0x0200/0x1200")]
    Flags,
    /// A column of a trace is not a decimal number, or too large.
    #[error("a header is decimal numbers: two of 32 bits, two ports, one octet")]
    Number,
}

/// The filters of a set; each has its place, from 0, as its priority, and permits.
///
/// # Errors
/// [`Malformed`] at the first line that is no filter. Empty lines are passed over.
pub fn read_rules(text: &str) -> Result<Vec<Rule<u32>>, Malformed> {
    let mut rules: Vec<Rule<u32>> = Vec::new();
    for (at, line) in lines(text) {
        let rule = rule(line, rules.len() as u32).map_err(|fault| Malformed { line: at, fault })?;
        rules.push(rule);
    }
    Ok(rules)
}

/// The headers of a trace.
///
/// # Errors
/// [`Malformed`] at the first line that is no header. Empty lines are passed over.
pub fn read_trace(text: &str) -> Result<Vec<Key<u32>>, Malformed> {
    let header = |(at, line)| header(line).map_err(|fault| Malformed { line: at, fault });
    lines(text).map(header).collect()
}

fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = text.lines().enumerate().map(|(at, line)| (at + 1, line.trim()));
    lines.filter(|(_, line)| !line.is_empty())
}

fn rule(line: &str, priority: u32) -> Result<Rule<u32>, Fault> {
    let line = line.strip_prefix('@').ok_or(Fault::At)?;
    let mut columns = line.split([' ', '\t', ':']).filter(|column| !column.is_empty());
    let mut next = || columns.next().ok_or(Fault::Columns);
    let (source, destination) = (prefix(next()?)?, prefix(next()?)?);
    let (source_ports, destination_ports) = (ports(next()?, next()?)?, ports(next()?, next()?)?);
    let protocol = pair(next()?).filter(|(value, mask)| value | mask <= 0xff);
    let (value, mask) = protocol.ok_or(Fault::Protocol)?;
    let flags = match columns.next() {
        None => Octet::ANY,
        Some(flags) => {
            let (value, mask) = pair(flags).ok_or(Fault::Flags)?;
            let [value, low] = (value & mask).to_be_bytes();
            if low == 0 { Octet::new(value, (mask >> 8) as u8) } else { Octet::NEVER }
        }
    };
    if columns.next().is_some() {
        return Err(Fault::Columns);
    }
    Ok(Rule {
        source,
        destination,
        source_ports,
        destination_ports,
        protocol: Octet::new(value as u8, mask as u8),
        flags,
        ..Rule::any(priority, Action::Permit)
    })
}

fn prefix(text: &str) -> Result<Prefix<u32>, Fault> {
    let (address, length) = text.split_once('/').ok_or(Fault::Prefix)?;
    let address: Ipv4Addr = address.parse().map_err(|_| Fault::Prefix)?;
    let length = length.parse().map_err(|_| Fault::Prefix)?;
    Prefix::new(u32::from(address), length).ok_or(Fault::Prefix)
}

fn ports(low: &str, high: &str) -> Result<Ports, Fault> {
    let port = |text: &str| text.parse().map_err(|_| Fault::Ports);
    Ports::new(port(low)?, port(high)?).ok_or(Fault::Ports)
}

/// Value and mask of up to 16 bits.
fn pair(text: &str) -> Option<(u16, u16)> {
    let number = |text: &str| {
        let digits = text.strip_prefix("0x").or(text.strip_prefix("0X"))?;
        u16::from_str_radix(digits, 16).ok()
    };
    let (value, mask) = text.split_once('/')?;
    Some((number(value)?, number(mask)?))
}

fn header(line: &str) -> Result<Key<u32>, Fault> {
    let mut numbers = [0u32; 7];
    let mut count = 0;
    for column in line.split_ascii_whitespace() {
        let number = numbers.get_mut(count).ok_or(Fault::Columns)?;
        *number = column.parse().map_err(|_| Fault::Number)?;
        count += 1;
    }
    if count < 5 {
        return Err(Fault::Columns);
    }
    let port = |number: u32| u16::try_from(number).map_err(|_| Fault::Number);
    Ok(Key {
        source: numbers[0],
        destination: numbers[1],
        source_port: port(numbers[2])?,
        destination_port: port(numbers[3])?,
        protocol: u8::try_from(numbers[4]).map_err(|_| Fault::Number)?,
        flags: if count == 7 { (numbers[5] >> 24) as u8 } else { 0 },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_and_headers_are_read() {
        let text = "@192.0.0.0/2\t187.182.19.136/32 0 : 65535\t23 : 24\t0x06/0xFF 0x0200/0x1200\t\n\
                    \n@0.0.0.0/0 10.0.0.0/8 7 : 7 0 : 65535 0x00/0x00\n";
        let rules = read_rules(text).expect("two filters");
        let first = Key {
            source: 0xc012_3456,
            destination: 0xbbb6_1388,
            source_port: 9,
            destination_port: 24,
            protocol: 6,
            flags: 0x02,
        };
        assert!(rules.len() == 2 && rules[0].matches(&first) && !rules[1].matches(&first));
        let answer = Key { flags: 0x12, ..first };
        assert!(!rules[0].matches(&answer));
        let icmp = read_rules("@0.0.0.0/0 0.0.0.0/0 0 : 65535 0 : 65535 0x01/0xFF 0x0303/0xffff");
        assert!(icmp.is_ok_and(|icmp| icmp[0].flags == Octet::NEVER));
        let other = Key { destination: 0x0a00_0001, source_port: 7, protocol: 255, ..answer };
        assert!(rules[1].matches(&other) && rules[1].priority == 1);
        let trace = read_trace("3222418518 3149271944 9 24 6 33559040 1\n1 2 3 4 5\n");
        assert_eq!(trace.as_ref().map(|trace| trace[0]), Ok(first));
        assert_eq!(trace.map(|trace| (trace.len(), trace[1].flags)), Ok((2, 0)));
    }

    #[test]
    fn errors_are_reported_with_their_line() {
        let good = "@0.0.0.0/0 10.0.0.0/8 7 : 7 0 : 65535 0x00/0x00";
        let cases = [
            ("0.0.0.0/0 10.0.0.0/8 7 : 7 0 : 65535 0x00/0x00", Fault::At),
            ("@0.0.0.0/0 10.0.0.0/8 7 : 7 0 : 65535", Fault::Columns),
            ("@0.0.0.0/0 10.0.0.0/8 7 : 7 0 : 65535 0x00/0x00 0x0/0x0 0", Fault::Columns),
            ("@0.0.0.0 10.0.0.0/8 7 : 7 0 : 65535 0x00/0x00", Fault::Prefix),
            ("@0.0.0.0/0 10.0.0.0/33 7 : 7 0 : 65535 0x00/0x00", Fault::Prefix),
            ("@0.0.0.0/0 10.0.0.0/8 8 : 7 0 : 65535 0x00/0x00", Fault::Ports),
            ("@0.0.0.0/0 10.0.0.0/8 7 : 7 0 : 65536 0x00/0x00", Fault::Ports),
            ("@0.0.0.0/0 10.0.0.0/8 7 : 7 0 : 65535 6/0xFF", Fault::Protocol),
            ("@0.0.0.0/0 10.0.0.0/8 7 : 7 0 : 65535 0x100/0xFF", Fault::Protocol),
            ("@0.0.0.0/0 10.0.0.0/8 7 : 7 0 : 65535 0x06/0x100", Fault::Protocol),
            ("@0.0.0.0/0 10.0.0.0/8 7 : 7 0 : 65535 0x106/0x100", Fault::Protocol),
            ("@0.0.0.0/0 10.0.0.0/8 7 : 7 0 : 65535 0x06/0xFF 0x0/0x10000", Fault::Flags),
        ];
        for (line, fault) in cases {
            let text = alloc::format!("{good}\n\n{line}\n");
            assert_eq!(read_rules(&text), Err(Malformed { line: 3, fault }), "{line}");
        }
        for (line, fault) in [
            ("1 2 3 4", Fault::Columns),
            ("1 2 3 4 5 6 7 8", Fault::Columns),
            ("1 2 3 4 256", Fault::Number),
            ("1 2 65536 4 5", Fault::Number),
            ("1 2 3 x 5", Fault::Number),
            ("4294967296 2 3 4 5", Fault::Number),
        ] {
            assert_eq!(read_trace(line), Err(Malformed { line: 1, fault }), "{line}");
        }
    }
}
