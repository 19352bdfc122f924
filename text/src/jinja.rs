//! What jinja2's filters and operators do that minijinja's do otherwise, or with fewer arguments.

use crate::python;
use crate::python_str;
use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};

fn wrong(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, what.into())
}

/// An argument by its place or by its name.
fn argument(at: Option<Value>, kwargs: &Kwargs, name: &str) -> Result<Option<Value>, Error> {
    Ok(match at {
        Some(v) => Some(v),
        None => kwargs.get::<Option<Value>>(name)?,
    })
}

/// int(value, default=0, base=10): a text is read as Python's int does, then as a float.
pub fn int(value: &Value, default: Option<Value>, base: Option<Value>, kwargs: Kwargs) -> Result<Value, Error> {
    let default = argument(default, &kwargs, "default")?.unwrap_or_else(|| Value::from(0));
    let base = argument(base, &kwargs, "base")?.map_or(Ok(10), u32::try_from)?;
    kwargs.assert_all_used()?;
    if let Some(text) = value.as_str() {
        let digits = text.trim_matches(python_str::is_space).replace('_', "");
        let (sign, digits) = match digits.strip_prefix('-') {
            Some(rest) => (-1, rest.to_owned()),
            None => (1, digits.strip_prefix('+').unwrap_or(&digits).to_owned()),
        };
        let digits = match base {
            16 => digits.trim_start_matches("0x").trim_start_matches("0X"),
            8 => digits.trim_start_matches("0o").trim_start_matches("0O"),
            2 => digits.trim_start_matches("0b").trim_start_matches("0B"),
            _ => &digits,
        };
        if (2..=36).contains(&base) {
            if let Ok(n) = i128::from_str_radix(digits, base) {
                return Ok(Value::from(sign * n));
            }
        }
        return Ok(match text.trim().parse::<f64>() {
            Ok(f) if f.is_finite() && f.abs() < 1e38 => Value::from(f.trunc() as i128),
            _ => default,
        });
    }
    Ok(match value.kind() {
        ValueKind::Bool => Value::from(i64::from(value.is_true())),
        ValueKind::Number if value.is_integer() => value.clone(),
        ValueKind::Number => match f64::try_from(value.clone()) {
            Ok(f) if f.is_finite() && f.abs() < 1e38 => Value::from(f.trunc() as i128),
            _ => default,
        },
        _ => default,
    })
}

/// float(value, default=0.0)
pub fn float(value: &Value, default: Option<Value>, kwargs: Kwargs) -> Result<Value, Error> {
    let default = argument(default, &kwargs, "default")?.unwrap_or_else(|| Value::from(0.0));
    kwargs.assert_all_used()?;
    Ok(match value.kind() {
        ValueKind::String => {
            let text = value.as_str().unwrap_or_default().trim_matches(python_str::is_space).replace('_', "");
            text.parse::<f64>().map_or(default, Value::from)
        }
        ValueKind::Bool => Value::from(if value.is_true() { 1.0 } else { 0.0 }),
        ValueKind::Number => f64::try_from(value.clone()).map_or(default, Value::from),
        _ => default,
    })
}

/// a.b.0: what jinja2's filters call an attribute.
fn attribute_of(value: &Value, path: &str) -> Result<Value, Error> {
    path.split('.').try_fold(value.clone(), |v, part| match part.parse::<i64>() {
        Ok(i) => v.get_item(&Value::from(i)),
        Err(_) => v.get_attr(part),
    })
}

/// join(value, d='', attribute=None)
pub fn join(value: &Value, d: Option<Value>, attribute: Option<Value>, kwargs: Kwargs) -> Result<String, Error> {
    let d = argument(d, &kwargs, "d")?.map_or_else(String::new, |d| python::str_of(&d));
    let attribute = argument(attribute, &kwargs, "attribute")?.filter(|a| !a.is_none());
    kwargs.assert_all_used()?;
    let mut out = String::new();
    if value.is_undefined() {
        return Ok(out);
    }
    for (i, item) in value.try_iter()?.enumerate() {
        out.push_str(if i > 0 { &d } else { "" });
        let item = match &attribute {
            Some(a) => attribute_of(&item, &python::str_of(a))?,
            None => item,
        };
        out.push_str(&python::str_of(&item));
    }
    Ok(out)
}

