//! Rewrites bounds of numbers, and multipleOf. When only one schema applies to a number, the schema becomes a reference
//! to a constant. The constant stands for the exact texts (number_text.rs, stand_ins.rs), which replace it after
//! llguidance has made its lexemes. When several schemas apply to one number, llguidance joins them in doubles. Their
//! bounds become doubles that are exact and lie inside the allowed range.

use super::far::{far, far_text};
use super::graph::joined;
use super::number_text::{multiple, Bound, Decimal, Span, MOST_DIGITS as WRITTEN};
use super::stand_ins::{define, other_types, refer, Numbers, Text, SIMPLE};
use super::walk::{has_type, inner_mut};
use crate::base::error::{fail, invalid, Code, Result};
use serde_json::{json, Map, Number, Value};

type Members = Map<String, Value>;

/// Largest integer up to which every integer is an exact double.
const EXACT: i128 = 1 << 53;
/// Largest double below 2^63, because llguidance counts in i64.
pub const LARGEST: i128 = (1 << 63) - 1024;
/// Smallest number above 0 for llguidance. When an exclusive bound is a whole number and the other bound has a fraction,
/// llguidance wrongly allows the whole number. The next number is therefore given as an inclusive bound.
const ABOVE_ZERO: f64 = 1e-15;

const SAYINGS: [&str; 5] = ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"];
/// Reads a bound as written. Returns None when there is no bound, and Err when it is not a number (llguidance reports
/// that).
fn bound(
    s: &Members,
    inclusive: &str,
    exclusive: &str,
    upper: bool,
) -> std::result::Result<Option<Bound>, ()> {
    let read = |key: &str| match s.get(key) {
        None | Some(Value::Bool(false)) => Ok(None),
        Some(Value::Number(n)) => Decimal::read(&n.to_string()).map(Some).ok_or(()),
        Some(v) => far_text(v).and_then(Decimal::read).map(Some).ok_or(()),
    };
    let own = read(inclusive)?;
    let strict = match s.get(exclusive) {
        Some(Value::Bool(true)) => return Ok(own.map(|d| (d, true))), // draft 4: a flag for minimum
        _ => read(exclusive)?,
    };
    Ok(match (own, strict) {
        (None, None) => None,
        (Some(d), None) => Some((d, false)),
        (None, Some(d)) => Some((d, true)),
        (Some(own), Some(strict)) => {
            let order = if upper { strict.order(&own) } else { own.order(&strict) };
            Some(if order.is_gt() { (own, false) } else { (strict, true) })
        }
    })
}

fn span(s: &Members) -> Result<Option<Span>> {
    let (Ok(mut low), Ok(mut high)) =
        (bound(s, "minimum", "exclusiveMinimum", false), bound(s, "maximum", "exclusiveMaximum", true))
    else {
        return Ok(None);
    };
    for (b, key, negative) in [(&low, "minimum", false), (&high, "maximum", true)] {
        if b.as_ref().is_some_and(|(d, _)| d.is_largest() && d.negative == negative) {
            return Err(invalid(format!(
                "{key} in the schema has more than {WRITTEN} digits, but no number is written with so many. Use a \
                 value nearer to 0"
            )));
        }
    }
    // A number beyond the largest one is only known to be larger, so the bound itself is not allowed.
    for (d, excluded) in [&mut low, &mut high].into_iter().flatten() {
        *excluded |= d.is_largest();
    }
    let multiple = match s.get("multipleOf") {
        None => None,
        Some(v) => {
            let text = v.as_number().map(Number::to_string).or_else(|| far_text(v).map(str::to_owned));
            let Some(text) = text else { return Ok(None) };
            match multiple(&text)? {
                Some(m) => Some(m),
                None => {
                    return Err(invalid(format!("multipleOf {text} in the schema must be greater than 0")))
                }
            }
        }
    };
    let integer = !has_type(s, "number") && has_type(s, "integer");
    let says_nothing = integer && multiple.is_some_and(|(n, zeros)| n == 1 && zeros <= 0);
    Ok(Some(Span { low, high, integer, multiple: multiple.filter(|_| !says_nothing) }))
}

/// Returns true when llguidance's own texts are exact, as for whole numbers that it handles one by one. Its fractions
/// below 0 are not exact: it refuses -0.50.
fn is_plain(span: &Span, s: &Members) -> bool {
    let small = |b: &Option<Bound>| {
        b.as_ref()
            .map_or(true, |(d, excluded)| d.is_whole() && d.digits() <= 15 && (span.integer || !excluded))
    };
    let above = span.low.as_ref().is_some_and(|(d, _)| !d.negative);
    (span.integer || above)
        && span.multiple.is_none()
        && !s.contains_key("multipleOf")
        && small(&span.low)
        && small(&span.high)
}

/// Replaces the schema's number keywords by a reference to a stand-in. The keywords for other types stay.
fn exact(s: &mut Members, numbers: &Numbers, made: &mut Members) -> Result<bool> {
    let is_known = |key: &String| SAYINGS.contains(&key.as_str()) || SIMPLE.contains(&key.as_str());
    let may_be = !s.contains_key("type") || has_type(s, "number") || has_type(s, "integer");
    if !may_be || !s.keys().all(is_known) || !s.keys().any(|key| SAYINGS.contains(&key.as_str())) {
        return Ok(false);
    }
    let Some(span) = span(s)?.filter(|span| !is_plain(span, s)) else { return Ok(false) };
    let text = Text::Number(span.clone());
    let name = match numbers.is_empty(&text, |fuel| span.is_empty(fuel))? {
        true => None,
        false => Some(numbers.add(text)?),
    };
    let plain = json!({ "type": if span.integer { "integer" } else { "number" } });
    refer(s, &SAYINGS, other_types(s, &["number", "integer"]), name, made);
    if let (Some(name), false) = (name, span.is_bounded()) {
        made.insert(name.to_string(), plain);
    }
    Ok(true)
}

