//! Filters as an operator writes them: a `[[filter]]` of ROUTER.toml, and the same table by the
//! API.

use std::fmt;
use std::str::FromStr;

use anyhow::{Result, anyhow, bail, ensure};
use nilometer_router::classifier::{
    Action, Classified, Classifier, ClassifierLinear, ClassifierTuples, ClassifierVectors, Inputs,
    Octet, Ports, Rule,
};
use nilometer_router::plugin::ChainId;
use nilometer_router::plugin::control::CHAIN_MAX;
use nilometer_router::prefix::{Address, Malformed, Prefix};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

/// A filter. Absent fields match everything. A filter with addresses of one family matches that family only; without
/// addresses it matches both.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FilterSection {
    /// The action for matching packets.
    pub action: ActionName,
    /// Input ports, by interface name; every port if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inputs: Option<Vec<String>>,
    /// Output ports, instead of `inputs`: the filter is applied on output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outputs: Option<Vec<String>>,
    /// The plugin instances that process matching packets, in this order, if the action is `active`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub plugins: Vec<String>,
    /// Source addresses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Destination addresses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination: Option<String>,
    /// Source ports: `80` or `1024-65535`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_ports: Option<String>,
    /// Destination ports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination_ports: Option<String>,
    /// `tcp`, `udp`, `icmp`, `icmpv6`, or an IANA protocol number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// TCP flags that must be set, such as `SA` for SYN and ACK; lower case means not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flags: Option<String>,
    /// The smallest value is matched first; equal priorities are matched in file order.
    pub priority: u32,
    /// Whether a copy is sent to management, whatever the action.
    pub copy: bool,
}

/// A filter's rule for IPv4 and its rule for IPv6.
pub type Rules = (Option<Rule<u32>>, Option<Rule<u128>>);

nilometer_wire::named! {
    /// The action for a packet. (`reserved` is rejected: reservations have their own filters.)
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
    #[serde(rename_all = "snake_case")]
    pub enum ActionName {
        /// Drop it.
        Deny = "deny",
        /// Forward it by its route.
        #[default]
        Permit = "permit",
        /// Pass it through plugins, then forward it unless a plugin drops it.
        Active = "active",
    }
}

/// Where a filter stands, and for which ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Packets that come by these ports meet it.
    Input(Inputs),
    /// Packets that leave by these ports meet it.
    Output(Inputs),
}

impl<'de> Deserialize<'de> for ActionName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ActionName, D::Error> {
        match String::deserialize(deserializer)?.as_str() {
            "deny" => Ok(ActionName::Deny),
            "permit" => Ok(ActionName::Permit),
            "reserved" => Err(D::Error::custom(
                "a filter reserves nothing: `route ctl reserve`, the API and RSVP do; give `permit`",
            )),
            "active" => Ok(ActionName::Active),
            other => Err(D::Error::unknown_variant(other, &["deny", "permit", "active"])),
        }
    }
}

nilometer_wire::named! {
    /// The packet classification algorithm.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
    #[serde(rename_all = "snake_case")]
    pub enum ClassifierName {
        /// Bit vectors, one bit per rule: fastest up to 2,048 rules. Larger sets, and rules added one by one, use
        /// tuples.
        #[default]
        Vectors = "vectors",
        /// Tuple space search: one hash table per combination of prefix lengths.
        Tuples = "tuples",
        /// Linear search.
        Linear = "linear",
    }
}

impl ClassifierName {
    /// The classifier of this name.
    ///
    /// # Errors
    /// When there is no such classifier.
    pub fn parse(name: &str) -> Result<ClassifierName> {
        let found = ClassifierName::from_name(name);
        let names = || ClassifierName::ALL.map(ClassifierName::name).join(", ");
        found.ok_or_else(|| anyhow!("there is no classifier {name:?}; there are {}", names()))
    }

    /// A classifier of this kind without rules, with room for `rules_max`.
    pub fn classifier<A: Classified + Send + 'static>(
        self,
        rules_max: u32,
    ) -> Box<dyn Classifier<A> + Send> {
        match self {
            ClassifierName::Tuples => Box::new(ClassifierTuples::<A>::new(rules_max)),
            ClassifierName::Vectors => Box::new(ClassifierVectors::<A>::new(rules_max)),
            ClassifierName::Linear => Box::new(ClassifierLinear::<A>::new(rules_max)),
        }
    }
}

/// The letters of TCP's flags, the lowest bit first.
const FLAGS: &str = "FSRPAUEC";

