//! jinja2's filters and tests, by their own names, arguments and defaults.

use super::ast::{Cmp, Op};
use super::budget;
use super::eval::Eval;
use super::format::{self, repr_of, str_of};
use super::json;
use super::methods::{self, width_arg};
use super::ops::{self, as_float, as_int, compare, eq, int_arg, order, sort_by_key};
use super::value::{not_str, wrong, Args, Kind, Value, R};
use super::wrap;
use std::cmp::Ordering;

pub const FILTERS: [&str; 54] = [
    "abs",
    "attr",
    "batch",
    "capitalize",
    "center",
    "count",
    "d",
    "default",
    "dictsort",
    "e",
    "escape",
    "filesizeformat",
    "first",
    "float",
    "forceescape",
    "format",
    "groupby",
    "indent",
    "int",
    "join",
    "last",
    "length",
    "list",
    "lower",
    "items",
    "map",
    "min",
    "max",
    "pprint",
    "random",
    "reject",
    "rejectattr",
    "replace",
    "reverse",
    "round",
    "safe",
    "select",
    "selectattr",
    "slice",
    "sort",
    "string",
    "striptags",
    "sum",
    "title",
    "trim",
    "truncate",
    "unique",
    "upper",
    "urlencode",
    "urlize",
    "wordcount",
    "wordwrap",
    "xmlattr",
    "tojson",
];
pub const TESTS: [&str; 39] = [
    "odd",
    "even",
    "divisibleby",
    "defined",
    "undefined",
    "filter",
    "test",
    "none",
    "boolean",
    "false",
    "true",
    "integer",
    "float",
    "lower",
    "upper",
    "string",
    "mapping",
    "number",
    "sequence",
    "iterable",
    "callable",
    "sameas",
    "escaped",
    "in",
    "==",
    "eq",
    "equalto",
    "!=",
    "ne",
    ">",
    "gt",
    "greaterthan",
    "ge",
    ">=",
    "<",
    "lt",
    "lessthan",
    "<=",
    "le",
];

fn lowered(v: &Value) -> R<Value> {
    budget::scan(v.as_str().map_or(0, str::len))?;
    Ok(match v {
        Value::Str(t) if !t.0.s.bytes().all(|b| !b.is_ascii_uppercase() && b.is_ascii()) => {
            budget::room(3 * t.0.s.len())?;
            Value::from(t.0.s.to_lowercase())
        }
        v => v.clone(),
    })
}

/// a.b.0 of a value, as attribute arguments of filters have it.
pub fn attribute(v: &Value, path: &Value, default: Option<&Value>) -> R<Value> {
    let step = |v: &Value, key: &Value| -> R<Value> {
        let found = super::eval::get_item(v, key)?;
        Ok(match default {
            Some(d) if found.is_undefined() && !d.is_none() => d.clone(),
            _ => found,
        })
    };
    let Some(path) = path.as_str() else {
        return if path.is_none() { Ok(v.clone()) } else { step(v, path) };
    };
    let mut v = v.clone();
    budget::scan(path.len())?;
    for part in path.split('.') {
        budget::spend(1)?;
        v = step(
            &v,
            &match part.parse::<i128>() {
                Ok(i) if part.bytes().all(|b| b.is_ascii_digit()) => Value::Int(i),
                _ => Value::from(part),
            },
        )?;
    }
    Ok(v)
}

fn is_set(v: &Option<Value>) -> bool {
    v.as_ref().is_some_and(Value::truth)
}

fn text_arg(v: Option<Value>, default: &str) -> R<String> {
    v.as_ref().map_or_else(|| Ok(default.to_owned()), str_of)
}

