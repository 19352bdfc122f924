//! Python's operators: arithmetic, comparison, indexing.

use super::ast::{Cmp, Op};
use super::budget;
use super::format;
use super::value::{wrong, Fail, Kind, Value, R};
use std::cmp::Ordering;

/// An integer, also of a bool.
pub fn as_int(v: &Value) -> Option<i128> {
    match v {
        Value::Bool(b) => Some(i128::from(*b)),
        Value::Int(i) => Some(*i),
        _ => None,
    }
}

pub fn as_float(v: &Value) -> Option<f64> {
    match v {
        Value::Float(f) => Some(*f),
        // So many digits are beyond all doubles, and may be as long as the context.
        Value::Big(digits) if digits.len() > 400 => {
            Some(if digits.starts_with('-') { f64::NEG_INFINITY } else { f64::INFINITY })
        }
        Value::Big(digits) => digits.parse().ok(),
        _ => as_int(v).map(|i| i as f64),
    }
}

/// An argument that must be an integer.
pub fn int_arg(v: &Value) -> R<i128> {
    as_int(v)
        .map_or_else(|| wrong(format!("'{}' object cannot be interpreted as an integer", v.type_name())), Ok)
}

fn too_big<T>() -> R<T> {
    wrong("arithmetic with integers of more than 128 bits is not supported")
}

fn unsupported<T>(op: &str, a: &Value, b: &Value) -> R<T> {
    if let Value::Undefined(why) = a {
        return wrong(why.as_ref());
    }
    if let Value::Undefined(why) = b {
        return wrong(why.as_ref());
    }
    if matches!((a, b), (Value::Big(_), _) | (_, Value::Big(_))) {
        return too_big();
    }
    wrong(format!("unsupported operand type(s) for {op}: '{}' and '{}'", a.type_name(), b.type_name()))
}

pub fn binary(op: Op, a: &Value, b: &Value) -> R<Value> {
    match op {
        Op::Add => add(a, b),
        Op::Mul => mul(a, b),
        Op::Mod if a.as_str().is_some() => {
            if a.is_markup() {
                return wrong("% of escaped text is not supported");
            }
            format::percent(a.as_str().unwrap_or_default(), b).map(Value::from)
        }
        _ => number(op, a, b),
    }
}

fn add(a: &Value, b: &Value) -> R<Value> {
    match (a, b) {
        (Value::Str(x), Value::Str(y)) => {
            let (x, y) = (&x.0, &y.0);
            budget::room(x.s.len() + y.s.len())?;
            if x.markup == y.markup {
                let s = [x.s.as_str(), y.s.as_str()].concat();
                return Ok(if x.markup { Value::markup(s) } else { Value::from(s) });
            }
            let added = if x.markup { &y.s } else { &x.s };
            budget::room(5 * added.len())?;
            budget::spend(added.len() / 8)?;
            let part = |t: &super::value::TextBuf| if t.markup { t.s.clone() } else { format::escape(&t.s) };
            Ok(Value::markup(part(x) + &part(y)))
        }
        (Value::List(x), Value::List(y)) => Value::list(joined(&x.v, &y.v)?),
        (Value::Tuple(x), Value::Tuple(y)) => Value::tuple(joined(&x.v, &y.v)?),
        (Value::Str(_), Value::Undefined(why)) | (Value::List(_), Value::Undefined(why)) => {
            wrong(why.as_ref())
        }
        (Value::Str(_), _) => wrong(format!("can only concatenate str (not \"{}\") to str", b.type_name())),
        _ => number(Op::Add, a, b),
    }
}

fn joined(x: &[Value], y: &[Value]) -> R<Vec<Value>> {
    budget::room((x.len() + y.len()) * size_of::<Value>())?;
    budget::spend((x.len() + y.len()) / 2)?;
    Ok(x.iter().chain(y).cloned().collect())
}

