//! Implements Python's str.format: its fields, and the format specifications behind their colons.

use super::numbers::{float_form, int_form, small, Form};
use super::percent::{ascii, sign_of};
use super::text::{float, repr_of, str_of};
use crate::jinja::budget;
use crate::jinja::eval::{get_attr, get_item};
use crate::jinja::fail::{wrong, R};
use crate::jinja::number::{as_float, int_arg};
use crate::jinja::value::{Args, Value};

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
        budget::spend(6)?;
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
            "a" => Value::from(ascii(&repr_of(&value)?)?),
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

/// Holds the format specification of a field.
struct Field {
    fill: char,
    align: Option<char>,
    sign: &'static str,
    /// flag z: a value that rounds to zero has no sign
    no_minus_zero: bool,
    alternate: bool,
    /// the width begins with 0, so zeros fill the space between the sign and the number
    zeros: bool,
    width: usize,
    comma: Option<char>,
    precision: Option<usize>,
    kind: Option<char>,
}

fn field_spec(spec: &str) -> R<Field> {
    let is_align = |c: char| "<>=^".contains(c);
    let mut chars = spec.chars();
    let (fill, align, mut rest) = match (chars.next(), chars.next()) {
        (Some(fill), Some(align)) if is_align(align) => {
            (Some(fill), Some(align), &spec[fill.len_utf8() + 1..])
        }
        (Some(align), _) if is_align(align) => (None, Some(align), &spec[1..]),
        _ => (None, None, spec),
    };
    let skip = |rest: &mut &str, c: char| match rest.strip_prefix(c) {
        Some(behind) => {
            *rest = behind;
            true
        }
        None => false,
    };
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
    let sign = ["+", "-", " "].into_iter().find(|s| skip(&mut rest, s.chars().next().unwrap_or(' ')));
    let no_minus_zero = skip(&mut rest, 'z');
    let alternate = skip(&mut rest, '#');
    let zeros = fill.is_none() && skip(&mut rest, '0');
    let width = digits(&mut rest)?.unwrap_or(0);
    let comma = [',', '_'].into_iter().find(|c| skip(&mut rest, *c));
    let precision = match skip(&mut rest, '.') {
        true => Some(digits(&mut rest)?.map_or_else(|| wrong("Format specifier missing precision"), Ok)?),
        false => None,
    };
    let mut chars = rest.chars();
    let kind = chars.next();
    if chars.next().is_some() {
        return wrong("Invalid format specifier");
    }
    let fill = fill.unwrap_or(if zeros { '0' } else { ' ' });
    let sign = sign.unwrap_or("");
    Ok(Field { fill, align, sign, no_minus_zero, alternate, zeros, width, comma, precision, kind })
}

/// Holds a number, split into the parts that are written one after another. Separators are inserted into `integral`.
struct Number {
    negative: bool,
    prefix: String,
    integral: String,
    rest: String,
}

fn formatted(v: &Value, spec: &str) -> R<String> {
    if spec.is_empty() {
        return str_of(v);
    }
    let f = field_spec(spec)?;
    let is_number = as_float(v).is_some();
    if matches!(v, Value::Big(_)) || !is_number && v.as_str().is_none() {
        return wrong(format!("unsupported format string passed to {}.__format__", v.type_name()));
    }
    if is_number {
        return formatted_number(v, &f);
    }
    let text = v.as_str().unwrap_or_default();
    budget::scan(text.len())?;
    let is_numbers = f.comma.is_some() || !f.sign.is_empty() || f.no_minus_zero || f.alternate;
    if !matches!(f.kind, None | Some('s')) || is_numbers || f.align == Some('=') {
        return unknown(&f);
    }
    budget::room(text.len())?;
    laid_out("", &f.precision.map_or(text.to_owned(), |n| text.chars().take(n).collect()), &f, '<')
}

fn unknown<T>(f: &Field) -> R<T> {
    wrong(format!("Unknown format code '{}', or a flag that this code does not allow", f.kind.unwrap_or(' ')))
}

