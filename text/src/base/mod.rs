//! Contains the error type and the byte counts of a compile, which all other modules of the crate use.

pub mod error;
pub mod heap;
