//! Scenarios in virtual time, and their pages.

#[path = "../common/mod.rs"]
mod common;

mod described_routers;
mod scenarios;
mod simulate;
mod simulate_vectors;
mod simulation_page;
mod video_compare;
mod wave_video;
