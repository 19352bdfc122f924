//! str.format: its fields, and the format specifications behind their colons.

use super::numbers::{float_form, int_form, small};
use super::percent::{ascii, sign_of};
use super::{repr_of, str_of};
use crate::jinja::budget;
use crate::jinja::eval::{get_attr, get_item};
use crate::jinja::ops::{as_float, int_arg};
use crate::jinja::value::{wrong, Args, Value, R};

pub fn str_format(format: &str, args: &Args) -> R<String> {
    let mut next = Some(0);
    fields(format, args, &mut next, 3)
}

fn fields(format: &str, args: &Args, next: &mut Option<usize>, depth: usize) -> R<String> {
    if depth == 0 {
        return wrong("Max string recursion exceeded");
    }
    budget::scan(4 * format.len())?;
    let (mut out, mut rest) = (String::new(), format);
    while let Some(at) = rest.find(['{', '}']) {
        out.push_str(&rest[..at]);
        budget::fits(out.len())?;
        budget::spend(2)?;
        let brace = &rest[at..=at];
        rest = &rest[at + 1..];
        if rest.starts_with(brace) {
            out.push_str(brace);
            rest = &rest[1..];
            continue;
        }
        if brace == "}" {
            return wrong("Single '}' encountered in format string");
        }
        let Some(end) = field_end(rest) else { return wrong("expected '}' before end of string") };
        let (field, behind) = (&rest[..end], &rest[end + 1..]);
        rest = behind;
        let brackets = field.find(']').map_or(0, |i| i);
        let split = field.char_indices().position(|(i, c)| ":!".contains(c) && i >= brackets);
        let at = split.and_then(|n| field.char_indices().nth(n)).map_or(field.len(), |(i, _)| i);
        let (name, tail) = field.split_at(at);
        let (conversion, spec) = match tail.strip_prefix('!') {
            Some(c) => match c.find(':') {
                Some(i) => (&c[..i], &c[i + 1..]),
                None => (c, ""),
            },
            None => ("", tail.strip_prefix(':').unwrap_or("")),
        };
        let value = field_value(name, args, next)?;
        let spec = fields(spec, args, next, depth - 1)?;
        let value = match conversion {
            "" => value,
            "s" => Value::from(str_of(&value)?),
            "r" => Value::from(repr_of(&value)?),
            "a" => Value::from(ascii(&repr_of(&value)?)),
            c => return wrong(format!("Unknown conversion specifier {c}")),
        };
        let text = formatted(&value, &spec)?;
        budget::fits(out.len() + text.len())?;
        budget::scan(text.len())?;
        out.push_str(&text);
    }
    out.push_str(rest);
    Ok(out)
}

fn field_end(text: &str) -> Option<usize> {
    let mut depth = 0;
    for (i, c) in text.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => return Some(i),
            '}' => depth -= 1,
            _ => {}
        }
    }
    None
}

fn field_value(name: &str, args: &Args, next: &mut Option<usize>) -> R<Value> {
    let end = name.find(['.', '[']).unwrap_or(name.len());
    let (first, mut path) = name.split_at(end);
    let mut value = if first.is_empty() || first.bytes().all(|b| b.is_ascii_digit()) {
        let i = match (first.is_empty(), *next) {
            (true, Some(i)) => {
                *next = Some(i + 1);
                i
            }
            (true, None) => {
                return wrong("cannot switch from manual field specification to automatic field numbering")
            }
            (false, Some(1..)) => {
                return wrong("cannot switch from automatic field numbering to manual field specification")
            }
            (false, _) => {
                *next = None;
                first.parse().unwrap_or(usize::MAX)
            }
        };
        match args.pos.get(i) {
            Some(v) => v.clone(),
            None => return wrong(format!("Replacement index {i} out of range for positional args tuple")),
        }
    } else {
        budget::spend(args.kw.len() / 16)?;
        match args.kw.iter().find(|(n, _)| n == first) {
            Some((_, v)) => v.clone(),
            None => return wrong(format!("KeyError: '{first}'")),
        }
    };
    while !path.is_empty() {
        let is_item = path.starts_with('[');
        let end = match is_item {
            true => path.find(']').map_or_else(|| wrong("Missing ']' in format string"), Ok)?,
            false => path[1..].find(['.', '[']).map_or(path.len(), |i| i + 1),
        };
        let key = &path[1..end];
        path = &path[(end + usize::from(is_item)).min(path.len())..];
        let key = match key.parse::<i128>() {
            Ok(i) if is_item => Value::Int(i),
            _ => Value::from(key),
        };
        value = match is_item {
            true => get_item(&value, &key)?,
            false => get_attr(&value, key.as_str().unwrap_or_default())?,
        };
    }
    Ok(value)
}

/// What stands behind the colon of a field.
struct Field<'a> {
    fill: char,
    align: Option<char>,
    sign: &'a str,
    alternate: bool,
    width: usize,
    comma: Option<char>,
    precision: Option<usize>,
    kind: Option<char>,
}

