//! A scenario's file before its parameters are substituted: `--set` changes it and a sweep iterates
//! over it.
//!
//! `--set` edits the text and nothing else: the value of a parameter, an axis of the sweep, a key at
//! the top. The text is then read again. So there is one way from a text to a scenario, comments
//! survive, and the file in a directory of results is exactly what was run.

use std::ops::Range;

use anyhow::{Result, anyhow, bail};
use nilometer_sim::Scenario;
use nilometer_sim::refusal::hint;
use nilometer_sim::scenario::ScenarioKind;
use serde::de::DeserializeOwned;
use toml::de::DeTable;
use toml::{Spanned, Table, Value};

use super::substitute::substitute;
use nilometer_files::document::{one_line, toml_error};

/// Keys at the top that `--set` knows.
const TOP: [&str; 3] = ["duration_s", "seeds", "seed"];
/// Most values of one axis.
const VALUES_MAX: usize = 10_000;

/// Parameters in the order in which they are written.
pub type Parameters = Vec<(String, Value)>;

/// A scenario's file, understood as far as its parameters.
#[derive(Clone, Debug)]
pub struct Template {
    /// The file's name, or the scenario's.
    pub label: String,
    /// Its whole text.
    pub text: String,
    /// The defaults.
    pub parameters: Parameters,
    /// Parameters that take several values.
    pub axes: Vec<(String, Vec<Value>)>,
    /// All but the parameters and the axes.
    tree: Table,
}

/// The keys of a table of the document with the places of key and value, in the order of the text.
fn places(document: &DeTable<'_>, table: &str) -> Vec<(String, Range<usize>, Range<usize>)> {
    let inner = document.get(table).and_then(|table| table.get_ref().as_table());
    let mut places: Vec<_> = inner
        .into_iter()
        .flatten()
        .map(|(key, value)| (key.get_ref().to_string(), key.span(), value.span()))
        .collect();
    places.sort_by_key(|(_, key, _)| key.start);
    places
}

fn spanned<'a>(label: &str, text: &'a str) -> Result<Spanned<DeTable<'a>>> {
    DeTable::parse(text).map_err(|error| toml_error(label, text, &error))
}

/// Removes a table, whose values come back in the order of `order`.
fn taken(tree: &mut Table, name: &str, order: &[String]) -> Result<Parameters> {
    match tree.remove(name) {
        None => Ok(Vec::new()),
        Some(Value::Table(mut table)) => {
            let take = |key: &String| table.remove(key).map(|value| (key.clone(), value));
            Ok(order.iter().filter_map(take).collect())
        }
        Some(_) => bail!("`{name}` is a table: [{name}]"),
    }
}

impl Template {
    /// Reads the text of the file `label`.
    ///
    /// # Errors
    /// One line: no TOML, parameters that are no scalars, axes that are none.
    pub fn read(label: &str, text: &str) -> Result<Template> {
        let document = spanned(label, text)?;
        let order = |table| -> Vec<String> {
            places(document.get_ref(), table).into_iter().map(|(key, ..)| key).collect()
        };
        let mut tree: Table = text.parse().map_err(|error| toml_error(label, text, &error))?;
        let about = |error: anyhow::Error| anyhow!("{label}: {error}");
        let parameters = taken(&mut tree, "parameters", &order("parameters")).map_err(about)?;
        let swept = taken(&mut tree, "sweep", &order("sweep")).map_err(about)?;
        for (name, value) in &parameters {
            check_parameter(name, value).map_err(about)?;
        }
        let axes = swept.into_iter().map(|(name, values)| axis(&parameters, name, values));
        let axes = axes.collect::<Result<_>>().map_err(about)?;
        let (label, text) = (label.to_owned(), text.to_owned());
        Ok(Template { label, text, parameters, axes, tree })
    }

    /// The name in the file, or the file's own.
    pub fn name(&self) -> &str {
        self.tree.get("name").and_then(Value::as_str).unwrap_or(&self.label)
    }

    /// What it is about, in a line.
    pub fn about(&self) -> &str {
        self.tree.get("about").and_then(Value::as_str).unwrap_or("")
    }

    /// The seed in the file; 1 where there is none.
    pub fn seed(&self) -> u64 {
        let seed = self.tree.get("seed").and_then(Value::as_integer);
        seed.and_then(|seed| u64::try_from(seed).ok()).unwrap_or(1)
    }

