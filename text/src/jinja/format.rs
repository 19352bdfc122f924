//! Python's ways of writing values: str, repr, % and str.format, json.dumps, HTML escapes.

use super::budget;
use super::eval::{get_attr, get_item};
use super::ops::{as_float, as_int, int_arg, item};
use super::value::{wrong, Args, Fail, Kind, Namespace, Value, R};
use std::fmt::Write;
use std::rc::Rc;

/// str(value)
pub fn str_of(v: &Value) -> R<String> {
    match v {
        Value::Str(t) => {
            budget::room(t.0.s.len())?;
            Ok(t.0.s.clone())
        }
        Value::Undefined(_) => Ok(String::new()),
        _ => repr_of(v),
    }
}

pub fn repr_of(v: &Value) -> R<String> {
    let mut out = String::new();
    repr(v, &mut out, &mut Vec::new())?;
    Ok(out)
}

/// Values within values whose repr is written.
const MAX_REPR: usize = 700;

/// Writes what a value is made of. A namespace may hold itself, or a list with itself in it: what is being
/// written already is `short` there, as in Python.
fn repr_within(
    it: *const (),
    short: &str,
    out: &mut String,
    open: &mut Vec<*const ()>,
    write: impl FnOnce(&mut String, &mut Vec<*const ()>) -> R<()>,
) -> R<()> {
    budget::spend(open.len() / 64)?;
    if open.contains(&it) {
        out.push_str(short);
        return Ok(());
    }
    if open.len() >= MAX_REPR {
        return Err(Fail::Limit(format!("the text of a value that is nested deeper than {MAX_REPR}")));
    }
    open.push(it);
    write(out, open)?;
    open.pop();
    Ok(())
}

fn repr_items(items: &[Value], out: &mut String, open: &mut Vec<*const ()>) -> R<()> {
    for (i, item) in items.iter().enumerate() {
        out.push_str(if i > 0 { ", " } else { "" });
        repr(item, out, open)?;
    }
    Ok(())
}

fn repr_namespace(n: &Rc<Namespace>, out: &mut String, open: &mut Vec<*const ()>) -> R<()> {
    out.push_str("<Namespace ");
    repr_within(Rc::as_ptr(n).cast(), "{...}", out, open, |out, open| {
        out.push('{');
        for (i, (k, v)) in n.attrs.borrow().iter().enumerate() {
            out.push_str(if i > 0 { ", " } else { "" });
            budget::fits(out.len() + 2 * k.len())?;
            budget::spend(1 + k.len() / 8)?;
            repr_str(k, out);
            out.push_str(": ");
            repr(v, out, open)?;
        }
        out.push('}');
        Ok(())
    })?;
    out.push('>');
    Ok(())
}

fn repr(v: &Value, out: &mut String, open: &mut Vec<*const ()>) -> R<()> {
    budget::spend(1)?;
    budget::fits(out.len())?;
    match v {
        Value::Undefined(_) => out.push_str("Undefined"),
        Value::None => out.push_str("None"),
        Value::Bool(b) => out.push_str(if *b { "True" } else { "False" }),
        Value::Int(i) => drop(write!(out, "{i}")),
        Value::Big(digits) => out.push_str(digits),
        Value::Float(f) => float(*f, out),
        Value::Str(t) => {
            budget::fits(out.len() + 2 * t.0.s.len())?;
            budget::spend(t.0.s.len() / 8)?;
            if t.0.markup {
                out.push_str("Markup(");
            }
            repr_str(&t.0.s, out);
            out.push_str(if t.0.markup { ")" } else { "" });
        }
        Value::List(items) => {
            repr_within(Rc::as_ptr(items).cast(), "[...]", out, open, |out, open| {
                out.push('[');
                repr_items(&items.v, out, open)?;
                out.push(']');
                Ok(())
            })?;
        }
        Value::Tuple(items) => {
            repr_within(Rc::as_ptr(items).cast(), "(...)", out, open, |out, open| {
                out.push('(');
                repr_items(&items.v, out, open)?;
                out.push_str(if items.v.len() == 1 { ",)" } else { ")" });
                Ok(())
            })?;
        }
        Value::Dict(d) => {
            repr_within(Rc::as_ptr(d).cast(), "{...}", out, open, |out, open| {
                out.push('{');
                for (i, (k, v)) in d.entries.iter().enumerate() {
                    out.push_str(if i > 0 { ", " } else { "" });
                    repr(k, out, open)?;
                    out.push_str(": ");
                    repr(v, out, open)?;
                }
                out.push('}');
                Ok(())
            })?;
        }
        Value::Range(start, stop, 1) => drop(write!(out, "range({start}, {stop})")),
        Value::Range(start, stop, step) => drop(write!(out, "range({start}, {stop}, {step})")),
        Value::Iter(w) if w.kind != Kind::Generator => {
            repr_within(Rc::as_ptr(&w.items).cast(), "...", out, open, |out, open| {
                out.push_str(v.type_name());
                out.push_str("([");
                repr_items(&w.items.v, out, open)?;
                out.push_str("])");
                Ok(())
            })?;
        }
        Value::Namespace(n) => repr_namespace(n, out, open)?,
        Value::Macro(m) => {
            out.push_str("<Macro ");
            repr_str(&m.def.name, out);
            out.push('>');
        }
        Value::Loop(l) => drop(write!(out, "<LoopContext {}/{}>", l.at.get() + 1, l.items.len())),
        // Python writes the place in memory of these, which is no text that anybody wants.
        Value::Iter(_) => return wrong("a generator has no text: put |list or |join behind it"),
        Value::Method(m) => return wrong(format!("{} is a method: it has no text; call it with ()", m.name)),
        Value::Func("self") => return wrong("self is not supported"),
        Value::Func(name) => return wrong(format!("{name} is a function: it has no text; call it with ()")),
        _ => return wrong(format!("a {} has no text", v.type_name())),
    }
    Ok(())
}

