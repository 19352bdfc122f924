//! Defines the Python values that templates use. All of them except namespaces are immutable, as in jinja2's
//! ImmutableSandboxedEnvironment.

use super::ast::{For, MacroDef, Sym};
use super::budget;
use super::fail::{wrong, Fail, R};
use std::borrow::Borrow;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::rc::Rc;
use std::sync::Arc;

/// Deepest nesting of lists. It is limited because functions that walk or drop nested lists are recursive.
const MAX_NESTED: u32 = 300;
pub struct TextBuf {
    pub s: String,
    /// true for the results of `safe` and `escape`: the text is not escaped again
    pub markup: bool,
}

impl Drop for TextBuf {
    fn drop(&mut self) {
        budget::count(-text_bytes(&self.s));
    }
}

fn text_bytes(s: &str) -> i64 {
    (s.len() + budget::OVERHEAD) as i64
}

/// Returns the size in bytes of n items with `values` values each.
pub(super) fn item_bytes(n: usize, values: usize) -> usize {
    n * values * size_of::<Value>() + budget::OVERHEAD
}

#[derive(Clone)]
pub struct Text(pub Rc<TextBuf>);

impl Text {
    pub fn new(s: String) -> Text {
        budget::count(text_bytes(&s));
        Text(Rc::new(TextBuf { s, markup: false }))
    }
}

impl Borrow<str> for Text {
    fn borrow(&self) -> &str {
        &self.0.s
    }
}

impl PartialEq for Text {
    fn eq(&self, other: &Text) -> bool {
        self.0.s == other.0.s
    }
}

impl Eq for Text {}

impl Hash for Text {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.s.as_str().hash(state);
    }
}

pub struct Items {
    pub v: Vec<Value>,
    depth: u32,
}

impl Drop for Items {
    fn drop(&mut self) {
        budget::count(-(item_bytes(self.v.len(), 1) as i64));
    }
}

pub(super) fn deeper<'a>(values: impl Iterator<Item = &'a Value>) -> R<u32> {
    match values.map(Value::depth).max().unwrap_or(0) + 1 {
        n if n > MAX_NESTED => Err(Fail::Limit(format!("lists are nested deeper than {MAX_NESTED}"))),
        n => Ok(n),
    }
}

impl Items {
    pub fn new(v: Vec<Value>) -> R<Rc<Items>> {
        budget::room(item_bytes(v.len(), 1))?;
        let depth = deeper(v.iter())?;
        budget::count(item_bytes(v.len(), 1) as i64);
        Ok(Rc::new(Items { v, depth }))
    }
}

/// Holds a dictionary. equal.rs makes and reads dictionaries, because keys are looked up by the equality of values.
#[derive(Default)]
pub struct Dict {
    pub entries: Vec<(Value, Value)>,
    pub(super) index: HashMap<Text, usize>,
    pub(super) depth: u32,
    pub(super) counted: usize,
}

impl Drop for Dict {
    fn drop(&mut self) {
        budget::count(-(self.counted as i64));
    }
}

/// Distinguishes a generator, which can be walked once, from a view of a dictionary.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Kind {
    Generator,
    Keys,
    Values,
    Items,
}

pub struct Walk {
    pub items: Rc<Items>,
    pub at: Cell<usize>,
    pub kind: Kind,
}

pub struct Method {
    pub of: Value,
    pub name: String,
    depth: u32,
}

/// Holds the result of namespace(), the only value that can change.
#[derive(Default)]
pub struct Namespace {
    pub attrs: RefCell<Vec<(String, Value)>>,
}

/// Holds the variables of one scope, and a link to the scope around it.
#[derive(Default)]
pub struct Scope {
    pub vars: RefCell<Vec<(Sym, Value)>>,
    parent: Option<Rc<Scope>>,
}

impl Scope {
    pub fn inside(parent: &Rc<Scope>) -> Rc<Scope> {
        Rc::new(Scope { vars: RefCell::default(), parent: Some(parent.clone()) })
    }