    /// How long a run is, seconds; none where the file has no number for it.
    pub fn duration_s(&self) -> Option<f64> {
        let found = self.tree.get("duration_s")?;
        found.as_float().or_else(|| found.as_integer().map(|seconds| seconds as f64))
    }

    /// What kind of scenario it is.
    ///
    /// # Errors
    /// An unknown kind.
    pub fn kind(&self) -> Result<ScenarioKind> {
        match self.tree.get("kind") {
            None => Ok(ScenarioKind::Network),
            Some(kind) => read_part(kind.clone()).map_err(|what| anyhow!("{}: {what}", self.label)),
        }
    }

    /// The template after `key=value` or `key=value,value…`: parameters, axes, and the keys at the
    /// top.
    ///
    /// # Errors
    /// One line: an unknown key with the nearest known one, a value of another type.
    pub fn set(&self, assignment: &str) -> Result<Template> {
        let Some((key, values)) = assignment.split_once('=') else {
            bail!("--set {assignment}: write key=value or key=value,value");
        };
        let key = key.trim();
        let values: Vec<&str> = values.split(',').map(str::trim).collect();
        if values.iter().any(|value| value.is_empty()) {
            bail!("--set {assignment}: a value is empty");
        }
        let text = if TOP.contains(&key) {
            self.with_top(key, &values)
        } else {
            self.with_parameter(key, &values)
        };
        let text = text.map_err(|error| anyhow!("--set {assignment}: {error}"))?;
        Template::read(&self.label, &text)
    }

    fn with_top(&self, key: &str, values: &[&str]) -> Result<String> {
        let [value] = values else { bail!("{key} takes one value; a sweep takes parameters") };
        let number: f64 = value.parse().map_err(|_| anyhow!("{key} is a number"))?;
        if key != "duration_s" && value.parse::<u64>().is_err() {
            bail!("{key} is a whole number, not {number}");
        }
        let document = spanned(&self.label, &self.text)?;
        let mut text = self.text.clone();
        match document.get_ref().get(key) {
            Some(there) => text.replace_range(there.span(), value),
            None => text.insert_str(0, &format!("{key} = {value}\n")),
        }
        Ok(text)
    }

    fn with_parameter(&self, key: &str, values: &[&str]) -> Result<String> {
        let Some((_, default)) = self.parameters.iter().find(|(name, _)| name == key) else {
            let known = self.parameters.iter().map(|(name, _)| name.as_str()).chain(TOP);
            bail!("{} has no parameter `{key}`{}", self.name(), hint(key, known));
        };
        let values: Vec<String> = values
            .iter()
            .map(|value| Ok(typed(value, default)?.to_string()))
            .collect::<Result<_>>()?;
        let document = spanned(&self.label, &self.text)?;
        let parameters = places(document.get_ref(), "parameters");
        let swept = places(document.get_ref(), "sweep");
        let mut edits = Vec::new();
        if let Some((.., place)) = parameters.iter().find(|(name, ..)| name == key) {
            edits.push((place.clone(), values[0].clone()));
        }
        let list = format!("[{}]", values.join(", "));
        match swept.iter().find(|(name, ..)| name == key) {
            Some((.., place)) => edits.push((place.clone(), list)),
            None if values.len() == 1 => {}
            None => match swept.last() {
                Some((.., last)) => {
                    edits.push((last.end..last.end, format!("\n{key} = {list}")));
                }
                None if document.get_ref().contains_key("sweep") => {
                    bail!("[sweep] is empty; leave it out")
                }
                None => {
                    let end = self.text.len();
                    edits.push((end..end, format!("\n[sweep]\n{key} = {list}\n")));
                }
            },
        }
        edits.sort_by_key(|(place, _)| std::cmp::Reverse(place.start));
        let mut text = self.text.clone();
        edits.into_iter().for_each(|(place, with)| text.replace_range(place, &with));
        Ok(text)
    }

