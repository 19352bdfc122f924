//! Implements Python's methods of str, dict, list and numbers. They count characters, not bytes, and have Python's
//! arguments and errors. Methods that change a value are refused, as in the sandbox.

mod letters;
mod names;
mod padding;
mod search;

use super::budget;
use super::equal::eq;
use super::fail::{wrong, R};
use super::format;
use super::number::as_int;
use super::value::{Args, Dict, Kind, Value};
pub use letters::{ascii_digit, capitalize, is_lower, is_space, is_upper};
use letters::{casefold, is_what, swapcase, title};
pub use names::has;
use names::{KEEP_MARK, LOOKED_UP};
use padding::{expandtabs, pad, zfill};
pub use padding::{padded, width_arg};
use search::{bound, count, find, has_end, partition, replace, split, splitlines, str_arg, strip};
pub use search::{lines, replaced, strip_chars};

/// Characters that `escape` changes.
pub const TO_ESCAPE: [char; 5] = ['&', '<', '>', '\'', '"'];

pub fn call(of: &Value, name: &str, args: Args) -> R<Value> {
    match of {
        Value::Str(t) if t.0.markup && ["format", "format_map", "join", "replace"].contains(&name) => {
            wrong(format!("{name}() of escaped text is not supported"))
        }
        Value::Str(t) => {
            budget::room(t.0.s.len())?;
            let keeps_mark = t.0.markup && KEEP_MARK.contains(&name);
            let fill = args.pos.get(1).and_then(Value::as_str);
            let fills = t.0.markup && ["center", "ljust", "rjust"].contains(&name);
            if fills && fill.is_some_and(|f| f.contains(TO_ESCAPE)) {
                // The fill character of an escaped text is escaped as well, so it becomes several characters.
                return wrong("The fill character must be exactly one character long");
            }
            match name {
                "isprintable" => {
                    budget::letters(&t.0.s)?;
                    budget::spend(if t.0.s.is_ascii() { 0 } else { t.0.s.len() })?;
                }
                "casefold" => {
                    budget::letters(&t.0.s)?;
                    budget::spend(t.0.s.len() / 4)?;
                }
                _ if LOOKED_UP.contains(&name) || name.starts_with("is") => budget::letters(&t.0.s)?,
                "startswith" | "endswith" | "removeprefix" | "removesuffix" | "join" => {}
                _ => budget::scan(t.0.s.len())?,
            }
            let done = str_method(&t.0.s, name, args)?;
            if keeps_mark {
                done.marked_as(of)
            } else {
                Ok(done)
            }
        }
        Value::Dict(d) => dict_method(of, d, name, args),
        Value::List(_) | Value::Tuple(_) | Value::Range(..) => list_method(of, name, args),
        Value::Loop(l) => {
            let n = args.pos.len();
            match name {
                "cycle" if n == 0 => wrong("no items for cycling given"),
                "cycle" => Ok(args.pos[l.at.get() % n].clone()),
                _ => loop_changed(l, args.pos),
            }
        }
        Value::Cycler(c) => {
            args.none(name)?;
            let at = c.at.get();
            c.at.set(if name == "next" { (at + 1) % c.items.len() } else { 0 });
            Ok(if name == "next" { c.items[at].clone() } else { Value::None })
        }
        _ => number_method(of, name, args),
    }
}

fn loop_changed(l: &super::value::Loop, now: Vec<Value>) -> R<Value> {
    let mut before = l.changed.borrow_mut();
    let same = match before.as_ref() {
        Some(before) if before.len() == now.len() => {
            let mut same = true;
            for (a, b) in before.iter().zip(&now) {
                same = same && eq(a, b)?;
            }
            same
        }
        _ => false,
    };
    *before = Some(now);
    Ok(Value::Bool(!same))
}

fn number_method(of: &Value, name: &str, args: Args) -> R<Value> {
    args.none(name)?;
    match (name, as_int(of), of) {
        ("conjugate", Some(i), _) => Ok(Value::Int(i)),
        ("conjugate", _, Value::Float(f)) => Ok(Value::Float(*f)),
        ("is_integer", _, Value::Float(f)) => Ok(Value::Bool(f.is_finite() && f.fract() == 0.0)),
        ("bit_length", Some(i), _) => Ok(Value::Int((128 - i.unsigned_abs().leading_zeros()).into())),
        ("bit_count", Some(i), _) => Ok(Value::Int(i.unsigned_abs().count_ones().into())),
        _ => wrong(format!("{}.{name} is not supported", of.type_name())),
    }
}

