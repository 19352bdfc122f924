//! Numbers with a precision and a type, as `%` and str.format share them.

use crate::jinja::value::{wrong, R};

/// digits and exponent of |f| with so many digits behind the first
fn exponent_form(f: f64, precision: usize, kind: char) -> String {
    let text = format!("{:.*e}", precision, f.abs());
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}{kind}{sign}{:02}", exponent.abs())
}

/// |f| as e, f, g or % have it, without its sign.
pub(super) fn float_form(f: f64, kind: char, precision: usize, alternate: bool) -> String {
    let upper = kind.is_ascii_uppercase();
    if !f.is_finite() {
        let text = if f.is_nan() { "nan" } else { "inf" };
        return if upper { text.to_uppercase() } else { text.to_owned() };
    }
    match kind.to_ascii_lowercase() {
        'f' => format!("{:.*}", precision, f.abs()),
        '%' => format!("{:.*}%", precision, (f * 100.0).abs()),
        'e' => exponent_form(f, precision, if upper { 'E' } else { 'e' }),
        _ => {
            let n = precision.max(1);
            let e: i32 = match format!("{:.*e}", n - 1, f.abs()).split_once('e') {
                Some((_, e)) => e.parse().unwrap_or(0),
                None => 0,
            };
            let text = match e {
                e if e < -4 || e >= n as i32 => exponent_form(f, n - 1, if upper { 'E' } else { 'e' }),
                e => format!("{:.*}", (n as i32 - 1 - e).max(0) as usize, f.abs()),
            };
            if alternate || !text.contains('.') {
                return text;
            }
            let (digits, exponent) = match text.find(['e', 'E']) {
                Some(at) => text.split_at(at),
                None => (text.as_str(), ""),
            };
            format!("{}{exponent}", digits.trim_end_matches('0').trim_end_matches('.'))
        }
    }
}

pub(super) fn int_form(i: i128, kind: char, alternate: bool) -> String {
    let n = i.unsigned_abs();
    let text = match kind {
        'x' => format!("{n:x}"),
        'X' => format!("{n:X}"),
        'o' => format!("{n:o}"),
        'b' => format!("{n:b}"),
        _ => n.to_string(),
    };
    match (alternate, kind) {
        (true, 'x' | 'X' | 'o' | 'b') => format!("0{kind}{text}"),
        _ => text,
    }
}

/// A precision or a width: what is larger is nobody's, and format! panics at it.
pub(super) const MOST_WIDE: usize = 65_535;

pub(super) fn small(text: &str) -> R<usize> {
    match text.parse::<usize>() {
        Ok(n) if n <= MOST_WIDE => Ok(n),
        _ => wrong(format!("a width or a precision above {MOST_WIDE} is not supported")),
    }
}
