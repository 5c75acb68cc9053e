//! Fuzzes messages of RSVP.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| nilometer_fuzz::pure::of_rsvp(bytes));
