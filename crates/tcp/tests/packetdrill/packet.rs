//! Packets as packetdrill writes them: `< S 0:0(0) win 32792 <mss 1000,sackOK,nop,wscale 7>`.

use nilometer_tcp::segment;
use nilometer_wire::Ecn;

use super::lexer::{Cursor, Fault};

/// What crosses the wire in a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    Tcp(Packet),
    /// ICMP, UDP, or TCP inside something; the first word names it.
    Foreign(String),
}

/// The ECN field of the IP header that a script sends or expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    Unstated,
    Exactly(Ecn),
    /// Either of the two capable codes.
    Capable,
}

/// A TCP packet of a script, its numbers relative as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    pub outbound: bool,
    pub mark: Mark,
    /// As in a header: [`segment::FIN`] and so on.
    pub flags: u8,
    pub sequence: u32,
    /// Payload bytes.
    pub length: u32,
    pub acknowledgement: u32,
    pub window: Option<u16>,
    pub urgent: bool,
    /// Nothing where the script says `<...>`: any options.
    pub options: Option<Vec<Opt>>,
}

/// A TCP option; padding is left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Opt {
    Mss(u16),
    SackPermitted,
    Scale(u8),
    Timestamps(u32, u32),
    Sack(Vec<[u32; 2]>),
    Foreign(String),
}

/// Reads a packet behind its `<` or `>`.
pub fn parse(cursor: &mut Cursor<'_>, outbound: bool) -> Result<Frame, Fault> {
    let mark = parse_mark(cursor)?;
    let letters = cursor.take_while(|letter| !letter.is_whitespace()).unwrap_or("");
    let Some(flags) = parse_flags(letters) else {
        cursor.rest_of_line();
        return Ok(Frame::Foreign(letters.to_string()));
    };
    let sequence: u32 = cursor.count("a sequence number")?;
    cursor.expect(":")?;
    let end: u32 = cursor.count("a sequence number")?;
    cursor.expect("(")?;
    let length: u32 = cursor.count("a length")?;
    cursor.expect(")")?;
    if end.wrapping_sub(sequence) != length {
        return Err(cursor.fault("the length is not that of the sequence numbers"));
    }
    let acknowledgement =
        if cursor.eat_name("ack") { cursor.count("an acknowledgement")? } else { 0 };
    let window = if cursor.eat_name("win") { Some(cursor.count("a window")?) } else { None };
    let urgent = cursor.eat_name("urg");
    if urgent {
        cursor.count::<u16>("an urgent pointer")?;
    }
    let mut ahead = cursor.clone();
    let options = if ahead.eat("<") && is_on_line(cursor) {
        *cursor = ahead;
        parse_options(cursor)?
    } else {
        Some(Vec::new())
    };
    Ok(Frame::Tcp(Packet {
        outbound,
        mark,
        flags,
        sequence,
        length,
        acknowledgement,
        window,
        urgent,
        options,
    }))
}

/// Whether the next word stands on the line that is being read: a `<` below begins an event.
fn is_on_line(cursor: &Cursor<'_>) -> bool {
    let mut ahead = cursor.clone();
    ahead.skip_space();
    ahead.line() == cursor.line()
}

fn parse_mark(cursor: &mut Cursor<'_>) -> Result<Mark, Fault> {
    if !cursor.eat("[") {
        return Ok(Mark::Unstated);
    }
    let mark = match cursor.name() {
        Some("noecn") => Mark::Exactly(Ecn::NotCapable),
        Some("ect0") => Mark::Exactly(Ecn::Capable0),
        Some("ect1") => Mark::Exactly(Ecn::Capable1),
        Some("ce") => Mark::Exactly(Ecn::Congestion),
        Some("ect01") => Mark::Capable,
        _ => return Err(cursor.fault("an ECN field that is not known")),
    };
    cursor.expect("]")?;
    Ok(mark)
}

/// Flag letters; a full stop is ACK, a dash alone is no flag at all.
fn parse_flags(letters: &str) -> Option<u8> {
    if letters == "-" {
        return Some(0);
    }
    letters.chars().try_fold(0, |flags, letter| {
        let flag = match letter {
            'F' => segment::FIN,
            'S' => segment::SYN,
            'R' => segment::RST,
            'P' => segment::PSH,
            '.' => segment::ACK,
            'U' => segment::URG,
            'E' => segment::ECE,
            'W' => segment::CWR,
            _ => return None,
        };
        Some(flags | flag)
    })
}

fn parse_options(cursor: &mut Cursor<'_>) -> Result<Option<Vec<Opt>>, Fault> {
    if cursor.eat("...") {
        cursor.expect(">")?;
        return Ok(None);
    }
    let mut options = Vec::new();
    loop {
        match cursor.name() {
            Some("nop" | "eol") => {}
            Some("mss") => options.push(match cursor.number() {
                Some(bytes) => {
                    Opt::Mss(u16::try_from(bytes).map_err(|_| cursor.fault("an MSS too large"))?)
                }
                None => Opt::Foreign(format!("mss {}", cursor.name().unwrap_or(""))),
            }),
            Some("sackOK") => options.push(Opt::SackPermitted),
            Some("wscale") => options.push(Opt::Scale(cursor.count("a shift")?)),
            Some("TS") => {
                cursor.expect("val")?;
                let value = cursor.count("a timestamp")?;
                cursor.expect("ecr")?;
                options.push(Opt::Timestamps(value, cursor.count("a timestamp")?));
            }
            Some("sack") => {
                let mut blocks = Vec::new();
                while cursor.peek().is_some_and(|letter| letter.is_ascii_digit()) {
                    let left = cursor.count("a sequence number")?;
                    cursor.expect(":")?;
                    blocks.push([left, cursor.count("a sequence number")?]);
                }
                options.push(Opt::Sack(blocks));
            }
            Some(name) => {
                cursor.take_while(|letter| letter != ',' && letter != '>');
                options.push(Opt::Foreign(name.to_string()));
            }
            None => return Err(cursor.fault("a TCP option that cannot be read")),
        }
        if cursor.eat(">") {
            return Ok(Some(options));
        }
        cursor.expect(",")?;
    }
}
