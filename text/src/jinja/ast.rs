//! Defines the tree of a template, with the nodes of jinja2. Variables are numbers: indexes into Tree::names. Threads
//! that render a template share its tree.

use std::sync::Arc;

pub type Sym = u32;

pub enum Const {
    None,
    Bool(bool),
    Int(i128),
    Float(f64),
    Str(String),
}

#[derive(Default)]
pub struct CallArgs {
    pub pos: Vec<Expr>,
    pub kw: Vec<(String, Expr)>,
    pub star: Option<Expr>,
    pub star_star: Option<Expr>,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Op {
    Add,
    Sub,
    Mul,
    Div,
    FloorDiv,
    Mod,
    Pow,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Cmp {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    In,
    NotIn,
}

pub enum Expr {
    Const(Const),
    Name(Sym),
    Tuple(Vec<Expr>),
    List(Vec<Expr>),
    Dict(Vec<(Expr, Expr)>),
    Attr(Box<Expr>, String),
    Item(Box<Expr>, Box<Expr>),
    Slice(Box<[Option<Expr>; 3]>),
    Call(Box<Expr>, Box<CallArgs>),
    Filter(Box<Expr>, String, Box<CallArgs>),
    Test(Box<Expr>, String, Box<CallArgs>),
    Not(Box<Expr>),
    Neg(Box<Expr>),
    Pos(Box<Expr>),
    And(Box<Expr>, Box<Expr>),
    Or(Box<Expr>, Box<Expr>),
    Bin(Op, Box<Expr>, Box<Expr>),
    Concat(Vec<Expr>),
    /// the condition, the value when it is true, and the value when it is false
    Cond(Box<Expr>, Box<Expr>, Option<Box<Expr>>),
    Compare(Box<Expr>, Vec<(Cmp, Expr)>),
    /// the text of a block that a filter is applied to
    Body,
}

pub enum Target {
    Name(Sym),
    /// an attribute of a namespace
    Attr(Sym, String),
    Tuple(Vec<Target>),
}

pub struct For {
    pub target: Target,
    pub over: Expr,
    pub test: Option<Expr>,
    pub recursive: bool,
    pub body: Vec<Stmt>,
    pub other: Vec<Stmt>,
    /// true when the body of the loop mentions `loop`
    pub uses_loop: bool,
}

pub struct MacroDef {
    pub name: String,
    pub params: Vec<Sym>,
    /// default values of the last parameters
    pub defaults: Vec<Expr>,
    pub body: Vec<Stmt>,
    pub uses_caller: bool,
    pub uses_kwargs: bool,
    pub uses_varargs: bool,
}

pub enum Stmt {
    Text(String),
    /// an expression whose value is output, and its line
    Out(Expr, u32),
    If(Vec<(Expr, Vec<Stmt>)>, Vec<Stmt>, u32),
    For(Arc<For>, u32),
    Set(Target, Expr, u32),
    /// a block whose text becomes a variable, with the filter for the text
    SetBlock(Target, Option<Expr>, Vec<Stmt>),
    Macro(Sym, Arc<MacroDef>),
    CallBlock(Arc<MacroDef>, Expr, u32),
    FilterBlock(Expr, Vec<Stmt>),
    With(Vec<(Target, Expr)>, Vec<Stmt>),
    /// a scope: variables that are set in it end with it
    Scope(Vec<Stmt>),
    /// a block, which can read the template's own variables; it can read the variables around it only when the bool
    /// (`scoped`) is true
    Block(Vec<Stmt>, bool),
    Break,
    Continue,
}

pub struct Tree {
    pub names: Vec<String>,
    pub body: Vec<Stmt>,
}
