//! Parameters put into their places: `$name`, `0.4 $name` and `5 $name Mb/s` in any string.
//!
//! A string that is such a reference as a whole is replaced, on the tree of the document and before
//! anything is read from it. The unit is the one behind the name or, where none is there, the one that
//! the parameter's own name ends with (`rtt_ms`): `delay = "0.05 $rtt_ms"` becomes `5 ms`. A key that
//! ends with a unit itself takes a number, and of the same unit: `start_jitter_ms = "$jitter_ms"`.

use anyhow::{Result, bail};
use nilometer_sim::refusal::hint;
use toml::{Table, Value};

/// Endings of names, and the units that they mean.
const UNITS: [(&str, &str); 8] = [
    ("_ms", "ms"),
    ("_us", "us"),
    ("_ns", "ns"),
    ("_s", "s"),
    ("_kbps", "kb/s"),
    ("_mbps", "Mb/s"),
    ("_gbps", "Gb/s"),
    ("_bps", "b/s"),
];

/// The unit that a name ends with.
fn unit_of(name: &str) -> Option<&'static str> {
    UNITS.iter().find(|(ending, _)| name.ends_with(ending)).map(|(_, unit)| *unit)
}

/// `0.4 $name unit`, taken apart.
#[derive(Debug, PartialEq)]
struct Reference<'a> {
    factor: Option<f64>,
    name: &'a str,
    unit: Option<&'a str>,
}

impl Reference<'_> {
    /// The reference that `text` is; nothing where it has no dollar.
    fn parse(text: &str) -> Result<Option<Reference<'_>>> {
        let Some((before, after)) = text.split_once('$') else { return Ok(None) };
        let before = before.trim().trim_end_matches(['*', '×']).trim();
        let factor = match before {
            "" => None,
            number => match number.parse::<f64>() {
                Ok(factor) if factor.is_finite() => Some(factor),
                _ => bail!("`{text}`: `{number}` before the $ is not a number"),
            },
        };
        let end = after.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        let (name, unit) = after.split_at(end.unwrap_or(after.len()));
        if name.is_empty() {
            bail!("`{text}`: a parameter's name follows the $");
        }
        let unit = Some(unit.trim()).filter(|unit| !unit.is_empty());
        Ok(Some(Reference { factor, name, unit }))
    }

    /// The value that replaces it, at a key of this name.
    fn resolve(&self, key: &str, parameters: &[(String, Value)]) -> Result<Value> {
        let known = parameters.iter().find(|(name, _)| name == self.name);
        let Some((_, value)) = known else {
            let names = parameters.iter().map(|(name, _)| name.as_str());
            if parameters.is_empty() {
                bail!("{key}: no parameter `{}`; there is no [parameters]", self.name);
            }
            bail!("{key}: no parameter `{}`{}", self.name, hint(self.name, names));
        };
        let Some(number) = as_number(value) else {
            if self.factor.is_some() || self.unit.is_some() {
                bail!("{key}: the parameter `{}` is not a number", self.name);
            }
            return Ok(value.clone());
        };
        let number = number * self.factor.unwrap_or(1.0);
        let own = unit_of(self.name);
        let number = match (unit_of(key), self.unit.or(own)) {
            (None, Some(unit)) => return Ok(Value::String(format!("{number} {unit}"))),
            (Some(wanted), Some(unit)) if wanted != unit => {
                bail!("{key} is in {wanted}, `${}` in {unit}", self.name)
            }
            _ => number,
        };
        Ok(whole(number))
    }
}

/// A number as an integer where it is one: counts take no others.
fn whole(number: f64) -> Value {
    if number.fract() == 0.0 && number.abs() < 9e15 {
        Value::Integer(number as i64)
    } else {
        Value::Float(number)
    }
}

/// The number that a value is.
pub fn as_number(value: &Value) -> Option<f64> {
    match value {
        Value::Integer(number) => Some(*number as f64),
        Value::Float(number) => Some(*number),
        _ => None,
    }
}

/// Substitutes `parameters` in all strings below `tree`.
///
/// # Errors
/// Names that are no parameter, units that do not fit; one line with the key.
pub fn substitute(tree: &mut Table, parameters: &[(String, Value)]) -> Result<()> {
    for (key, value) in tree.iter_mut() {
        replace(key, value, parameters)?;
    }
    Ok(())
}

fn replace(key: &str, value: &mut Value, parameters: &[(String, Value)]) -> Result<()> {
    match value {
        Value::String(text) => {
            if let Some(reference) = Reference::parse(text)? {
                *value = reference.resolve(key, parameters)?;
            }
        }
        Value::Array(items) => {
            for item in items {
                replace(key, item, parameters)?;
            }
        }
        Value::Table(table) => substitute(table, parameters)?,
        _ => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters() -> Vec<(String, Value)> {
        [
            ("rtt_ms", Value::Integer(100)),
            ("flows", Value::Integer(40)),
            ("discipline", Value::String("red".into())),
            ("share", Value::Float(0.25)),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .to_vec()
    }

    fn replaced(document: &str) -> Result<String> {
        let mut tree: Table = document.parse().expect("TOML");
        substitute(&mut tree, &parameters())?;
        Ok(tree.to_string().trim().to_owned())
    }

    #[test]
    fn parameters_take_their_places() {
        for (before, after) in [
            ("delay = '0.05 $rtt_ms'", "delay = \"5 ms\""),
            ("delay = '$rtt_ms us'", "delay = \"100 us\""),
            ("start_ms = '0.123 $rtt_ms'", "start_ms = 12.3"),
            ("count = '$flows'", "count = 40"),
            ("count = '0.5 $flows'", "count = 20"),
            ("rate = '5 $flows Mb/s'", "rate = \"200 Mb/s\""),
            ("rate = '5 × $flows Mb/s'", "rate = \"200 Mb/s\""),
            ("loss = '$share'", "loss = 0.25"),
            ("a = 'plain'", "a = \"plain\""),
            ("a = [['$flows']]", "a = [[40]]"),
        ] {
            assert_eq!(replaced(before).expect(before), after, "{before}");
        }
        let nested = replaced("[[link]]\nqueue = { discipline = '$discipline' }").expect("sound");
        assert!(nested.contains("discipline = \"red\""), "{nested}");
    }

    #[test]
    fn invalid_substitutions_are_refused() {
        for (document, word) in [
            ("a = '$flow'", "did you mean `flows`"),
            ("a = '2 $discipline'", "not a number"),
            ("a = 'x $flows'", "`x`"),
            ("a = '$'", "name follows"),
            ("start_s = '$rtt_ms'", "in s"),
        ] {
            let message = replaced(document).expect_err(document).to_string();
            assert!(message.contains(word), "{document}: {message}");
        }
    }
}
