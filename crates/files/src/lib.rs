//! Input and output: captures, flow exports and tables, documents, directories of results, and lines on stderr.
//!
//! [`input`] recognises and streams files of other programs, [`table`] is Parquet and text, [`document`] TOML and
//! JSON and the only place where whole files are written, [`harpoon`] Harpoon's own configurations.

#[macro_use]
pub mod terminal;

pub mod document;
pub mod harpoon;
pub mod input;
pub mod table;
pub mod tool;