impl Eval<'_> {
    pub fn filter(&mut self, name: &str, v: &Value, args: Args) -> R<Value> {
        budget::spend(1)?;
        match name {
            "default" | "d" => {
                let [default, boolean] = args.bind(name, ["default_value", "boolean"], 0)?;
                let gone = v.is_undefined() || is_set(&boolean) && !v.truth();
                Ok(if gone { default.unwrap_or_else(|| Value::from("")) } else { v.clone() })
            }
            "map" => self.map(v, args),
            "select" | "reject" | "selectattr" | "rejectattr" => self.select(name, v, args),
            "attr" => {
                let [attr] = args.bind(name, ["name"], 1)?;
                match attr.as_ref().and_then(Value::as_str) {
                    Some(attr) => super::eval::get_attr_only(v, attr),
                    None => wrong("attribute name must be string"),
                }
            }
            "tojson" => json::tojson(v, args),
            "join" => {
                let [d, attr] = args.bind(name, ["d", "attribute"], 0)?;
                let attr = attr.filter(|a| !a.is_none());
                let mut parts = Vec::new();
                for item in v.iterate()? {
                    let item =
                        attr.as_ref().map_or_else(|| Ok(item.clone()), |a| attribute(&item, a, None))?;
                    parts.push(if item.as_str().is_some() { item } else { Value::from(str_of(&item)?) });
                }
                methods::joined(&text_arg(d, "")?, &parts)
            }
            "batch" | "dictsort" | "first" | "groupby" | "items" | "last" | "length" | "count" | "list"
            | "max" | "min" | "reverse" | "slice" | "sort" | "sum" | "unique" => lists(name, v, args),
            "abs" | "filesizeformat" | "float" | "int" | "round" => numbers(name, v, args),
            _ => texts(name, v, args),
        }
    }

    fn map(&mut self, v: &Value, mut args: Args) -> R<Value> {
        if !v.truth() {
            return Value::generator(vec![]);
        }
        let mut out = Vec::new();
        if args.pos.is_empty() && args.kw.iter().any(|(n, _)| n == "attribute") {
            let [attr, default] = args.bind("map", ["attribute", "default"], 0)?;
            let attr = attr.unwrap_or(Value::None);
            for item in v.iterate()? {
                out.push(attribute(&item, &attr, default.as_ref())?);
            }
            return Value::generator(out);
        }
        if args.pos.is_empty() {
            return wrong("map requires a filter argument");
        }
        let name = args.pos.remove(0);
        let Some(name) = name.as_str() else { return wrong("map requires the name of a filter") };
        for item in v.iterate()? {
            out.push(self.filter(name, &item, Args { pos: args.pos.clone(), kw: args.kw.clone() })?);
        }
        Value::generator(out)
    }

    fn select(&mut self, how: &str, v: &Value, mut args: Args) -> R<Value> {
        if !v.truth() {
            return Value::generator(vec![]);
        }
        let attr = match how.ends_with("attr") {
            true if args.pos.is_empty() => return wrong("Missing parameter for attribute name"),
            true => Some(args.pos.remove(0)),
            false => None,
        };
        let test = if args.pos.is_empty() { None } else { Some(args.pos.remove(0)) };
        let wanted = how.starts_with("select");
        let mut out = Vec::new();
        for item in v.iterate()? {
            let of = attr.as_ref().map_or_else(|| Ok(item.clone()), |a| attribute(&item, a, None))?;
            let found = match test.as_ref() {
                None => of.truth(),
                Some(Value::Str(t)) => {
                    self.test(&t.0.s, &of, Args { pos: args.pos.clone(), kw: args.kw.clone() })?
                }
                Some(_) => return wrong("the name of a test must be a text"),
            };
            if found == wanted {
                out.push(item);
            }
        }
        Value::generator(out)
    }

    pub fn test(&mut self, name: &str, v: &Value, args: Args) -> R<bool> {
        budget::spend(1)?;
        let cmp = match name {
            "==" | "eq" | "equalto" => Some(Cmp::Eq),
            "!=" | "ne" => Some(Cmp::Ne),
            ">" | "gt" | "greaterthan" => Some(Cmp::Gt),
            ">=" | "ge" => Some(Cmp::Ge),
            "<" | "lt" | "lessthan" => Some(Cmp::Lt),
            "<=" | "le" => Some(Cmp::Le),
            "in" => Some(Cmp::In),
            _ => None,
        };
        if let Some(cmp) = cmp {
            let names = [if name == "in" { "seq" } else { "" }];
            let [other] = args.bind(name, names, 1)?;
            return compare(cmp, v, &other.unwrap_or(Value::None));
        }
        if name == "divisibleby" || name == "sameas" {
            let [other] = args.bind(name, [if name == "sameas" { "other" } else { "num" }], 1)?;
            let other = other.unwrap_or(Value::None);
            return match name {
                "sameas" => same(v, &other),
                _ => eq(&ops::binary(Op::Mod, v, &other)?, &Value::Int(0)),
            };
        }
        args.none(name)?;
        is(name, v)
    }
}

