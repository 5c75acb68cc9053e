//! The SYN-flood scrubber as a module of WebAssembly.
#![cfg_attr(target_arch = "wasm32", no_std)]

#[allow(unused_imports)]
use nilometer_plugins::Scrubber;

nilometer_plugin::export_plugin!(Scrubber);
