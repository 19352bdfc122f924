//! Implements the character properties that Python's str uses: case, classes, digits.

use crate::jinja::format;
use crate::jinja::unicode;
use crate::vocab::classes::{class_of, LETTER, NUMBER};

/// Implements Python's str.isspace. It also accepts four separators that Unicode's White_Space does not have.
pub fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1C}'..='\u{1F}').contains(&c)
}

fn within(table: &[(u32, u32)], c: char) -> bool {
    let c = c as u32;
    table.iter().any(|(from, to)| (*from..=*to).contains(&c))
}

fn mapped(table: &[(u32, &'static str)], c: char) -> Option<&'static str> {
    table.iter().find(|(from, _)| *from == c as u32).map(|(_, to)| *to)
}

fn is_decimal(c: char) -> bool {
    c.is_ascii_digit() || !c.is_ascii() && unicode::TENS.iter().any(|t| (*t..*t + 10).contains(&(c as u32)))
}

fn is_digit(c: char) -> bool {
    is_decimal(c) || within(&unicode::DIGITS, c)
}

fn is_numeric(c: char) -> bool {
    class_of(c) & NUMBER != 0 || within(&unicode::NUMERIC, c)
}

fn is_alpha(c: char) -> bool {
    class_of(c) & LETTER != 0
}

fn is_titlecase(c: char) -> bool {
    matches!(c as u32, 0x1C5 | 0x1C8 | 0x1CB | 0x1F2 | 0x1F88..=0x1F8F | 0x1F98..=0x1F9F | 0x1FA8..=0x1FAF
        | 0x1FBC | 0x1FCC | 0x1FFC)
}

fn is_cased(c: char) -> bool {
    c.is_lowercase() || c.is_uppercase() || is_titlecase(c)
}

fn push_title(c: char, out: &mut String) {
    match mapped(&unicode::TITLE, c) {
        Some(title) => out.push_str(title),
        None if within(&unicode::TITLE_SAME, c) => out.push(c),
        None => out.extend(c.to_uppercase()),
    }
}

/// Returns the lower-case form of a part of a text. A capital sigma at the end of a word has its own small form.
fn lower_of(text: &str, range: std::ops::Range<usize>) -> String {
    let part = &text[range.clone()];
    if !part.contains('Σ') {
        return part.to_lowercase();
    }
    // The characters before and behind the sigma decide about its form, so the whole text is examined.
    fn cased(mut chars: impl Iterator<Item = char>) -> bool {
        chars.find(|c| !is_ignored(*c)).is_some_and(is_cased)
    }
    part.char_indices()
        .flat_map(|(i, c)| {
            let at = range.start + i;
            let is_final =
                c == 'Σ' && cased(text[..at].chars().rev()) && !cased(text[at + c.len_utf8()..].chars());
            if is_final {
                vec!['ς']
            } else {
                c.to_lowercase().collect::<Vec<_>>()
            }
        })
        .collect()
}

/// Returns true for common characters that occur within words and are not letters (the most common characters of
/// Unicode's Case_Ignorable).
fn is_ignored(c: char) -> bool {
    "'.:^`\u{a8}\u{ad}\u{af}\u{b4}\u{b7}\u{b8}\u{2018}\u{2019}\u{2024}\u{2027}\u{200d}".contains(c)
        || class_of(c) & crate::vocab::classes::MARK != 0
}

/// Implements Python's str.title: each run of cased letters begins with a title-case letter.
pub(super) fn title(text: &str) -> String {
    let (mut out, mut inside) = (String::with_capacity(text.len()), false);
    for (at, c) in text.char_indices() {
        match inside {
            true => out.push_str(&lower_of(text, at..at + c.len_utf8())),
            false => push_title(c, &mut out),
        }
        inside = is_cased(c);
    }
    out
}

pub fn capitalize(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    if let Some(c) = text.chars().next() {
        push_title(c, &mut out);
        out.push_str(&lower_of(text, c.len_utf8()..text.len()));
    }
    out
}

pub(super) fn casefold(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_ascii() {
            out.push(c.to_ascii_lowercase());
            continue;
        }
        match mapped(&unicode::FOLD, c) {
            Some(folded) => out.push_str(folded),
            None => out.extend(c.to_uppercase().flat_map(char::to_lowercase)),
        }
    }
    out
}

pub(super) fn swapcase(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for (at, c) in text.char_indices() {
        match (c.is_uppercase(), c.is_lowercase()) {
            (true, _) => out.push_str(&lower_of(text, at..at + c.len_utf8())),
            (_, true) => out.extend(c.to_uppercase()),
            _ => out.push(c),
        }
    }
    out
}

/// Returns true when there is at least one lower-case letter, and no letter of another case.
pub fn is_lower(text: &str) -> bool {
    text.chars().any(char::is_lowercase) && !text.chars().any(|c| c.is_uppercase() || is_titlecase(c))
}

pub fn is_upper(text: &str) -> bool {
    text.chars().any(char::is_uppercase) && !text.chars().any(|c| c.is_lowercase() || is_titlecase(c))
}

fn is_title(text: &str) -> bool {
    let (mut cased, mut inside) = (false, false);
    for c in text.chars() {
        let capital = c.is_uppercase() || is_titlecase(c);
        if capital && inside || c.is_lowercase() && !inside {
            return false;
        }
        inside = is_cased(c);
        cased |= inside;
    }
    cased
}

fn is_identifier(text: &str) -> bool {
    let mut chars = text.chars();
    chars.next().is_some_and(|c| c == '_' || is_alpha(c) || class_of(c) & NUMBER != 0 && !is_digit(c))
        && chars.all(|c| c == '_' || is_alpha(c) || is_decimal(c) || is_ignored(c) && !c.is_ascii())
}

/// Returns true when all characters of a text satisfy the predicate. Returns false for an empty text.
fn all(text: &str, of: fn(char) -> bool) -> bool {
    !text.is_empty() && text.chars().all(of)
}

pub(super) fn is_what(text: &str, name: &str) -> bool {
    match name {
        "isalnum" => all(text, |c| is_alpha(c) || is_numeric(c)),
        "isalpha" => all(text, is_alpha),
        "isascii" => text.is_ascii(),
        "isdecimal" => all(text, is_decimal),
        "isdigit" => all(text, is_digit),
        "isidentifier" => is_identifier(text),
        "islower" => is_lower(text),
        "isnumeric" => all(text, is_numeric),
        "isprintable" => text.chars().all(format::is_printable),
        "isspace" => all(text, is_space),
        "istitle" => is_title(text),
        _ => is_upper(text),
    }
}

/// Converts a decimal digit of any script to ASCII, as int() and float() do.
pub fn ascii_digit(c: char) -> char {
    if c.is_ascii() {
        return c;
    }
    let c32 = c as u32;
    match unicode::TENS.iter().find(|t| (**t..**t + 10).contains(&c32)) {
        Some(t) => char::from_digit(c32 - t, 10).unwrap_or(c),
        _ => c,
    }
}