fn is(name: &str, v: &Value) -> R<bool> {
    Ok(match name {
        "odd" => eq(&ops::binary(Op::Mod, v, &Value::Int(2))?, &Value::Int(1))?,
        "even" => eq(&ops::binary(Op::Mod, v, &Value::Int(2))?, &Value::Int(0))?,
        "defined" => !v.is_undefined(),
        "undefined" => v.is_undefined(),
        "filter" | "test" => match v {
            Value::List(_) | Value::Dict(_) => return wrong(format!("unhashable type: '{}'", v.type_name())),
            _ if name == "test" => v.as_str().is_some_and(|n| TESTS.contains(&n)),
            _ => v.as_str().is_some_and(|n| FILTERS.contains(&n)),
        },
        "none" => v.is_none(),
        "boolean" => matches!(v, Value::Bool(_)),
        "false" => matches!(v, Value::Bool(false)),
        "true" => matches!(v, Value::Bool(true)),
        "integer" => matches!(v, Value::Int(_) | Value::Big(_)),
        "float" => matches!(v, Value::Float(_)),
        "lower" | "upper" => {
            let text = str_of(v)?;
            budget::letters(&text)?;
            if name == "lower" {
                methods::is_lower(&text)
            } else {
                methods::is_upper(&text)
            }
        }
        "string" => v.as_str().is_some(),
        "mapping" => matches!(v, Value::Dict(_)),
        "number" => matches!(v, Value::Bool(_) | Value::Int(_) | Value::Big(_) | Value::Float(_)),
        "sequence" => {
            matches!(
                v,
                Value::Undefined(_) | Value::Str(_) | Value::List(_) | Value::Tuple(_) | Value::Dict(_)
            ) || matches!(v, Value::Range(..))
        }
        "iterable" => {
            v.as_str().is_some() || v.len().is_some() || matches!(v, Value::Iter(_) | Value::Loop(_))
        }
        "callable" => matches!(
            v,
            Value::Undefined(_)
                | Value::Method(_)
                | Value::Macro(_)
                | Value::Func(_)
                | Value::Joiner(_)
                | Value::Loop(_)
        ),
        "escaped" => v.is_markup(),
        _ => return wrong(format!("No test named '{name}'.")),
    })
}

/// `is`: of what Python has once (none, booleans, small numbers), by value; of the rest by place.
fn same(a: &Value, b: &Value) -> R<bool> {
    use std::rc::Rc;
    Ok(match (a, b) {
        (Value::None, Value::None) => true,
        (Value::Bool(x), Value::Bool(y)) => x == y,
        (Value::Int(x), Value::Int(y)) if x == y => match (-5..=256).contains(x) {
            true => true,
            false => return wrong("sameas of large integers is not supported"),
        },
        (Value::Str(x), Value::Str(y)) if x.0.s.len() == y.0.s.len() && !Rc::ptr_eq(&x.0, &y.0) => {
            budget::glance(x.0.s.len())?;
            match x.0.s == y.0.s {
                true => return wrong("sameas of texts is not supported"),
                false => false,
            }
        }
        (Value::Str(x), Value::Str(y)) => match Rc::ptr_eq(&x.0, &y.0) || x.0.s != y.0.s {
            true => x.0.s == y.0.s,
            false => return wrong("sameas of texts is not supported"),
        },
        (Value::List(x), Value::List(y)) | (Value::Tuple(x), Value::Tuple(y)) => Rc::ptr_eq(x, y),
        (Value::Dict(x), Value::Dict(y)) => Rc::ptr_eq(x, y),
        (Value::Namespace(x), Value::Namespace(y)) => Rc::ptr_eq(x, y),
        (Value::Undefined(_), Value::Undefined(_)) | (Value::Float(_), Value::Float(_)) => {
            return wrong("sameas of these is not supported")
        }
        _ => false,
    })
}

// ---- lists ----

