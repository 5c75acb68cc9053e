//! A list of the API, asked for page by page and printed as it comes.
//!
//! A full table has a million routes, which nobody wants on a screen by accident and no answer holds at
//! once. So a list ends after so many unless all are asked for, says how many more there are, and is
//! printed a page at a time, with columns that never become narrower. As JSON it is one object, that of
//! the first page with the lists of all put together.

use anyhow::{Context, Result};
use clap::Args;
use hyper::Method;
use serde_json::{Value, json};

use super::shown::lines;
use nilometer_routerd::control::client::Address;

/// What is printed for people where they do not say.
const SHOWN: usize = 100;
/// What is printed as JSON where it is not said: as many as the API gives at once.
const SHOWN_AS_JSON: usize = 1_000;

/// How many items are printed.
#[derive(Debug, Args)]
pub struct Extent {
    /// Maximum number of items; 100 by default, 1,000 with --json.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    most: Option<u32>,
    /// Print all items.
    #[arg(long, conflicts_with = "most")]
    all: bool,
}

impl Extent {
    fn limit(&self, is_json: bool) -> usize {
        match (self.all, self.most) {
            (true, _) => usize::MAX,
            (false, Some(most)) => most as usize,
            (false, None) if is_json => SHOWN_AS_JSON,
            (false, None) => SHOWN,
        }
    }
}

/// A list, and how it is shown.
pub struct List<'a> {
    /// The field of the answer.
    pub key: &'static str,
    /// Where so many of it are asked for, from a place on.
    pub path: &'a dyn Fn(Option<&str>, usize) -> String,
    /// What is said before the list.
    pub head: fn(&Value) -> String,
    /// Above the columns.
    pub headings: &'static [&'static str],
    /// The lines of an item.
    pub rows: fn(&Value) -> Vec<Vec<String>>,
    /// How the rest is asked for.
    pub more_by: &'static str,
}

/// A piece of a list, and what is behind it.
struct Page {
    about: Value,
    items: Vec<Value>,
    next: Value,
    more: u64,
}

impl List<'_> {
    /// Prints it.
    ///
    /// # Errors
    /// When nobody answers, or the router refuses.
    pub fn print(&self, address: &Address, extent: &Extent, is_json: bool) -> Result<()> {
        let limit = extent.limit(is_json);
        let mut page = self.page(address, None, limit)?;
        let (mut seen, mut widths) = (page.items.len(), Vec::new());
        match is_json {
            true => print!("{}", self.object_begins(&page)?),
            false => print!("{}", (self.head)(&page.about)),
        }
        let mut headings = (!page.items.is_empty()).then_some(self.headings);
        let mut comma = "";
        loop {
            if is_json {
                for item in &page.items {
                    print!("{comma}{item}");
                    comma = ",";
                }
            } else {
                let rows = page.items.iter().flat_map(|item| (self.rows)(item)).collect();
                print!("{}", lines(headings.take(), rows, &mut widths));
            }
            let Some(from) = text(&page.next).filter(|_| seen < limit) else { break };
            page = self.page(address, Some(&from), limit - seen)?;
            seen += page.items.len();
        }
        match (is_json, page.more) {
            (true, more) => println!("],\"next\":{},\"more\":{more}}}", page.next),
            (false, 0) => {}
            (false, more) => println!("{more} more: {}", self.more_by),
        }
        Ok(())
    }

    fn page(&self, address: &Address, from: Option<&str>, most: usize) -> Result<Page> {
        let answer = address.ask(&Method::GET, &(self.path)(from, most), None)?.success()?;
        let about = serde_json::from_slice(&answer).context("the answer is not valid JSON")?;
        Ok(self.cut(about, most))
    }

    /// The first `most` of an answer. Filters come by the thousand, however few are wanted: what is
    /// left over is asked for from its first on, by its number.
    fn cut(&self, mut about: Value, most: usize) -> Page {
        let mut items = match about[self.key].take() {
            Value::Array(items) => items,
            _ => Vec::new(),
        };
        let beyond = items.split_off(items.len().min(most));
        let next = beyond.first().map_or(&about["next"], |left| &left["id"]).clone();
        let more = about["more"].as_u64().unwrap_or(0) + beyond.len() as u64;
        Page { about, items, next, more }
    }

    /// The object up to its list.
    fn object_begins(&self, page: &Page) -> Result<String> {
        let mut about = page.about.as_object().cloned().context("the answer is not an object")?;
        for key in [self.key, "next", "more"] {
            about.remove(key);
        }
        let fields: Vec<_> =
            about.iter().map(|(key, value)| format!("{}:{value},", json!(key))).collect();
        Ok(format!("{{{}\"{}\":[", fields.concat(), self.key))
    }
}

/// A place in a list, as it is asked for.
fn text(place: &Value) -> Option<String> {
    match place {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}
