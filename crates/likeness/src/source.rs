//! What a set was read from, and the laws that can be measured from it.
//!
//! All laws can be measured from packets. A table of connection vectors holds what both ends sent and when,
//! but no packets; flow records hold neither, and what they show of payload and endings depends on their
//! exporter. A law is measured where both sets allow it in the same way, and is *not measured* otherwise: the
//! endings in records, for example, are compared with those in records only.

use crate::laws::{Law, Needs};

/// What connections were read from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// Packets.
    #[default]
    Packets,
    /// Connection vectors, as a model keeps them.
    Vectors,
    /// Flow records.
    Records {
        /// They hold TCP's flags.
        has_flags: bool,
        /// They count payload, and not only bytes of packets.
        has_payload: bool,
    },
}

impl Source {
    fn is_records(self) -> bool {
        matches!(self, Source::Records { .. })
    }

    /// Can a law be measured from both, in the same way?
    pub(crate) fn can_compare(self, other: Source, law: &Law) -> bool {
        let both = [self, other];
        match law.needs {
            Needs::Connections => true,
            Needs::Payload => {
                let counts_bytes =
                    |one: Source| matches!(one, Source::Records { has_payload: false, .. });
                both.map(counts_bytes)[0] == both.map(counts_bytes)[1]
            }
            Needs::Endings => both.iter().all(|one| match one {
                Source::Records { has_flags, .. } => *has_flags && self == other,
                _ => !self.is_records() && !other.is_records(),
            }),
            Needs::Exchanges => !both.iter().any(|one| one.is_records()),
            Needs::Packets => both == [Source::Packets; 2],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::laws::LAWS;
    use alloc::vec::Vec;

    /// Laws that cannot be measured for both sets.
    fn missing(one: Source, other: Source) -> Vec<&'static str> {
        let missing: Vec<_> =
            LAWS.iter().filter(|law| !one.can_compare(other, law)).map(|law| law.name).collect();
        let other_way: Vec<_> =
            LAWS.iter().filter(|law| !other.can_compare(one, law)).map(|law| law.name).collect();
        assert_eq!(missing, other_way);
        missing
    }

    #[test]
    fn laws_are_compared_where_both_inputs_are_measured_alike() {
        const OF_PACKETS: [&str; 4] =
            ["packets_per_second", "bytes_per_second", "packet_size", "scaling"];
        const OF_EXCHANGES: [&str; 3] = ["exchanges", "first_speaker", "think_time"];
        const OF_PAYLOAD: [&str; 5] = [
            "size_asked",
            "size_asked_tail",
            "size_answered",
            "size_answered_tail",
            "bytes_by_size",
        ];
        let records = |has_flags, has_payload| Source::Records { has_flags, has_payload };
        let sorted = |names: &[&[&'static str]]| {
            let place = |name: &&str| LAWS.iter().position(|law| law.name == *name);
            let mut names = names.concat();
            names.sort_by_key(place);
            names
        };
        assert_eq!(missing(Source::Packets, Source::Packets), [""; 0]);
        assert_eq!(missing(Source::Packets, Source::Vectors), OF_PACKETS);
        assert_eq!(missing(Source::Vectors, Source::Vectors), OF_PACKETS);
        let beside = sorted(&[&OF_PACKETS, &OF_EXCHANGES]);
        for has_payload in [true, false] {
            let with_flags = records(true, has_payload);
            assert_eq!(missing(with_flags, with_flags), beside);
            let without = records(false, has_payload);
            assert_eq!(missing(without, without), sorted(&[&beside, &["endings"]]));
        }
        let unlike = sorted(&[&beside, &["endings"]]);
        assert_eq!(missing(Source::Vectors, records(true, true)), unlike);
        assert_eq!(missing(Source::Vectors, records(true, false)), sorted(&[&unlike, &OF_PAYLOAD]));
    }
}
