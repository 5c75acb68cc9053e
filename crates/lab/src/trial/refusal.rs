//! Refusals of inputs with nothing to play: what they contained, why it cannot be used, and which
//! command would take it.

use nilometer_flow::record::{TCP, UDP};
use nilometer_traffic::estimate::EstimateError;

use nilometer_files::input::contents::{Contents, PacketKind};
use nilometer_files::input::summary::FlowSummary;

/// IANA protocol numbers.
const ICMP: u8 = 1;
const ICMP6: u8 = 58;

/// Flow records by the IANA number of their protocol.
#[derive(Clone, Debug)]
pub struct RecordKinds([u64; 256]);

impl Default for RecordKinds {
    fn default() -> RecordKinds {
        RecordKinds([0; 256])
    }
}

impl RecordKinds {
    /// Counts a record.
    pub fn take(&mut self, protocol: u8) {
        self.0[usize::from(protocol)] += 1;
    }

    /// Their names and numbers, the most frequent first.
    fn listed(&self) -> String {
        let of = |protocol: u8| self.0[usize::from(protocol)];
        let named = [("TCP", of(TCP)), ("UDP", of(UDP)), ("ICMP", of(ICMP) + of(ICMP6))];
        let others = self.0.iter().sum::<u64>() - named.iter().map(|(_, count)| count).sum::<u64>();
        list(named.into_iter().chain([("other protocols", others)]))
    }
}

fn list<'a>(kinds: impl Iterator<Item = (&'a str, u64)>) -> String {
    let mut met: Vec<(&str, u64)> = kinds.filter(|(_, count)| *count > 0).collect();
    met.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let listed: Vec<String> = met.iter().map(|(name, count)| format!("{count} {name}")).collect();
    if listed.is_empty() { "nothing else".to_owned() } else { listed.join(", ") }
}

/// Captures without a TCP packet that could be played.
pub fn no_tcp_packet(names: &str, summary: &FlowSummary, contents: &Contents) -> String {
    let beside = [
        ("not IP (ARP and the like)", summary.not_ip),
        ("cut before their IP addresses", summary.snapped),
        ("malformed", summary.malformed),
        ("of link types that are not read", summary.other_link),
    ];
    let met = contents.met();
    let all = met.iter().map(|(kind, count)| (kind.name(), *count)).chain(beside);
    if let Some(records) = no_record(summary) {
        return format!("{names}: no TCP to play: {records}");
    }
    let packets = summary.packets;
    let there = match packets {
        0 => "it holds no packet at all".to_owned(),
        _ => format!("of {packets} packets there are {}", list(all)),
    };
    format!("{names}: no TCP to play: {there}; {}", advice(names, summary, contents))
}

/// Why flow exports gave no record; none where the inputs are captures of something else.
fn no_record(summary: &FlowSummary) -> Option<String> {
    let is_capture = summary.format.contains("pcap");
    let is_export = summary.exports.is_some() || !summary.skipped.is_empty() || summary.damaged > 0;
    if is_capture && !is_export {
        return None;
    }
    Some(match &summary.warnings[..] {
        [] => "it holds no flow record".to_owned(),
        warnings => format!("no flow record could be read: {}", warnings.join("; ")),
    })
}

/// Advice for such captures, by the kind of packet that cannot be used.
fn advice(names: &str, summary: &FlowSummary, contents: &Contents) -> String {
    let tunnelled = PacketKind::ALL.into_iter().filter(|kind| kind.is_encrypted_tunnel());
    let tunnelled: u64 = tunnelled.map(|kind| contents.of(kind)).sum();
    if summary.exports_beside > 0 {
        return format!(
            "{} of them are flow exports, whose flows can be played: `nilometer flows {names} --from exports -o \
             records.parquet`, then `nilometer lab run records.parquet`",
            summary.exports_beside
        );
    }
    if summary.snapped + contents.of(PacketKind::TcpCut) > 0 {
        return "capture again with whole headers (tcpdump -s 128)".to_owned();
    }
    if 2 * tunnelled > summary.packets {
        return "an encrypted tunnel hides the TCP within: capture inside of it (tcpdump -i tun0, or wg0)"
            .to_owned();
    }
    if summary.packets == summary.not_ip + summary.malformed + summary.other_link {
        return "capture where TCP passes (tcpdump -i any tcp)".to_owned();
    }
    let tunnel = match 2 * contents.of(PacketKind::Udp) > summary.packets {
        true => "; for a tunnel on a non-standard port, capture the inner packets",
        false => "",
    };
    format!(
        "a lab plays only TCP; `nilometer flows {names}` counts the others, and -o writes their records{tunnel}"
    )
}

/// Flow records from which no model can be made.
pub fn no_model(names: &str, error: &EstimateError, kinds: &RecordKinds, packets: bool) -> String {
    let advice = match error {
        EstimateError::NoTcp(_) => format!(
            "; there are {}, which no lab plays: `nilometer flows {names}` counts them, and -o writes their records",
            kinds.listed()
        ),
        EstimateError::NoneEnters(_) if packets => {
            "; `lab run` without --fit, --harpoon and --interval plays \
             connections as they were captured, whole or not"
                .to_owned()
        }
        EstimateError::NoneEnters(_) => {
            "; give what was exported before and after it, too, or an export with \
             cumulative TCP flags"
                .to_owned()
        }
        _ => String::new(),
    };
    format!("no model from {names}: {error}{advice}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_states_the_input_and_a_remedy() {
        let pcap = FlowSummary { format: "pcap".to_owned(), ..FlowSummary::default() };
        let summary = FlowSummary { packets: 7, ..pcap.clone() };
        let templates = "23 sets of records were skipped, for their templates never came";
        let skipped =
            FlowSummary { warnings: vec![templates.to_owned()], ..FlowSummary::default() };
        let listed = |summary: &FlowSummary| no_tcp_packet("a.pcap", summary, &Contents::default());
        let cases: [(FlowSummary, &[&str]); 6] = [
            (pcap, &["no packet at all", "tcpdump -i any tcp"]),
            (FlowSummary::default(), &["no flow record"]),
            (skipped, &["no flow record could be read", "templates never came"]),
            (FlowSummary { not_ip: 7, ..summary.clone() }, &["7 not IP", "where TCP passes"]),
            (FlowSummary { snapped: 7, ..summary.clone() }, &["7 cut before", "-s 128"]),
            (
                FlowSummary { exports_beside: 2, ..summary.clone() },
                &["--from exports", "2 of them"],
            ),
        ];
        for (summary, words) in cases {
            let line = listed(&summary);
            assert!(line.starts_with("a.pcap: no TCP to play: "), "{line}");
            assert!(words.iter().all(|word| line.contains(word)), "{words:?}: {line}");
        }
    }

    #[test]
    fn records_are_counted_by_protocol() {
        let mut kinds = RecordKinds::default();
        [UDP, UDP, ICMP, ICMP6, UDP, 47].into_iter().for_each(|protocol| kinds.take(protocol));
        let line = no_model("a.nf", &EstimateError::NoTcp(6), &kinds, false);
        assert!(line.contains("no TCP among 6 flows"), "{line}");
        assert!(line.contains("there are 3 UDP, 2 ICMP, 1 other protocols"), "{line}");
        assert!(line.contains("`nilometer flows a.nf`"), "{line}");
    }
}