fn field_spec(spec: &str) -> R<Field<'_>> {
    let mut f = Field {
        fill: ' ',
        align: None,
        sign: "",
        alternate: false,
        width: 0,
        comma: None,
        precision: None,
        kind: None,
    };
    let mut rest = spec;
    let mut chars = spec.chars();
    let (first, second) = (chars.next(), chars.next());
    if let (Some(fill), Some(align @ ('<' | '>' | '=' | '^'))) = (first, second) {
        (f.fill, f.align, rest) = (fill, Some(align), &spec[fill.len_utf8() + 1..]);
    } else if let Some(align @ ('<' | '>' | '=' | '^')) = first {
        (f.align, rest) = (Some(align), &spec[1..]);
    }
    if rest.starts_with(['+', '-', ' ']) {
        f.sign = &rest[..1];
        rest = &rest[1..];
    }
    if let Some(behind) = rest.strip_prefix('#') {
        (f.alternate, rest) = (true, behind);
    }
    if let Some(behind) = rest.strip_prefix('0') {
        if f.align.is_none() {
            (f.fill, f.align) = ('0', Some('='));
        }
        rest = behind;
    }
    let digits = |rest: &mut &str| -> R<Option<usize>> {
        let n = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (part, behind) = rest.split_at(n);
        *rest = behind;
        if part.is_empty() {
            Ok(None)
        } else {
            small(part).map(Some)
        }
    };
    f.width = digits(&mut rest)?.unwrap_or(0);
    if rest.starts_with([',', '_']) {
        f.comma = rest.chars().next();
        rest = &rest[1..];
    }
    if let Some(behind) = rest.strip_prefix('.') {
        rest = behind;
        f.precision =
            Some(digits(&mut rest)?.map_or_else(|| wrong("Format specifier missing precision"), Ok)?);
    }
    let mut chars = rest.chars();
    f.kind = chars.next();
    match chars.next() {
        Some(_) => wrong("Invalid format specifier"),
        None => Ok(f),
    }
}

fn formatted(v: &Value, spec: &str) -> R<String> {
    if spec.is_empty() {
        return str_of(v);
    }
    let f = field_spec(spec)?;
    budget::spend(f.precision.unwrap_or(0))?;
    budget::scan(v.as_str().map_or(0, str::len))?;
    let is_number = as_float(v).is_some();
    if matches!(v, Value::Big(_)) || !is_number && v.as_str().is_none() {
        return wrong(format!("unsupported format string passed to {}.__format__", v.type_name()));
    }
    let unknown = || wrong(format!("Unknown format code '{}' for this type", f.kind.unwrap_or(' ')));
    let (sign, body) = if !is_number {
        if !matches!(f.kind, None | Some('s'))
            || f.comma.is_some()
            || !f.sign.is_empty()
            || f.align == Some('=')
        {
            return unknown();
        }
        let text = v.as_str().unwrap_or_default();
        ("", f.precision.map_or(text.to_owned(), |n| text.chars().take(n).collect()))
    } else {
        let float = |kind: char| -> R<(bool, String)> {
            let x = as_float(v).unwrap_or(0.0);
            Ok((
                x.is_sign_negative() && !x.is_nan(),
                float_form(x, kind, f.precision.unwrap_or(6), f.alternate),
            ))
        };
        let (negative, text) = match (f.kind, v) {
            (Some('c'), _) => match u32::try_from(int_arg(v)?).ok().and_then(char::from_u32) {
                Some(c) => (false, c.to_string()),
                None => return wrong("%c arg not in range(0x110000)"),
            },
            (None | Some('d' | 'n' | 'b' | 'o' | 'x' | 'X'), Value::Int(_) | Value::Bool(_)) => {
                if f.precision.is_some() {
                    return wrong("Precision not allowed in integer format specifier");
                }
                let i = int_arg(v)?;
                (i < 0, int_form(i, f.kind.unwrap_or('d'), f.alternate))
            }
            (Some(kind @ ('e' | 'E' | 'f' | 'F' | 'g' | 'G' | '%')), _) => float(kind)?,
            (None, Value::Float(x)) => match f.precision {
                Some(_) => return wrong("a precision without a type is not supported for floats"),
                None => {
                    let mut text = String::new();
                    super::float(x.abs(), &mut text);
                    (x.is_sign_negative() && !x.is_nan(), text)
                }
            },
            _ => return unknown(),
        };
        let text = match f.comma {
            Some(c) => with_commas(&text, c),
            None => text,
        };
        (sign_of(negative, f.sign), text)
    };
    let room = f.width.saturating_sub(body.chars().count() + sign.len());
    let run = |n: usize| std::iter::repeat_n(f.fill, n).collect::<String>();
    Ok(match f.align.unwrap_or(if is_number { '>' } else { '<' }) {
        '<' => format!("{sign}{body}{}", run(room)),
        '^' => format!("{}{sign}{body}{}", run(room / 2), run(room - room / 2)),
        '=' if f.comma.is_some() && f.fill == '0' => return wrong("zeros with commas are not supported"),
        '=' => format!("{sign}{}{body}", run(room)),
        _ => format!("{}{sign}{body}", run(room)),
    })
}

fn with_commas(text: &str, comma: char) -> String {
    let n = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let mut out = String::new();
    for (i, c) in text[..n].char_indices() {
        if i > 0 && (n - i) % 3 == 0 {
            out.push(comma);
        }
        out.push(c);
    }
    out + &text[n..]
}
