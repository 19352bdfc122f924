//! Python's methods of str as templates call them: by characters, whatever their bytes, with the
//! arguments and the errors that Python has. What is not here is no method of a Python string that a
//! template may call.

use minijinja::value::{from_args, Kwargs, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};

/// A padded or repeated text is bounded here; the whole output is elsewhere.
const MAX_WIDTH: i64 = 1 << 20;

type Answer = Result<Value, Error>;

fn wrong(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, what.into())
}

/// str.isspace, which counts four separators that Unicode's White_Space does not.
pub fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1C}'..='\u{1F}').contains(&c)
}

/// None and undefined are no argument.
fn given(v: Option<Value>) -> Option<Value> {
    v.filter(|v| !v.is_none() && !v.is_undefined())
}

// ---- places in a text, by characters ----

/// The part of the text from start to end, as slices have it, and how many characters lie before.
fn window(text: &str, start: Option<Value>, end: Option<Value>) -> Result<Option<(&str, usize)>, Error> {
    let n = text.chars().count() as i64;
    let place = |v: Option<Value>, default: i64| -> Result<i64, Error> {
        Ok(match given(v) {
            None => default,
            Some(v) => match i64::try_from(v)? {
                i if i < 0 => (i + n).max(0),
                i => i,
            },
        })
    };
    let (from, to) = (place(start, 0)?, place(end, n)?.min(n));
    if from > to {
        return Ok(None); // not even an empty text is found there
    }
    let byte = |i: i64| text.char_indices().nth(i as usize).map_or(text.len(), |(at, _)| at);
    Ok(Some((&text[byte(from)..byte(to)], from as usize)))
}

/// find, rfind: -1 where it is not.
fn find(text: &str, args: &[Value], last: bool) -> Result<i64, Error> {
    let (what, start, end): (&str, Option<Value>, Option<Value>) = from_args(args)?;
    let Some((part, before)) = window(text, start, end)? else { return Ok(-1) };
    let at = if last { part.rfind(what) } else { part.find(what) };
    Ok(at.map_or(-1, |at| (before + part[..at].chars().count()) as i64))
}

fn count(text: &str, args: &[Value]) -> Answer {
    let (what, start, end): (&str, Option<Value>, Option<Value>) = from_args(args)?;
    let Some((part, _)) = window(text, start, end)? else { return Ok(Value::from(0)) };
    let n = if what.is_empty() { part.chars().count() + 1 } else { part.matches(what).count() };
    Ok(Value::from(n))
}

/// startswith, endswith: of a text, or of any of a tuple.
fn has_end(text: &str, args: &[Value], at_end: bool) -> Answer {
    let (what, start, end): (Value, Option<Value>, Option<Value>) = from_args(args)?;
    let Some((part, _)) = window(text, start, end)? else { return Ok(Value::from(false)) };
    let has = |v: &Value| -> Result<bool, Error> {
        let one = v.as_str().ok_or_else(|| wrong("startswith and endswith take a str or a tuple of str"))?;
        Ok(if at_end { part.ends_with(one) } else { part.starts_with(one) })
    };
    if what.kind() == ValueKind::Seq {
        for one in what.try_iter()? {
            if has(&one)? {
                return Ok(Value::from(true));
            }
        }
        return Ok(Value::from(false));
    }
    has(&what).map(Value::from)
}

// ---- cutting ----

fn strip(text: &str, args: &[Value], left: bool, right: bool) -> Answer {
    let (chars,): (Option<Value>,) = from_args(args)?;
    let chars = given(chars);
    let chars = match &chars {
        Some(v) => Some(v.as_str().ok_or_else(|| wrong("strip arg must be None or str"))?),
        None => None,
    };
    let cut = |c: char| chars.map_or_else(|| is_space(c), |set| set.contains(c));
    let text = if left { text.trim_start_matches(cut) } else { text };
    Ok(Value::from(if right { text.trim_end_matches(cut) } else { text }))
}

