//! Recorded courses: what connections and controllers did on hard paths, figure by figure.
//!
//! A row holds figures to read, and a checksum of every segment and of a connection's state after
//! each event. `pipe/record.rs` explains what such tables are for, and what to do when one changes.

#[path = "courses/controllers.rs"]
mod controllers;
mod pipe;
#[path = "courses/scenes.rs"]
mod scenes;
#[path = "courses/states.rs"]
mod states;
#[path = "courses/walks.rs"]
mod walks;

use pipe::record::compare;

#[test]
fn connections_run_as_recorded() {
    compare("connections.txt", &scenes::rows());
}

#[test]
fn controllers_run_as_recorded() {
    compare("controllers.txt", &controllers::rows());
}

#[test]
fn random_walks_run_as_recorded() {
    compare("walks.txt", &walks::rows());
}

#[test]
fn every_state_answers_segments_as_recorded() {
    compare("states.txt", &states::rows());
}
