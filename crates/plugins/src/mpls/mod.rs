//! A label switching router: labels pushed, swapped and popped by a table (RFC 3031, RFC 3032, RFC 3443).
//!
//! ```text
//!   IP packet ── push ──► [200|100| IP ]  to the next hop of `push=`
//!   [100| …   ── swap ──► [200| …         to the next hop of the label's entry
//!   [100| IP  ── pop  ──►  IP             on as an IP packet that came by that port
//!   [100|200| ── pop  ──► [200| …         looked up again
//! ```
//!
//! An instance bound to a filter pushes; one that a port names (`mpls = "NAME"`) gets the labelled frames of that
//! port. It may be the same one. The instance decides on each packet, and the router applies the decision.
//!
//! # Time to live (RFC 3443)
//!
//! *Uniform*: labels pushed on an IP packet begin with its time to live, and when a label is popped its remaining
//! time to live becomes the packet's, unless the packet has less: so two routers that disagree on the model cannot
//! send one in circles for ever. *Pipe*: labels begin with 255, including those above a swapped one, and the time to
//! live beneath is left alone. In both, a packet with a label whose time to live is 1 or 0 is not forwarded (RFC
//! 3032, 2.4.2).
//!
//! # Reserved labels (RFC 3032, 2.1)
//!
//! The explicit nulls are popped anywhere in the stack (RFC 4182), and at the bottom the packet that follows must be
//! of their version. A router alert is pushed again above the result for the label beneath; it has no other effect
//! here. Implicit null and those without a meaning here are unknown.

mod table;

use alloc::format;
use alloc::string::String;

use nilometer_plugin::labels::{ENTRY_BYTES, LabelEntry, LabelRefusal, Relabelling, reserved};
use nilometer_plugin::{Context, Decision, Packet, Plugin};

use table::{Forwarding, LabelTable, Pushed, TtlModel};

pub use table::LABELS_MAX;

const PUSHED: usize = 0;
const SWAPPED: usize = 1;
const POPPED: usize = 2;
const UNKNOWN: usize = 3;
const MALFORMED: usize = 4;
const EXPIRED: usize = 5;

/// Entries of a stack that are examined: a stack with more beneath is longer than any in use.
const STACK_MAX: usize = 16;
/// The time to live of labels in the pipe model.
const PIPE_TTL: u8 = 255;

/// Switches labels.
///
/// Settings: `swap=IN:OUT[+OUT…]@NEXT-HOP,…`, `pop=IN[@NEXT-HOP],…`, `push=OUT[+OUT…]@NEXT-HOP` and `ttl=uniform` or
/// `pipe`. The same words are messages, and so is `delete=LABEL,…`; an empty message returns the number of labels in
/// the table.
pub struct Mpls {
    table: LabelTable,
}

impl Plugin for Mpls {
    const NAME: &'static str = "mpls";
    const VERSION: &'static str = "1.0.0";
    /// All entries that are examined, and the version of the packet beneath.
    const SEEN_BYTES: u16 = (ENTRY_BYTES * STACK_MAX) as u16 + 4;
    const COUNTERS: &'static [&'static str] =
        &["pushed", "swapped", "popped", "unknown", "malformed", "expired"];
    const TAKES_LABELS: bool = true;

    fn new(configuration: &str) -> Result<Mpls, String> {
        let mut table = LabelTable::default();
        table.enter(configuration)?;
        Ok(Mpls { table })
    }

    fn process(&mut self, packet: &mut Packet<'_>, context: &mut Context<'_>) -> Decision {
        if !packet.is_labelled() {
            if let Some(change) = self.push(packet) {
                context.count(PUSHED, 1);
                packet.relabel(change);
            }
            return Decision::Forward;
        }
        match self.switch(packet.bytes()) {
            Ok((counter, change)) => {
                context.count(counter, 1);
                packet.relabel(change);
            }
            Err(why) => {
                let counter = match why {
                    LabelRefusal::UnknownLabel => UNKNOWN,
                    LabelRefusal::Stack => MALFORMED,
                    LabelRefusal::Expired => EXPIRED,
                };
                context.count(counter, 1);
                packet.refuse(why);
            }
        }
        Decision::Forward
    }

    fn message(&mut self, message: &str, _: &mut Context<'_>) -> Result<String, String> {
        // All or nothing.
        let mut table = self.table.clone();
        table.enter(message)?;
        self.table = table;
        Ok(format!("labels: {}", self.table.len()))
    }
}

