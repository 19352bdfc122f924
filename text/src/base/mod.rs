//! Holds the errors of text.h and the byte counts of a compile. Every other folder of the crate uses them.

pub mod error;
pub mod heap;