/// At runs of white space, of which none is at an end; at most n times.
fn split_at_space(text: &str, n: i64, from_right: bool) -> Vec<&str> {
    let (mut out, mut rest) = (Vec::new(), text);
    loop {
        rest = if from_right { rest.trim_end_matches(is_space) } else { rest.trim_start_matches(is_space) };
        if rest.is_empty() {
            break;
        }
        let at = if from_right { rest.rfind(is_space) } else { rest.find(is_space) };
        let (Some(at), true) = (at, n < 0 || (out.len() as i64) < n) else {
            // what is left keeps its inner white space, and that at its other end goes
            out.push(if from_right { rest.trim_start_matches(is_space) } else { rest.trim_end_matches(is_space) });
            break;
        };
        let width = rest[at..].chars().next().map_or(0, char::len_utf8);
        if from_right {
            out.push(&rest[at + width..]);
            rest = &rest[..at];
        } else {
            out.push(&rest[..at]);
            rest = &rest[at + width..];
        }
    }
    if from_right {
        out.reverse();
    }
    out
}

fn split(text: &str, args: &[Value], from_right: bool) -> Answer {
    let (sep, max, kwargs): (Option<Value>, Option<Value>, Kwargs) = from_args(args)?;
    let sep = given(sep.or(kwargs.get::<Option<Value>>("sep")?));
    let max = given(max.or(kwargs.get::<Option<Value>>("maxsplit")?));
    kwargs.assert_all_used()?;
    let n = max.map_or(Ok(-1), i64::try_from)?;
    let parts: Vec<&str> = match &sep {
        None => split_at_space(text, n, from_right),
        Some(sep) => {
            let sep = sep.as_str().ok_or_else(|| wrong("split: the separator must be str or None"))?;
            if sep.is_empty() {
                return Err(wrong("empty separator"));
            }
            match (n, from_right) {
                (..0, _) => text.split(sep).collect(),
                (n, false) => text.splitn(n as usize + 1, sep).collect(),
                (n, true) => {
                    let mut parts: Vec<_> = text.rsplitn(n as usize + 1, sep).collect();
                    parts.reverse();
                    parts
                }
            }
        }
    };
    Ok(parts.into_iter().map(Value::from).collect())
}

fn partition(text: &str, args: &[Value], last: bool) -> Answer {
    let (sep,): (&str,) = from_args(args)?;
    if sep.is_empty() {
        return Err(wrong("empty separator"));
    }
    let found = if last { text.rsplit_once(sep) } else { text.split_once(sep) };
    let parts = match (found, last) {
        (Some((before, behind)), _) => [before, sep, behind],
        (None, false) => [text, "", ""],
        (None, true) => ["", "", text],
    };
    Ok(parts.into_iter().map(Value::from).collect())
}

fn splitlines(text: &str, args: &[Value]) -> Answer {
    let (keep, kwargs): (Option<bool>, Kwargs) = from_args(args)?;
    let keep = keep.or(kwargs.get::<Option<bool>>("keepends")?).unwrap_or(false);
    kwargs.assert_all_used()?;
    let ends = |c: char| "\n\r\u{b}\u{c}\u{1c}\u{1d}\u{1e}\u{85}\u{2028}\u{2029}".contains(c);
    let (mut out, mut rest) = (Vec::new(), text);
    while !rest.is_empty() {
        let at = rest.find(ends).unwrap_or(rest.len());
        let width = match &rest[at..] {
            end if end.starts_with("\r\n") => 2,
            end => end.chars().next().map_or(0, char::len_utf8),
        };
        out.push(Value::from(&rest[..if keep { at + width } else { at }]));
        rest = &rest[at + width..];
    }
    Ok(Value::from(out))
}

fn replace(text: &str, args: &[Value]) -> Answer {
    let (old, new, n, kwargs): (&str, &str, Option<Value>, Kwargs) = from_args(args)?;
    let n = given(n.or(kwargs.get::<Option<Value>>("count")?)).map_or(Ok(-1), i64::try_from)?;
    kwargs.assert_all_used()?;
    Ok(Value::from(if n < 0 { text.replace(old, new) } else { text.replacen(old, new, n as usize) }))
}