impl Mpls {
    /// The labels that an IP packet gets; `None` if none are pushed. (The router checks and decrements its time to
    /// live.)
    fn push(&self, packet: &Packet<'_>) -> Option<Relabelling> {
        let Pushed { labels, next_hop } = self.table.push.as_ref()?;
        let bytes = packet.bytes();
        let hop_limit = match bytes.first()? >> 4 {
            4 => *bytes.get(8)?,
            _ => *bytes.get(7)?,
        };
        let ttl = match self.table.ttl {
            TtlModel::Uniform => hop_limit.saturating_sub(1),
            TtlModel::Pipe => PIPE_TTL,
        };
        // Of the DSCP the class selector (RFC 2474, 4.2.2).
        let traffic_class = packet.dscp()? >> 3;
        let mut change = Relabelling::pop(0);
        change.next_hop = Some(*next_hop);
        for &label in labels {
            change.push(LabelEntry { label, traffic_class, is_bottom: false, ttl });
        }
        Some(change)
    }

    /// The decision on a packet whose label stack begins here, and its counter.
    fn switch(&self, bytes: &[u8]) -> Result<(usize, Relabelling), LabelRefusal> {
        let entry = |at: usize| {
            let entry = bytes.get(at * ENTRY_BYTES..).and_then(LabelEntry::read);
            entry.filter(|_| at < STACK_MAX).ok_or(LabelRefusal::Stack)
        };
        let is_uniform = self.table.ttl == TtlModel::Uniform;
        let (mut popped, mut alert, mut outer_ttl) = (0, None, u8::MAX);
        loop {
            let top = entry(popped)?;
            popped += 1;
            // For a label whose outer label was popped, the outer one's time to live, in the
            // uniform model (RFC 3443, 3.4).
            let ttl = if is_uniform { top.ttl.min(outer_ttl) } else { top.ttl };
            if ttl <= 1 {
                return Err(LabelRefusal::Expired);
            }
            let forwarding = match top.label {
                reserved::ROUTER_ALERT if !top.is_bottom => {
                    (alert, outer_ttl) = (Some(top), ttl);
                    continue;
                }
                reserved::ROUTER_ALERT => return Err(LabelRefusal::Stack),
                reserved::IPV4_EXPLICIT_NULL | reserved::IPV6_EXPLICIT_NULL => {
                    let version = if top.label == reserved::IPV4_EXPLICIT_NULL { 4 } else { 6 };
                    let beneath = bytes.get(popped * ENTRY_BYTES).map(|first| first >> 4);
                    if top.is_bottom && beneath != Some(version) {
                        return Err(LabelRefusal::Stack);
                    }
                    &Forwarding::Pop(None)
                }
                label => self.table.get(label).ok_or(LabelRefusal::UnknownLabel)?,
            };
            let mut change = Relabelling::pop(popped as u8);
            match forwarding {
                Forwarding::Pop(None) if !top.is_bottom => {
                    outer_ttl = ttl;
                    continue;
                }
                Forwarding::Pop(None) => {
                    change.hop_limit = is_uniform.then_some(ttl);
                    return Ok((POPPED, change));
                }
                Forwarding::Pop(next_hop) => {
                    change.next_hop = *next_hop;
                    change.hop_limit = (is_uniform && top.is_bottom).then_some(ttl - 1);
                    push_alert(&mut change, alert.filter(|_| !top.is_bottom), ttl)?;
                    if !top.is_bottom && is_uniform {
                        let beneath = entry(popped)?;
                        change.popped += 1;
                        let ttl = beneath.ttl.min(ttl - 1);
                        let has_room = ttl > 0 && change.push(LabelEntry { ttl, ..beneath });
                        if !has_room {
                            return Err(LabelRefusal::Expired);
                        }
                    }
                    return Ok((POPPED, change));
                }
                Forwarding::Swap(Pushed { labels, next_hop }) => {
                    change.next_hop = Some(*next_hop);
                    push_alert(&mut change, alert, ttl)?;
                    for (beneath, &label) in (0..labels.len()).rev().zip(labels) {
                        let is_of_tunnel = beneath > 0 && !is_uniform;
                        let ttl = if is_of_tunnel { PIPE_TTL } else { ttl - 1 };
                        let entry = LabelEntry { label, is_bottom: false, ttl, ..top };
                        if !change.push(entry) {
                            return Err(LabelRefusal::Stack);
                        }
                    }
                    return Ok((SWAPPED, change));
                }
            }
        }
    }
}

/// A router alert stands above what the label beneath it has become.
fn push_alert(
    change: &mut Relabelling,
    alert: Option<LabelEntry>,
    ttl: u8,
) -> Result<(), LabelRefusal> {
    let Some(alert) = alert else { return Ok(()) };
    match change.push(LabelEntry { ttl: ttl - 1, is_bottom: false, ..alert }) {
        true => Ok(()),
        false => Err(LabelRefusal::Stack),
    }
}

#[cfg(test)]
mod tests;
