//! Captures, exports, tables, documents and directories, as the command line reads and writes them.

#[path = "../common/mod.rs"]
mod common;

mod anonymise;
mod bad_input;
mod burstiness;
mod captures_by_others;
mod corpus;
mod exports;
mod flows;
mod force;
mod full_disk;
mod interchange;
mod merge;
mod model_cli;
mod model_files;
mod model_warnings;
mod plugin;
mod richer;
mod split_exports;
mod text_formats;
mod unflagged;
mod video;