// ---- padding ----

fn pad(text: &str, args: &[Value], name: &str) -> Answer {
    let (width, fill): (i64, Option<&str>) = from_args(args)?;
    let mut fill = fill.unwrap_or(" ").chars();
    let (Some(c), None) = (fill.next(), fill.next()) else {
        return Err(wrong("The fill character must be exactly one character long"));
    };
    if width > MAX_WIDTH {
        return Err(wrong(format!("{name}: a width of {width} is too large")));
    }
    let n = text.chars().count() as i64;
    let room = (width - n).max(0);
    let left = match name {
        "ljust" => 0,
        "rjust" => room,
        _ => room / 2 + (room & width & 1),
    };
    let run = |n: i64| std::iter::repeat(c).take(n as usize).collect::<String>();
    Ok(Value::from(format!("{}{text}{}", run(left), run(room - left))))
}

fn zfill(text: &str, args: &[Value]) -> Answer {
    let (width,): (i64,) = from_args(args)?;
    if width > MAX_WIDTH {
        return Err(wrong(format!("zfill: a width of {width} is too large")));
    }
    let room = (width - text.chars().count() as i64).max(0) as usize;
    let (sign, digits) = match text.strip_prefix(['+', '-']) {
        Some(digits) => text.split_at(text.len() - digits.len()),
        None => ("", text),
    };
    Ok(Value::from(format!("{sign}{}{digits}", "0".repeat(room))))
}

fn expandtabs(text: &str, args: &[Value]) -> Answer {
    let (size,): (Option<i64>,) = from_args(args)?;
    let size = size.unwrap_or(8).clamp(0, 1000) as usize;
    let (mut out, mut column) = (String::new(), 0);
    for c in text.chars() {
        match c {
            '\t' if size > 0 => {
                let n = size - column % size;
                out.extend(std::iter::repeat(' ').take(n));
                column += n;
            }
            '\t' => {}
            '\n' | '\r' => {
                out.push(c);
                column = 0;
            }
            c => {
                out.push(c);
                column += 1;
            }
        }
    }
    Ok(Value::from(out))
}

// ---- letters ----

/// Each run of letters begins with a capital one.
fn title(text: &str) -> String {
    let (mut out, mut inside) = (String::new(), false);
    for c in text.chars() {
        match (c.is_alphabetic(), inside) {
            (true, true) => out.extend(c.to_lowercase()),
            (true, false) => out.extend(c.to_uppercase()),
            (false, _) => out.push(c),
        }
        inside = c.is_alphabetic();
    }
    out
}

fn capitalize(text: &str) -> String {
    let mut chars = text.chars();
    match chars.next() {
        Some(c) => c.to_uppercase().chain(chars.as_str().to_lowercase().chars()).collect(),
        None => String::new(),
    }
}

fn swapcase(text: &str) -> String {
    let swap = |c: char| -> String {
        match c.is_uppercase() {
            true => c.to_lowercase().collect(),
            false => c.to_uppercase().collect(),
        }
    };
    text.chars().map(swap).collect()
}

/// There is a cased letter, and each is as `wanted`.
fn is_cased(text: &str, wanted: fn(char) -> bool) -> bool {
    let cased = |c: &char| c.is_uppercase() || c.is_lowercase();
    text.chars().any(|c| cased(&c)) && text.chars().filter(cased).all(wanted)
}

fn is_title(text: &str) -> bool {
    text.chars().any(char::is_alphabetic) && title(text) == text
}

fn is_identifier(text: &str) -> bool {
    let mut chars = text.chars();
    chars.next().is_some_and(|c| c == '_' || c.is_alphabetic())
        && chars.all(|c| c == '_' || c.is_alphanumeric())
}