fn lists(name: &str, v: &Value, args: Args) -> R<Value> {
    match name {
        "length" | "count" => {
            args.none(name)?;
            v.length().map(Value::from)
        }
        "first" => {
            args.none(name)?;
            first(v)
        }
        "last" => {
            args.none(name)?;
            match v {
                Value::Iter(w) if w.kind == Kind::Generator => wrong("'generator' object is not reversible"),
                _ => Ok(v
                    .iterate()?
                    .pop()
                    .unwrap_or_else(|| Value::undefined("No last item, sequence was empty."))),
            }
        }
        "list" => {
            args.none(name)?;
            Value::list(v.iterate()?)
        }
        "items" => {
            args.none(name)?;
            match v {
                Value::Undefined(_) => Value::generator(vec![]),
                Value::Dict(_) => {
                    let pairs = methods::call(v, "items", Args::default())?;
                    Value::generator(pairs.iterate()?)
                }
                _ => wrong("Can only get item pairs from a mapping."),
            }
        }
        "reverse" => args.none(name).and_then(|()| reverse(v)),
        "sort" => sort(v, args),
        "dictsort" => dictsort(v, args),
        "groupby" => groupby(v, args),
        "min" | "max" | "unique" => extremes(name, v, args),
        "sum" => {
            let [attr, start] = args.bind(name, ["attribute", "start"], 0)?;
            let mut sum = start.unwrap_or(Value::Int(0));
            if sum.as_str().is_some() {
                return wrong("sum() can't sum strings [use ''.join(seq) instead]");
            }
            for item in v.iterate()? {
                let item = attr.as_ref().map_or_else(|| Ok(item.clone()), |a| attribute(&item, a, None))?;
                sum = ops::binary(Op::Add, &sum, &item)?;
            }
            Ok(sum)
        }
        _ => chunks(name, v, args),
    }
}

fn first(v: &Value) -> R<Value> {
    let none = || Value::undefined("No first item, sequence was empty.");
    if let Value::Iter(w) = v {
        if w.kind == Kind::Generator {
            let at = w.at.get();
            w.at.set((at + 1).min(w.items.v.len()));
            return Ok(w.items.v.get(at).cloned().unwrap_or_else(none));
        }
    }
    match v {
        Value::Str(t) => Ok(t.0.s.chars().next().map_or_else(none, |c| Value::from(c.to_string()))),
        _ => Ok(v.iterate()?.into_iter().next().unwrap_or_else(none)),
    }
}

fn reverse(v: &Value) -> R<Value> {
    match v {
        Value::Str(t) => {
            budget::room(t.0.s.len())?;
            budget::scan(t.0.s.len())?;
            Ok(Value::from(t.0.s.chars().rev().collect::<String>()))
        }
        _ => {
            let mut items = v.iterate()?;
            items.reverse();
            match v {
                Value::Undefined(_) => Value::list(items),
                Value::Iter(w) if w.kind == Kind::Generator => Value::list(items),
                _ => Value::generator(items),
            }
        }
    }
}

fn sort(v: &Value, args: Args) -> R<Value> {
    let names = ["reverse", "case_sensitive", "attribute"];
    let [reverse, sensitive, attr] = args.bind("sort", names, 0)?;
    let paths: Vec<Value> = match attr.as_ref().and_then(Value::as_str) {
        Some(list) => {
            budget::spend(list.len())?;
            budget::room(list.len() * (size_of::<Value>() + budget::OVERHEAD))?;
            list.split(',').map(Value::from).collect()
        }
        None => vec![attr.unwrap_or(Value::None)],
    };
    Value::list(sort_by_key(v.iterate()?, is_set(&reverse), |item| {
        let part = |p: &Value| attribute(item, p, None);
        let keys = paths.iter().map(|p| if is_set(&sensitive) { part(p) } else { lowered(&part(p)?) });
        Value::list(keys.collect::<R<_>>()?)
    })?)
}

fn dictsort(v: &Value, args: Args) -> R<Value> {
    let [sensitive, by, reverse] = args.bind("dictsort", ["case_sensitive", "by", "reverse"], 0)?;
    let at = match text_arg(by, "key")?.as_str() {
        "key" => 0,
        "value" => 1,
        _ => return wrong("You can only sort by either \"key\" or \"value\""),
    };
    if !matches!(v, Value::Dict(_)) {
        return wrong(format!("'{}' object has no attribute 'items'", v.type_name()));
    }
    let pairs = methods::call(v, "items", Args::default())?.iterate()?;
    Value::list(sort_by_key(pairs, is_set(&reverse), |pair| {
        let key = ops::item(pair, &Value::Int(at))?.unwrap_or(Value::None);
        if is_set(&sensitive) {
            Ok(key)
        } else {
            lowered(&key)
        }
    })?)
}

fn groupby(v: &Value, args: Args) -> R<Value> {
    let [attr, default, sensitive] = args.bind("groupby", ["attribute", "default", "case_sensitive"], 1)?;
    let attr = attr.unwrap_or(Value::None);
    let whole = |item: &Value| attribute(item, &attr, default.as_ref());
    let key = |item: &Value| if is_set(&sensitive) { whole(item) } else { lowered(&whole(item)?) };
    let mut groups: Vec<(Value, Vec<Value>)> = Vec::new();
    for item in sort_by_key(v.iterate()?, false, key)? {
        let k = key(&item)?;
        match groups.last_mut() {
            Some((last, items)) if eq(last, &k)? => items.push(item),
            _ => groups.push((k, vec![item])),
        }
    }
    let mut out = Vec::new();
    for (_, items) in groups {
        out.push(Value::tuple(vec![whole(&items[0])?, Value::list(items)?])?);
    }
    Value::list(out)
}