impl FilterSection {
    /// Its rule for IPv4 and its rule for IPv6, at least one of which exists. An active filter has
    /// chain 0 until it is entered.
    ///
    /// # Errors
    /// The first invalid field, by its name.
    pub fn rules(&self) -> Result<Rules> {
        match (self.action, self.plugins.len()) {
            (ActionName::Active, 0) => {
                bail!("filter.plugins: the action `active` needs the names of plugins")
            }
            (ActionName::Active, 1..=CHAIN_MAX) | (_, 0) => {}
            (ActionName::Active, many) => {
                bail!("filter.plugins: there are {many} in a row, and {CHAIN_MAX} are the most")
            }
            _ => bail!("filter.plugins: they go with the action `active`"),
        }
        let family = |text: &Option<String>| text.as_ref().map(|text| text.contains(':'));
        let (source, destination) = (family(&self.source), family(&self.destination));
        if let (Some(one), Some(other)) = (source, destination) {
            ensure!(one == other, "filter: source and destination are of different families");
        }
        Ok(match source.or(destination) {
            Some(false) => (Some(self.rule()?), None),
            Some(true) => (None, Some(self.rule()?)),
            None => (Some(self.rule()?), Some(self.rule()?)),
        })
    }

    fn rule<A: Classified + Address>(&self) -> Result<Rule<A>>
    where
        Prefix<A>: FromStr<Err = Malformed>,
    {
        let action = match self.action {
            ActionName::Deny => Action::Deny,
            ActionName::Permit => Action::Permit,
            ActionName::Active => Action::Active(ChainId(0)),
        };
        let mut rule = Rule::any(self.priority, action);
        prefix("source", &self.source, &mut rule.source)?;
        prefix("destination", &self.destination, &mut rule.destination)?;
        rule.source_ports = ports("source_ports", &self.source_ports)?;
        rule.destination_ports = ports("destination_ports", &self.destination_ports)?;
        rule.protocol = protocol(&self.protocol)?;
        rule.flags = flags(&self.flags)?;
        rule.is_copied = self.copy;
        Ok(rule)
    }
}

fn prefix<A>(key: &str, text: &Option<String>, place: &mut Prefix<A>) -> Result<()>
where
    Prefix<A>: FromStr<Err = Malformed>,
{
    if let Some(text) = text {
        *place = text.parse().map_err(|why| anyhow!("filter.{key}: `{text}`: {}", Shown(why)))?;
    }
    Ok(())
}

/// A malformed prefix in words.
struct Shown(Malformed);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

fn ports(key: &str, text: &Option<String>) -> Result<Ports> {
    let Some(text) = text else { return Ok(Ports::ANY) };
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let both = first.trim().parse().ok().zip(last.trim().parse().ok());
    let range = both.and_then(|(first, last)| Ports::new(first, last));
    range.ok_or_else(|| {
        anyhow!("filter.{key}: `{text}` is neither a port nor a range such as 1024-65535")
    })
}

fn protocol(text: &Option<String>) -> Result<Octet> {
    let Some(text) = text else { return Ok(Octet::ANY) };
    let number = protocol_number(text).ok_or_else(|| {
        anyhow!("filter.protocol: `{text}` is not tcp, udp, icmp, icmpv6 or a number to 255")
    })?;
    Ok(Octet::exact(number))
}

/// The number of an IP protocol, by its name or as a number.
pub fn protocol_number(text: &str) -> Option<u8> {
    match text {
        "icmp" => Some(1),
        "tcp" => Some(6),
        "udp" => Some(17),
        "icmpv6" => Some(58),
        other => other.parse().ok(),
    }
}

