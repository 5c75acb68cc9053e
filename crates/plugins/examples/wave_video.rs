//! Wave Video's scaling as a module of WebAssembly.
#![cfg_attr(target_arch = "wasm32", no_std)]

#[allow(unused_imports)]
use nilometer_plugins::WaveVideo;

nilometer_plugin::export_plugin!(WaveVideo);
