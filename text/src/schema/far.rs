//! Handles numbers that serde_json would round. Such numbers are read as strings with a mark in front, and the functions
//! in this file recognise these strings.

use serde_json::Value;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::OnceLock;

/// Returns the mark that replaces a number's type: it is in front of the digits. The mark is random, so that no client
/// can write it.
pub fn far_mark() -> &'static str {
    static MARK: OnceLock<String> = OnceLock::new();
    MARK.get_or_init(|| {
        let part = || RandomState::new().build_hasher().finish();
        format!("\u{FDD0}{:016x}{:016x}:", part(), part())
    })
}

/// Returns true for a number that serde_json would round: beyond all doubles, or an integer of more than 64 bits.
fn is_far(number: &str) -> bool {
    let is_integer = || number.trim_start_matches('-').bytes().all(|b| b.is_ascii_digit());
    let is_held = || number.parse::<i64>().is_ok() || number.parse::<u64>().is_ok();
    number.parse::<f64>().is_ok_and(|f| f.is_infinite() || is_integer() && !is_held())
}

/// Parses JSON. A number that serde_json would round becomes a string with the mark in front.
pub fn read(source: &str) -> serde_json::Result<Value> {
    let mut out = String::new();
    let (mut from, mut at, bytes) = (0, 0, source.as_bytes());
    let mut in_text = false;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' if in_text => at += 1,
            b'"' => in_text = !in_text,
            b'-' | b'0'..=b'9' if !in_text => {
                let is_part = |b: &u8| b"+-.eE0123456789".contains(b);
                let end = at + bytes[at..].iter().take_while(|b| is_part(b)).count();
                let number = &source[at..end];
                if is_far(number) {
                    out += &source[from..at];
                    out += &format!("\"{}{number}\"", far_mark());
                    from = end;
                }
                at = end - 1;
            }
            _ => {}
        }
        at += 1;
    }
    if from == 0 {
        return serde_json::from_str(source);
    }
    out += &source[from..];
    serde_json::from_str(&out)
}

/// Returns the number of a marked text as the client wrote it. Returns None for any other value.
pub fn far_text(v: &Value) -> Option<&str> {
    v.as_str()?.strip_prefix(far_mark())
}

/// Returns Some(true) for a marked number above 0, Some(false) for one below 0, and None for any other value.
pub fn far(v: &Value) -> Option<bool> {
    far_text(v).map(|number| !number.starts_with('-'))
}
