//! Fuzzes datagrams of NetFlow v5.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| nilometer_fuzz::pure::of_netflow5(bytes));
