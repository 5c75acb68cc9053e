//! Fuzzes files of flow-tools.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| nilometer_fuzz::pure::of_flow_tools(bytes));
