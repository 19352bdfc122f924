//! Errors as text.h has them, and a count of the bytes of a compile: every other folder of the crate uses them.

pub mod error;
pub mod heap;
