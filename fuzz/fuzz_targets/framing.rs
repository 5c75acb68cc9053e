//! Fuzzes streams of datagrams.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| nilometer_fuzz::pure::of_framing(bytes));