fn mul(a: &Value, b: &Value) -> R<Value> {
    let (of, n) = match (as_int(a), as_int(b)) {
        (None, Some(n)) => (a, n),
        (Some(n), None) => (b, n),
        _ => return number(Op::Mul, a, b),
    };
    let is_sequence = matches!(of, Value::Str(_) | Value::List(_) | Value::Tuple(_));
    if is_sequence && n.unsigned_abs() > i64::MAX as u128 {
        return wrong("cannot fit 'int' into an index-sized integer");
    }
    let n = usize::try_from(n.max(0)).unwrap_or(usize::MAX);
    let repeat = |v: &[Value]| -> R<Vec<Value>> {
        budget::room(v.len().saturating_mul(n).saturating_mul(size_of::<Value>()))?;
        budget::spend(v.len() * n)?;
        Ok(if v.is_empty() { vec![] } else { (0..n).flat_map(|_| v.iter().cloned()).collect() })
    };
    match of {
        Value::Str(t) => {
            budget::room(t.0.s.len().saturating_mul(n))?;
            let s = if t.0.s.is_empty() { String::new() } else { t.0.s.repeat(n) };
            Ok(if t.0.markup { Value::markup(s) } else { Value::from(s) })
        }
        Value::List(i) => Value::list(repeat(&i.v)?),
        Value::Tuple(i) => Value::tuple(repeat(&i.v)?),
        _ => number(Op::Mul, a, b),
    }
}

fn number(op: Op, a: &Value, b: &Value) -> R<Value> {
    if let (Some(x), Some(y)) = (as_int(a), as_int(b)) {
        return integers(op, x, y);
    }
    let sign = ["+", "-", "*", "/", "//", "%", "**"][op as usize];
    if matches!((a, b), (Value::Big(_), _) | (_, Value::Big(_))) {
        return unsupported(sign, a, b);
    }
    let (Some(x), Some(y)) = (as_float(a), as_float(b)) else { return unsupported(sign, a, b) };
    Ok(Value::Float(match op {
        Op::Add => x + y,
        Op::Sub => x - y,
        Op::Mul => x * y,
        Op::Div | Op::FloorDiv | Op::Mod if y == 0.0 => return wrong("float division by zero"),
        Op::Div => x / y,
        Op::FloorDiv => float_div_mod(x, y).0,
        Op::Mod => float_div_mod(x, y).1,
        Op::Pow => float_pow(x, y)?,
    }))
}

fn float_pow(x: f64, y: f64) -> R<f64> {
    if x == 0.0 && y < 0.0 {
        return wrong("0.0 cannot be raised to a negative power");
    }
    if x < 0.0 && x.is_finite() && y.is_finite() && y.fract() != 0.0 {
        return wrong("complex numbers are not supported");
    }
    match x.powf(y) {
        r if r.is_infinite() && x.is_finite() && y.is_finite() => wrong("Result too large"),
        r => Ok(r),
    }
}

/// Python's divmod of floats: the rest has the sign of the divisor.
fn float_div_mod(x: f64, y: f64) -> (f64, f64) {
    let mut rest = x % y;
    let mut div = (x - rest) / y;
    if rest != 0.0 {
        if (y < 0.0) != (rest < 0.0) {
            rest += y;
            div -= 1.0;
        }
    } else {
        rest = 0f64.copysign(y);
    }
    let floor = match div {
        0.0 => 0f64.copysign(x / y),
        d => d.floor() + f64::from(u8::from(d - d.floor() > 0.5)),
    };
    (floor, rest)
}

