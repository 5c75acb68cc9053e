//! A small checker of pages: tags nest and close, attributes are quoted, text is escaped, and the policy
//! admits the page's own style and script alone.

use sha2::{Digest, Sha256};

/// Every `<svg ...>...</svg>` of a page.
pub fn pictures(page: &str) -> Vec<&str> {
    let (mut rest, mut found) = (page, Vec::new());
    while let Some(start) = rest.find("<svg") {
        let end = start + rest[start..].find("</svg>").expect("every svg closes") + "</svg>".len();
        found.push(&rest[start..end]);
        rest = &rest[end..];
    }
    found
}

/// Asserts what holds for every page: its pictures are whole, described and not empty, every number
/// is finite, and nothing is fetched from anywhere.
pub fn hold(page: &str) {
    for picture in pictures(page) {
        well_formed(picture).unwrap_or_else(|wrong| panic!("{wrong}\nin {picture}"));
        for number in ["NaN", "inf", "Infinity"] {
            let data =
                picture.split('>').filter(|tag| tag.contains("<path") || tag.contains("<rect"));
            assert!(!data.clone().any(|tag| tag.contains(number)), "{number} in a picture");
        }
        assert!(picture.contains("aria-label=\""), "a picture says in words what it shows");
        let inked = ["class=\"line", "class=\"bar", "class=\"dot", "class=\"band"];
        assert!(inked.iter().any(|ink| picture.contains(ink)), "an empty picture: {picture}");
    }
    assert!(!page.contains("NaN"), "NaN is for machines, not for readers");
    policed(page);
    for reference in ["http://", "https://", "src=", "url(", "@import", "<link rel=\"style"] {
        assert!(!page.contains(reference), "{reference} would leave the file");
    }
}

/// The policy of a page, and how it is to name a text.
fn policy(page: &str) -> &str {
    let mark = "http-equiv=\"Content-Security-Policy\" content=\"";
    let policy = page.split(mark).nth(1).expect("a policy").split('"').next();
    policy.expect("a quote")
}

fn digest(text: &str) -> String {
    const ALPHABET: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bits: String =
        Sha256::digest(text).iter().map(|byte| format!("{byte:08b}")).collect::<String>() + "00";
    let sixes = (0..bits.len()).step_by(6).map(|at| usize::from_str_radix(&bits[at..at + 6], 2));
    let letters = sixes.map(|six| ALPHABET.as_bytes()[six.expect("six bits")] as char);
    format!("sha256-{}=", letters.collect::<String>())
}

/// The one element of this name with a text, which the policy names by its digest, and no other.
fn policed(page: &str) {
    let policy = policy(page);
    assert!(policy.starts_with("default-src 'none'; "), "{policy}");
    assert!(!policy.contains("unsafe"), "{policy}");
    for name in ["style", "script"] {
        let (open, close) = (format!("<{name}>"), format!("</{name}>"));
        assert_eq!(page.matches(&format!("<{name}")).count(), 1, "one {name}");
        let text = page.split(&open).nth(1).and_then(|rest| rest.split(&close).next());
        let admitted = format!("; {name}-src '{}';", digest(text.expect("it closes")));
        assert!(policy.contains(&admitted), "{policy} has no {admitted}");
    }
    assert!(!page.contains(" style=\"") && !page.contains(" onload="), "nothing beside them");
}

/// The page with a script of a test's own at its end, which its policy admits too.
pub fn with_probe(page: &str, script: &str) -> String {
    let own = "; script-src '";
    assert_eq!(page.matches(own).count(), 1);
    let page = page.replace(own, &format!("{own}{}' '", digest(script)));
    with_stranger(&page, script)
}

/// The page with a script at its end that its policy does not know.
pub fn with_stranger(page: &str, script: &str) -> String {
    page.replace("</body>", &format!("<script>{script}</script></body>"))
}

/// Whether XML text is well-formed; an error says where it is not.
pub fn well_formed(xml: &str) -> Result<(), String> {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = xml;
    while let Some(start) = rest.find('<') {
        text(&rest[..start])?;
        let end = start + closing(&rest[start..]).ok_or("a tag never ends")?;
        let tag = &rest[start + 1..end];
        rest = &rest[end + 1..];
        if let Some(name) = tag.strip_prefix('/') {
            if open.pop() != Some(name) {
                return Err(format!("</{name}> closes nothing"));
            }
            continue;
        }
        let (tag, empty) = tag.strip_suffix('/').map_or((tag, false), |tag| (tag, true));
        let name = tag.split(' ').next().unwrap_or_default();
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric()) {
            return Err(format!("<{tag}> has no proper name"));
        }
        attributes(&tag[name.len()..])?;
        if !empty {
            open.push(name);
        }
    }
    text(rest)?;
    if open.is_empty() { Ok(()) } else { Err(format!("{open:?} stay open")) }
}

/// Where the tag at the start of `text` ends, quotes respected.
fn closing(text: &str) -> Option<usize> {
    let mut quoted = false;
    text.char_indices().find_map(|(i, letter)| {
        quoted ^= letter == '"';
        (letter == '>' && !quoted).then_some(i)
    })
}

fn attributes(text: &str) -> Result<(), String> {
    let mut rest = text.trim_start();
    let mut seen = Vec::new();
    while !rest.is_empty() {
        let (name, after) = rest.split_once("=\"").ok_or(format!("{rest} is no attribute"))?;
        let (value, after) = after.split_once('"').ok_or(format!("{name} is not closed"))?;
        if name.contains(|c: char| !c.is_ascii_alphanumeric() && c != '-') || seen.contains(&name) {
            return Err(format!("attribute {name} is wrong or twice"));
        }
        self::text(value)?;
        seen.push(name);
        rest = after.trim_start();
    }
    Ok(())
}

fn text(text: &str) -> Result<(), String> {
    for piece in text.split('&').skip(1) {
        let known = ["amp;", "lt;", "gt;", "quot;", "#39;"];
        if !known.iter().any(|entity| piece.starts_with(entity)) {
            return Err(format!("&{piece} is not escaped"));
        }
    }
    match text.contains(['<', '>']) {
        true => Err(format!("{text} holds a bare angle bracket")),
        false => Ok(()),
    }
}