/// Of what the texts say about their characters: no empty text is any of it.
fn all(text: &str, of: fn(char) -> bool) -> bool {
    !text.is_empty() && text.chars().all(of)
}

fn is_printable(c: char) -> bool {
    c == ' ' || !(c.is_control() || c.is_whitespace() || c == '\u{ad}')
}

// ---- joining ----

fn join(text: &str, args: &[Value]) -> Answer {
    let (items,): (Value,) = from_args(args)?;
    let mut out = String::new();
    for (i, item) in items.try_iter()?.enumerate() {
        let one = item.as_str().ok_or_else(|| {
            wrong(format!("sequence item {i}: expected str instance, {} found", item.kind()))
        })?;
        out.push_str(if i > 0 { text } else { "" });
        out.push_str(one);
    }
    Ok(Value::from(out))
}

/// A method of str; None: there is none of that name here.
pub fn method(_state: &State, text: &str, name: &str, args: &[Value]) -> Option<Answer> {
    let none = |answer: Value| from_args::<()>(args).map(|()| answer);
    Some(match name {
        "capitalize" => none(Value::from(capitalize(text))),
        "casefold" | "lower" => none(Value::from(text.to_lowercase())),
        "center" | "ljust" | "rjust" => pad(text, args, name),
        "count" => count(text, args),
        "endswith" => has_end(text, args, true),
        "expandtabs" => expandtabs(text, args),
        "find" => find(text, args, false).map(Value::from),
        "index" | "rindex" => find(text, args, name == "rindex").and_then(|at| match at {
            -1 => Err(wrong("substring not found")),
            at => Ok(Value::from(at)),
        }),
        "isalnum" => none(Value::from(all(text, char::is_alphanumeric))),
        "isalpha" => none(Value::from(all(text, char::is_alphabetic))),
        "isascii" => none(Value::from(text.is_ascii())),
        "isdecimal" | "isdigit" | "isnumeric" => none(Value::from(all(text, char::is_numeric))),
        "isidentifier" => none(Value::from(is_identifier(text))),
        "islower" => none(Value::from(is_cased(text, char::is_lowercase))),
        "isprintable" => none(Value::from(text.chars().all(is_printable))),
        "isspace" => none(Value::from(all(text, is_space))),
        "istitle" => none(Value::from(is_title(text))),
        "isupper" => none(Value::from(is_cased(text, char::is_uppercase))),
        "join" => join(text, args),
        "lstrip" => strip(text, args, true, false),
        "partition" => partition(text, args, false),
        "removeprefix" => from_args::<(&str,)>(args).map(|(p,)| Value::from(text.strip_prefix(p).unwrap_or(text))),
        "removesuffix" => from_args::<(&str,)>(args).map(|(s,)| Value::from(text.strip_suffix(s).unwrap_or(text))),
        "replace" => replace(text, args),
        "rfind" => find(text, args, true).map(Value::from),
        "rpartition" => partition(text, args, true),
        "rsplit" => split(text, args, true),
        "rstrip" => strip(text, args, false, true),
        "split" => split(text, args, false),
        "splitlines" => splitlines(text, args),
        "startswith" => has_end(text, args, false),
        "strip" => strip(text, args, true, true),
        "swapcase" => none(Value::from(swapcase(text))),
        "title" => none(Value::from(title(text))),
        "upper" => none(Value::from(text.to_uppercase())),
        "zfill" => zfill(text, args),
        _ => return None,
    })
}