    /// The scenario at a point of the sweep.
    ///
    /// # Errors
    /// One line with the table and the error in it.
    pub fn scenario(&self, point: &Parameters) -> Result<Scenario> {
        let mut tree = self.tree.clone();
        substitute(&mut tree, point).map_err(|error| anyhow!("{}: {error}", self.label))?;
        for name in ["host", "router", "link", "flow", "datagrams", "model"] {
            self.check_tables(&tree, name)?;
        }
        read_part(Value::Table(tree)).map_err(|what| anyhow!("{}: {what}", self.label))
    }

    /// The parameters of a stress test at a point of the sweep.
    ///
    /// # Errors
    /// One line with the key.
    pub fn stress<T: DeserializeOwned>(&self, point: &Parameters) -> Result<T> {
        const KEYS: [&str; 5] = ["version", "name", "about", "kind", "seed"];
        if let Some(key) = self.tree.keys().find(|key| !KEYS.contains(&key.as_str())) {
            bail!("{}: a stress test has [parameters] only, no `{key}`", self.label);
        }
        let table: Table = point.iter().cloned().collect();
        read_part(Value::Table(table)).map_err(|what| anyhow!("{}: {what}", self.label))
    }

    /// Reads each table of an array by itself, so that an error can name the table.
    fn check_tables(&self, tree: &Table, name: &str) -> Result<()> {
        use nilometer_sim::scenario::{DatagramSpec, Host, LinkSpec, ModelSpec, Router};
        use nilometer_sim::stack::FlowSpec;
        let Some(Value::Array(tables)) = tree.get(name) else { return Ok(()) };
        let header = format!("[[{name}]]");
        let lines = self.text.lines().enumerate().filter(|(_, line)| line.trim() == header);
        let mut lines = lines.map(|(number, _)| number + 1);
        for (number, table) in tables.iter().cloned().enumerate() {
            let checked = match name {
                "host" => read_part::<Host>(table).map(|_| ()),
                "router" => read_part::<Router>(table).map(|_| ()),
                "link" => read_part::<LinkSpec>(table).map(|_| ()),
                "flow" => read_part::<FlowSpec>(table).map(|_| ()),
                "model" => read_part::<ModelSpec>(table).map(|_| ()),
                _ => read_part::<DatagramSpec>(table).map(|_| ()),
            };
            let place = match lines.next() {
                Some(line) => format!("{header} in line {line}"),
                None => format!("{header} number {}", number + 1),
            };
            checked.map_err(|what| anyhow!("{}: {place}: {what}", self.label))?;
        }
        Ok(())
    }
}

/// Reads a part of the tree; an error names the key and is put in words.
fn read_part<T: DeserializeOwned>(value: Value) -> Result<T, String> {
    T::deserialize(value).map_err(|error: toml::de::Error| {
        let mut message = one_line(error.message());
        for whole in ["u8", "u16", "u32", "u64", "usize", "i64"] {
            message = message.replace(&format!("expected {whole}"), "expected a whole number");
        }
        message = message.replace("expected f64", "expected a number");
        let shown = error.to_string();
        let key = shown.lines().find_map(|line| line.trim().strip_prefix("in `"));
        match key.map(|key| key.trim_end_matches('`')) {
            Some(key) if !message.starts_with("unknown key") => format!("{key}: {message}"),
            _ => message,
        }
    })
}

/// A parameter is a scalar, and its name a word that `$` can point at.
fn check_parameter(name: &str, value: &Value) -> Result<()> {
    let letters = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.is_empty() || !name.chars().all(letters) {
        bail!("the parameter `{name}` has a name that is not a word");
    }
    if TOP.contains(&name) {
        bail!("`{name}` stands at the top of a scenario, not under [parameters]");
    }
    match value {
        Value::Array(_) => bail!("the parameter `{name}` is a list; lists stand under [sweep]"),
        Value::Table(_) | Value::Datetime(_) => bail!("the parameter `{name}` is not a scalar"),
        _ => Ok(()),
    }
}

fn axis(parameters: &Parameters, name: String, values: Value) -> Result<(String, Vec<Value>)> {
    let Some((_, default)) = parameters.iter().find(|(known, _)| *known == name) else {
        bail!("[sweep] has `{name}`, which is not a parameter; give it a default in [parameters]");
    };
    match values {
        Value::Array(values) if (1..=VALUES_MAX).contains(&values.len()) => {
            if let Some(other) = values.iter().find(|value| !is_like(value, default)) {
                bail!("[sweep] {name}: {other} is of another type than the default {default}");
            }
            Ok((name, values))
        }
        _ => bail!("[sweep] {name} is a list of 1 to {VALUES_MAX} values"),
    }
}

