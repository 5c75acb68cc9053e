//! A small writer of well-formed SVG: elements are closed in order, text is escaped.

use std::fmt::Write;

use nilometer_files::terminal::is_unprintable;

/// SVG text under construction.
#[derive(Debug, Default)]
pub struct Svg {
    out: String,
    open: Vec<&'static str>,
}

impl Svg {
    /// Opens an element.
    pub fn begin(&mut self, tag: &'static str, attributes: &[(&str, &str)]) {
        self.start(tag, attributes);
        self.out.push('>');
        self.open.push(tag);
    }

    /// Closes the innermost open element.
    pub fn end(&mut self) {
        let tag = self.open.pop().expect("an element is closed only where one is open");
        let _ = write!(self.out, "</{tag}>");
    }

    /// An element without content.
    pub fn leaf(&mut self, tag: &'static str, attributes: &[(&str, &str)]) {
        self.start(tag, attributes);
        self.out.push_str("/>");
    }

    /// An element with a title that browsers show on hovering and readers speak.
    pub fn titled(&mut self, tag: &'static str, attributes: &[(&str, &str)], title: &str) {
        self.begin(tag, attributes);
        let _ = write!(self.out, "<title>{}</title>", escape(title));
        self.end();
    }

    /// Text at a point; `anchor` is `start`, `middle` or `end`.
    pub fn text(&mut self, class: &str, at: [f64; 2], anchor: &str, text: &str) {
        let (x, y) = (px(at[0]), px(at[1]));
        let attributes = [("class", class), ("x", &x), ("y", &y), ("text-anchor", anchor)];
        self.begin("text", &attributes);
        self.out.push_str(&escape(text));
        self.end();
    }

    /// Appends elements that are already text.
    pub fn raw(&mut self, elements: &str) {
        self.out.push_str(elements);
    }

    /// The text; every element must be closed.
    pub fn finish(self) -> String {
        assert!(self.open.is_empty(), "an element was left open");
        self.out
    }

    fn start(&mut self, tag: &str, attributes: &[(&str, &str)]) {
        let _ = write!(self.out, "<{tag}");
        for (name, value) in attributes.iter().filter(|(_, value)| !value.is_empty()) {
            let _ = write!(self.out, " {name}=\"{}\"", escape(value));
        }
    }
}

/// A coordinate with one decimal; always finite.
pub fn px(value: f64) -> String {
    let value = if value.is_finite() { value.clamp(-1e5, 1e5) } else { 0.0 };
    let text = format!("{value:.1}");
    match text.strip_suffix(".0") {
        Some("-0") => "0".to_owned(),
        Some(whole) => whole.to_owned(),
        None => text,
    }
}

/// Text for HTML and SVG, in elements and in quoted attributes; control characters are dropped.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(letter),
            letter if is_unprintable(letter) => out.extend(letter.escape_default()),
            letter => out.push(letter),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_close_in_order_and_text_is_escaped() {
        let mut svg = Svg::default();
        svg.begin("g", &[("class", "a\"b"), ("id", "")]);
        svg.text("tick", [1.0, 2.25], "end", "<5 & more>\u{0}");
        svg.end();
        assert_eq!(
            svg.finish(),
            "<g class=\"a&quot;b\"><text class=\"tick\" x=\"1\" y=\"2.2\" text-anchor=\"end\">\
             &lt;5 &amp; more&gt;\\u{0}</text></g>"
        );
    }

    #[test]
    fn coordinates_are_always_finite() {
        assert_eq!(px(f64::NAN), "0");
        assert_eq!(px(f64::INFINITY), "0");
        assert_eq!(px(-0.01), "0");
        assert_eq!(px(1e300), "100000");
        assert_eq!(px(12.34), "12.3");
    }
}
