//! Chance and evidence: seeded randomness, empirical distributions, and distances beside their floors.
#![no_std]

extern crate alloc;