    pub fn get(&self, name: Sym) -> R<Option<Value>> {
        let (mut scope, mut level) = (self, 0);
        loop {
            level += 1;
            budget::spend(scope.vars.borrow().len() / 64 + usize::from(level % 4 == 0))?;
            if let Some((_, v)) = scope.vars.borrow().iter().find(|(n, _)| *n == name) {
                return Ok(Some(v.clone()));
            }
            match &scope.parent {
                Some(parent) => scope = parent,
                None => return Ok(None),
            }
        }
    }

    pub fn set(&self, name: Sym, v: Value) -> R<()> {
        let mut vars = self.vars.borrow_mut();
        budget::spend(vars.len() / 64)?;
        match vars.iter().position(|(n, _)| *n == name) {
            Some(at) => vars[at].1 = v,
            None => vars.push((name, v)),
        }
        Ok(())
    }
}

pub struct Macro {
    pub def: Arc<MacroDef>,
    pub scope: Rc<Scope>,
}

pub struct Loop {
    pub items: Vec<Value>,
    pub at: Cell<usize>,
    pub depth0: usize,
    pub changed: RefCell<Option<Vec<Value>>>,
    /// set in a recursive loop: the loop to call again, and the scope around that loop
    pub again: Option<(Arc<For>, Rc<Scope>)>,
}

pub struct Cycler {
    pub items: Vec<Value>,
    pub at: Cell<usize>,
}

pub struct Joiner {
    pub sep: Value,
    pub used: Cell<bool>,
}

#[derive(Clone)]
pub enum Value {
    /// an undefined value; the text is the error message when a template uses it
    Undefined(Rc<str>),
    None,
    Bool(bool),
    Int(i128),
    /// An integer of more than 128 bits from a context, as its digits.
    Big(Rc<str>),
    Float(f64),
    Str(Text),
    List(Rc<Items>),
    Tuple(Rc<Items>),
    Dict(Rc<Dict>),
    /// start, stop and step of a range
    Range(i64, i64, i64),
    Iter(Rc<Walk>),
    Method(Rc<Method>),
    Namespace(Rc<Namespace>),
    Macro(Rc<Macro>),
    Loop(Rc<Loop>),
    Cycler(Rc<Cycler>),
    Joiner(Rc<Joiner>),
    Func(&'static str),
}

impl From<bool> for Value {
    fn from(b: bool) -> Value {
        Value::Bool(b)
    }
}

impl From<usize> for Value {
    fn from(n: usize) -> Value {
        Value::Int(n as i128)
    }
}

impl From<&str> for Value {
    fn from(s: &str) -> Value {
        Value::Str(Text::new(s.to_owned()))
    }
}

impl From<String> for Value {
    fn from(s: String) -> Value {
        Value::Str(Text::new(s))
    }
}

impl Value {
    pub fn undefined(why: impl AsRef<str>) -> Value {
        Value::Undefined(Rc::from(why.as_ref()))
    }

    pub fn list(v: Vec<Value>) -> R<Value> {
        Items::new(v).map(Value::List)
    }

    pub fn tuple(v: Vec<Value>) -> R<Value> {
        Items::new(v).map(Value::Tuple)
    }

    pub fn walk(v: Vec<Value>, kind: Kind) -> R<Value> {
        Ok(Value::Iter(Rc::new(Walk { items: Items::new(v)?, at: Cell::new(0), kind })))
    }

    pub fn generator(v: Vec<Value>) -> R<Value> {
        Value::walk(v, Kind::Generator)
    }

    pub fn markup(s: String) -> Value {
        budget::count(text_bytes(&s));
        Value::Str(Text(Rc::new(TextBuf { s, markup: true })))
    }

    pub fn method(of: &Value, name: &str) -> R<Value> {
        let depth = deeper(std::iter::once(of))?;
        Ok(Value::Method(Rc::new(Method { of: of.clone(), name: name.to_owned(), depth })))
    }

