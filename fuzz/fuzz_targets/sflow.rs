//! Fuzzes datagrams of sFlow v5.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| nilometer_fuzz::pure::of_sflow(bytes));
