//! The top of a page that is not a run's: two sentences and where to look.

use super::page;
use super::plot::svg::escape;
use super::verdict::Span;

/// The top of a page: what was run, two sentences, how large it was, where to look, what to doubt.
#[derive(Debug)]
pub struct Heading<'a> {
    /// The path to this page, for the breadcrumb.
    pub crumb: Vec<String>,
    /// The result, in sentences.
    pub sentences: Vec<Vec<Span>>,
    /// How large it was.
    pub lede: String,
    /// Each section: its id and its title.
    pub sections: &'a [[&'a str; 2]],
    /// What to doubt.
    pub warnings: &'a [String],
}

impl Heading<'_> {
    /// As HTML.
    pub fn html(&self) -> String {
        let crumb: Vec<String> = self.crumb.iter().map(|part| escape(part)).collect();
        let mut out = format!("<header>\n<p class=\"crumb\">{}</p>\n<h1>", crumb.join(" · "));
        self.sentences.iter().for_each(|words| out.push_str(&page::sentence(words)));
        out.push_str(&format!("</h1>\n<p class=\"lede\">{}</p>\n", escape(&self.lede)));
        out.push_str("<nav aria-label=\"Sections\">");
        for [id, title] in self.sections {
            out.push_str(&format!("<a href=\"#{id}\">{title}</a>"));
        }
        out.push_str("</nav>\n");
        out.push_str(&page::warnings(self.warnings));
        out.push_str("</header>\n");
        out
    }
}

/// Words of a sentence, those between stars set apart: `flows get *98 %* of it`.
pub fn words(text: &str) -> Vec<Span> {
    let pieces = text.split('*').enumerate();
    let span = |(i, text): (usize, &str)| Span { text: text.to_owned(), strong: i % 2 == 1 };
    pieces.map(span).filter(|span| !span.text.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_set_words_apart() {
        let spans = words("*red* is less than *98 %*.");
        let shown: Vec<(&str, bool)> =
            spans.iter().map(|span| (span.text.as_str(), span.strong)).collect();
        let expected = [("red", true), (" is less than ", false), ("98 %", true), (".", false)];
        assert_eq!(shown, expected);
    }
}
