//! A bound on JSON before it is parsed. serde_json builds a tree of whatever a file holds, so the number of
//! values is counted in the text first.

use crate::base::error::{fail, Code, Result};
use std::fmt::Display;

/// JSON of more values is not parsed: two bytes of text become up to 600 of memory. Gemma's has 45,000,
/// a speech model's with 65,536 added tokens half a million.
pub const MAX_JSON_VALUES: usize = 1 << 20;

/// Before JSON is parsed: it has no more values than this.
pub fn check_values(text: &str, most: usize, what: impl Display) -> Result<()> {
    // Each value but the first stands behind one of these.
    match text.bytes().filter(|b| matches!(b, b',' | b'[' | b'{')).count() < most {
        true => Ok(()),
        false => fail(Code::Limit, format!("{what} has more than {most} values")),
    }
}