fn integers(op: Op, x: i128, y: i128) -> R<Value> {
    let out = match op {
        Op::Add => x.checked_add(y),
        Op::Sub => x.checked_sub(y),
        Op::Mul => x.checked_mul(y),
        Op::Div | Op::FloorDiv | Op::Mod if y == 0 => return wrong("division by zero"),
        Op::Div => {
            let (f, g) = (x as f64, y as f64);
            // Only then is the quotient of the two floats the nearest one to that of the integers.
            if f as i128 != x || g as i128 != y {
                return wrong("the division of integers beyond 2**53 is not supported");
            }
            return Ok(Value::Float(f / g));
        }
        Op::FloorDiv => x.checked_div(y).map(|q| if x % y != 0 && (x < 0) != (y < 0) { q - 1 } else { q }),
        Op::Mod => x.checked_rem(y).map(|r| if r != 0 && (r < 0) != (y < 0) { r + y } else { r }),
        Op::Pow if y < 0 => {
            return match x {
                0 => wrong("0.0 cannot be raised to a negative power"),
                _ => float_pow(x as f64, y as f64).map(Value::Float),
            }
        }
        Op::Pow => match (x, u32::try_from(y)) {
            (0 | 1, Err(_)) => Some(x),
            (-1, Err(_)) => Some(if y % 2 == 0 { 1 } else { -1 }),
            (_, Ok(n)) => x.checked_pow(n),
            _ => None,
        },
    };
    out.map_or_else(too_big, |n| Ok(Value::Int(n)))
}

pub fn negate(v: &Value) -> R<Value> {
    match (as_int(v), v) {
        (Some(i), _) => i.checked_neg().map_or_else(too_big, |n| Ok(Value::Int(n))),
        (_, Value::Float(f)) => Ok(Value::Float(-f)),
        (_, Value::Undefined(why)) => wrong(why.as_ref()),
        _ => wrong(format!("bad operand type for unary -: '{}'", v.type_name())),
    }
}

pub fn plus(v: &Value) -> R<Value> {
    match (as_int(v), v) {
        (Some(i), _) => Ok(Value::Int(i)),
        (_, Value::Float(_) | Value::Big(_)) => Ok(v.clone()),
        (_, Value::Undefined(why)) => wrong(why.as_ref()),
        _ => wrong(format!("bad operand type for unary +: '{}'", v.type_name())),
    }
}

/// An integer against a float, exactly.
fn int_to_float(i: i128, f: f64) -> Option<Ordering> {
    if f.is_nan() {
        return None;
    }
    if f >= i128::MAX as f64 {
        return Some(Ordering::Less);
    }
    if f < i128::MIN as f64 {
        return Some(Ordering::Greater);
    }
    let floor = f.floor();
    Some(i.cmp(&(floor as i128)).then(if f > floor { Ordering::Less } else { Ordering::Equal }))
}

fn numbers(a: &Value, b: &Value) -> Option<Option<Ordering>> {
    if let (Value::Big(x), Value::Big(y)) = (a, b) {
        let key = |d: &str| (!d.starts_with('-'), d.trim_start_matches('-').len());
        let order = match (key(x), key(y)) {
            ((true, n), (true, m)) => n.cmp(&m).then(x.cmp(y)),
            ((false, n), (false, m)) => m.cmp(&n).then(y.cmp(x)),
            ((p, _), (q, _)) => p.cmp(&q),
        };
        return Some(Some(order));
    }
    Some(match (as_int(a), as_int(b)) {
        (Some(x), Some(y)) => Some(x.cmp(&y)),
        (Some(x), None) => match b {
            Value::Float(f) => int_to_float(x, *f),
            Value::Big(d) => Some(if d.starts_with('-') { Ordering::Greater } else { Ordering::Less }),
            _ => return None,
        },
        (None, Some(_)) => numbers(b, a)?.map(Ordering::reverse),
        (None, None) => match (as_float(a), as_float(b)) {
            (Some(x), Some(y)) => x.partial_cmp(&y),
            _ => return None,
        },
    })
}

/// Integers beyond 128 bits are texts, which are read for each comparison.
fn spend_big(a: &Value, b: &Value) -> R<()> {
    match (a, b) {
        (Value::Big(x), Value::Big(y)) => budget::glance(x.len().min(y.len())),
        (Value::Big(_), _) | (_, Value::Big(_)) => budget::spend(40),
        _ => Ok(()),
    }
}

