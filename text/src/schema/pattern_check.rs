//! Refuses patterns that llguidance reads wrongly without an error. JSON writes some characters with an escape (a quote,
//! a backslash, a control character). In derivre 0.3.8, the pattern after a run of literals with such a character is
//! lost, unless only plain text follows.

use crate::base::error::{invalid, Result};

fn is_escaped_in_json(c: char) -> bool {
    c < ' ' || "\"\\\u{7f}".contains(c)
}

/// Returns the character that an escape stands for, and the rest of the pattern. The character is None for a class or an
/// anchor.
fn unescape(rest: &str) -> (Option<char>, &str) {
    let mut chars = rest.chars();
    let c = chars.next();
    let hex = |n: usize| -> (Option<char>, &str) {
        let digits = rest.get(1..).unwrap_or_default();
        let (digits, n) = match digits.strip_prefix('{') {
            Some(inner) => (inner, inner.find('}').unwrap_or(inner.len())),
            None => (digits, n.min(digits.len())),
        };
        let value = digits.get(..n).and_then(|d| u32::from_str_radix(d, 16).ok());
        (value.and_then(char::from_u32), digits.get(n..).unwrap_or_default().trim_start_matches('}'))
    };
    match c {
        Some('n' | 't' | 'r' | 'f' | 'v' | 'a') => (Some('\n'), chars.as_str()),
        Some('x') => hex(2),
        Some('u') => hex(4),
        Some('U') => hex(8),
        Some('c') => (Some('\n'), chars.as_str()),
        Some(c) if !c.is_ascii_alphanumeric() => (Some(c), chars.as_str()),
        _ => (None, chars.as_str()),
    }
}

/// Returns the literal at the start of the pattern, which may be a class of one character, and the rest of the pattern.
/// The literal is None for any other start.
fn literal(pattern: &str) -> (Option<char>, &str) {
    let mut chars = pattern.chars();
    match chars.next() {
        Some('\\') => unescape(chars.as_str()),
        Some('[') => {
            let inner = chars.as_str();
            match literal_in_class(inner) {
                (Some(c), rest) if rest.starts_with(']') => (Some(c), &rest[1..]),
                _ => (None, behind_class(inner)),
            }
        }
        Some(c) if !"^$.|?*+(){}]".contains(c) => (Some(c), chars.as_str()),
        _ => (None, chars.as_str()),
    }
}

fn literal_in_class(inner: &str) -> (Option<char>, &str) {
    let mut chars = inner.chars();
    match chars.next() {
        Some('\\') => unescape(chars.as_str()),
        c => (c.filter(|c| *c != '^'), chars.as_str()),
    }
}

fn behind_class(inner: &str) -> &str {
    let mut escaped = false;
    for (i, c) in inner.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ']' if i > 0 => return &inner[i + 1..],
            _ => {}
        }
    }
    ""
}

fn loses_text(pattern: &str) -> bool {
    let mut rest = pattern;
    while !rest.is_empty() {
        let (c, behind) = literal(rest);
        if c.is_some_and(is_escaped_in_json) && !behind.starts_with(['?', '*', '+']) {
            let is_plain = |c: char| c.is_alphanumeric() || " _-,:;/@#%&=<>!~'".contains(c);
            let end = behind.trim_start_matches(is_plain);
            return !(end.is_empty() || end == "$");
        }
        rest = behind;
    }
    false
}

pub fn check(pattern: &str) -> Result<()> {
    if !loses_text(pattern) {
        return Ok(());
    }
    let short: String = pattern.chars().take(80).collect();
    Err(invalid(format!(
        "the pattern {short} has a quote, a backslash or a control character before something other than plain text, \
         which is not supported"
    )))
}