    fn depth(&self) -> u32 {
        match self {
            Value::List(i) | Value::Tuple(i) => i.depth,
            Value::Dict(d) => d.depth,
            Value::Iter(w) => w.items.depth,
            Value::Method(m) => m.depth,
            _ => 0,
        }
    }

    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::Str(t) => Some(&t.0.s),
            _ => None,
        }
    }

    pub fn is_markup(&self) -> bool {
        matches!(self, Value::Str(t) if t.0.markup)
    }

    /// Marks the text, or each text of a list, as escaped when `of` is escaped.
    pub fn marked_as(self, of: &Value) -> R<Value> {
        if !of.is_markup() {
            return Ok(self);
        }
        let each = |items: &Items| items.v.iter().map(|v| v.clone().marked_as(of)).collect::<R<Vec<_>>>();
        match &self {
            Value::Str(t) => {
                budget::room(t.0.s.len())?;
                Ok(Value::markup(t.0.s.clone()))
            }
            Value::List(items) => Value::list(each(items)?),
            Value::Tuple(items) => Value::tuple(each(items)?),
            _ => Ok(self),
        }
    }

    pub fn is_undefined(&self) -> bool {
        matches!(self, Value::Undefined(_))
    }

    pub fn is_none(&self) -> bool {
        matches!(self, Value::None)
    }

    /// Returns the name of the type as Python's type(value).__name__ does.
    pub fn type_name(&self) -> &'static str {
        match self {
            Value::Undefined(_) => "Undefined",
            Value::None => "NoneType",
            Value::Bool(_) => "bool",
            Value::Int(_) | Value::Big(_) => "int",
            Value::Float(_) => "float",
            Value::Str(t) if t.0.markup => "Markup",
            Value::Str(_) => "str",
            Value::List(_) => "list",
            Value::Tuple(_) => "tuple",
            Value::Dict(_) => "dict",
            Value::Range(..) => "range",
            Value::Iter(w) => match w.kind {
                Kind::Generator => "generator",
                Kind::Keys => "dict_keys",
                Kind::Values => "dict_values",
                Kind::Items => "dict_items",
            },
            Value::Method(_) => "builtin_function_or_method",
            Value::Namespace(_) => "Namespace",
            Value::Macro(_) => "Macro",
            Value::Loop(_) => "LoopContext",
            Value::Cycler(_) => "Cycler",
            Value::Joiner(_) => "Joiner",
            Value::Func(_) => "function",
        }
    }

    /// Fails when Python cannot hash the value. Such a value cannot be a key or a member of a set.
    pub fn hashable(&self) -> R<()> {
        let is_set = |w: &Walk| matches!(w.kind, Kind::Keys | Kind::Items);
        match self {
            Value::Tuple(items) => {
                budget::spend(1 + items.v.len() / 4)?;
                items.v.iter().try_for_each(Value::hashable)
            }
            Value::Iter(w) if !is_set(w) => Ok(()),
            Value::List(_) | Value::Dict(_) | Value::Iter(_) => {
                wrong(format!("unhashable type: '{}'", self.type_name()))
            }
            _ => Ok(()),
        }
    }

    pub fn truth(&self) -> bool {
        match self {
            Value::Undefined(_) | Value::None => false,
            Value::Bool(b) => *b,
            Value::Int(i) => *i != 0,
            Value::Float(f) => *f != 0.0,
            Value::Iter(w) if w.kind == Kind::Generator => true,
            Value::Str(t) => !t.0.s.is_empty(),
            _ => self.len().map_or(true, |n| n > 0),
        }
    }

    /// Returns the length of the value; None when the value has no length.
    pub fn len(&self) -> Option<usize> {
        Some(match self {
            Value::Undefined(_) => 0,
            Value::Str(t) => t.0.s.chars().count(),
            Value::List(i) | Value::Tuple(i) => i.v.len(),
            Value::Dict(d) => d.entries.len(),
            Value::Range(start, stop, step) => range_len(*start, *stop, *step),
            Value::Iter(w) if w.kind != Kind::Generator => w.items.v.len(),
            Value::Loop(l) => l.items.len(),
            _ => return None,
        })
    }

    pub fn length(&self) -> R<usize> {
        budget::glance(self.as_str().map_or(0, str::len))?;
        self.len().map_or_else(|| wrong(format!("object of type '{}' has no len()", self.type_name())), Ok)
    }

    /// Returns the items of a value that can be walked. For a generator, these are the remaining items.
    pub fn iterate(&self) -> R<Vec<Value>> {
        budget::glance(self.as_str().map_or(0, str::len))?;
        let n = self.len().unwrap_or(0);
        let each = if self.as_str().is_some() { budget::OVERHEAD + 4 } else { 0 };
        budget::room(n * (size_of::<Value>() + each))?;
        budget::spend(if each > 0 { 2 * n } else { n })?;
        Ok(match self {
            Value::Undefined(_) => vec![],
            Value::Str(t) => t.0.s.chars().map(|c| Value::from(c.to_string())).collect(),
            Value::List(i) | Value::Tuple(i) => i.v.clone(),
            Value::Dict(d) => d.entries.iter().map(|(k, _)| k.clone()).collect(),
            Value::Range(start, _, step) => {
                (0..n as i128).map(|i| Value::Int(i128::from(*start) + i * i128::from(*step))).collect()
            }
            Value::Iter(w) if w.kind == Kind::Generator => {
                let from = w.at.replace(w.items.v.len());
                budget::room((w.items.v.len() - from) * size_of::<Value>())?;
                budget::spend(w.items.v.len() - from)?;
                w.items.v[from..].to_vec()
            }
            Value::Iter(w) => w.items.v.clone(),
            _ => return wrong(format!("'{}' object is not iterable", self.type_name())),
        })
    }
}

