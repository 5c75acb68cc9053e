//! Fuzzes connections of the forwarding plane manager.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| nilometer_fuzz::pure::of_fpm(bytes));