pub fn eq(a: &Value, b: &Value) -> R<bool> {
    budget::spend(1)?;
    spend_big(a, b)?;
    let same = |x: &[Value], y: &[Value]| -> R<bool> {
        if x.len() != y.len() {
            return Ok(false);
        }
        for (x, y) in x.iter().zip(y) {
            if !eq(x, y)? {
                return Ok(false);
            }
        }
        Ok(true)
    };
    Ok(match (a, b) {
        (Value::Undefined(_), Value::Undefined(_)) | (Value::None, Value::None) => true,
        (Value::Str(x), Value::Str(y)) => {
            x.0.s.len() == y.0.s.len() && {
                budget::glance(x.0.s.len())?;
                x.0.s == y.0.s
            }
        }
        (Value::List(x), Value::List(y)) | (Value::Tuple(x), Value::Tuple(y)) => same(&x.v, &y.v)?,
        (Value::Dict(x), Value::Dict(y)) => {
            if x.entries.len() != y.entries.len() {
                return Ok(false);
            }
            for (k, v) in &x.entries {
                match y.get(k)? {
                    Some(w) if eq(v, w)? => {}
                    _ => return Ok(false),
                }
            }
            true
        }
        (Value::Range(..), Value::Range(..)) => same(&a.iterate()?, &b.iterate()?)?,
        (Value::Namespace(x), Value::Namespace(y)) => std::rc::Rc::ptr_eq(x, y),
        (Value::Macro(x), Value::Macro(y)) => std::rc::Rc::ptr_eq(x, y),
        (Value::Iter(x), Value::Iter(y)) => {
            std::rc::Rc::ptr_eq(x, y)
                || x.kind == y.kind
                    && matches!(x.kind, Kind::Keys | Kind::Items)
                    && same_set(&x.items.v, &y.items.v)?
        }
        _ => numbers(a, b).is_some_and(|o| o == Some(Ordering::Equal)),
    })
}