fn each(
    v: &mut Value,
    joined: &[bool],
    next: &mut usize,
    numbers: &Numbers,
    made: &mut Members,
) -> Result<()> {
    let Value::Object(s) = v else { return Ok(()) };
    let own = *next;
    *next += 1;
    inner_mut(s, &mut |part| each(part, joined, next, numbers, made))?;
    if joined[own] || !exact(s, numbers, made)? {
        doubles(s)?;
    }
    Ok(())
}

/// Rewrites the numbers of all schemas, after all other passes over the schemas.
pub fn apply(root: &mut Value, numbers: &Numbers, has_names: bool) -> Result<()> {
    let mut joined = joined(root);
    if has_names || root.get("$defs").is_some_and(|v| !v.is_object()) {
        joined.fill(true); // the targets of references are not known, so any schema may be joined
    }
    let mut made = Members::new();
    each(root, &joined, &mut 0, numbers, &mut made)?;
    define(root, made);
    Ok(())
}

// ---- numbers that llguidance joins ----

pub fn integer_of(n: &Number) -> Option<i128> {
    n.as_i64().map(i128::from).or_else(|| n.as_u64().map(i128::from)).or_else(|| {
        let f = n.as_f64()?;
        (f.fract() == 0.0 && f.abs() < 1e36).then_some(f as i128)
    })
}

/// Returns the nearest double to v on the given side, or v itself when it is a double.
pub fn double(v: i128, down: bool) -> f64 {
    let f = v as f64;
    let beyond = if down { f as i128 > v } else { (f as i128) < v };
    match (beyond, f > 0.0) {
        (false, _) => f,
        // moves one step to that side, since the bits of doubles are ordered like the doubles
        (true, positive) => f64::from_bits(if positive == down { f.to_bits() - 1 } else { f.to_bits() + 1 }),
    }
}

/// Replaces bounds by doubles inside the allowed range, and within 64 bits.
fn doubles(s: &mut Map<String, Value>) -> Result<()> {
    let only_integers = has_type(s, "integer") && !has_type(s, "number");
    for (inclusive, exclusive, upper) in
        [("maximum", "exclusiveMaximum", true), ("minimum", "exclusiveMinimum", false)]
    {
        // for integers, an exclusive bound equals the next integer as an inclusive bound
        let strict = s.get(exclusive).and_then(Value::as_number).and_then(integer_of);
        if let (true, Some(v), true) = (only_integers, strict, strict.is_some_and(|v| v.abs() >= EXACT)) {
            let bound = if upper { v - 1 } else { v + 1 };
            let own = s.get(inclusive).and_then(Value::as_number).and_then(integer_of);
            let both = own.map_or(bound, |o| if upper { o.min(bound) } else { o.max(bound) });
            s.shift_remove(exclusive);
            set_bound(s, inclusive, both, upper)?;
        }
        for key in [inclusive, exclusive] {
            if let Some(is_above) = s.get(key).and_then(far) {
                set_bound(s, key, if is_above { i128::MAX >> 1 } else { -(i128::MAX >> 1) }, upper)?;
            }
            let Some(n) = s.get(key).and_then(Value::as_number).cloned() else { continue };
            match integer_of(&n) {
                Some(v) if v.abs() > EXACT => set_bound(s, key, v, upper)?,
                None if n.as_f64().is_some_and(|f| f.abs() > LARGEST as f64) => {
                    let f = n.as_f64().unwrap_or_default();
                    set_bound(s, key, if f > 0.0 { i128::MAX >> 1 } else { -(i128::MAX >> 1) }, upper)?;
                }
                _ => {}
            }
        }
        next_to_excluded(s, inclusive, exclusive, upper)?;
    }
    Ok(())
}

/// Replaces an excluded whole number by the next double as an inclusive bound, when the range is on the number's side
/// away from 0.
fn next_to_excluded(s: &mut Map<String, Value>, inclusive: &str, exclusive: &str, upper: bool) -> Result<()> {
    let Some(v) = s.get(exclusive).and_then(Value::as_f64) else { return Ok(()) };
    if v.fract() != 0.0 || v != 0.0 && (v < 0.0) != upper || v.abs() >= EXACT as f64 / 2.0 {
        return Ok(());
    }
    let next = match v == 0.0 {
        true => ABOVE_ZERO,
        false => f64::from_bits(v.abs().to_bits() + 1),
    };
    let next = if upper { -next } else { next };
    let own = s.get(inclusive).and_then(Value::as_f64);
    let both = own.map_or(next, |o| if upper { o.min(next) } else { o.max(next) });
    let n = Number::from_f64(both)
        .ok_or_else(|| invalid(format!("{exclusive} in the schema must be a number")))?;
    s.shift_remove(exclusive);
    s.insert(inclusive.to_owned(), Value::Number(n));
    Ok(())
}

fn set_bound(s: &mut Map<String, Value>, key: &str, v: i128, upper: bool) -> Result<()> {
    let is_out = if upper { v < -LARGEST } else { v > LARGEST };
    if is_out {
        return fail(
            Code::Invalid,
            format!("{key} {v} in the schema is too large: bounds must fit in 64 bits"),
        );
    }
    let f = double(v.clamp(-LARGEST, LARGEST), upper);
    let n = Number::from_f64(f).ok_or_else(|| invalid(format!("{key} in the schema must be a number")))?;
    s.insert(key.to_owned(), Value::Number(n));
    Ok(())
}
