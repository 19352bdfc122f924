//! Renders a tree. Scopes are searched from the inside out, as jinja2's compiler resolves names. Namespaces and macros
//! with their scopes may form reference cycles, so they are emptied at the end.

mod attributes;
mod calls;

use super::ast::*;
use super::budget;
use super::fail::{wrong, Fail, R};
use super::format::str_of;
use super::items;
use super::ops;
use super::value::*;
pub use attributes::{get_attr, get_attr_only, get_item};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

/// Limit of nested calls; each level of nested nodes is one call.
const MAX_DEPTH: usize = 2000;
/// Size in bytes of a scope, a namespace or an iterator, including its holder.
const TRACKED_BYTES: usize = 256;
const MAX_OUTPUT: usize = 64 << 20;

/// Holds a value that may be part of a reference cycle.
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
    /// the texts of the blocks that filters are being applied to
    bodies: Vec<Value>,
    tracked: Vec<Tracked>,
    /// the names that the engine itself sets, with their numbers
    special: Vec<(&'static str, Sym)>,
}

const SPECIAL: [&str; 4] = ["loop", "caller", "kwargs", "varargs"];
const GLOBALS: [&str; 9] =
    ["range", "dict", "lipsum", "cycler", "joiner", "namespace", "raise_exception", "strftime_now", "self"];

/// Returns the rendered text, or the failure and its line.
pub fn render(tree: &Tree, context: &Value, now_unix: i64) -> Result<String, (Fail, u32)> {
    let root = Rc::new(Scope::default());
    if let Value::Dict(d) = context {
        for (sym, name) in tree.names.iter().enumerate() {
            if let Some(v) = d.get_str(name) {
                root.vars.borrow_mut().push((sym as Sym, v.clone()));
            }
        }
    }
    // The template's own variables are found before the context, and before the variables that a block sees.
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
    // This loop empties the values, so that no reference cycle is left. Below, the values are dropped, the newest first,
    // when only this list still holds them.
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

impl Eval<'_> {
    fn sym(&self, name: &str) -> Option<Sym> {
        self.special.iter().find(|(n, _)| *n == name).map(|(_, sym)| *sym)
    }

    fn enter(&mut self) -> R<()> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(Fail::Limit(format!(
                "calls are nested more than {MAX_DEPTH} levels deep (the recursion limit)"
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

    /// Runs `f` and returns the text that it writes.
    fn captured<T>(&mut self, f: impl FnOnce(&mut Self) -> R<T>) -> R<Value> {
        budget::spend(3)?;
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
                let m = self.make_macro(def, scope)?;
                scope.set(*name, m)?;
            }
            Stmt::CallBlock(def, call, line) => {
                self.line = *line;
                let caller = self.make_macro(def, scope)?;
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
            Stmt::Block(body, scoped) => {
                let around = if *scoped { scope.clone() } else { self.root.clone() };
                self.body(body, &Scope::inside(&around))?;
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

    fn make_macro(&mut self, def: &Arc<MacroDef>, scope: &Rc<Scope>) -> R<Value> {
        let vars = scope.vars.borrow().len() * size_of::<(Sym, Value)>();
        self.track(Tracked::Scope(scope.clone()), vars)?;
        Ok(Value::Macro(Rc::new(Macro { def: def.clone(), scope: scope.clone() })))
    }

    /// Keeps a value that may be part of a cycle until the end of the rendering. The value's bytes count as live until
    /// then.
    fn track(&mut self, it: Tracked, bytes: usize) -> R<()> {
        let bytes = TRACKED_BYTES.saturating_add(2 * bytes);
        budget::room(bytes)?;
        budget::spend(10)?;
        budget::count(bytes as i64);
        self.tracked.push(it);
        Ok(())
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

    /// Runs a loop whose body uses `loop`. Returns true when at least one pass reached the end of the body. As in jinja2,
    /// `else` runs only when no pass did.
    fn run_loop(&mut self, f: &Arc<For>, items: Vec<Value>, scope: &Rc<Scope>, depth0: usize) -> R<bool> {
        let again = f.recursive.then(|| (f.clone(), scope.clone()));
        let this = Rc::new(Loop { items, at: Cell::new(0), depth0, changed: RefCell::default(), again });
        let done = self.passes(f, &this, scope);
        // The loop itself may be among the values that changed() remembers.
        drop(this.changed.take());
        if Rc::strong_count(&this) > 1 {
            let bytes = this.items.len() * size_of::<Value>();
            self.track(Tracked::Value(Value::Loop(this)), bytes)?;
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
            Expr::Slice(_) => return wrong("a slice is allowed only in brackets"),
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
            let cut = items::slice(&of, &given)?;
            return cut
                .map_or_else(|| wrong(format!("a value of type '{}' cannot be sliced", of.type_name())), Ok);
        }
        get_item(&of, &self.expr(key, scope)?)
    }
}