/// value % other: of a text its format, of numbers the rest with the sign of the divisor.
pub fn modulo(_state: &State, value: &Value, other: &Value) -> Result<Value, Error> {
    if let Some(text) = value.as_str() {
        return python_str::percent(text, other, python::str_of).map(Value::from);
    }
    if let (true, true) = (value.is_integer(), other.is_integer()) {
        let (a, b) = (i128::try_from(value.clone())?, i128::try_from(other.clone())?);
        if b == 0 {
            return Err(wrong("integer modulo by zero"));
        }
        return Ok(Value::from(((a % b) + b) % b));
    }
    let (a, b) = (f64::try_from(value.clone())?, f64::try_from(other.clone())?);
    if b == 0.0 {
        return Err(wrong("float modulo"));
    }
    Ok(Value::from(a - b * (a / b).floor()))
}

// ---- the operator % as a filter ----

#[derive(Clone, Copy, PartialEq, Debug)]
enum Token {
    Space,
    Text,
    Word,
    Open,
    Close,
    Percent,
    /// * / // and **, behind which % is the second of a chain
    Times,
    Dot,
    Pipe,
    Other,
}

/// The tokens of an expression: kind, and where each begins and ends.
fn tokens(code: &str) -> Vec<(Token, usize, usize)> {
    let (bytes, mut at, mut out) = (code.as_bytes(), 0, Vec::new());
    while at < bytes.len() {
        let from = at;
        let kind = match bytes[at] {
            b if b.is_ascii_whitespace() => {
                while at < bytes.len() && bytes[at].is_ascii_whitespace() {
                    at += 1;
                }
                Token::Space
            }
            quote @ (b'"' | b'\'') => {
                at += 1;
                while at < bytes.len() && bytes[at] != quote {
                    at += if bytes[at] == b'\\' { 2 } else { 1 };
                }
                at = (at + 1).min(bytes.len());
                Token::Text
            }
            b if b.is_ascii_alphanumeric() || b == b'_' || b >= 0x80 => {
                while at < bytes.len() && (bytes[at].is_ascii_alphanumeric() || bytes[at] == b'_' || bytes[at] >= 0x80) {
                    at += 1;
                }
                Token::Word
            }
            b'(' | b'[' | b'{' => { at += 1; Token::Open }
            b')' | b']' | b'}' => { at += 1; Token::Close }
            b'%' => { at += 1; Token::Percent }
            b'*' | b'/' => { at += 1; Token::Times }
            b'.' => { at += 1; Token::Dot }
            b'|' => { at += 1; Token::Pipe }
            _ => { at += 1; Token::Other }
        };
        while !code.is_char_boundary(at) {
            at += 1;
        }
        out.push((kind, from, at));
    }
    out
}

/// Words behind which an operand begins, and so no operator stands.
const OPERATORS: [&str; 9] = ["and", "or", "not", "in", "is", "if", "else", "set", "elif"];

/// The end of the operand that begins at token i: a value and what is called, indexed or filtered of it.
fn operand_end(code: &str, t: &[(Token, usize, usize)], mut i: usize) -> Option<usize> {
    let skip = |mut i: usize| {
        while t.get(i).is_some_and(|x| x.0 == Token::Space) {
            i += 1;
        }
        i
    };
    let bracket_end = |mut i: usize| -> Option<usize> {
        let mut depth = 0;
        loop {
            match t.get(i)?.0 {
                Token::Open => depth += 1,
                Token::Close => depth -= 1,
                _ => {}
            }
            i += 1;
            if depth == 0 {
                return Some(i);
            }
        }
    };
    i = skip(i);
    i = match t.get(i)?.0 {
        Token::Open => bracket_end(i)?,
        Token::Text | Token::Word if !OPERATORS.contains(&&code[t[i].1..t[i].2]) => i + 1,
        _ => return None,
    };
    loop {
        let next = skip(i);
        i = match t.get(next).map(|x| x.0) {
            Some(Token::Open) if next == i => bracket_end(i)?,
            Some(Token::Dot | Token::Pipe) => skip(next + 1) + 1,
            _ => return Some(i),
        };
    }
}