fn formatted_number(v: &Value, f: &Field) -> R<String> {
    let n = match (f.kind, v) {
        (None | Some('d' | 'n' | 'b' | 'o' | 'x' | 'X' | 'c'), Value::Int(_) | Value::Bool(_)) => {
            integer(int_arg(v)?, f)?
        }
        (Some('e' | 'E' | 'f' | 'F' | 'g' | 'G' | '%'), _) | (None | Some('n'), Value::Float(_)) => {
            real(as_float(v).unwrap_or(0.0), f)?
        }
        _ => return unknown(f),
    };
    let groups_of = if matches!(f.kind, Some('b' | 'o' | 'x' | 'X')) { 4 } else { 3 };
    let separates = f.kind != Some('n') && f.kind != Some('c') && (groups_of == 3 || f.comma == Some('_'));
    let sign = sign_of(n.negative, f.sign);
    let head = format!("{sign}{}", n.prefix);
    let align = if f.zeros { f.align.unwrap_or('=') } else { f.align.unwrap_or('>') };
    let body = match f.comma {
        None => n.integral,
        Some(_) if !separates => return unknown(f),
        Some(comma) => {
            let is_filled = f.fill == '0' && align == '=';
            let least = if is_filled { f.width.saturating_sub(head.len() + n.rest.len()) } else { 0 };
            separated(&n.integral, comma, groups_of, least)
        }
    };
    laid_out(&head, &(body + &n.rest), f, align)
}

fn integer(i: i128, f: &Field) -> R<Number> {
    if f.precision.is_some() || f.no_minus_zero {
        return wrong("neither a precision nor z is allowed in the format of an integer");
    }
    let none = String::new;
    if f.kind == Some('c') {
        return match u32::try_from(i).ok().and_then(char::from_u32) {
            _ if !f.sign.is_empty() || f.alternate => unknown(f),
            Some(c) => Ok(Number { negative: false, prefix: none(), integral: none(), rest: c.to_string() }),
            None => wrong("%c arg not in range(0x110000)"),
        };
    }
    let kind = f.kind.unwrap_or('d');
    let has_prefix = f.alternate && "boxX".contains(kind);
    let prefix = if has_prefix { format!("0{kind}") } else { none() };
    Ok(Number { negative: i < 0, prefix, integral: int_form(i, kind), rest: none() })
}

fn real(x: f64, f: &Field) -> R<Number> {
    let kind = match f.kind {
        None | Some('n') => 'g',
        Some(kind) => kind,
    };
    let text = match (f.kind, f.precision) {
        (None, None) => {
            budget::spend(10)?;
            let mut text = String::new();
            float(x.abs(), &mut text);
            match text.find('e') {
                Some(at) if f.alternate && !text.contains('.') => {
                    format!("{}.{}", &text[..at], &text[at..])
                }
                _ => text,
            }
        }
        (typed, precision) => {
            let (precision, untyped) = (precision.unwrap_or(6), typed.is_none());
            float_form(x, &Form { kind, precision, alternate: f.alternate, untyped })?
        }
    };
    let is_zero = || text.bytes().take_while(|b| !b"eE".contains(b)).all(|b| b"0.%".contains(&b));
    let negative = x.is_sign_negative() && !x.is_nan() && !(f.no_minus_zero && is_zero());
    let at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (integral, rest) = (text[..at].to_owned(), text[at..].to_owned());
    Ok(Number { negative, prefix: String::new(), integral, rest })
}

fn laid_out(head: &str, body: &str, f: &Field, align: char) -> R<String> {
    let align = f.align.unwrap_or(align);
    let room = f.width.saturating_sub(body.chars().count() + head.len());
    budget::room(head.len() + body.len() + room * f.fill.len_utf8())?;
    budget::spend(room / 16)?;
    let run = |n: usize| std::iter::repeat_n(f.fill, n).collect::<String>();
    Ok(match align {
        '<' => format!("{head}{body}{}", run(room)),
        '^' => format!("{}{head}{body}{}", run(room / 2), run(room - room / 2)),
        '=' => format!("{head}{}{body}", run(room)),
        _ => format!("{}{head}{body}", run(room)),
    })
}

/// Inserts separators into the digits, and pads them with zeros to a least length.
fn separated(digits: &str, comma: char, each: usize, least: usize) -> String {
    if digits.is_empty() {
        return String::new();
    }
    let mut n = digits.len();
    while n + (n - 1) / each < least {
        n += 1;
    }
    let mut out = String::new();
    for (i, c) in "0".repeat(n - digits.len()).chars().chain(digits.chars()).enumerate() {
        if i > 0 && (n - i) % each == 0 {
            out.push(comma);
        }
        out.push(c);
    }
    out
}