fn dict_method(of: &Value, d: &std::rc::Rc<Dict>, name: &str, args: Args) -> R<Value> {
    if name == "get" {
        let [key, default] = args.bind("get", ["", ""], 1)?;
        let found = d.get(&key.unwrap_or(Value::None))?.cloned();
        return Ok(found.or(default).unwrap_or(Value::None));
    }
    if name == "fromkeys" {
        return wrong("dict.fromkeys is not supported");
    }
    args.none(name)?;
    budget::spend(2 * d.entries.len())?;
    budget::room(2 * d.entries.len() * size_of::<Value>())?;
    match name {
        "copy" => Ok(of.clone()),
        "keys" => Value::walk(d.entries.iter().map(|(k, _)| k.clone()).collect(), Kind::Keys),
        "values" => Value::walk(d.entries.iter().map(|(_, v)| v.clone()).collect(), Kind::Values),
        _ => {
            let pairs = d.entries.iter().map(|(k, v)| Value::tuple(vec![k.clone(), v.clone()]));
            Value::walk(pairs.collect::<R<_>>()?, Kind::Items)
        }
    }
}

fn list_method(of: &Value, name: &str, args: Args) -> R<Value> {
    if name == "copy" {
        args.none(name)?;
        return Ok(of.clone());
    }
    let items = of.iterate()?;
    if name == "count" {
        let [what] = args.bind("count", [""], 1)?;
        let (what, mut n) = (what.unwrap_or(Value::None), 0);
        for item in &items {
            n += i128::from(eq(item, &what)?);
        }
        return Ok(Value::Int(n));
    }
    let [what, start, stop] = args.bind("index", ["", "", ""], 1)?;
    let (what, n) = (what.unwrap_or(Value::None), items.len());
    let (from, to) = (bound(start, n, 0)?, bound(stop, n, n)?.min(n));
    for (i, item) in items.iter().enumerate().take(to).skip(from) {
        if eq(item, &what)? {
            return Ok(Value::from(i));
        }
    }
    wrong("the value is not in the list")
}

/// Implements Python's str.join.
pub fn joined(sep: &str, items: &[Value]) -> R<Value> {
    let mut n = 0usize;
    for (i, item) in items.iter().enumerate() {
        let Some(s) = item.as_str() else {
            return wrong(format!("sequence item {i}: expected str instance, {} found", item.type_name()));
        };
        n = n.saturating_add(s.len() + sep.len());
    }
    budget::room(n)?;
    budget::fits(n.saturating_add(items.len() * size_of::<&str>()))?;
    budget::spend(items.len() / 2)?;
    let parts: Vec<&str> = items.iter().filter_map(Value::as_str).collect();
    Ok(Value::from(parts.join(sep)))
}

fn str_method(text: &str, name: &str, args: Args) -> R<Value> {
    if name.starts_with("is") {
        return args.none(name).map(|()| Value::Bool(is_what(text, name)));
    }
    match name {
        "center" | "ljust" | "rjust" => pad(text, args, name),
        "count" => count(text, args),
        "endswith" | "startswith" => has_end(text, args, name),
        "expandtabs" => expandtabs(text, args),
        "find" | "rfind" | "index" | "rindex" => find(text, args, name),
        "format" => format::str_format(text, &args).map(Value::from),
        "format_map" => {
            let [map] = args.bind(name, [""], 1)?;
            match map {
                Some(Value::Dict(d)) => {
                    budget::spend(d.entries.len())?;
                    let bytes: usize = d.entries.iter().filter_map(|(k, _)| k.as_str()).map(str::len).sum();
                    budget::room(bytes + d.entries.len() * 2 * size_of::<Value>())?;
                    let kw = d.entries.iter().filter_map(|(k, v)| Some((k.as_str()?.to_owned(), v.clone())));
                    format::str_format(text, &Args { pos: vec![], kw: kw.collect() }).map(Value::from)
                }
                _ => wrong("format_map() wants a dict"),
            }
        }
        "join" => {
            let [items] = args.bind(name, [""], 1)?;
            joined(text, &items.unwrap_or(Value::None).iterate()?)
        }
        "lstrip" | "rstrip" | "strip" => strip(text, args, name),
        "partition" | "rpartition" => partition(text, args, name == "rpartition"),
        "removeprefix" | "removesuffix" => {
            let [what] = args.bind(name, [""], 1)?;
            let what = str_arg(&what, "the argument")?;
            let cut = if name == "removeprefix" { text.strip_prefix(what) } else { text.strip_suffix(what) };
            Ok(Value::from(cut.unwrap_or(text)))
        }
        "replace" => replace(text, args),
        "rsplit" | "split" => split(text, args, name == "rsplit"),
        "splitlines" => splitlines(text, args),
        "zfill" => zfill(text, args),
        "encode" | "maketrans" | "translate" => wrong(format!("str.{name} is not supported")),
        _ => {
            args.none(name)?;
            budget::room(3 * text.len())?;
            Ok(Value::from(match name {
                "capitalize" => capitalize(text),
                "casefold" => casefold(text),
                "lower" => text.to_lowercase(),
                "swapcase" => swapcase(text),
                "title" => title(text),
                _ => text.to_uppercase(),
            }))
        }
    }
}
