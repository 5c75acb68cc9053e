//! Packets held for a while, as a module of WebAssembly.
#![cfg_attr(target_arch = "wasm32", no_std)]

#[allow(unused_imports)]
use nilometer_plugins::Delay;

nilometer_plugin::export_plugin!(Delay);