pub fn range_len(start: i64, stop: i64, step: i64) -> usize {
    let (start, stop, step) = (i128::from(start), i128::from(stop), i128::from(step));
    let n = match step {
        1.. => (stop - start + step - 1) / step,
        _ => (start - stop - step - 1) / -step,
    };
    n.max(0) as usize
}

/// Holds the arguments of a call.
#[derive(Default)]
pub struct Args {
    pub pos: Vec<Value>,
    pub kw: Vec<(String, Value)>,
}

impl Args {
    /// Assigns arguments by position or by name. A parameter with an empty name is positional only. The first `required`
    /// parameters must be given.
    pub fn bind<const N: usize>(
        self,
        what: &str,
        names: [&str; N],
        required: usize,
    ) -> R<[Option<Value>; N]> {
        let mut out = [const { None }; N];
        if self.pos.len() > N {
            return wrong(format!("{what}() takes at most {N} arguments ({} given)", self.pos.len()));
        }
        for (i, v) in self.pos.into_iter().enumerate() {
            out[i] = Some(v);
        }
        for (name, v) in self.kw {
            match names.iter().position(|n| *n == name && !n.is_empty()) {
                Some(i) if out[i].is_none() => out[i] = Some(v),
                Some(_) => return wrong(format!("{what}() got multiple values for argument '{name}'")),
                None => return wrong(format!("{what}() got an unexpected keyword argument '{name}'")),
            }
        }
        match (0..required).find(|&i| out[i].is_none()) {
            Some(i) => wrong(format!("{what}() misses its argument {} {}", i + 1, names[i])),
            None => Ok(out),
        }
    }

    pub fn none(self, what: &str) -> R<()> {
        self.bind(what, [], 0).map(|_: [Option<Value>; 0]| ())
    }
}

pub fn not_str<T>(v: &Value) -> R<T> {
    match v {
        Value::Undefined(why) => wrong(why.as_ref()),
        _ => wrong(format!("'{}' object is not a string", v.type_name())),
    }
}
