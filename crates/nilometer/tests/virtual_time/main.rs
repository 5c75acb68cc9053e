//! Scenarios in virtual time, and their pages.

#[path = "../common/mod.rs"]
mod common;

mod scenarios;
mod simulate;
mod simulate_vectors;
mod simulation_page;
