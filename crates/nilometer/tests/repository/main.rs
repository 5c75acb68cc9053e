//! Checks of the repository itself: its rules, its promises and its documents.

mod house;
mod promises;
mod tidy;
