//! The scores of a leg's hosts: what each performs, and when.

use std::sync::Arc;
use std::time::{Duration, Instant};

use nilometer_linux::scheduling::Timed;
use nilometer_traffic::PlannedConnection;
use nilometer_traffic::script::Script;

/// The score: the connections, and the scripts of those that have one.
#[derive(Clone, Copy)]
pub struct Scores<'a> {
    /// The connections, by start.
    pub connections: &'a [PlannedConnection],
    /// What both ends of each do; empty where each is a request and an answer.
    pub scripts: &'a [Script],
    /// How long scripts are performed, whatever is open then.
    pub length: Duration,
}

/// When, and in which scheduling class.
#[derive(Clone, Debug)]
pub struct Timing {
    /// When the plan's `Time::ZERO` is.
    pub origin: Instant,
    /// The timed threads that the hosts' threads join.
    pub timed: Arc<Timed>,
}

impl Scores<'_> {
    /// Does each connection follow a script?
    pub fn are_vectors(&self) -> bool {
        !self.scripts.is_empty()
    }
}
