//! Plugins loaded: native classes, and WebAssembly in a sandbox with limits.
//!
//! ```text
//!   nilometer-plugin's trait ──► Native<P>  ─┐
//!                                            ├─► router::plugin::Class ──► instances in the pipeline
//!   module of WebAssembly ─────► WasmClass  ─┘
//! ```
//!
//! The router knows classes and instances alone ([`nilometer_router::plugin`]); what runs their code is here.

pub mod builtin;
pub mod native;
pub mod wasm;

pub use builtin::{builtin, builtin_of};
pub use native::Native;
pub use wasm::{Limits, LoadError, WasmClass};
