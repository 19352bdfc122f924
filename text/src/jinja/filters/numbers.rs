//! Implements the filters on numbers, and Python's int() and float() of a text.

use super::args::{is_set, text_arg};
use crate::jinja::budget;
use crate::jinja::fail::{wrong, R};
use crate::jinja::format::spend_digits;
use crate::jinja::methods;
use crate::jinja::number::{as_float, as_int, int_arg};
use crate::jinja::value::{Args, Value};
use std::cmp::Ordering;

/// Implements Python's int(text, base).
pub fn int_of_text(text: &str, base: u32) -> Option<i128> {
    let text = text.trim_matches(methods::is_space);
    let (negative, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let lower = text.to_ascii_lowercase();
    let prefixes = [("0x", 16), ("0o", 8), ("0b", 2)];
    let found = prefixes.iter().find(|(p, b)| lower.starts_with(p) && (base == *b || base == 0));
    let (base, digits) = match found {
        Some((_, b)) => (*b, text[2..].strip_prefix('_').unwrap_or(&text[2..])),
        None if base == 0
            && text.len() > 1
            && text.starts_with('0')
            && text.bytes().any(|b| !b"0_".contains(&b)) =>
        {
            return None
        }
        None => (if base == 0 { 10 } else { base }, text),
    };
    if !(2..=36).contains(&base) || digits.starts_with('_') || digits.ends_with('_') || digits.contains("__")
    {
        return None;
    }
    let digits: String = digits.chars().filter(|c| *c != '_').map(methods::ascii_digit).collect();
    let n = i128::from_str_radix(&digits, base).ok().filter(|_| !digits.starts_with(['+', '-']))?;
    Some(if negative { -n } else { n })
}

/// Implements Python's float(text).
pub fn float_of_text(text: &str) -> Option<f64> {
    let text = text.trim_matches(methods::is_space);
    let b = text.as_bytes();
    let between =
        |i: usize| i > 0 && b[i - 1].is_ascii_digit() && b.get(i + 1).is_some_and(u8::is_ascii_digit);
    if (0..b.len()).any(|i| b[i] == b'_' && !between(i)) {
        return None;
    }
    let plain: String = text.chars().filter(|c| *c != '_').map(methods::ascii_digit).collect();
    plain.parse().ok()
}

fn too_many_digits(text: &str) -> bool {
    text.trim_matches(methods::is_space).trim_start_matches(['+', '-']).bytes().all(|b| b.is_ascii_digit())
}

fn truncated(f: f64, default: Value) -> R<Value> {
    match f {
        f if !f.is_finite() => Ok(default),
        f if f.abs() < 1.7e38 => Ok(Value::Int(f.trunc() as i128)),
        _ => wrong("integers of more than 128 bits are not supported"),
    }
}

pub(super) fn numbers(name: &str, v: &Value, args: Args) -> R<Value> {
    if let Value::Undefined(why) = v {
        return wrong(why.as_ref());
    }
    if matches!(v, Value::Big(_)) {
        budget::spend(20)?;
    }
    if let Some(text) = v.as_str() {
        budget::letters(text)?;
        budget::spend(8)?;
    }
    match name {
        "int" => {
            let [default, base] = args.bind(name, ["default", "base"], 0)?;
            let default = default.unwrap_or(Value::Int(0));
            let base = base.as_ref().map_or(Ok(10), int_arg)?;
            match v {
                Value::Str(t) => match int_of_text(&t.0.s, u32::try_from(base).unwrap_or(1)) {
                    Some(i) => Ok(Value::Int(i)),
                    None if !t.0.s.is_empty()
                        && base == 10
                        && too_many_digits(&t.0.s)
                        && t.0.s.len() > 38 =>
                    {
                        wrong("integers of more than 128 bits are not supported")
                    }
                    None => float_of_text(&t.0.s).map_or(Ok(default.clone()), |f| truncated(f, default)),
                },
                Value::Float(f) if f.is_infinite() => wrong("cannot convert float infinity to integer"),
                Value::Float(f) => truncated(*f, default),
                Value::Big(_) => Ok(v.clone()),
                _ => Ok(as_int(v).map_or(default, Value::Int)),
            }
        }
        "float" => {
            let [default] = args.bind(name, ["default"], 0)?;
            let f = match v {
                Value::Str(t) => float_of_text(&t.0.s),
                Value::Big(_) if as_float(v).is_some_and(f64::is_infinite) => {
                    return wrong("int too large to convert to float")
                }
                v => as_float(v),
            };
            Ok(f.map(Value::Float).or(default).unwrap_or(Value::Float(0.0)))
        }
        "abs" => {
            args.none(name)?;
            match (as_int(v), v) {
                (Some(i), _) => Ok(Value::Int(i.saturating_abs())),
                (_, Value::Float(f)) => Ok(Value::Float(f.abs())),
                (_, Value::Big(digits)) => Ok(Value::Big(digits.trim_start_matches('-').into())),
                _ => wrong(format!("bad operand type for abs(): '{}'", v.type_name())),
            }
        }
        "round" => round(v, args),
        _ => {
            let [binary] = args.bind(name, ["binary"], 0)?;
            let bytes = match v {
                Value::Str(t) => float_of_text(&t.0.s),
                v => as_float(v),
            };
            let Some(bytes) = bytes else { return wrong("could not convert to float") };
            spend_digits(bytes, 1)?;
            Ok(file_size(bytes, is_set(&binary)))
        }
    }
}

fn file_size(bytes: f64, binary: bool) -> Value {
    let base: f64 = if binary { 1024.0 } else { 1000.0 };
    if bytes == 1.0 {
        return Value::from("1 Byte");
    }
    if bytes < base {
        return Value::from(format!("{} Bytes", bytes.trunc() as i128));
    }
    let (mut unit, mut name) = (base, "");
    for prefix in ["k", "M", "G", "T", "P", "E", "Z", "Y"] {
        (unit, name) = (unit * base, prefix);
        if bytes < unit {
            break;
        }
    }
    let name = if binary { format!("{}iB", name.to_uppercase()) } else { format!("{name}B") };
    Value::from(format!("{:.1} {name}", base * bytes / unit))
}

/// Decimal places to which round() computes. Beyond them round() returns the number unchanged or 0, because no double has
/// digits there.
const ROUND_PLACES: std::ops::RangeInclusive<i128> = -308..=323;

/// Implements Python's round(f, places): it rounds to the nearest value, and a tie to the even value.
fn round_float(f: f64, places: i128) -> R<f64> {
    if !ROUND_PLACES.contains(&places) {
        return Ok(if places > 0 { f } else { 0.0 * f });
    }
    spend_digits(f, places.unsigned_abs() as usize)?;
    let nearest = |text: String| -> f64 { text.parse().unwrap_or(f) };
    if places >= 0 {
        return Ok(nearest(format!("{:.*}", places as usize, f)));
    }
    let cut = places.unsigned_abs() as usize;
    let whole = f.abs().trunc();
    let digits = if whole == 0.0 { 0 } else { format!("{whole:.0}").len() };
    let rounded = match digits.cmp(&cut) {
        Ordering::Greater => nearest(format!("{:.*e}", digits - 1 - cut, f.abs())),
        Ordering::Equal if f.abs() > nearest(format!("5e{}", cut - 1)) => nearest(format!("1e{cut}")),
        _ => 0.0,
    };
    match rounded.is_finite() {
        true => Ok(rounded.copysign(f)),
        false => wrong("rounded value too large to represent"),
    }
}

fn round(v: &Value, args: Args) -> R<Value> {
    let [precision, method] = args.bind("round", ["precision", "method"], 0)?;
    let precision = precision.as_ref().map_or(Ok(0), int_arg)?;
    let method = text_arg(method, "common")?;
    if !["common", "ceil", "floor"].contains(&method.as_str()) {
        return wrong("method must be common, ceil or floor");
    }
    if method != "common" {
        if let (Some(i), true) = (as_int(v), precision >= 0) {
            return Ok(Value::Float(i as f64));
        }
        if matches!(v, Value::Big(_)) {
            return wrong("this rounding of integers of more than 128 bits is not supported");
        }
        let Some(f) = as_float(v) else {
            return wrong(format!("must be real number, not {}", v.type_name()));
        };
        if precision.unsigned_abs() > 22 {
            return wrong("a precision beyond 22 is not supported");
        }
        let factor = 10f64.powf(precision as f64);
        let f = f * factor;
        if !f.is_finite() {
            return wrong("cannot convert float infinity or NaN to integer");
        }
        // Python's result is an integer, so it is never -0.
        let whole = if method == "ceil" { f.ceil() } else { f.floor() } + 0.0;
        return Ok(Value::Float(whole / factor));
    }
    match (as_int(v), v) {
        (Some(i), _) if precision >= 0 => Ok(Value::Int(i)),
        (Some(i), _) => {
            let Some(unit) = u32::try_from(-precision).ok().and_then(|n| 10i128.checked_pow(n)) else {
                return Ok(Value::Int(0));
            };
            let (low, rest) = (i.div_euclid(unit), i.rem_euclid(unit));
            let up = rest > unit - rest || rest == unit - rest && low % 2 != 0;
            match (low + i128::from(up)).checked_mul(unit) {
                Some(n) => Ok(Value::Int(n)),
                None => wrong("integers of more than 128 bits are not supported"),
            }
        }
        (_, Value::Float(f)) if !f.is_finite() => Ok(v.clone()),
        (_, Value::Float(f)) => round_float(*f, precision).map(Value::Float),
        (_, Value::Big(_)) if precision >= 0 => Ok(v.clone()),
        (_, Value::Big(_)) => wrong("this rounding of integers of more than 128 bits is not supported"),
        _ => wrong(format!("type {} doesn't define __round__ method", v.type_name())),
    }
}
