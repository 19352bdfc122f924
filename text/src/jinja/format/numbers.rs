//! Formats numbers with a precision and a type, for both `%` and str.format.

use crate::jinja::budget;
use crate::jinja::fail::{wrong, R};

/// No double has more digits behind its point; further digits are zeros. Rust's formatting panics at a precision of
/// 65,535.
const MOST_DIGITS: usize = 1_100;

/// Uses up the steps for the digits of f. Exact digits are computed one by one from a long integer, so the cost grows
/// with the exponent and with the precision.
pub fn spend_digits(f: f64, precision: usize) -> R<()> {
    let exponent = ((f.to_bits() >> 52 & 0x7FF) as usize).abs_diff(1023) * 3 / 10;
    budget::spend(10 + 2 * (exponent + precision.min(MOST_DIGITS)) + precision / 16)
}

/// Returns |f| with `precision` digits behind the point.
fn fixed_form(f: f64, precision: usize) -> String {
    let exact = precision.min(MOST_DIGITS);
    format!("{:.*}{}", exact, f.abs(), "0".repeat(precision - exact))
}

/// Returns |f| in exponent form with `precision` digits behind the first digit.
fn exponent_form(f: f64, precision: usize, kind: char) -> String {
    let exact = precision.min(MOST_DIGITS);
    let text = format!("{:.*e}", exact, f.abs());
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}{}{kind}{sign}{:02}", "0".repeat(precision - exact), exponent.abs())
}

/// Adds a point at the end of a number's digits when they have no point.
fn pointed(text: String) -> String {
    if text.contains('.') {
        return text;
    }
    let at = text.find(['e', 'E', '%']).unwrap_or(text.len());
    format!("{}.{}", &text[..at], &text[at..])
}

/// Describes the format of a float.
pub(super) struct Form {
    pub kind: char,
    pub precision: usize,
    /// flag `#`: the point and the trailing zeros stay
    pub alternate: bool,
    /// str.format has no type: at least one digit follows the point
    pub untyped: bool,
}

/// Returns |f| in the form e, f, g or %, without its sign.
pub(super) fn float_form(f: f64, form: &Form) -> R<String> {
    let (kind, precision) = (form.kind, form.precision);
    let upper = kind.is_ascii_uppercase();
    if !f.is_finite() {
        let text = if f.is_nan() { "nan" } else { "inf" };
        let text = if upper { text.to_uppercase() } else { text.to_owned() };
        return Ok(if kind == '%' { text + "%" } else { text });
    }
    spend_digits(f, precision)?;
    let e = if upper { 'E' } else { 'e' };
    let text = match kind.to_ascii_lowercase() {
        'f' => fixed_form(f, precision),
        '%' => match f * 100.0 {
            scaled if scaled.is_finite() => fixed_form(scaled, precision) + "%",
            _ => "inf%".to_owned(),
        },
        'e' => exponent_form(f, precision, e),
        _ => return Ok(general_form(f, form, e)),
    };
    Ok(if form.alternate && text != "inf%" { pointed(text) } else { text })
}

/// Returns |f| in form g. It has an exponent when the exponent is below -4, or when the digits before the point exceed
/// the precision.
fn general_form(f: f64, form: &Form, letter: char) -> String {
    let n = form.precision.max(1);
    let exact = (n - 1).min(MOST_DIGITS);
    let e: i32 = match format!("{:.*e}", exact, f.abs()).split_once('e') {
        Some((_, e)) => e.parse().unwrap_or(0),
        None => 0,
    };
    let most = n as i32 - i32::from(form.untyped);
    let with_exponent = e < -4 || e >= most;
    let text = match with_exponent {
        true => exponent_form(f, n - 1, letter),
        false => fixed_form(f, (n as i32 - 1 - e).max(0) as usize),
    };
    let text = if form.alternate { pointed(text) } else { without_zeros(&text) };
    match form.untyped && !with_exponent && !text.contains('.') {
        true => text + ".0",
        false => text,
    }
}

fn without_zeros(text: &str) -> String {
    if !text.contains('.') {
        return text.to_owned();
    }
    let (digits, exponent) = text.split_at(text.find(['e', 'E']).unwrap_or(text.len()));
    format!("{}{exponent}", digits.trim_end_matches('0').trim_end_matches('.'))
}

/// Returns the digits of |i|.
pub(super) fn int_form(i: i128, kind: char) -> String {
    let n = i.unsigned_abs();
    match kind {
        'x' => format!("{n:x}"),
        'X' => format!("{n:X}"),
        'o' => format!("{n:o}"),
        'b' => format!("{n:b}"),
        _ => n.to_string(),
    }
}

/// Limit of a precision or a width. No real format exceeds it, and format! panics at larger values.
pub(super) const MOST_WIDE: usize = 65_535;

pub(super) fn small(text: &str) -> R<usize> {
    match text.parse::<usize>() {
        Ok(n) if n <= MOST_WIDE => Ok(n),
        _ => wrong(format!("a width or a precision above {MOST_WIDE} is not supported")),
    }
}