/// Whether both are words, both numbers, or both true or false.
fn is_like(value: &Value, default: &Value) -> bool {
    let number = |value: &Value| value.is_integer() || value.is_float();
    value.same_type(default) || (number(value) && number(default))
}

/// The typed text as a value of the default's type.
fn typed(text: &str, default: &Value) -> Result<Value> {
    match default {
        Value::String(_) => Ok(Value::String(text.to_owned())),
        Value::Boolean(_) => match text.parse() {
            Ok(truth) => Ok(Value::Boolean(truth)),
            Err(_) => bail!("`{text}` is neither true nor false"),
        },
        _ => match (text.parse::<i64>(), text.parse::<f64>()) {
            (Ok(whole), _) => Ok(Value::Integer(whole)),
            (_, Ok(number)) if number.is_finite() => Ok(Value::Float(number)),
            _ => bail!("`{text}` is not a number"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "name = \"t\"\nseeds = 2 # each\n[parameters]\nb = 1\na = \"x\" # word\n\
        c = true\n[sweep]\nb = [1, 2]\na = [\"x\"]\n[measure]\nbottleneck = \"l\"\n";

    fn template() -> Template {
        Template::read("t.toml", TEXT).expect("sound")
    }

    #[test]
    fn axes_come_in_the_order_of_the_text() {
        let names: Vec<_> = template().axes.into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["b", "a"]);
    }

    #[test]
    fn setting_edits_the_text_and_keeps_comments() {
        let text = |assignment: &str| template().set(assignment).expect(assignment).text;
        assert_eq!(text("seeds=7"), TEXT.replace("seeds = 2", "seeds = 7"));
        assert_eq!(text("duration_s=2.5"), format!("duration_s = 2.5\n{TEXT}"));
        let red = TEXT.replace("a = \"x\" # word", "a = \"red\" # word");
        assert_eq!(text("a=red"), red.replace("a = [\"x\"]", "a = [\"red\"]"));
        let swept = TEXT.replace("a = [\"x\"]", "a = [\"x\"]\nc = [false, true]");
        assert_eq!(text("c=false,true"), swept.replace("c = true", "c = false"));
        let bare = TEXT.replace("[sweep]\nb = [1, 2]\na = [\"x\"]\n", "");
        let template = Template::read("t.toml", &bare).expect("sound").set("b=3,4.5");
        let template = template.expect("an axis");
        assert_eq!(template.text, bare.replace("b = 1", "b = 3") + "\n[sweep]\nb = [3, 4.5]\n");
        assert_eq!(template.axes[0].1.len(), 2);
    }

    #[test]
    fn invalid_assignments_are_refused() {
        for (assignment, word) in [
            ("aa=1", "did you mean `a`?"),
            ("seds=1", "did you mean `seeds`?"),
            ("b=x", "not a number"),
            ("b=1,,2", "empty"),
            ("b", "key=value"),
            ("c=maybe", "neither"),
            ("seeds=1,2", "one value"),
            ("seeds=1.5", "whole number"),
        ] {
            let found = template().set(assignment).expect_err(assignment).to_string();
            assert!(found.contains(word), "{assignment}: {found}");
        }
    }

    #[test]
    fn parameters_are_scalars_and_axes_are_parameters() {
        for (text, word) in [
            ("[parameters]\na = [1]", "under [sweep]"),
            ("[parameters]\na = { b = 1 }", "not a scalar"),
            ("[parameters]\nseed = 1", "top"),
            ("[parameters]\n\"a b\" = 1", "not a word"),
            ("[sweep]\na = [1]", "not a parameter"),
            ("[parameters]\na = 1\n[sweep]\na = []", "1 to"),
            ("[parameters]\na = 1\n[sweep]\na = [\"x\"]", "another type"),
            ("parameters = 1", "is a table"),
            ("a = ", "line 1"),
        ] {
            let found = Template::read("t.toml", text).expect_err(text).to_string();
            assert!(found.contains(word) && found.starts_with("t.toml: "), "{text}: {found}");
        }
    }
}