/// `text % values` as Python has it: %s, %r, %d, %i, %f, %g, %e, %x, %X, %o, %c and %%, with flags,
/// width and precision; values: a tuple, a mapping for %(name)s, or the one value.
pub fn percent(format: &str, values: &Value, str_of: fn(&Value) -> String) -> Result<String, Error> {
    let is_tuple = values.kind() == ValueKind::Seq;
    let mut items = if is_tuple { values.try_iter()?.collect::<Vec<_>>() } else { vec![values.clone()] }.into_iter();
    let (mut out, mut rest) = (String::new(), format);
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let mut value = None;
        if let Some(named) = rest.strip_prefix('(') {
            let (name, behind) = named.split_once(')').ok_or_else(|| wrong("incomplete format key"))?;
            value = Some(values.get_item(&Value::from(name))?);
            rest = behind;
        }
        let n_flags = rest.find(|c: char| !"#0- +".contains(c)).unwrap_or(rest.len());
        let (flags, behind) = rest.split_at(n_flags);
        let n_width = behind.find(|c: char| !c.is_ascii_digit()).unwrap_or(behind.len());
        let width: usize = behind[..n_width].parse().unwrap_or(0);
        let mut behind = &behind[n_width..];
        let mut precision = None;
        if let Some(digits) = behind.strip_prefix('.') {
            let n = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
            precision = Some(digits[..n].parse::<usize>().unwrap_or(0));
            behind = &digits[n..];
        }
        let kind = behind.chars().next().ok_or_else(|| wrong("incomplete format"))?;
        rest = &behind[kind.len_utf8()..];
        if width > MAX_WIDTH as usize || precision.is_some_and(|p| p > MAX_WIDTH as usize) {
            return Err(wrong("a width or a precision is too large"));
        }
        if kind == '%' {
            out.push('%');
            continue;
        }
        let value = match value {
            Some(v) => v,
            None => items.next().ok_or_else(|| wrong("not enough arguments for format string"))?,
        };
        let text = one_of(kind, flags, precision, &value, str_of)?;
        let room = " ".repeat(width.saturating_sub(text.chars().count()));
        match (flags.contains('-'), flags.contains('0') && !"srac".contains(kind)) {
            (true, _) => out.push_str(&(text + &room)),
            (false, true) => {
                let (sign, digits) = text.split_at(text.len() - text.trim_start_matches(['+', '-', ' ']).len());
                out.push_str(&format!("{sign}{}{digits}", room.replace(' ', "0")));
            }
            (false, false) => out.push_str(&(room + &text)),
        }
    }
    out.push_str(rest);
    if is_tuple && items.next().is_some() {
        return Err(wrong("not all arguments converted during string formatting"));
    }
    Ok(out)
}

fn one_of(
    kind: char,
    flags: &str,
    precision: Option<usize>,
    value: &Value,
    str_of: fn(&Value) -> String,
) -> Result<String, Error> {
    let signed = |text: String| match (text.starts_with('-'), flags.contains('+'), flags.contains(' ')) {
        (false, true, _) => format!("+{text}"),
        (false, false, true) => format!(" {text}"),
        _ => text,
    };
    let integer = || -> Result<i64, Error> {
        match i64::try_from(value.clone()) {
            Ok(i) => Ok(i),
            Err(_) => Ok(f64::try_from(value.clone())?.trunc() as i64),
        }
    };
    Ok(match kind {
        's' | 'a' => {
            let text = str_of(value);
            precision.map_or(text.clone(), |n| text.chars().take(n).collect())
        }
        'r' => crate::python::repr_of(value),
        'c' => str_of(value).chars().take(1).collect(),
        'd' | 'i' | 'u' => signed(integer()?.to_string()),
        'x' => signed(format!("{:x}", integer()?)),
        'X' => signed(format!("{:X}", integer()?)),
        'o' => signed(format!("{:o}", integer()?)),
        'f' | 'F' => signed(format!("{:.*}", precision.unwrap_or(6), f64::try_from(value.clone())?)),
        'e' | 'E' => {
            let text = format!("{:.*e}", precision.unwrap_or(6), f64::try_from(value.clone())?);
            let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
            let exponent: i32 = exponent.parse().unwrap_or(0);
            let sign = if exponent < 0 { '-' } else { '+' };
            signed(format!("{digits}{kind}{sign}{:02}", exponent.abs()))
        }
        'g' | 'G' => signed(crate::python::str_of(value)),
        kind => return Err(wrong(format!("unsupported format character '{kind}'"))),
    })
}
