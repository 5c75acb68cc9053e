//! The shell of Nilometer: devices, clocks, namespaces, files, command line and reports.

#[macro_use]
pub mod said;

pub mod cli;
pub mod device;
pub mod doctor;
pub mod document;
pub mod generate;
pub mod harpoon;
pub mod input;
pub mod report;
pub mod route;
pub mod simulate;
pub mod table;
pub mod trial;
