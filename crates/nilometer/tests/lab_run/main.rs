//! `lab run`, `lab init`, `stream`, `profile`, records of live traffic, and the commands of the documents, end to end.

#[path = "../common/mod.rs"]
mod common;
mod examples;
mod external;
mod kernel_devices;
mod lab;
mod lab_output;
mod lab_router;
mod lab_vectors;
mod live_records;
mod stream;
mod stream_trials;
mod two_hosts;
