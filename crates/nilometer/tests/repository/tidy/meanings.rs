//! One word, one meaning: public types of these names stand once, and intervals have one type.

use super::{Source, code, hold, sources};

/// Words that used to name several things.
const ONCE: [&str; 9] =
    ["Account", "Fabric", "Filter", "Framing", "Kind", "Memory", "Port", "Verdict", "Way"];

fn built() -> Vec<Source> {
    let is_built = |path: &str| path.starts_with("crates/") && path.contains("/src/");
    sources(&[".rs"]).into_iter().filter(|source| is_built(&source.path)).collect()
}

/// Public types of one name in several places.
fn repeated(sources: &[Source]) -> Vec<String> {
    let mut complaints = Vec::new();
    for word in ONCE {
        let mut places = Vec::new();
        for Source { path, text } in sources {
            for (number, line) in text.lines().enumerate() {
                let line = code(line);
                let mut rest = line.split_whitespace().skip_while(|part| !part.starts_with("pub"));
                let is_type = rest.next().is_some()
                    && matches!(rest.next(), Some("struct" | "enum" | "trait" | "type"));
                let name = rest.next().unwrap_or_default();
                let name = name.split(|c: char| !c.is_alphanumeric()).next();
                if is_type && name == Some(word) {
                    places.push(format!("{path}:{}", number + 1));
                }
            }
        }
        if places.len() > 1 {
            complaints.push(format!("`{word}` means several things: {}", places.join(", ")));
        }
    }
    complaints
}

/// Intervals of confidence that are bare pairs.
fn bare_intervals(sources: &[Source]) -> Vec<String> {
    let mut complaints = Vec::new();
    for Source { path, text } in sources {
        for (number, line) in text.lines().enumerate() {
            let line = code(line);
            let is_pair = |name: &str| {
                let of = line.split_once(name).map_or("", |(_, of)| of);
                of.trim_start_matches("Option<").starts_with("[f64; 2]")
            };
            if is_pair("interval: ") || is_pair("interval_s: ") {
                complaints
                    .push(format!("{path}:{}: an interval is a ConfidenceInterval", number + 1));
            }
        }
    }
    complaints
}

#[test]
fn a_word_names_one_public_type() {
    hold(repeated(&built()));
}

#[test]
fn intervals_have_one_type() {
    hold(bare_intervals(&built()));
}

#[test]
fn two_meanings_and_bare_intervals_are_found() {
    let of = |path: &str, text: &str| Source { path: path.to_owned(), text: text.to_owned() };
    let [one, other] =
        [of("a.rs", "pub struct Port(u32);\n"), of("b.rs", "pub(crate) enum Port {\n")];
    assert_eq!(repeated(&[one.clone(), other]).len(), 1);
    assert!(repeated(&[one, of("c.rs", "pub struct PortPlan {\nstruct Port;\n")]).is_empty());
    assert_eq!(bare_intervals(&[of("a.rs", "    pub mean_interval: [f64; 2],\n")]).len(), 1);
    assert!(bare_intervals(&[of("a.rs", "// an interval: [f64; 2]\n")]).is_empty());
}
