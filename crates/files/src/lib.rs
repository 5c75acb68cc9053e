//! What is read and written: captures, flow exports and tables, documents, directories of results, and lines on stderr.
//!
//! [`input`] recognises and streams what others wrote, [`table`] is Parquet and text, [`document`] TOML and JSON and
//! the one place where files are written whole, [`harpoon`] Harpoon's own configurations.

#[macro_use]
pub mod said;

pub mod document;
pub mod harpoon;
pub mod input;
pub mod table;
pub mod tool;
