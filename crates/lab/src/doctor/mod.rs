//! The doctor: what this machine can do, what would be skipped and why, and the remedy.
//!
//! Whatever can be tried is tried rather than deduced. A namespace is made, a veth pair is put into
//! two of them and its offloads are switched off, a packet socket is opened, the clock is read a
//! hundred thousand times: a kernel's configuration, a container's filter or a distribution's
//! policy shows in the answer as it would show in a run. Each finding names which of four purposes
//! it serves; only what is needed to run at all decides the verdict.

use serde::Serialize;

pub mod later;
pub mod machine;
pub mod network;
pub mod proving;

nilometer_wire::named! {
    /// What a finding affects, in the order of the report.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Purpose {
        /// `lab run` cannot do without.
        Run = "to run at all",
        /// Figures are worth less without.
        Figures = "for good figures",
        /// A test is skipped without.
        Tests = "for the tests",
        /// Nothing uses it yet; coming devices and stamps will.
        Later = "not used yet",
    }
}

/// How a finding came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// As it should be.
    Ok,
    /// There, and not as good as it could be.
    Doubtful,
    /// Not there.
    Missing,
}

/// One thing that was checked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was looked at.
    pub name: &'static str,
    /// What it matters for.
    pub purpose: Purpose,
    /// How it came out.
    pub state: State,
    /// What was found, in one line.
    pub found: String,
    /// What would be skipped or worse, and why; none where all is well.
    pub consequence: Option<String>,
    /// What to do about it; none where all is well.
    pub remedy: Option<String>,
}

impl Finding {
    /// All is well.
    pub fn ok(name: &'static str, purpose: Purpose, found: impl Into<String>) -> Finding {
        let state = State::Ok;
        Finding { name, purpose, state, found: found.into(), consequence: None, remedy: None }
    }

    /// The same finding, not as good as it could be: `consequence` follows, `remedy` helps.
    pub fn doubtful(self, consequence: impl Into<String>, remedy: impl Into<String>) -> Finding {
        self.with(State::Doubtful, consequence.into(), remedy.into())
    }

    /// The same finding, of something missing: `consequence` follows, `remedy` helps.
    pub fn missing(self, consequence: impl Into<String>, remedy: impl Into<String>) -> Finding {
        self.with(State::Missing, consequence.into(), remedy.into())
    }

    fn with(self, state: State, consequence: String, remedy: String) -> Finding {
        Finding { state, consequence: Some(consequence), remedy: Some(remedy), ..self }
    }
}

/// Everything that was found.
#[derive(Clone, Debug, Serialize)]
pub struct Examination {
    /// The version and commit that looked.
    pub version: &'static str,
    /// Whether `lab run` can run here.
    pub ready: bool,
    /// One entry for each thing checked, those needed to run first.
    pub findings: Vec<Finding>,
}

impl Examination {
    /// Puts findings in order and draws the verdict from those that are needed to run.
    pub fn of(mut findings: Vec<Finding>) -> Examination {
        findings.sort_by_key(|finding| finding.purpose);
        let stops =
            |finding: &Finding| finding.purpose == Purpose::Run && finding.state == State::Missing;
        let ready = !findings.iter().any(stops);
        Examination { version: nilometer_files::tool::version(), ready, findings }
    }
}

/// Checks everything. Without root this process enters a user namespace, so it must be called
/// before any thread is started.
pub fn examine() -> Examination {
    let mut findings = network::examine();
    findings.extend(machine::examine());
    findings.extend(proving::examine());
    findings.extend(later::examine());
    Examination::of(findings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_findings_needed_to_run_decide_readiness() {
        let well = || Finding::ok("clock", Purpose::Run, "tsc");
        let later = Finding::ok("AF_XDP", Purpose::Later, "not there").missing("nothing", "wait");
        assert!(Examination::of(vec![later.clone(), well()]).ready);
        let doubtful = well().doubtful("coarse", "another clock");
        assert!(Examination::of(vec![doubtful]).ready);
        let missing = well().missing("no lab", "sudo");
        let examination = Examination::of(vec![later, missing]);
        assert!(!examination.ready);
        assert_eq!(examination.findings[0].purpose, Purpose::Run);
    }
}
