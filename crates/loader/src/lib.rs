//! Plugin loading: native classes, WebAssembly in a sandbox with limits, signed artefacts, and the code server.
//!
//! ```text
//!   nilometer-plugin's trait ──► Native<P>  ─┐
//!                                            ├─► router::plugin::Class ──► instances in the pipeline
//!   module of WebAssembly ─────► WasmClass  ─┘
//! ```
//!
//! A module comes in an artefact ([`artefact`]), signed by a trusted key ([`keys`]), from a file or from a code
//! server ([`code_server`], [`fetch`]) into a directory of the router's ([`store`]).
//!
//! The router knows classes and instances alone ([`nilometer_router::plugin`]); what runs their code is here.

pub mod artefact;
pub mod build;
pub mod builtin;
pub mod code_server;
pub mod fetch;
pub mod index;
pub mod keys;
pub mod native;
pub mod sdk;
pub mod store;
pub mod wasm;

pub use builtin::{builtin, builtin_of};
pub use native::Native;
pub use store::Store;
pub use wasm::{Limits, LoadError, WasmClass};
