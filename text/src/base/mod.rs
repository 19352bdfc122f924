//! What every other folder of the crate uses: errors as text.h has them, and a count of the bytes of a compile.

pub mod error;
pub mod heap;
