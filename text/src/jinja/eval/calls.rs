//! Calls macros, methods, loops and global functions.

use super::{get_attr, Eval, Scope, Tracked};
use crate::jinja::ast::*;
use crate::jinja::budget;
use crate::jinja::fail::{wrong, Fail, R};
use crate::jinja::format::str_of;
use crate::jinja::methods;
use crate::jinja::number::int_arg;
use crate::jinja::value::*;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

const MAX_RANGE: usize = 100_000;

impl Eval<'_> {
    pub(super) fn args(&mut self, args: &CallArgs, scope: &Rc<Scope>) -> R<Args> {
        let mut out = Args { pos: self.exprs(&args.pos, scope)?, kw: vec![] };
        for (name, e) in &args.kw {
            out.kw.push((name.clone(), self.expr(e, scope)?));
        }
        if let Some(star) = &args.star {
            out.pos.extend(self.expr(star, scope)?.iterate()?);
        }
        if let Some(star) = &args.star_star {
            match self.expr(star, scope)? {
                Value::Dict(d) => {
                    budget::spend(d.entries.len())?;
                    for (k, v) in &d.entries {
                        // A dictionary has each key once, so a name is given twice only when the call also contains it
                        // as a keyword.
                        match k.as_str() {
                            Some(k) if args.kw.iter().all(|(name, _)| name != k) => {
                                budget::spend(args.kw.len() / 4)?;
                                budget::room(k.len() + size_of::<(String, Value)>())?;
                                budget::fits(2 * out.kw.len() * size_of::<(String, Value)>())?;
                                out.kw.push((k.to_owned(), v.clone()));
                            }
                            _ => return wrong("keywords must be strings, and each can occur only once"),
                        }
                    }
                }
                v => return wrong(format!("argument after ** must be a mapping, not {}", v.type_name())),
            }
        }
        Ok(out)
    }

    pub(super) fn call_expr(
        &mut self,
        of: &Expr,
        args: &CallArgs,
        caller: Option<Value>,
        scope: &Rc<Scope>,
    ) -> R<Value> {
        let (of, method) = match of {
            Expr::Attr(of, name) => (self.expr(of, scope)?, Some(name)),
            of => (self.expr(of, scope)?, None),
        };
        let mut args = self.args(args, scope)?;
        if let Some(caller) = caller {
            args.kw.push(("caller".to_owned(), caller));
        }
        match method {
            Some(name) if methods::has(&of, name) == Some(true) => methods::call(&of, name, args),
            Some(name) => {
                let f = get_attr(&of, name)?;
                self.call(&f, args)
            }
            None => self.call(&of, args),
        }
    }

    pub fn call(&mut self, f: &Value, args: Args) -> R<Value> {
        match f {
            Value::Method(m) => methods::call(&m.of, &m.name, args),
            Value::Macro(m) => self.call_macro(m, args),
            Value::Func(name) => self.call_global(name, args),
            Value::Joiner(j) => {
                args.none("joiner")?;
                Ok(if j.used.replace(true) { j.sep.clone() } else { Value::from("") })
            }
            Value::Loop(l) => {
                let Some((again, scope)) = l.again.clone() else {
                    return wrong("The loop must have the 'recursive' marker to be called recursively.");
                };
                let [over] = args.bind("loop", ["iterable"], 1)?;
                let over = over.unwrap_or(Value::None);
                self.captured(|e| e.run_for(&again, over, &scope, l.depth0 + 1))
            }
            Value::Undefined(why) => wrong(why.as_ref()),
            _ => wrong(format!("'{}' object is not callable", f.type_name())),
        }
    }

    fn call_macro(&mut self, m: &Rc<Macro>, mut args: Args) -> R<Value> {
        let (def, scope) = (&m.def, Scope::inside(&m.scope));
        let extra = args.pos.split_off(args.pos.len().min(def.params.len()));
        let mut given: Vec<Option<Value>> = args.pos.into_iter().map(Some).collect();
        budget::spend(6)?;
        budget::spend(def.params.len().saturating_mul(args.kw.len() + 4) / 8)?;
        let mut take = |name: &str| {
            let at = args.kw.iter().position(|(n, _)| n == name)?;
            Some(args.kw.remove(at).1)
        };
        while given.len() < def.params.len() {
            given.push(take(&self.tree.names[def.params[given.len()] as usize]));
        }
        let is_param = |name: &str| def.params.iter().any(|p| self.tree.names[*p as usize] == name);
        let mut special = Vec::new();
        if def.uses_caller && !is_param("caller") {
            special.push(("caller", take("caller").unwrap_or_else(|| Value::undefined("No caller defined"))));
        }
        match (def.uses_kwargs && !is_param("kwargs"), args.kw.first()) {
            (true, _) => {
                let pairs = std::mem::take(&mut args.kw).into_iter().map(|(k, v)| (Value::from(k), v));
                special.push(("kwargs", Dict::new(pairs.collect())?));
            }
            (false, Some((name, _))) => {
                return wrong(format!("macro '{}' takes no keyword argument '{name}'", def.name))
            }
            (false, None) => {}
        }
        match (def.uses_varargs && !is_param("varargs"), extra.is_empty()) {
            (true, _) => special.push(("varargs", Value::tuple(extra)?)),
            (false, false) => {
                let n = def.params.len();
                return wrong(format!("macro '{}' takes not more than {n} argument(s)", def.name));
            }
            (false, true) => {}
        }
        for (name, v) in special {
            if let Some(sym) = self.sym(name) {
                scope.set(sym, v)?;
            }
        }
        let first_default = def.params.len() - def.defaults.len();
        for (i, (name, v)) in def.params.iter().zip(given).enumerate() {
            let v = match v {
                Some(v) => v,
                None if i >= first_default => self.expr(&def.defaults[i - first_default], &scope)?,
                None => {
                    let name = &self.tree.names[*name as usize];
                    Value::undefined(format!("parameter '{name}' was not provided"))
                }
            };
            scope.set(*name, v)?;
        }
        self.captured(|e| e.body(&def.body, &scope))
    }

    fn call_global(&mut self, name: &str, args: Args) -> R<Value> {
        match name {
            "range" => {
                let n = args.pos.len();
                let [a, b, step] = args.bind("range", ["", "", ""], 1)?;
                let int = |v: Option<Value>, default: i64| -> R<i64> {
                    let Some(v) = v else { return Ok(default) };
                    i64::try_from(int_arg(&v)?).or_else(|_| wrong("a number given to range() is too large"))
                };
                let step = int(step, 1)?;
                let (start, stop) = if n == 1 { (0, int(a, 0)?) } else { (int(a, 0)?, int(b, 0)?) };
                if step == 0 {
                    return wrong("range() arg 3 must not be zero");
                }
                if range_len(start, stop, step) > MAX_RANGE {
                    return wrong(format!(
                        "Range too big. The sandbox blocks ranges larger than MAX_RANGE ({MAX_RANGE})."
                    ));
                }
                Ok(Value::Range(start, stop, step))
            }
            "dict" => Dict::new(pairs_of(args)?),
            "namespace" => {
                let mut attrs = Vec::new();
                let mut bytes = 0;
                for (k, v) in pairs_of(args)? {
                    budget::spend(1 + attrs.len() / 16)?;
                    let k = str_of(&k)?;
                    bytes += k.len() + size_of::<(String, Value)>();
                    attrs.push((k, v));
                }
                let n = Rc::new(Namespace { attrs: RefCell::new(attrs) });
                self.track(Tracked::Namespace(n.clone()), bytes)?;
                Ok(Value::Namespace(n))
            }
            "cycler" if args.pos.is_empty() => wrong("at least one item has to be provided"),
            "cycler" => {
                let bytes = args.pos.len() * size_of::<Value>();
                let v = Value::Cycler(Rc::new(Cycler { items: args.pos, at: Cell::new(0) }));
                self.track(Tracked::Value(v.clone()), bytes)?;
                Ok(v)
            }
            "joiner" => {
                let [sep] = args.bind("joiner", ["sep"], 0)?;
                let sep = sep.unwrap_or_else(|| Value::from(", "));
                let v = Value::Joiner(Rc::new(Joiner { sep, used: Cell::new(false) }));
                self.track(Tracked::Value(v.clone()), 0)?;
                Ok(v)
            }
            "raise_exception" => {
                let [message] = args.bind(name, ["message"], 1)?;
                Err(Fail::Raised(str_of(&message.unwrap_or(Value::None))?))
            }
            "strftime_now" => {
                let [format] = args.bind(name, ["format"], 1)?;
                match format.as_ref().and_then(Value::as_str) {
                    Some(format) => crate::jinja::time::strftime(format, self.now_unix).map(Value::from),
                    None => wrong("strftime_now needs a string"),
                }
            }
            "lipsum" => wrong("the function 'lipsum' is not supported, because prompts must not vary"),
            _ => wrong(format!("'{name}' is not supported")),
        }
    }
}

/// Returns the key-value pairs from the arguments of dict(pairs, name=value) or namespace(…).
fn pairs_of(args: Args) -> R<Vec<(Value, Value)>> {
    let mut out = Vec::new();
    if args.pos.len() > 1 {
        return wrong(format!("dict expected at most 1 argument, got {}", args.pos.len()));
    }
    match args.pos.first() {
        Some(Value::Dict(d)) => out.extend(d.entries.iter().cloned()),
        Some(Value::Namespace(_)) => return wrong("'Namespace' object is not iterable"),
        Some(v) => {
            for pair in v.iterate()? {
                match pair.iterate()?.as_slice() {
                    [k, v] => out.push((k.clone(), v.clone())),
                    _ => return wrong("dictionary update sequence element has length other than 2"),
                }
            }
        }
        None => {}
    }
    out.extend(args.kw.into_iter().map(|(k, v)| (Value::from(k), v)));
    Ok(out)
}
