//! Implements the filters on lists and other sequences: sorting, grouping, chunks, sums.

use super::args::{attribute, is_set, lowered, text_arg};
use crate::jinja::ast::Op;
use crate::jinja::budget;
use crate::jinja::equal::eq;
use crate::jinja::fail::{wrong, R};
use crate::jinja::items;
use crate::jinja::methods;
use crate::jinja::number::int_arg;
use crate::jinja::ops::{self, order, sort_by_key};
use crate::jinja::value::{Args, Kind, Value};
use std::cmp::Ordering;

pub(super) fn lists(name: &str, v: &Value, args: Args) -> R<Value> {
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
                _ => match v.iterate()?.pop() {
                    Some(item) => item.marked_as(v),
                    None => Ok(Value::undefined("No last item, sequence was empty.")),
                },
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
            Value::from(t.0.s.chars().rev().collect::<String>()).marked_as(v)
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
        let key = items::item(pair, &Value::Int(at))?.unwrap_or(Value::None);
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
            budget::spend(2)?;
            let k = key(&item)?;
            let new = match &k {
                Value::Str(t) => {
                    budget::scan(t.0.s.len())?;
                    texts.insert(t.clone())
                }
                k => {
                    k.hashable()?;
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
        // A count of 0 or less is never reached, so one chunk has all items.
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
