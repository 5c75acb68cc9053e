//! Live traffic: a plan performed as kernel TCP connections by event loops.
