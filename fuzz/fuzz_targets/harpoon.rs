//! Fuzzes Harpoon's XML.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| nilometer_fuzz::shell::of_harpoon(bytes));
