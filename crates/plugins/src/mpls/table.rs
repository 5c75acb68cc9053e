//! The label table of a label switching router (RFC 3031, 3.11), and the words that fill it.
//!
//! ```text
//!   swap=100:200@198.18.1.2,101:300+301@fd00::2    one label comes off, one or more go on, to a next hop
//!   pop=400,401@198.18.1.2                         one comes off; to a next hop, or by what is beneath
//!   push=100+200@198.18.1.2                        IP packets get labels, the topmost first
//!   ttl=uniform                                    or `pipe` (RFC 3443)
//! ```

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::IpAddr;

use nilometer_plugin::Settings;
use nilometer_plugin::labels::{LABEL_MAX, PUSHED_MAX, reserved};

/// Labels that a table has room for.
pub const LABELS_MAX: usize = 4_096;

/// What becomes of the time to live where labels begin and end (RFC 3443).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum TtlModel {
    /// A label switched path counts with its actual number of hops.
    #[default]
    Uniform,
    /// As one.
    Pipe,
}

/// Labels to put on, the topmost first, and where to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pushed {
    pub(super) labels: Vec<u32>,
    pub(super) next_hop: IpAddr,
}

/// What is done with a packet whose topmost label has this entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Forwarding {
    Swap(Pushed),
    /// To a next hop, or on with what is beneath.
    Pop(Option<IpAddr>),
}

/// All labels in the table, and the labels that IP packets get.
#[derive(Clone, Debug, Default)]
pub(super) struct LabelTable {
    entries: BTreeMap<u32, Forwarding>,
    pub(super) push: Option<Pushed>,
    pub(super) ttl: TtlModel,
}

impl LabelTable {
    /// Enters the words of a text; an entry for an existing label replaces it.
    ///
    /// # Errors
    /// The first wrong word. Words before it may have been entered.
    pub(super) fn enter(&mut self, text: &str) -> Result<(), String> {
        let mut settings = Settings::parse(text)?;
        for word in words(settings.text("delete")) {
            let label = ordinary(word)?;
            self.entries.remove(&label).ok_or_else(|| format!("label {label} is not known"))?;
        }
        for word in words(settings.text("swap")) {
            let Some((label, rest)) = word.split_once(':') else {
                return Err(format!("`{word}` is not `label:labels@next-hop`"));
            };
            self.insert(ordinary(label)?, Forwarding::Swap(pushed(rest)?))?;
        }
        for word in words(settings.text("pop")) {
            let (label, to) = word.split_once('@').map_or((word, None), |(it, to)| (it, Some(to)));
            let to = to.map(next_hop).transpose()?;
            self.insert(ordinary(label)?, Forwarding::Pop(to))?;
        }
        if let Some(word) = settings.text("push") {
            self.push = Some(pushed(word)?);
        }
        match settings.text("ttl") {
            None => {}
            Some("uniform") => self.ttl = TtlModel::Uniform,
            Some("pipe") => self.ttl = TtlModel::Pipe,
            Some(other) => return Err(format!("`ttl={other}`: give `uniform` or `pipe`")),
        }
        settings.finish()
    }

    fn insert(&mut self, label: u32, forwarding: Forwarding) -> Result<(), String> {
        if self.entries.len() >= LABELS_MAX && !self.entries.contains_key(&label) {
            return Err(format!("there are {LABELS_MAX} labels, and no more are known"));
        }
        self.entries.insert(label, forwarding);
        Ok(())
    }

    /// What becomes of a label.
    pub(super) fn get(&self, label: u32) -> Option<&Forwarding> {
        self.entries.get(&label)
    }

    /// The number of labels in the table.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }
}

fn words(list: Option<&str>) -> impl Iterator<Item = &str> {
    list.unwrap_or_default().split(',').filter(|word| !word.is_empty())
}

/// `200+300@198.18.1.2`.
fn pushed(text: &str) -> Result<Pushed, String> {
    let Some((list, to)) = text.split_once('@') else {
        return Err(format!("`{text}` names no next hop, as `200@198.18.1.2` does"));
    };
    let next_hop = next_hop(to)?;
    let labels: Vec<u32> = list.split('+').map(label).collect::<Result<_, _>>()?;
    if labels.len() > PUSHED_MAX {
        return Err(format!("`{list}` are {} labels, and {PUSHED_MAX} are the most", labels.len()));
    }
    for (at, label) in labels.iter().enumerate() {
        let is_null = matches!(*label, reserved::IPV4_EXPLICIT_NULL | reserved::IPV6_EXPLICIT_NULL);
        let is_last = at + 1 == labels.len();
        if *label == reserved::IMPLICIT_NULL {
            return Err(format!(
                "implicit null, {label}, is in no packet: give `pop=` with a next hop"
            ));
        }
        if *label < reserved::FIRST_ORDINARY && !(is_null && is_last) {
            return Err(format!("label {label} has a meaning of its own (RFC 3032, 2.1)"));
        }
    }
    Ok(Pushed { labels, next_hop })
}

fn label(text: &str) -> Result<u32, String> {
    let read = text.parse().ok().filter(|label| *label <= LABEL_MAX);
    read.ok_or_else(|| format!("`{text}` is not a label from 0 to {LABEL_MAX}"))
}

/// A label that a table may have: one without a meaning of its own.
fn ordinary(text: &str) -> Result<u32, String> {
    let label = label(text)?;
    match label >= reserved::FIRST_ORDINARY {
        true => Ok(label),
        false => Err(format!("label {label} has a meaning of its own (RFC 3032, 2.1)")),
    }
}

/// A next hop that a route leads to; a link-local address is ambiguous without its port.
fn next_hop(text: &str) -> Result<IpAddr, String> {
    let address: IpAddr =
        text.parse().map_err(|_| format!("`{text}` is not an address of a next hop"))?;
    let is_of_link = match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.segments()[0] & 0xffc0 == 0xfe80,
    };
    let is_of_many = address.is_multicast() || address.is_unspecified();
    match is_of_link || is_of_many {
        true => Err(format!(
            "{address} can be no next hop: give a neighbour's address that a route leads to"
        )),
        false => Ok(address),
    }
}
