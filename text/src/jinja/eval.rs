//! Renders a tree. Scopes are looked up from the inside out, as jinja2's compiler resolves names; what
//! a template may refer to in circles (namespaces, macros with their scopes) is emptied at the end.

use super::ast::*;
use super::budget;
use super::format::str_of;
use super::methods;
use super::ops::{self, as_int, int_arg};
use super::value::*;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

/// Of functions that call each other, one for each node within a node.
const MAX_DEPTH: usize = 2000;
const MAX_OUTPUT: usize = 64 << 20;
const MAX_RANGE: usize = 100_000;

#[derive(Default)]
pub struct Scope {
    vars: RefCell<Vec<(Sym, Value)>>,
    parent: Option<Rc<Scope>>,
}

impl Scope {
    fn inside(parent: &Rc<Scope>) -> Rc<Scope> {
        Rc::new(Scope { vars: RefCell::default(), parent: Some(parent.clone()) })
    }

    fn get(&self, name: Sym) -> R<Option<Value>> {
        let mut scope = self;
        loop {
            budget::spend(scope.vars.borrow().len() / 64)?;
            if let Some((_, v)) = scope.vars.borrow().iter().find(|(n, _)| *n == name) {
                return Ok(Some(v.clone()));
            }
            match &scope.parent {
                Some(parent) => scope = parent,
                None => return Ok(None),
            }
        }
    }

    fn set(&self, name: Sym, v: Value) -> R<()> {
        let mut vars = self.vars.borrow_mut();
        budget::spend(vars.len() / 64)?;
        match vars.iter().position(|(n, _)| *n == name) {
            Some(at) => vars[at].1 = v,
            None => vars.push((name, v)),
        }
        Ok(())
    }
}