fn extremes(name: &str, v: &Value, args: Args) -> R<Value> {
    let [sensitive, attr] = args.bind(name, ["case_sensitive", "attribute"], 0)?;
    let attr = attr.unwrap_or(Value::None);
    let key = |item: &Value| -> R<Value> {
        let of = attribute(item, &attr, None)?;
        if is_set(&sensitive) {
            Ok(of)
        } else {
            lowered(&of)
        }
    };
    let items = v.iterate()?;
    if name == "unique" {
        let (mut seen, mut texts) = (Vec::new(), std::collections::HashSet::new());
        let mut out = Vec::new();
        for item in items {
            let k = key(&item)?;
            let new = match &k {
                Value::Str(t) => {
                    budget::scan(t.0.s.len())?;
                    texts.insert(t.clone())
                }
                Value::List(_) | Value::Dict(_) => {
                    return wrong(format!("unhashable type: '{}'", k.type_name()))
                }
                k => {
                    let mut new = true;
                    for s in &seen {
                        new = new && !eq(s, k)?;
                    }
                    if new {
                        seen.push(k.clone());
                    }
                    new
                }
            };
            if new {
                out.push(item);
            }
        }
        return Value::generator(out);
    }
    let mut items = items.into_iter();
    let Some(mut best) = items.next() else {
        return Ok(Value::undefined("No aggregated item, sequence was empty."));
    };
    let mut best_key = key(&best)?;
    let (sign, wanted) = if name == "min" { ("<", Ordering::Less) } else { (">", Ordering::Greater) };
    for item in items {
        let k = key(&item)?;
        if order(&k, &best_key, sign)? == Some(wanted) {
            (best, best_key) = (item, k);
        }
    }
    Ok(best)
}

fn chunks(name: &str, v: &Value, args: Args) -> R<Value> {
    let names = [if name == "batch" { "linecount" } else { "slices" }, "fill_with"];
    let [n, fill] = args.bind(name, names, 1)?;
    let n = int_arg(&n.unwrap_or(Value::None))?;
    budget::spend(v.len().unwrap_or(0))?;
    let fill = fill.filter(|f| !f.is_none());
    let items = v.iterate()?;
    let mut out = Vec::new();
    if name == "batch" {
        // A count that is never met takes all at once.
        let n = usize::try_from(n).ok().filter(|n| *n > 0).unwrap_or(usize::MAX);
        for part in items.chunks(n.min(items.len().max(1))) {
            let mut part = part.to_vec();
            if let (Some(fill), true) = (&fill, n < usize::MAX) {
                budget::room((n - part.len()).saturating_mul(size_of::<Value>()))?;
                part.resize(n, fill.clone());
            }
            out.push(Value::list(part)?);
        }
        return Value::generator(out);
    }
    let n = match usize::try_from(n) {
        Ok(0) => return wrong("integer division or modulo by zero"),
        Ok(n) => n,
        Err(_) => return Value::generator(vec![]),
    };
    budget::room(n.saturating_mul(size_of::<Value>() + 64))?;
    budget::spend(n)?;
    let (each, extra, mut at) = (items.len() / n, items.len() % n, 0);
    for i in 0..n {
        let end = at + each + usize::from(i < extra);
        let mut part = items[at..end].to_vec();
        if let (Some(fill), true) = (&fill, i >= extra) {
            part.push(fill.clone());
        }
        at = end;
        out.push(Value::list(part)?);
    }
    Value::generator(out)
}

// ---- numbers ----

/// Python's int(text, base).
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

/// Python's float(text).
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