/// Where the operand begins that ends in front of token i; None: there is none, or it is the second of a
/// product, which is taken first.
fn operand_begin(code: &str, t: &[(Token, usize, usize)], i: usize) -> Option<usize> {
    (0..i).find(|&from| {
        let before = t[..from].iter().rev().find(|x| x.0 != Token::Space).map(|x| x.0);
        let is_start = !matches!(t[from].0, Token::Space)
            && !matches!(before, Some(Token::Dot | Token::Pipe | Token::Times | Token::Percent))
            && (from == 0 || t[from].0 != Token::Open || !is_postfix(code, t, from));
        let end = if is_start { operand_end(code, t, from) } else { None };
        end.is_some_and(|end| t[end..i].iter().all(|x| x.0 == Token::Space))
    })
}

/// A bracket right behind a value calls or indexes it.
fn is_postfix(code: &str, t: &[(Token, usize, usize)], at: usize) -> bool {
    match t[at - 1].0 {
        Token::Close | Token::Text => true,
        Token::Word => !OPERATORS.contains(&&code[t[at - 1].1..t[at - 1].2]),
        _ => false,
    }
}

fn rewrite(code: &str, filter: &str) -> Option<String> {
    let t = tokens(code);
    let at = t.iter().position(|x| x.0 == Token::Percent)?;
    let (from, end) = (operand_begin(code, &t, at)?, operand_end(code, &t, at + 1)?);
    let (left, right) = (&code[t[from].1..t[at].1], &code[t[at].2..t[end - 1].2]);
    let done = format!("({})|{filter}({})", left.trim(), right.trim());
    let rest = format!("{}{done}{}", &code[..t[from].1], &code[t[end - 1].2..]);
    Some(rewrite(&rest, filter).unwrap_or(rest))
}

/// `a % b` of each expression as `(a)|filter(b)`. Where a product is in front of it, numbers are meant,
/// and it stays. What is raw, a comment or text is as it is.
pub fn with_modulo(source: &str, filter: &str) -> String {
    let (mut out, mut rest, mut raw) = (String::with_capacity(source.len()), source, false);
    while let Some(at) = rest.find('{') {
        let close = match rest.as_bytes().get(at + 1) {
            Some(b'{') => "}}",
            Some(b'%') => "%}",
            Some(b'#') => "#}",
            _ => {
                out.push_str(&rest[..=at]);
                rest = &rest[at + 1..];
                continue;
            }
        };
        let Some(end) = end_of_tag(&rest[at + 2..], close) else { break };
        let (inner, tag_end) = (&rest[at + 2..at + 2 + end], at + 2 + end + 2);
        let word = inner.trim_matches(|c: char| c.is_whitespace() || c == '-' || c == '+');
        out.push_str(&rest[..at + 2]);
        match (close, raw) {
            ("#}", _) | (_, true) => out.push_str(inner),
            _ => out.push_str(&rewrite(inner, filter).unwrap_or_else(|| inner.to_owned())),
        }
        out.push_str(close);
        raw = (raw && word != "endraw") || (close == "%}" && word == "raw");
        rest = &rest[tag_end..];
    }
    out.push_str(rest);
    out
}

/// Where a tag's inside ends: behind all of its quoted texts.
fn end_of_tag(inner: &str, close: &str) -> Option<usize> {
    if close == "#}" {
        return inner.find(close);
    }
    let mut quote = None;
    let mut chars = inner.char_indices();
    while let Some((at, c)) = chars.next() {
        match (quote, c) {
            (Some(_), '\\') => {
                chars.next();
            }
            (Some(q), _) if q == c => quote = None,
            (None, '"' | '\'') => quote = Some(c),
            (None, _) if inner[at..].starts_with(close) => return Some(at),
            _ => {}
        }
    }
    None
}
