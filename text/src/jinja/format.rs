//! Implements Python's formatting of values (str, repr, % and str.format), and HTML escapes.

mod numbers;
mod percent;
mod str_format;
mod text;

pub use numbers::spend_digits;
pub use percent::percent;
pub use str_format::str_format;
pub use text::{escape, float, is_printable, push_big, repr_of, str_of};
