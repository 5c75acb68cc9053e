//! The token-bucket policer as a module of WebAssembly.
#![cfg_attr(target_arch = "wasm32", no_std)]

#[allow(unused_imports)]
use nilometer_plugins::Policer;

nilometer_plugin::export_plugin!(Policer);