fn numbers(name: &str, v: &Value, args: Args) -> R<Value> {
    if let Value::Undefined(why) = v {
        return wrong(why.as_ref());
    }
    if let Some(text) = v.as_str() {
        budget::letters(text)?;
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
            bytes.map_or_else(|| wrong("could not convert to float"), |b| Ok(file_size(b, is_set(&binary))))
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
        // Python's is an integer, which has no -0.
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
        (_, Value::Float(f)) if precision >= 0 => {
            let text = format!("{:.*}", precision.min(330) as usize, f);
            Ok(Value::Float(text.parse().unwrap_or(*f)))
        }
        (_, Value::Float(_)) => wrong("a negative precision is not supported for floats"),
        (_, Value::Big(_)) if precision >= 0 => Ok(v.clone()),
        (_, Value::Big(_)) => wrong("this rounding of integers of more than 128 bits is not supported"),
        _ => wrong(format!("type {} doesn't define __round__ method", v.type_name())),
    }
}

// ---- texts ----

fn texts(name: &str, v: &Value, args: Args) -> R<Value> {
    match name {
        "string" => {
            args.none(name)?;
            if v.as_str().is_some() {
                Ok(v.clone())
            } else {
                str_of(v).map(Value::from)
            }
        }
        "trim" => {
            let [chars] = args.bind(name, ["chars"], 0)?;
            methods::strip_chars(&str_of(v)?, chars, true, true)
        }
        "upper" | "lower" | "capitalize" | "title" => {
            args.none(name)?;
            let text = str_of(v)?;
            budget::room(3 * text.len())?;
            budget::letters(&text)?;
            Ok(Value::from(match name {
                "upper" => text.to_uppercase(),
                "lower" => text.to_lowercase(),
                "capitalize" => methods::capitalize(&text),
                _ => wrap::title(&text),
            }))
        }
        "replace" => {
            let [old, new, count] = args.bind(name, ["old", "new", "count"], 2)?;
            let n = count.filter(|c| !c.is_none()).as_ref().map_or(Ok(-1), int_arg)?;
            methods::replaced(&str_of(v)?, &text_arg(old, "")?, &text_arg(new, "")?, n)
        }
        "center" => {
            let [width] = args.bind(name, ["width"], 0)?;
            methods::padded(&str_of(v)?, width.as_ref().map_or(Ok(80), width_arg)?, ' ', "center")
        }
        "escape" | "e" | "forceescape" => {
            args.none(name)?;
            let text = str_of(v)?;
            budget::room(6 * text.len())?;
            budget::scan(text.len())?;
            Ok(if v.is_markup() && name != "forceescape" {
                v.clone()
            } else {
                Value::markup(format::escape(&text))
            })
        }
        "safe" => args.none(name).and_then(|()| str_of(v)).map(Value::markup),
        "format" => format_filter(v, args),
        "pprint" => {
            args.none(name)?;
            let text = repr_of(v)?;
            match text.chars().count() <= 80 && !text.contains('{') {
                true => Ok(Value::from(text)),
                false => {
                    wrong("pprint of dictionaries and of what does not fit into a line is not supported")
                }
            }
        }
        "indent" => indent(v, args),
        "truncate" => wrap::truncate(v, args),
        "wordwrap" => wrap::wordwrap(v, args),
        "wordcount" => {
            args.none(name)?;
            let text = str_of(v)?;
            budget::letters(&text)?;
            let word = |c: char| c == '_' || c.is_alphanumeric();
            Ok(Value::from(text.split(|c| !word(c)).filter(|w| !w.is_empty()).count()))
        }
        "striptags" | "urlencode" | "xmlattr" => wrap::html(name, v, args),
        "random" => wrong("the filter 'random' is not supported: a prompt is the same each time"),
        "urlize" => wrong("the filter 'urlize' is not supported: chat templates are not HTML"),
        _ => wrong(format!("No filter named '{name}'.")),
    }
}

fn format_filter(v: &Value, args: Args) -> R<Value> {
    if !args.kw.is_empty() && !args.pos.is_empty() {
        return wrong("can't handle positional and keyword arguments at the same time");
    }
    let values = match args.kw.is_empty() {
        true => Value::tuple(args.pos)?,
        false => super::value::Dict::new(args.kw.into_iter().map(|(k, v)| (Value::from(k), v)).collect())?,
    };
    format::percent(&str_of(v)?, &values).map(Value::from)
}

fn indent(v: &Value, args: Args) -> R<Value> {
    let [width, first, blank] = args.bind("indent", ["width", "first", "blank"], 0)?;
    let Some(text) = v.as_str() else { return not_str(v) };
    let width = width.unwrap_or(Value::Int(4));
    let by = match width.as_str() {
        Some(s) => s.to_owned(),
        None => " ".repeat(width_arg(&width)?),
    };
    wrap::indent(text, &by, is_set(&first), is_set(&blank)).map(Value::from)
}