fn flags(text: &Option<String>) -> Result<Octet> {
    let (mut value, mut mask) = (0, 0);
    for letter in text.iter().flat_map(|text| text.chars()) {
        let bit = FLAGS.find(letter.to_ascii_uppercase()).ok_or_else(|| {
            anyhow!("filter.flags: `{letter}` is none of {FLAGS}, or those in small letters")
        })?;
        mask |= 1 << bit;
        value |= u8::from(letter.is_ascii_uppercase()) << bit;
    }
    Ok(Octet::new(value, mask))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::RouterConfig;
    use nilometer_router::classifier::Inputs;
    use nilometer_router::header::Key;

    fn some(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    #[test]
    fn a_filter_matches_what_it_specifies() {
        let filter = FilterSection {
            action: ActionName::Deny,
            source: some("198.18.0.0/16"),
            destination_ports: some("80-90"),
            protocol: some("tcp"),
            flags: some("Sa"),
            ..FilterSection::default()
        };
        let (Some(rule), None) = filter.rules().expect("a rule") else { panic!("one of IPv4") };
        let key = |source: u32, port: u16, flags: u8| Key {
            source,
            destination: 1,
            protocol: 6,
            source_port: 5,
            destination_port: port,
            flags,
        };
        let inside = u32::from(std::net::Ipv4Addr::new(198, 18, 3, 4));
        assert!(rule.matches(&key(inside, 85, 0x02)));
        assert!(!rule.matches(&key(inside, 85, 0x12)) && !rule.matches(&key(inside, 91, 0x02)));
        assert!(!rule.matches(&key(inside ^ 1 << 31, 85, 0x02)));
        let both = FilterSection::default().rules().expect("rules");
        assert!(both.0.is_some() && both.1.is_some());
    }

    #[test]
    fn invalid_filters_are_refused_by_key() {
        let plain = FilterSection::default();
        let cases = [
            (FilterSection { source: some("198.18.0.1/16"), ..plain.clone() }, "filter.source"),
            (FilterSection { source_ports: some("9-1"), ..plain.clone() }, "filter.source_ports"),
            (FilterSection { protocol: some("tpc"), ..plain.clone() }, "filter.protocol"),
            (FilterSection { flags: some("SX"), ..plain.clone() }, "`X`"),
            (
                FilterSection { source: some("::/0"), destination: some("0.0.0.0/0"), ..plain },
                "families",
            ),
            (
                FilterSection { action: ActionName::Active, ..FilterSection::default() },
                "names of plugins",
            ),
            (
                FilterSection { plugins: vec!["a".into()], ..FilterSection::default() },
                "they go with the action `active`",
            ),
            (
                FilterSection {
                    action: ActionName::Active,
                    plugins: vec!["a".into(); 9],
                    ..FilterSection::default()
                },
                "there are 9 in a row",
            ),
        ];
        for (filter, words) in cases {
            let error = format!("{:#}", filter.rules().expect_err(words));
            assert!(error.contains(words) && !error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn actions_that_are_not_there_are_refused() {
        for (action, words) in [
            ("reserved", "a filter reserves nothing: `route ctl reserve`"),
            ("allow", "unknown variant `allow`, expected one of `deny`, `permit`, `active`"),
        ] {
            let text = format!("[[port]]\ninterface = \"p0\"\n[[filter]]\naction = \"{action}\"\n");
            let error = toml::from_str::<RouterConfig>(&text).expect_err("refused");
            let line = nilometer_files::document::toml_error("r.toml", &text, &error).to_string();
            assert!(line.starts_with("r.toml: line 4: ") && line.contains(words), "{line}");
            assert_eq!(line.lines().count(), 1, "{line}");
        }
    }

    #[test]
    fn ports_of_a_filter_are_named_by_their_interfaces() {
        let text = "[[port]]\ninterface = \"a\"\n[[port]]\ninterface = \"b\"\n";
        let config: RouterConfig = toml::from_str(text).expect("two ports");
        let inputs = |names: &[&str]| {
            let names = names.iter().map(|name| (*name).to_owned()).collect();
            let filter = FilterSection { inputs: Some(names), ..FilterSection::default() };
            config.side_of(&filter).map_err(|why| format!("{why:#}"))
        };
        let outputs = |names: &[&str], inputs: Option<Vec<String>>| {
            let outputs = Some(names.iter().map(|name| (*name).to_owned()).collect());
            let filter = FilterSection { inputs, outputs, ..FilterSection::default() };
            config.side_of(&filter).map_err(|why| format!("{why:#}"))
        };
        assert_eq!(config.side_of(&FilterSection::default()).ok(), Some(Side::Input(Inputs::ANY)));
        let by = |ports: &[usize]| Inputs::of(ports.iter().copied()).expect("ports");
        assert_eq!(inputs(&["b"]), Ok(Side::Input(by(&[1]))));
        assert_eq!(inputs(&["b", "a", "b"]), Ok(Side::Input(by(&[0, 1]))));
        assert_eq!(outputs(&["b"], None), Ok(Side::Output(by(&[1]))));
        assert!(
            outputs(&["b"], Some(vec!["a".into()]))
                .is_err_and(|why| why.contains("inputs or outputs"))
        );
        let unknown = "filter.inputs: no [[port]] has the interface c";
        assert_eq!(inputs(&["a", "c"]), Err(unknown.to_owned()));
        assert!(inputs(&[]).is_err_and(|why| why.contains("names no port")));
    }
}