/// What may be part of a circle.
enum Tracked {
    Scope(Rc<Scope>),
    Namespace(Rc<Namespace>),
    Value(#[allow(dead_code, reason = "it is held, so that a long chain is not dropped at once")] Value),
}

enum Flow {
    Next,
    Break,
    Continue,
}

pub struct Eval<'t> {
    tree: &'t Tree,
    root: Rc<Scope>,
    now_unix: i64,
    out: String,
    depth: usize,
    line: u32,
    /// of blocks that a filter stands over
    bodies: Vec<Value>,
    tracked: Vec<Tracked>,
    /// the numbers of names that the engine itself sets
    special: Vec<(&'static str, Sym)>,
}

const SPECIAL: [&str; 4] = ["loop", "caller", "kwargs", "varargs"];
const GLOBALS: [&str; 9] =
    ["range", "dict", "lipsum", "cycler", "joiner", "namespace", "raise_exception", "strftime_now", "self"];

/// The text, or why there is none and in which line.
pub fn render(tree: &Tree, context: &Value, now_unix: i64) -> Result<String, (Fail, u32)> {
    let root = Rc::new(Scope::default());
    if let Value::Dict(d) = context {
        for (sym, name) in tree.names.iter().enumerate() {
            if let Some(v) = d.get_str(name) {
                root.vars.borrow_mut().push((sym as Sym, v.clone()));
            }
        }
    }
    // What the template sets of its own is found before the context, and before what a block sees.
    let scope = Scope::inside(&root);
    let mut e = Eval {
        tree,
        root: scope.clone(),
        now_unix,
        out: String::new(),
        depth: 0,
        line: 0,
        bodies: vec![],
        tracked: vec![],
        special: vec![],
    };
    for (sym, name) in tree.names.iter().enumerate() {
        e.special.extend(SPECIAL.iter().find(|s| **s == name).map(|s| (*s, sym as Sym)));
    }
    let done = e.body(&tree.body, &scope);
    let line = e.line;
    let out = std::mem::take(&mut e.out);
    // The youngest first: each is held by this list alone when its turn comes.
    for t in &e.tracked {
        match t {
            Tracked::Scope(s) => drop(s.vars.take()),
            Tracked::Namespace(n) => drop(n.attrs.take()),
            Tracked::Value(Value::Loop(l)) => drop(l.changed.take()),
            Tracked::Value(_) => {}
        }
    }
    while e.tracked.pop().is_some() {}
    done.map(|_| out).map_err(|fail| (fail, line))
}

/// value.name for `attr`: of Python's own attributes alone.
pub fn get_attr_only(of: &Value, name: &str) -> R<Value> {
    match python_attr(of, name)? {
        Some(v) => Ok(v),
        None => Ok(no_attr(of, name)),
    }
}

fn no_attr(of: &Value, name: &str) -> Value {
    let kind = match of {
        Value::None => "None".to_owned(),
        _ => format!("'{} object'", of.type_name()),
    };
    Value::undefined(format!("{kind} has no attribute '{name}'"))
}

fn loop_attr(l: &Loop, name: &str) -> Option<Value> {
    let (at, n) = (l.at.get(), l.items.len());
    Some(match name {
        "index" => Value::from(at + 1),
        "index0" => Value::from(at),
        "revindex" => Value::from(n - at),
        "revindex0" => Value::from(n - at - 1),
        "first" => Value::Bool(at == 0),
        "last" => Value::Bool(at + 1 == n),
        "length" => Value::from(n),
        "depth" => Value::from(l.depth0 + 1),
        "depth0" => Value::from(l.depth0),
        "previtem" if at == 0 => Value::undefined("there is no previous item"),
        "previtem" => l.items[at - 1].clone(),
        "nextitem" => {
            l.items.get(at + 1).cloned().unwrap_or_else(|| Value::undefined("there is no next item"))
        }
        _ => return None,
    })
}

/// getattr of Python, as the sandbox lets it through.
fn python_attr(of: &Value, name: &str) -> R<Option<Value>> {
    match of {
        Value::Undefined(why) if !name.starts_with("__") => return wrong(why.as_ref()),
        Value::Namespace(n) => {
            budget::spend(n.attrs.borrow().len() / 16)?;
            return Ok(n.attrs.borrow().iter().find(|(k, _)| k == name).map(|(_, v)| v.clone()));
        }
        Value::Loop(l) => {
            if let Some(v) = loop_attr(l, name) {
                return Ok(Some(v));
            }
        }
        Value::Macro(m) => match name {
            "name" => return Ok(Some(Value::from(m.def.name.as_str()))),
            "arguments" | "catch_kwargs" | "catch_varargs" | "caller" => {
                return wrong(format!("the attribute '{name}' of a macro is not supported"))
            }
            _ => {}
        },
        Value::Cycler(c) if name == "current" => return Ok(Some(c.items[c.at.get()].clone())),
        Value::Range(start, stop, step) => {
            let part = match name {
                "start" => *start,
                "stop" => *stop,
                "step" => *step,
                _ => return methods::has(of, name).map(|_| Value::method(of, name)).transpose(),
            };
            return Ok(Some(Value::Int(part.into())));
        }
        _ => {}
    }
    match (name, as_int(of), of) {
        ("real" | "numerator", Some(i), _) => return Ok(Some(Value::Int(i))),
        ("real" | "numerator", _, Value::Big(_)) => return Ok(Some(of.clone())),
        ("imag", Some(_), _) | ("imag", _, Value::Big(_)) => return Ok(Some(Value::Int(0))),
        ("denominator", Some(_), _) | ("denominator", _, Value::Big(_)) => return Ok(Some(Value::Int(1))),
        ("real", _, Value::Float(f)) => return Ok(Some(Value::Float(*f))),
        ("imag", _, Value::Float(_)) => return Ok(Some(Value::Float(0.0))),
        _ => {}
    }
    match methods::has(of, name) {
        Some(true) => Value::method(of, name).map(Some),
        Some(false) => Ok(Some(Value::undefined(format!(
            "access to attribute '{name}' of '{}' object is unsafe.",
            of.type_name()
        )))),
        None => Ok(None),
    }
}

/// value.name: Python's own attribute first, then value["name"].
pub fn get_attr(of: &Value, name: &str) -> R<Value> {
    if let Some(v) = python_attr(of, name)? {
        return Ok(v);
    }
    match of {
        Value::Dict(d) => Ok(d.get_str(name).cloned().unwrap_or_else(|| no_attr(of, name))),
        _ => Ok(no_attr(of, name)),
    }
}

/// value[key], then the attribute of that name.
pub fn get_item(of: &Value, key: &Value) -> R<Value> {
    if let Value::Undefined(why) = of {
        return wrong(why.as_ref());
    }
    if let Some(v) = ops::item(of, key)? {
        return Ok(v);
    }
    match key.as_str() {
        Some(name) => match python_attr(of, name)? {
            Some(v) => Ok(v),
            None => Ok(no_attr(of, name)),
        },
        None => Ok(Value::undefined(format!(
            "'{} object' has no element {}",
            of.type_name(),
            super::format::repr_of(key).unwrap_or_default()
        ))),
    }
}

impl Eval<'_> {
    fn sym(&self, name: &str) -> Option<Sym> {
        self.special.iter().find(|(n, _)| *n == name).map(|(_, sym)| *sym)
    }

