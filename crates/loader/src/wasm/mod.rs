//! A module of WebAssembly as a plugin class, with a budget and a memory limit.
//!
//! An interpreter is the default since it is small, without machine code, and quick enough for batches: the cost of a call
//! is shared by all its packets (`examples/cost.rs` measures it). With the feature `fast-plugins` a compiler stands in its
//! place (`engine`), and refuses and stops the same.

mod class;
mod contract;
mod description;
mod engine;
mod fault;
mod imports;
mod instance;
mod limits;
mod rooms;
mod shared;

pub use class::WasmClass;
pub use limits::Limits;

use nilometer_router::plugin::Fault;

/// The version of the interface that this router speaks.
pub const INTERFACE: u32 = nilometer_plugin::interface::VERSION;

/// A module of its text format.
///
/// # Errors
/// What is wrong with the text, in one line.
pub fn from_text(text: &[u8]) -> Result<Vec<u8>, String> {
    let made = wat::parse_bytes(text).map(std::borrow::Cow::into_owned);
    made.map_err(|error| error.to_string().split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Whether a text can be a plugin's name: letters, digits and hyphens.
pub(crate) fn check_name(text: &str) -> Result<(), String> {
    description::name(text).map(|_| ())
}

/// Why a module is no plugin class.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// It has too many bytes.
    #[error("the module has {bytes} bytes, more than the limit of {limit}")]
    TooLong {
        /// What it has.
        bytes: usize,
        /// What it may have.
        limit: usize,
    },
    /// It is no valid module of WebAssembly.
    #[error("not a valid module of WebAssembly: {0}")]
    Module(String),
    /// It imports what the interface does not have.
    #[error("the module imports `{module}.{name}`, which version 1 of the interface does not have")]
    Import {
        /// From where.
        module: String,
        /// What.
        name: String,
    },
    /// An import has other parameters or results than the interface's.
    #[error("the module's import `{0}` has another type than the interface's")]
    ImportType(String),
    /// It does not export what the interface wants.
    #[error("the module does not export `{0}`, which a plugin must")]
    Export(&'static str),
    /// An export has another type than the interface's.
    #[error("the module's export `{0}` has another type than the interface's")]
    ExportType(&'static str),
    /// It is of another version of the interface.
    #[error("the module is of version {found} of the interface, and this router supports {known}")]
    Version {
        /// The module's.
        found: u32,
        /// The router's.
        known: u32,
    },
    /// What it says of itself cannot be used.
    #[error("the module's description is wrong: {0}")]
    Description(String),
    /// It failed before it said what it is.
    #[error("the module failed while it was loaded: {0}")]
    Fault(#[from] Fault),
}
