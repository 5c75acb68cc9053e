//! The configuration as it is kept among the results: its files beside it, under names of their own.

use std::path::PathBuf;

use anyhow::Result;
use nilometer_routerd::testbed::RouterFile;

use super::config::LabConfig;
use super::router::ROUTER_FILE;
use crate::device::rules::{RULES_FILE, Rules};

impl LabConfig {
    /// The files that repeat the run: `lab.toml`, the router's and the traces that it names, each with its text.
    ///
    /// # Errors
    /// None but a mistake here: a configuration can be written down.
    pub(super) fn as_kept(&self, router: Option<&RouterFile>) -> Result<Vec<(String, String)>> {
        let mut files = Vec::new();
        let fault = self.fault.as_ref().map(|faults| faults.with_traces_kept(&mut files));
        let path = self.path.as_ref().map(|paths| paths.with_traces_kept(&mut files));
        let kept = LabConfig {
            router: self.router.as_ref().map(|_| PathBuf::from(ROUTER_FILE)),
            rules: self.rules.as_ref().map(Rules::as_kept),
            fault,
            path,
            ..self.clone()
        };
        files.push(("lab.toml".to_owned(), toml::to_string(&kept)?));
        files.extend(router.map(|router| (ROUTER_FILE.to_owned(), router.text.clone())));
        files.extend(
            self.rules.iter().map(|rules| (RULES_FILE.to_owned(), rules.text().to_owned())),
        );
        Ok(files)
    }
}
