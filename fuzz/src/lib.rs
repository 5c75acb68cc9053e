//! Fuzz targets: what each does with some bytes, and what must hold whatever they are.

pub mod pure;
#[cfg(feature = "shell")]
pub mod shell;
