//! Implements Python's `text % values`.

use super::numbers::{float_form, int_form, small, Form, MOST_WIDE};
use super::text::{push_code, repr_of, str_of};
use crate::jinja::budget;
use crate::jinja::fail::{wrong, R};
use crate::jinja::items::item;
use crate::jinja::number::{as_float, as_int};
use crate::jinja::value::Value;

struct Spec<'a> {
    flags: &'a str,
    width: usize,
    precision: Option<usize>,
    kind: char,
}

/// Implements Python's `text % values`. `values` is a tuple, a mapping for %(name)s, or a single value.
pub fn percent(format: &str, values: &Value) -> R<String> {
    budget::scan(format.len())?;
    let items = match values {
        Value::Tuple(items) => {
            budget::room(items.v.len() * size_of::<Value>())?;
            items.v.clone()
        }
        one => vec![one.clone()],
    };
    let (mut items, mut used_map) = (items.into_iter(), false);
    let (mut out, mut rest) = (String::new(), format);
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        budget::fits(out.len())?;
        budget::spend(2)?;
        rest = &rest[at + 1..];
        let mut value = None;
        if let Some(named) = rest.strip_prefix('(') {
            let Some((name, behind)) = named.split_once(')') else { return wrong("incomplete format key") };
            if !matches!(values, Value::Dict(_)) {
                return wrong("format requires a mapping");
            }
            budget::spend(4)?;
            let found = item(values, &Value::from(name))?;
            value = Some(found.map_or_else(|| wrong(format!("KeyError: '{name}'")), Ok)?);
            used_map = true;
            rest = behind;
        }
        let spec = spec(&mut rest, &mut items)?;
        if spec.kind == '%' {
            out.push('%');
            continue;
        }
        let value = match value.or_else(|| items.next()) {
            Some(v) => v,
            None => return wrong("not enough arguments for format string"),
        };
        one(&spec, &value, &mut out)?;
    }
    out.push_str(rest);
    let is_map = used_map || matches!(values, Value::Dict(_));
    let is_single = !matches!(values, Value::Tuple(_));
    if items.next().is_some()
        && !(is_single
            && (is_map || matches!(values, Value::List(_) | Value::Range(..) | Value::Undefined(_))))
    {
        return wrong("not all arguments converted during string formatting");
    }
    Ok(out)
}

fn spec<'a>(rest: &mut &'a str, items: &mut impl Iterator<Item = Value>) -> R<Spec<'a>> {
    let part = |rest: &mut &'a str, of: fn(char) -> bool| {
        let n = rest.find(|c| !of(c)).unwrap_or(rest.len());
        let (part, behind) = rest.split_at(n);
        *rest = behind;
        part
    };
    let star = |rest: &mut &'a str, items: &mut dyn Iterator<Item = Value>| -> R<Option<i128>> {
        let Some(behind) = rest.strip_prefix('*') else { return Ok(None) };
        *rest = behind;
        match items.next().as_ref().and_then(as_int) {
            Some(n) if n.unsigned_abs() <= MOST_WIDE as u128 => Ok(Some(n)),
            Some(_) => wrong(format!("a width or a precision above {MOST_WIDE} is not supported")),
            None => wrong("* wants int"),
        }
    };
    let mut flags = part(rest, |c| "#0- +".contains(c));
    let width = match star(rest, items)? {
        Some(n) => {
            flags = if n < 0 { "-" } else { flags };
            n.unsigned_abs() as usize
        }
        None => match part(rest, |c| c.is_ascii_digit()) {
            "" => 0,
            digits => small(digits)?,
        },
    };
    let mut precision = None;
    if let Some(behind) = rest.strip_prefix('.') {
        *rest = behind;
        precision = Some(match star(rest, items)? {
            Some(n) => n.max(0) as usize,
            None => match part(rest, |c| c.is_ascii_digit()) {
                "" => 0,
                digits => small(digits)?,
            },
        });
    }
    part(rest, |c| "hlL".contains(c));
    let Some(kind) = rest.chars().next() else { return wrong("incomplete format") };
    *rest = &rest[kind.len_utf8()..];
    Ok(Spec { flags, width, precision, kind })
}

