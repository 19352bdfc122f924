//! Implements Python's indexing: value[key] and value[start:stop:step].

use super::budget;
use super::fail::{wrong, Fail, R};
use super::number::{as_int, too_big};
use super::value::Value;

/// Returns the position of index i among n items; a negative index counts from the end.
pub fn place(i: i128, n: usize) -> Option<usize> {
    let i = if i < 0 { i.checked_add(n as i128)? } else { i };
    usize::try_from(i).ok().filter(|i| *i < n)
}

/// Returns value[key]. Returns None when there is no such item, or when the value has no items.
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

/// Returns the positions that start:stop:step selects from n items, as first, step and count. They are those of Python's
/// slice.indices.
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

/// Returns value[start:stop:step]. Returns None when the value cannot be sliced.
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
