//! Fuzzes any file of flows: captures, archives, text, tables.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| nilometer_fuzz::shell::of_file(bytes));
