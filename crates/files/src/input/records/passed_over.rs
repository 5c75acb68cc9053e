//! Skipping files of a directory that cannot be read: a note beside captures, a file that was just begun, a
//! damaged one.
//!
//! A named file that cannot be read is an error. A directory or a glob means the readable files in it; the
//! others are counted and named, and only a directory without any readable file is an error.

use anyhow::{Error, Result, bail};

use super::super::expand::File;
use super::super::summary::FlowSummary;
use super::Reading;

/// Files that are named in the warning.
const NAMED_MAX: usize = 5;

/// The skipped files.
#[derive(Debug, Default)]
pub(super) struct PassedOver {
    count: u64,
    reasons: Vec<String>,
}

impl PassedOver {
    /// Notes a skipped file, for this reason, which names the file.
    pub(super) fn add(&mut self, why: &Error) {
        self.count += 1;
        if self.reasons.len() < NAMED_MAX {
            self.reasons.push(format!("{why:#}"));
        }
    }

    /// Counts the skipped files among `files` files, and warns of them.
    ///
    /// # Errors
    /// When nothing is left.
    pub(super) fn tell(self, files: usize, summary: &mut FlowSummary) -> Result<()> {
        let Some(first) = self.reasons.first() else { return Ok(()) };
        if self.count == files as u64 {
            bail!("none of {files} files can be read; the first: {first}");
        }
        let named = self.reasons.len();
        summary
            .warnings
            .extend(self.reasons.into_iter().map(|reason| format!("passed over: {reason}")));
        let more = self.count - named as u64;
        if more > 0 {
            summary.warnings.push(format!("{more} more files were passed over"));
        }
        *summary.skipped.entry("files_not_read".to_owned()).or_default() += self.count;
        Ok(())
    }
}

impl Reading<'_> {
    /// Records and packets that were taken.
    pub(super) fn taken(&self) -> (u64, u64) {
        (self.out.records(), self.summary.packets)
    }

    /// Stops reading a file that was not named where it cannot be read further; `before` is what had been
    /// taken before it.
    ///
    /// # Errors
    /// When a record cannot be delivered.
    pub(super) fn leave(
        &mut self,
        file: &File,
        why: &Error,
        before: (u64, u64),
        passed_over: &mut PassedOver,
    ) -> Result<()> {
        if self.taken() == before {
            passed_over.add(why);
        } else {
            self.summary.damaged += 1;
            self.summary.warnings.push(format!("{why:#}; what came before that was read"));
        }
        self.span_ends(&file.path.display().to_string());
        self.input_ends()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::anyhow;

    #[test]
    fn skipped_files_are_counted_and_the_first_are_named() {
        let mut passed_over = PassedOver::default();
        (0..7).for_each(|n| passed_over.add(&anyhow!("file {n}: is empty")));
        let mut summary = FlowSummary::default();
        passed_over.tell(8, &mut summary).expect("one was read");
        assert_eq!(summary.skipped["files_not_read"], 7);
        assert_eq!(summary.warnings.len(), NAMED_MAX + 1);
        assert_eq!(summary.warnings[0], "passed over: file 0: is empty");
        assert_eq!(summary.warnings[NAMED_MAX], "2 more files were passed over");
    }

    #[test]
    fn an_input_of_skipped_files_only_is_an_error() {
        let mut passed_over = PassedOver::default();
        passed_over.add(&anyhow!("a: is empty"));
        let error = passed_over.tell(1, &mut FlowSummary::default()).expect_err("nothing");
        assert_eq!(error.to_string(), "none of 1 files can be read; the first: a: is empty");
        let mut summary = FlowSummary::default();
        PassedOver::default().tell(0, &mut summary).expect("nothing was asked for");
        assert_eq!(summary, FlowSummary::default());
    }
}
