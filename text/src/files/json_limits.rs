//! Limits the number of values in a JSON text before the text is parsed. serde_json builds a tree of everything in a
//! file, so the values are counted in the text first.

use crate::base::error::{fail, Code, Result};
use std::fmt::Display;

/// Most values of a JSON text that is parsed, limited because two bytes of text become up to 600 bytes of memory. Gemma's
/// tokenizer.json has 45,000 values. A speech model's file with 65,536 added tokens has half a million.
pub const MAX_JSON_VALUES: usize = 1 << 20;

/// Refuses a JSON text that may have more than `most` values. Callers check a text before they parse it.
pub fn check_values(text: &str, most: usize, what: impl Display) -> Result<()> {
    // Each value except the first needs a comma or an opening bracket before it.
    match text.bytes().filter(|b| matches!(b, b',' | b'[' | b'{')).count() < most {
        true => Ok(()),
        false => fail(Code::Limit, format!("{what} has more than {most} values")),
    }
}
