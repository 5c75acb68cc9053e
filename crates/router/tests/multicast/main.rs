//! Group membership of a port: what hosts report, what the router queries, and which packets go where as a result.

mod frames;
mod hostile;
mod messages;
mod querier;
mod twin;

/// The link-layer address of the port that is tested.
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