fn same_set(x: &[Value], y: &[Value]) -> R<bool> {
    if x.len() != y.len() {
        return Ok(false);
    }
    for v in x {
        if !contains(y, v)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// None: neither is less (of NaN). An error: Python has no order of them.
pub fn order(a: &Value, b: &Value, sign: &str) -> R<Option<Ordering>> {
    budget::spend(1)?;
    spend_big(a, b)?;
    match (a, b) {
        (Value::Str(x), Value::Str(y)) => {
            budget::glance(x.0.s.len().min(y.0.s.len()))?;
            Ok(Some(x.0.s.cmp(&y.0.s)))
        }
        (Value::List(x), Value::List(y)) | (Value::Tuple(x), Value::Tuple(y)) => {
            for (x, y) in x.v.iter().zip(&y.v) {
                if !eq(x, y)? {
                    return order(x, y, sign);
                }
            }
            Ok(Some(x.v.len().cmp(&y.v.len())))
        }
        (Value::Undefined(why), _) | (_, Value::Undefined(why)) => wrong(why.as_ref()),
        _ => match numbers(a, b) {
            Some(order) => Ok(order),
            None => wrong(format!(
                "'{sign}' not supported between instances of '{}' and '{}'",
                a.type_name(),
                b.type_name()
            )),
        },
    }
}

pub fn contains(items: &[Value], v: &Value) -> R<bool> {
    for item in items {
        if eq(item, v)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn is_in(v: &Value, of: &Value) -> R<bool> {
    match of {
        Value::Str(t) => match v {
            Value::Str(part) => {
                budget::scan(t.0.s.len() + part.0.s.len())?;
                Ok(t.0.s.contains(&part.0.s))
            }
            _ => wrong(format!("'in <string>' requires string as left operand, not {}", v.type_name())),
        },
        Value::Dict(d) => Ok(d.get(v)?.is_some()),
        Value::List(i) | Value::Tuple(i) => contains(&i.v, v),
        Value::Iter(w) if w.kind == Kind::Generator => {
            while let Some(item) = w.items.v.get(w.at.get()) {
                w.at.set(w.at.get() + 1);
                if eq(item, v)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        Value::Iter(w) => contains(&w.items.v, v),
        Value::Undefined(_) => Ok(false),
        Value::Range(..) => contains(&of.iterate()?, v),
        _ => wrong(format!("argument of type '{}' is not iterable", of.type_name())),
    }
}

pub fn compare(cmp: Cmp, a: &Value, b: &Value) -> R<bool> {
    Ok(match cmp {
        Cmp::Eq => eq(a, b)?,
        Cmp::Ne => !eq(a, b)?,
        Cmp::Lt => order(a, b, "<")? == Some(Ordering::Less),
        Cmp::Gt => order(a, b, ">")? == Some(Ordering::Greater),
        Cmp::Le => matches!(order(a, b, "<=")?, Some(Ordering::Less | Ordering::Equal)),
        Cmp::Ge => matches!(order(a, b, ">=")?, Some(Ordering::Greater | Ordering::Equal)),
        Cmp::In => is_in(a, b)?,
        Cmp::NotIn => !is_in(a, b)?,
    })
}

/// The place of an index of n items, from the end when it is negative.
pub fn place(i: i128, n: usize) -> Option<usize> {
    let i = if i < 0 { i.checked_add(n as i128)? } else { i };
    usize::try_from(i).ok().filter(|i| *i < n)
}

/// value[key]; None: there is no such item, or no items at all.
pub fn item(of: &Value, key: &Value) -> R<Option<Value>> {
    if let Value::Dict(d) = of {
        return match key.hashable() {
            Err(Fail::Wrong(_)) => Ok(None),
            Err(e) => Err(e),
            Ok(()) => Ok(d.get(key)?.cloned()),
        };
    }
    let Some(i) = as_int(key) else { return Ok(None) };
    Ok(match of {
        Value::List(items) | Value::Tuple(items) => place(i, items.v.len()).map(|at| items.v[at].clone()),
        Value::Str(t) if t.0.s.is_ascii() => {
            budget::glance(t.0.s.len())?;
            let found = place(i, t.0.s.len()).map(|at| Value::from(&t.0.s[at..=at]));
            return found.map(|c| c.marked_as(of)).transpose();
        }
        Value::Str(t) => {
            budget::spend(t.0.s.len() / 16)?;
            let at = place(i, t.0.s.chars().count());
            let found = at.and_then(|at| t.0.s.chars().nth(at)).map(|c| Value::from(c.to_string()));
            return found.map(|c| c.marked_as(of)).transpose();
        }
        Value::Range(start, _, step) => {
            place(i, of.length()?).map(|at| Value::Int(i128::from(*start) + at as i128 * i128::from(*step)))
        }
        _ => None,
    })
}

/// The places that start:stop:step takes of n items, as slice.indices has them: first, step, how many.
fn places(parts: &[Option<Value>; 3], n: usize) -> R<(i128, i128, usize)> {
    let part = |v: &Option<Value>| -> R<Option<i128>> {
        match v {
            None | Some(Value::None) => Ok(None),
            Some(v) => match as_int(v) {
                Some(i) => Ok(Some(i.clamp(-(1 << 62), 1 << 62))),
                None => wrong("slice indices must be integers or None or have an __index__ method"),
            },
        }
    };
    let (n, step) = (n as i128, part(&parts[2])?.unwrap_or(1));
    if step == 0 {
        return wrong("slice step cannot be zero");
    }
    let (low, high) = if step > 0 { (0, n) } else { (-1, n - 1) };
    let place = |i: i128| if i < 0 { (i + n).max(low) } else { i.min(high) };
    let first = part(&parts[0])?.map_or(if step > 0 { low } else { high }, place);
    let stop = part(&parts[1])?.map_or(if step > 0 { high } else { low }, place);
    let count = if step > 0 { (stop - first + step - 1) / step } else { (first - stop - step - 1) / -step };
    Ok((first, step, count.max(0) as usize))
}

/// value[start:stop:step]; None: it has no slices.
pub fn slice(of: &Value, parts: &[Option<Value>; 3]) -> R<Option<Value>> {
    let cut = |v: &[Value]| -> R<Vec<Value>> {
        let (first, step, n) = places(parts, v.len())?;
        budget::room(n * size_of::<Value>())?;
        budget::spend(n)?;
        Ok((0..n).map(|i| v[(first + i as i128 * step) as usize].clone()).collect())
    };
    Ok(Some(match of {
        Value::List(i) => Value::list(cut(&i.v)?)?,
        Value::Tuple(i) => Value::tuple(cut(&i.v)?)?,
        Value::Str(t) => {
            budget::room(t.0.s.len())?;
            budget::scan(t.0.s.len())?;
            let (s, n_chars) = (t.0.s.as_str(), t.0.s.chars().count());
            let (first, step, n) = places(parts, n_chars)?;
            let cut: String = if step == 1 {
                s.chars().skip(first as usize).take(n).collect()
            } else {
                budget::room(4 * s.len())?;
                let chars: Vec<char> = s.chars().collect();
                (0..n).map(|i| chars[(first + i as i128 * step) as usize]).collect()
            };
            if t.0.markup {
                Value::markup(cut)
            } else {
                Value::from(cut)
            }
        }
        Value::Range(start, _, by) => {
            let (first, step, n) = places(parts, of.length()?)?;
            let at = |i: i128| i128::from(*start) + i * i128::from(*by);
            let (from, by) = (at(first), i128::from(*by) * step);
            let end = from + by * n as i128;
            match (i64::try_from(from), i64::try_from(end), i64::try_from(by)) {
                (Ok(from), Ok(end), Ok(by)) => Value::Range(from, end, by),
                _ => return too_big(),
            }
        }
        Value::Undefined(why) => return wrong(why.as_ref()),
        _ => return Ok(None),
    }))
}

/// Sorts by keys that Python can order; the error is that of the first that it cannot.
pub fn sort_by_key(items: Vec<Value>, reverse: bool, key: impl Fn(&Value) -> R<Value>) -> R<Vec<Value>> {
    let mut keyed = Vec::with_capacity(items.len());
    for item in items {
        budget::spend(2)?;
        keyed.push((key(&item)?, item));
    }
    let keyed = merge_sort(keyed, &|a, b| {
        let (a, b) = if reverse { (&b.0, &a.0) } else { (&a.0, &b.0) };
        Ok(order(a, b, "<")? == Some(Ordering::Less))
    })?;
    Ok(keyed.into_iter().map(|(_, v)| v).collect())
}

/// Stable. It ends at the first error, and takes an order that is none (of NaN), which slice::sort_by may
/// panic at.
fn merge_sort<T>(mut items: Vec<T>, less: &impl Fn(&T, &T) -> R<bool>) -> R<Vec<T>> {
    if items.len() < 2 {
        return Ok(items);
    }
    budget::spend(items.len())?;
    let right = items.split_off(items.len() / 2);
    let n = items.len() + right.len();
    let left = merge_sort(items, less)?;
    let (mut left, mut right) = (left.into_iter(), merge_sort(right, less)?.into_iter());
    let (mut x, mut y) = (left.next(), right.next());
    let mut out = Vec::with_capacity(n);
    loop {
        let take_right = match (&x, &y) {
            (Some(x), Some(y)) => less(y, x)?,
            (None, None) => return Ok(out),
            (x, _) => x.is_none(),
        };
        let side = if take_right { &mut y } else { &mut x };
        out.extend(side.take());
        *side = if take_right { right.next() } else { left.next() };
    }
}
