//! The trial: the main job, from an input to a directory of results.