    fn enter(&mut self) -> R<()> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(Fail::Limit(format!(
                "calls within calls: more than {MAX_DEPTH} (a recursion limit)"
            )));
        }
        budget::spend(1)
    }

    fn write(&mut self, text: &str) -> R<()> {
        if self.out.len() + text.len() > MAX_OUTPUT {
            return Err(Fail::Limit(format!("the rendered text is longer than {MAX_OUTPUT} bytes")));
        }
        budget::fits(self.out.len() + text.len())?;
        budget::spend(text.len() / 64)?;
        self.out.push_str(text);
        Ok(())
    }

    fn write_value(&mut self, v: &Value) -> R<()> {
        match v.as_str() {
            Some(text) => self.write(text),
            None => {
                let text = str_of(v)?;
                self.write(&text)
            }
        }
    }

    /// What is written meanwhile.
    fn captured<T>(&mut self, f: impl FnOnce(&mut Self) -> R<T>) -> R<Value> {
        let before = std::mem::take(&mut self.out);
        budget::count(before.len() as i64);
        let done = f(self);
        budget::count(-(before.len() as i64));
        let text = std::mem::replace(&mut self.out, before);
        done.map(|_| Value::from(text))
    }

    // ---- statements ----

    fn body(&mut self, body: &[Stmt], scope: &Rc<Scope>) -> R<Flow> {
        for stmt in body {
            self.enter()?;
            let flow = self.stmt(stmt, scope)?;
            self.depth -= 1;
            if !matches!(flow, Flow::Next) {
                return Ok(flow);
            }
        }
        Ok(Flow::Next)
    }

    fn stmt(&mut self, stmt: &Stmt, scope: &Rc<Scope>) -> R<Flow> {
        match stmt {
            Stmt::Text(text) => self.write(text)?,
            Stmt::Out(e, line) => {
                self.line = *line;
                let v = self.expr(e, scope)?;
                self.line = *line;
                self.write_value(&v)?;
            }
            Stmt::If(arms, other, line) => {
                self.line = *line;
                for (test, body) in arms {
                    if self.expr(test, scope)?.truth() {
                        return self.body(body, scope);
                    }
                }
                return self.body(other, scope);
            }
            Stmt::For(f, line) => {
                self.line = *line;
                let over = self.expr(&f.over, scope)?;
                self.run_for(f, over, scope, 0)?;
            }
            Stmt::Set(target, e, line) => {
                self.line = *line;
                let v = self.expr(e, scope)?;
                self.assign(target, v, scope, scope)?;
            }
            Stmt::SetBlock(target, filter, body) => {
                let v = self.inner(body, scope)?;
                let v = self.over_body(filter.as_ref(), v, scope)?;
                self.assign(target, v, scope, scope)?;
            }
            Stmt::FilterBlock(filter, body) => {
                let v = self.inner(body, scope)?;
                let v = self.over_body(Some(filter), v, scope)?;
                self.write_value(&v)?;
            }
            Stmt::Macro(name, def) => {
                let m = self.make_macro(def, scope);
                scope.set(*name, m)?;
            }
            Stmt::CallBlock(def, call, line) => {
                self.line = *line;
                let caller = self.make_macro(def, scope);
                let Expr::Call(of, args) = call else { return wrong("expected call") };
                let v = self.call_expr(of, args, Some(caller), scope)?;
                self.write_value(&v)?;
            }
            Stmt::With(pairs, body) => {
                let inner = Scope::inside(scope);
                for (target, e) in pairs {
                    let v = self.expr(e, scope)?;
                    self.assign(target, v, &inner, scope)?;
                }
                return self.body(body, &inner);
            }
            Stmt::Scope(body) => return self.body(body, &Scope::inside(scope)),
            Stmt::Block(body) => {
                let root = self.root.clone();
                self.body(body, &Scope::inside(&root))?;
            }
            Stmt::Break => return Ok(Flow::Break),
            Stmt::Continue => return Ok(Flow::Continue),
        }
        Ok(Flow::Next)
    }

    fn inner(&mut self, body: &[Stmt], scope: &Rc<Scope>) -> R<Value> {
        let inner = Scope::inside(scope);
        self.captured(|e| e.body(body, &inner))
    }

    fn over_body(&mut self, filter: Option<&Expr>, v: Value, scope: &Rc<Scope>) -> R<Value> {
        let Some(filter) = filter else { return Ok(v) };
        self.bodies.push(v);
        let v = self.expr(filter, scope);
        self.bodies.pop();
        v
    }

    fn make_macro(&mut self, def: &Arc<MacroDef>, scope: &Rc<Scope>) -> Value {
        self.tracked.push(Tracked::Scope(scope.clone()));
        Value::Macro(Rc::new(Macro { def: def.clone(), scope: scope.clone() }))
    }

    fn assign(&mut self, target: &Target, v: Value, scope: &Rc<Scope>, outer: &Rc<Scope>) -> R<()> {
        match target {
            Target::Name(name) => scope.set(*name, v)?,
            Target::Attr(name, attr) => {
                let Some(Value::Namespace(n)) = outer.get(*name)? else {
                    return wrong("cannot assign attribute on non-namespace object");
                };
                let mut attrs = n.attrs.borrow_mut();
                budget::spend(attrs.len() / 16)?;
                match attrs.iter().position(|(k, _)| k == attr) {
                    Some(at) => attrs[at].1 = v,
                    None => attrs.push((attr.clone(), v)),
                }
            }
            Target::Tuple(targets) => {
                let items = match &v {
                    Value::Undefined(_) | Value::None | Value::Int(_) | Value::Float(_) | Value::Bool(_) => {
                        return wrong(format!("cannot unpack non-iterable {} object", v.type_name()))
                    }
                    _ => v.iterate()?,
                };
                if items.len() != targets.len() {
                    return wrong(format!(
                        "expected {} values to unpack, got {}",
                        targets.len(),
                        items.len()
                    ));
                }
                for (t, v) in targets.iter().zip(items) {
                    self.assign(t, v, scope, outer)?;
                }
            }
        }
        Ok(())
    }

    fn run_for(&mut self, f: &Arc<For>, over: Value, scope: &Rc<Scope>, depth0: usize) -> R<()> {
        let mut items = over.iterate()?;
        let keeps = |e: &mut Self, item: &Value| -> R<bool> {
            let Some(test) = &f.test else { return Ok(true) };
            let inner = Scope::inside(scope);
            e.assign(&f.target, item.clone(), &inner, scope)?;
            Ok(e.expr(test, &inner)?.truth())
        };
        if f.uses_loop && f.test.is_some() {
            let mut kept = Vec::new();
            for item in items {
                if keeps(self, &item)? {
                    kept.push(item);
                }
            }
            items = kept;
        }
        if !f.uses_loop {
            let mut ran = false;
            for item in items {
                budget::spend(1)?;
                if !keeps(self, &item)? {
                    continue;
                }
                let inner = Scope::inside(scope);
                self.assign(&f.target, item, &inner, scope)?;
                match self.body(&f.body, &inner)? {
                    Flow::Next => ran = true,
                    Flow::Continue => {}
                    Flow::Break => break,
                }
            }
            return if ran { Ok(()) } else { self.body(&f.other, &Scope::inside(scope)).map(drop) };
        }
        if self.run_loop(f, items, scope, depth0)? {
            return Ok(());
        }
        self.body(&f.other, &Scope::inside(scope)).map(drop)
    }

    /// A loop whose body looks at it. Whether one pass came to the body's end: as in jinja2, `else` is for
    /// those where none did.
    fn run_loop(&mut self, f: &Arc<For>, items: Vec<Value>, scope: &Rc<Scope>, depth0: usize) -> R<bool> {
        let again = f.recursive.then(|| (f.clone(), scope.clone()));
        let this = Rc::new(Loop { items, at: Cell::new(0), depth0, changed: RefCell::default(), again });
        let done = self.passes(f, &this, scope);
        // It may be among what changed() was asked about.
        drop(this.changed.take());
        if Rc::strong_count(&this) > 1 {
            self.tracked.push(Tracked::Value(Value::Loop(this)));
        }
        done
    }

    fn passes(&mut self, f: &For, this: &Rc<Loop>, scope: &Rc<Scope>) -> R<bool> {
        let (name, mut ran) = (self.sym("loop").unwrap_or(0), false);
        for at in 0..this.items.len() {
            budget::spend(1)?;
            this.at.set(at);
            let inner = Scope::inside(scope);
            inner.set(name, Value::Loop(this.clone()))?;
            self.assign(&f.target, this.items[at].clone(), &inner, scope)?;
            match self.body(&f.body, &inner)? {
                Flow::Next => ran = true,
                Flow::Continue => {}
                Flow::Break => break,
            }
        }
        Ok(ran)
    }

    // ---- expressions ----

    fn expr(&mut self, e: &Expr, scope: &Rc<Scope>) -> R<Value> {
        self.enter()?;
        let v = self.value(e, scope)?;
        self.depth -= 1;
        Ok(v)
    }

    fn exprs(&mut self, items: &[Expr], scope: &Rc<Scope>) -> R<Vec<Value>> {
        items.iter().map(|e| self.expr(e, scope)).collect()
    }

    fn value(&mut self, e: &Expr, scope: &Rc<Scope>) -> R<Value> {
        Ok(match e {
            Expr::Const(c) => match c {
                Const::None => Value::None,
                Const::Bool(b) => Value::Bool(*b),
                Const::Int(i) => Value::Int(*i),
                Const::Float(f) => Value::Float(*f),
                Const::Str(s) => {
                    budget::spend(s.len() / 64)?;
                    Value::from(s.as_str())
                }
            },
            Expr::Name(name) => self.name(*name, scope)?,
            Expr::Tuple(items) => Value::tuple(self.exprs(items, scope)?)?,
            Expr::List(items) => Value::list(self.exprs(items, scope)?)?,
            Expr::Dict(pairs) => {
                let mut out = Vec::with_capacity(pairs.len());
                for (k, v) in pairs {
                    out.push((self.expr(k, scope)?, self.expr(v, scope)?));
                }
                Dict::new(out)?
            }
            Expr::Attr(of, name) => get_attr(&self.expr(of, scope)?, name)?,
            Expr::Item(of, key) => self.item(of, key, scope)?,
            Expr::Slice(_) => return wrong("a slice outside of brackets"),
            Expr::Call(of, args) => self.call_expr(of, args, None, scope)?,
            Expr::Filter(of, name, args) => {
                let v = self.expr(of, scope)?;
                let args = self.args(args, scope)?;
                self.filter(name, &v, args)?
            }
            Expr::Test(of, name, args) => {
                let v = self.expr(of, scope)?;
                let args = self.args(args, scope)?;
                Value::Bool(self.test(name, &v, args)?)
            }
            Expr::Not(e) => Value::Bool(!self.expr(e, scope)?.truth()),
            Expr::Neg(e) => ops::negate(&self.expr(e, scope)?)?,
            Expr::Pos(e) => ops::plus(&self.expr(e, scope)?)?,
            Expr::And(a, b) => match self.expr(a, scope)? {
                v if v.truth() => self.expr(b, scope)?,
                v => v,
            },
            Expr::Or(a, b) => match self.expr(a, scope)? {
                v if v.truth() => v,
                _ => self.expr(b, scope)?,
            },
            Expr::Bin(op, a, b) => {
                let a = self.expr(a, scope)?;
                let b = self.expr(b, scope)?;
                ops::binary(*op, &a, &b)?
            }
            Expr::Concat(items) => self.concat(items, scope)?,
            Expr::Cond(test, then, other) => match (self.expr(test, scope)?.truth(), other) {
                (true, _) => self.expr(then, scope)?,
                (false, Some(other)) => self.expr(other, scope)?,
                (false, None) => Value::undefined("the inline if-expression was false and has no else"),
            },
            Expr::Compare(first, rest) => self.compare(first, rest, scope)?,
            Expr::Body => self.bodies.last().cloned().unwrap_or(Value::None),
        })
    }

    fn concat(&mut self, items: &[Expr], scope: &Rc<Scope>) -> R<Value> {
        let mut out = String::new();
        for e in items {
            let v = self.expr(e, scope)?;
            let text = if v.as_str().is_some() { String::new() } else { str_of(&v)? };
            let text = v.as_str().unwrap_or(&text);
            budget::fits(out.len() + text.len())?;
            budget::spend(text.len() / 64)?;
            out.push_str(text);
        }
        Ok(Value::from(out))
    }

    fn compare(&mut self, first: &Expr, rest: &[(Cmp, Expr)], scope: &Rc<Scope>) -> R<Value> {
        let mut left = self.expr(first, scope)?;
        for (cmp, e) in rest {
            let right = self.expr(e, scope)?;
            if !ops::compare(*cmp, &left, &right)? {
                return Ok(Value::Bool(false));
            }
            left = right;
        }
        Ok(Value::Bool(true))
    }

    fn name(&self, name: Sym, scope: &Rc<Scope>) -> R<Value> {
        if let Some(v) = scope.get(name)? {
            return Ok(v);
        }
        let text = &self.tree.names[name as usize];
        Ok(match GLOBALS.iter().find(|g| **g == text) {
            Some(global) => Value::Func(global),
            None => Value::undefined(format!("'{text}' is undefined")),
        })
    }

    fn item(&mut self, of: &Expr, key: &Expr, scope: &Rc<Scope>) -> R<Value> {
        let of = self.expr(of, scope)?;
        if let Expr::Slice(parts) = key {
            let mut given = [None, None, None];
            for (part, v) in parts.iter().zip(&mut given) {
                *v = part.as_ref().map(|e| self.expr(e, scope)).transpose()?;
            }
            let cut = ops::slice(&of, &given)?;
            return cut.map_or_else(|| wrong(format!("a '{}' has no slices", of.type_name())), Ok);
        }
        get_item(&of, &self.expr(key, scope)?)
    }

    fn args(&mut self, args: &CallArgs, scope: &Rc<Scope>) -> R<Args> {
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
                        // A dictionary has each key once: only those that are written out may be there.
                        match k.as_str() {
                            Some(k) if args.kw.iter().all(|(name, _)| name != k) => {
                                budget::spend(args.kw.len() / 4)?;
                                budget::room(k.len() + size_of::<(String, Value)>())?;
                                budget::fits(2 * out.kw.len() * size_of::<(String, Value)>())?;
                                out.kw.push((k.to_owned(), v.clone()));
                            }
                            _ => return wrong("keywords must be strings, and each there once"),
                        }
                    }
                }
                v => return wrong(format!("argument after ** must be a mapping, not {}", v.type_name())),
            }
        }
        Ok(out)
    }

    fn call_expr(
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
                    i64::try_from(int_arg(&v)?).or_else(|_| wrong("range: a number is too large"))
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
                for (k, v) in pairs_of(args)? {
                    budget::spend(1 + attrs.len() / 16)?;
                    attrs.push((str_of(&k)?, v));
                }
                budget::spend(10)?;
                let n = Rc::new(Namespace { attrs: RefCell::new(attrs) });
                self.tracked.push(Tracked::Namespace(n.clone()));
                Ok(Value::Namespace(n))
            }
            "cycler" if args.pos.is_empty() => wrong("at least one item has to be provided"),
            "cycler" => {
                budget::spend(10)?;
                let v = Value::Cycler(Rc::new(Cycler { items: args.pos, at: Cell::new(0) }));
                self.tracked.push(Tracked::Value(v.clone()));
                Ok(v)
            }
            "joiner" => {
                budget::spend(10)?;
                let [sep] = args.bind("joiner", ["sep"], 0)?;
                let sep = sep.unwrap_or_else(|| Value::from(", "));
                let v = Value::Joiner(Rc::new(Joiner { sep, used: Cell::new(false) }));
                self.tracked.push(Tracked::Value(v.clone()));
                Ok(v)
            }
            "raise_exception" => {
                let [message] = args.bind(name, ["message"], 1)?;
                Err(Fail::Raised(str_of(&message.unwrap_or(Value::None))?))
            }
            "strftime_now" => {
                let [format] = args.bind(name, ["format"], 1)?;
                match format.as_ref().and_then(Value::as_str) {
                    Some(format) => super::time::strftime(format, self.now_unix).map(Value::from),
                    None => wrong("strftime_now wants a text"),
                }
            }
            "lipsum" => wrong("the function 'lipsum' is not supported: a prompt is the same each time"),
            _ => wrong(format!("'{name}' is not supported")),
        }
    }
}

/// What dict(pairs, name=value) and namespace(…) are given.
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