/// str.isprintable: neither a control, nor unassigned, nor white space other than the blank. Rust's
/// debug form escapes the same, but for what joins a character before it.
pub fn is_printable(c: char) -> bool {
    match c {
        ' '..='~' => true,
        c if c.is_ascii() => false,
        c => !format!("a{c}").escape_debug().skip(1).next().is_some_and(|c| c == '\\'),
    }
}

fn repr_str(text: &str, out: &mut String) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => out.extend(['\\', c]),
            c if is_printable(c) => out.push(c),
            c => drop(match c as u32 {
                code @ ..=0xFF => write!(out, "\\x{code:02x}"),
                code @ ..=0xFFFF => write!(out, "\\u{code:04x}"),
                code => write!(out, "\\U{code:08x}"),
            }),
        }
    }
    out.push(quote);
}

/// repr(float): the shortest digits, an exponent below 1e-4 and from 1e16 on.
pub fn float(f: f64, out: &mut String) {
    if f.is_nan() {
        return out.push_str("nan");
    }
    if f.is_infinite() {
        return out.push_str(if f > 0.0 { "inf" } else { "-inf" });
    }
    let scientific = format!("{f:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) {
        let plain = format!("{f}");
        out.push_str(&plain);
        if !plain.contains('.') {
            out.push_str(".0");
        }
        return;
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    let _ = write!(out, "{digits}e{sign}{:02}", exponent.abs());
}

/// Markup's escapes.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\'' => out.push_str("&#39;"),
            '"' => out.push_str("&#34;"),
            c => out.push(c),
        }
    }
    out
}

// ---- numbers with a format ----

/// digits and exponent of |f| with so many digits behind the first
fn exponent_form(f: f64, precision: usize, kind: char) -> String {
    let text = format!("{:.*e}", precision, f.abs());
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}{kind}{sign}{:02}", exponent.abs())
}

/// |f| as e, f, g or % have it, without its sign.
fn float_form(f: f64, kind: char, precision: usize, alternate: bool) -> String {
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

fn int_form(i: i128, kind: char, alternate: bool) -> String {
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
const MOST_WIDE: usize = 65_535;

fn small(text: &str) -> R<usize> {
    match text.parse::<usize>() {
        Ok(n) if n <= MOST_WIDE => Ok(n),
        _ => wrong(format!("a width or a precision above {MOST_WIDE} is not supported")),
    }
}

// ---- % ----

struct Spec<'a> {
    flags: &'a str,
    width: usize,
    precision: Option<usize>,
    kind: char,
}

/// `text % values` as Python has it; values: a tuple, a mapping for %(name)s, or the one value.
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

/// One conversion of %.
fn one(spec: &Spec, v: &Value, out: &mut String) -> R<()> {
    let alternate = spec.flags.contains('#');
    if !"sra".contains(spec.kind) {
        // Digits are made, so many of them.
        budget::fits(out.len().saturating_add(spec.precision.unwrap_or(0)))?;
        budget::spend(spec.precision.unwrap_or(0))?;
    }
    let (negative, text) = match spec.kind {
        's' | 'r' | 'a' => {
            let text = match spec.kind {
                's' => str_of(v)?,
                'r' => repr_of(v)?,
                _ => ascii(&repr_of(v)?),
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
            let digits = int_form(i, spec.kind, false);
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
                let text = float_form(f, spec.kind, spec.precision.unwrap_or(6), alternate);
                (f.is_sign_negative() && !f.is_nan(), text)
            }
            None => return wrong(format!("must be real number, not {}", v.type_name())),
        },
        kind => return wrong(format!("unsupported format character '{kind}'")),
    };
    pad(&text, sign_of(negative, spec.flags), spec, true, out)
}

fn sign_of(negative: bool, flags: &str) -> &'static str {
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

fn ascii(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c as u32 {
            ..=0x7F => out.push(c),
            code @ ..=0xFF => drop(write!(out, "\\x{code:02x}")),
            code @ ..=0xFFFF => drop(write!(out, "\\u{code:04x}")),
            code => drop(write!(out, "\\U{code:08x}")),
        }
    }
    out
}

// ---- str.format ----

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
                    self::float(x.abs(), &mut text);
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
