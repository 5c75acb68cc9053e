//! Fuzzes datagrams of NetFlow v9.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| nilometer_fuzz::pure::of_netflow9(bytes));
