//! A guard around the Parquet decoder, which panics on some damaged files where it should fail, and
//! allocates for any number of values that a page claims.
//!
//! A table is an input like any other: damage must end in one line and never in a backtrace. So the
//! decoder runs where a panic is caught, kept off standard error, and turned into one of the decoder's
//! errors; and it sees no page that claims more values than one of our row groups has.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::errors::{ParquetError, Result};

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Runs the decoder. Data that `work` was changing when it panicked must not be used again.
///
/// # Errors
/// Those of `work`, and one of their kind when it panics.
pub fn decode<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |about| {
            if !INSIDE.get() {
                usual(about);
            }
        }));
    });
    INSIDE.set(true);
    let outcome = panic::catch_unwind(AssertUnwindSafe(work));
    INSIDE.set(false);
    outcome.unwrap_or_else(|_| Err(ParquetError::General("the decoder gave up on it".into())))
}

/// The pages of a column, none of which claims more than `values_max` values.
pub struct Pages {
    pages: Box<dyn PageReader>,
    values_max: usize,
}

impl Pages {
    /// A guard around `pages`.
    pub fn new(pages: Box<dyn PageReader>, values_max: usize) -> Pages {
        Pages { pages, values_max }
    }
}

impl PageReader for Pages {
    fn get_next_page(&mut self) -> Result<Option<Page>> {
        let page = self.pages.get_next_page()?;
        let values = page.as_ref().map_or(0, Page::num_values);
        if values as usize > self.values_max {
            return Err(ParquetError::General(format!("a page claims {values} values")));
        }
        Ok(page)
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
        self.pages.peek_next_page()
    }

    fn skip_next_page(&mut self) -> Result<()> {
        self.pages.skip_next_page()
    }

    fn at_record_boundary(&mut self) -> Result<bool> {
        self.pages.at_record_boundary()
    }
}

impl Iterator for Pages {
    type Item = Result<Page>;

    fn next(&mut self) -> Option<Result<Page>> {
        self.get_next_page().transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parquet::basic::Encoding;

    /// A dictionary and nothing else.
    struct Dictionary(Option<u32>);

    impl PageReader for Dictionary {
        fn get_next_page(&mut self) -> Result<Option<Page>> {
            Ok(self.0.take().map(|num_values| Page::DictionaryPage {
                buf: Default::default(),
                num_values,
                encoding: Encoding::PLAIN,
                is_sorted: false,
            }))
        }

        fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
            Ok(None)
        }

        fn skip_next_page(&mut self) -> Result<()> {
            Ok(())
        }
    }

    impl Iterator for Dictionary {
        type Item = Result<Page>;

        fn next(&mut self) -> Option<Result<Page>> {
            self.get_next_page().transpose()
        }
    }

    #[test]
    fn no_page_claims_more_values_than_it_may() {
        let pages = |values| Pages::new(Box::new(Dictionary(Some(values))), 1_000);
        assert!(pages(1_000).next().is_some_and(|page| page.is_ok()));
        let refused = pages(1_684_062_599).next().expect("an error").map(|_| ());
        let refused = refused.expect_err("too many").to_string();
        assert!(refused.contains("a page claims 1684062599 values"), "{refused}");
    }

    #[test]
    fn a_decoder_panic_is_an_error_and_later_panics_are_printed() {
        let gave_up = decode(|| -> Result<()> { panic!("as decoders do") }).expect_err("a panic");
        assert!(gave_up.to_string().contains("the decoder gave up on it"), "{gave_up}");
        assert_eq!(decode(|| Ok(3)).expect("fine"), 3);
        assert!(!INSIDE.get());
    }
}