/// Writes one conversion.
fn one(spec: &Spec, v: &Value, out: &mut String) -> R<()> {
    let alternate = spec.flags.contains('#');
    if !"sra".contains(spec.kind) {
        // The check counts the digits that the conversion will write.
        budget::fits(out.len().saturating_add(spec.precision.unwrap_or(0)))?;
        budget::spend(spec.precision.unwrap_or(0))?;
    }
    let (negative, text) = match spec.kind {
        's' | 'r' | 'a' => {
            let text = match spec.kind {
                's' => str_of(v)?,
                'r' => repr_of(v)?,
                _ => ascii(&repr_of(v)?)?,
            };
            let text = spec.precision.map_or(text.clone(), |n| text.chars().take(n).collect());
            return pad(&text, "", spec, false, out);
        }
        'c' => {
            let text = match (as_int(v), v.as_str()) {
                (Some(i), _) => match u32::try_from(i).ok().and_then(char::from_u32) {
                    Some(c) => c.to_string(),
                    None => return wrong("%c arg not in range(0x110000)"),
                },
                (None, Some(s)) if s.chars().count() == 1 => s.to_owned(),
                _ => return wrong("%c requires int or char"),
            };
            return pad(&text, "", spec, false, out);
        }
        'd' | 'i' | 'u' if matches!(v, Value::Big(_)) => {
            let digits = str_of(v)?;
            (digits.starts_with('-'), digits.trim_start_matches('-').to_owned())
        }
        'd' | 'i' | 'u' | 'x' | 'X' | 'o' => {
            let i = match (as_int(v), v) {
                (Some(i), _) => i,
                (None, Value::Float(f)) if "diu".contains(spec.kind) && f.abs() < 1e38 => f.trunc() as i128,
                _ => {
                    return wrong(format!(
                        "%{} format: a real number is required, not {}",
                        spec.kind,
                        v.type_name()
                    ))
                }
            };
            let digits = int_form(i, spec.kind);
            let zeros = "0".repeat(spec.precision.unwrap_or(0).saturating_sub(digits.len()));
            let prefix = if alternate && "xXo".contains(spec.kind) {
                format!("0{}", spec.kind)
            } else {
                String::new()
            };
            let sign = sign_of(i < 0, spec.flags);
            return pad(&format!("{zeros}{digits}"), &format!("{sign}{prefix}"), spec, true, out);
        }
        'f' | 'F' | 'e' | 'E' | 'g' | 'G' => match as_float(v) {
            Some(f) => {
                let precision = spec.precision.unwrap_or(6);
                let form = Form { kind: spec.kind, precision, alternate, untyped: false };
                let text = float_form(f, &form)?;
                (f.is_sign_negative() && !f.is_nan(), text)
            }
            None => return wrong(format!("must be real number, not {}", v.type_name())),
        },
        kind => return wrong(format!("unsupported format character '{kind}'")),
    };
    pad(&text, sign_of(negative, spec.flags), spec, true, out)
}

pub(super) fn sign_of(negative: bool, flags: &str) -> &'static str {
    match negative {
        true => "-",
        false if flags.contains('+') => "+",
        false if flags.contains(' ') => " ",
        false => "",
    }
}

fn pad(text: &str, sign: &str, spec: &Spec, is_number: bool, out: &mut String) -> R<()> {
    budget::scan(text.len())?;
    let room = spec.width.saturating_sub(text.chars().count() + sign.len());
    budget::fits(out.len().saturating_add(text.len()).saturating_add(room))?;
    budget::spend(room / 16)?;
    let blanks = |out: &mut String, c: char| out.extend(std::iter::repeat_n(c, room));
    match (spec.flags.contains('-'), spec.flags.contains('0') && is_number) {
        (true, _) => {
            out.push_str(sign);
            out.push_str(text);
            blanks(out, ' ');
        }
        (false, true) => {
            out.push_str(sign);
            blanks(out, '0');
            out.push_str(text);
        }
        (false, false) => {
            blanks(out, ' ');
            out.push_str(sign);
            out.push_str(text);
        }
    }
    Ok(())
}

pub(super) fn ascii(text: &str) -> R<String> {
    budget::room(4 * text.len())?;
    budget::letters(text)?;
    let mut out = String::new();
    for c in text.chars() {
        match c.is_ascii() {
            true => out.push(c),
            false => push_code(c, &mut out),
        }
    }
    Ok(out)
}
