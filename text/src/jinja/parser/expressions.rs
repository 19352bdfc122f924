//! Parses expressions, from the loosest operator to the tightest, with the filters, tests and calls behind a value.

use super::{is_name, is_op, Parser, NESTED};
use crate::jinja::ast::*;
use crate::jinja::fail::R;
use crate::jinja::lexer::Token;

impl Parser {
    pub(super) fn expression(&mut self) -> R<Expr> {
        self.deeper(NESTED)?;
        let from = self.depth;
        let mut e = self.or()?;
        while self.skip_name("if") {
            self.deeper(1)?;
            let test = self.or()?;
            let other = if self.skip_name("else") { Some(Box::new(self.expression()?)) } else { None };
            e = Expr::Cond(Box::new(test), Box::new(e), other);
        }
        self.depth = from - NESTED;
        Ok(e)
    }

    /// Parses one expression or, with commas, a tuple. The name `end` ends it.
    pub(super) fn tuple(&mut self, conditional: bool, end: Option<&str>) -> R<Expr> {
        let (mut items, mut is_tuple) = (vec![], false);
        loop {
            let at_end = matches!(self.now(), Token::VariableEnd | Token::BlockEnd) || is_op(self.now(), ")");
            if at_end || end.is_some_and(|e| is_name(self.now(), e)) {
                break;
            }
            items.push(if conditional { self.expression()? } else { self.or()? });
            if !self.skip_op(",") {
                break;
            }
            is_tuple = true;
        }
        match items.len() {
            0 => self.unexpected("an expression"),
            1 if !is_tuple => Ok(items.remove(0)),
            _ => Ok(Expr::Tuple(items)),
        }
    }

    /// Parses `left OP right OP …` at one level of precedence.
    fn chain(
        &mut self,
        next: fn(&mut Parser) -> R<Expr>,
        make: fn(&Token) -> Option<fn(Box<Expr>, Box<Expr>) -> Expr>,
    ) -> R<Expr> {
        let from = self.depth;
        let mut left = next(self)?;
        while let Some(make) = make(self.now()) {
            self.deeper(1)?;
            self.at += 1;
            left = make(Box::new(left), Box::new(next(self)?));
        }
        self.depth = from;
        Ok(left)
    }

    fn or(&mut self) -> R<Expr> {
        self.chain(Parser::and, |t| is_name(t, "or").then_some(Expr::Or))
    }

    fn and(&mut self) -> R<Expr> {
        self.chain(Parser::not, |t| is_name(t, "and").then_some(Expr::And))
    }

    fn not(&mut self) -> R<Expr> {
        if !self.skip_name("not") {
            return self.compare();
        }
        self.deeper(1)?;
        let e = Expr::Not(Box::new(self.not()?));
        self.depth -= 1;
        Ok(e)
    }

    fn compare(&mut self) -> R<Expr> {
        let first = self.sum()?;
        let mut rest = Vec::new();
        loop {
            let cmp = match self.now() {
                Token::Op("==") => Cmp::Eq,
                Token::Op("!=") => Cmp::Ne,
                Token::Op("<") => Cmp::Lt,
                Token::Op("<=") => Cmp::Le,
                Token::Op(">") => Cmp::Gt,
                Token::Op(">=") => Cmp::Ge,
                t if is_name(t, "in") => Cmp::In,
                t if is_name(t, "not") && is_name(self.ahead(), "in") => {
                    self.at += 1;
                    Cmp::NotIn
                }
                _ => break,
            };
            self.at += 1;
            rest.push((cmp, self.sum()?));
        }
        Ok(if rest.is_empty() { first } else { Expr::Compare(Box::new(first), rest) })
    }

    fn sum(&mut self) -> R<Expr> {
        self.chain(Parser::concat, |t| match t {
            Token::Op("+") => Some(|a, b| Expr::Bin(Op::Add, a, b)),
            Token::Op("-") => Some(|a, b| Expr::Bin(Op::Sub, a, b)),
            _ => None,
        })
    }

    fn concat(&mut self) -> R<Expr> {
        let mut items = vec![self.product()?];
        while self.skip_op("~") {
            items.push(self.product()?);
        }
        Ok(if items.len() == 1 { items.remove(0) } else { Expr::Concat(items) })
    }

    fn product(&mut self) -> R<Expr> {
        self.chain(Parser::power, |t| match t {
            Token::Op("*") => Some(|a, b| Expr::Bin(Op::Mul, a, b)),
            Token::Op("/") => Some(|a, b| Expr::Bin(Op::Div, a, b)),
            Token::Op("//") => Some(|a, b| Expr::Bin(Op::FloorDiv, a, b)),
            Token::Op("%") => Some(|a, b| Expr::Bin(Op::Mod, a, b)),
            _ => None,
        })
    }

    fn power(&mut self) -> R<Expr> {
        self.chain(Parser::filtered, |t| match t {
            Token::Op("**") => Some(|a, b| Expr::Bin(Op::Pow, a, b)),
            _ => None,
        })
    }

    fn filtered(&mut self) -> R<Expr> {
        let e = self.unary()?;
        self.filters(e)
    }

    fn unary(&mut self) -> R<Expr> {
        let make: fn(Box<Expr>) -> Expr = match self.now() {
            Token::Op("-") => Expr::Neg,
            Token::Op("+") => Expr::Pos,
            _ => {
                let e = self.primary()?;
                return self.postfix(e);
            }
        };
        self.at += 1;
        self.deeper(1)?;
        let e = make(Box::new(self.unary()?));
        self.depth -= 1;
        self.postfix(e)
    }

    fn primary(&mut self) -> R<Expr> {
        let token = self.now().clone();
        self.at += 1;
        Ok(match token {
            Token::Name(n) => match n.as_str() {
                "true" | "True" => Expr::Const(Const::Bool(true)),
                "false" | "False" => Expr::Const(Const::Bool(false)),
                "none" | "None" => Expr::Const(Const::None),
                name => Expr::Name(self.sym(name)),
            },
            Token::Str(mut s) => {
                while let Token::Str(more) = self.now() {
                    s.push_str(more);
                    self.at += 1;
                }
                Expr::Const(Const::Str(s))
            }
            Token::Int(n) => Expr::Const(Const::Int(n)),
            Token::Float(f) => Expr::Const(Const::Float(f)),
            Token::Op("(") => {
                if self.skip_op(")") {
                    return Ok(Expr::Tuple(vec![]));
                }
                let e = self.tuple(true, None)?;
                self.op(")")?;
                e
            }
            Token::Op("[") => Expr::List(self.items("]", Parser::expression)?),
            Token::Op("{") => Expr::Dict(self.items("}", |p| {
                let key = p.expression()?;
                p.op(":")?;
                Ok((key, p.expression()?))
            })?),
            _ => {
                self.at -= 1;
                return self.unexpected("an expression");
            }
        })
    }

    /// Parses comma-separated items up to the closing bracket. A trailing comma is allowed.
    fn items<T>(&mut self, close: &str, one: fn(&mut Parser) -> R<T>) -> R<Vec<T>> {
        let mut out = Vec::new();
        while !self.skip_op(close) {
            if !out.is_empty() {
                self.op(",")?;
                if self.skip_op(close) {
                    break;
                }
            }
            out.push(one(self)?);
        }
        Ok(out)
    }

    fn postfix(&mut self, mut e: Expr) -> R<Expr> {
        let from = self.depth;
        loop {
            self.deeper(1)?;
            e = match self.now() {
                Token::Op(".") => {
                    self.at += 1;
                    match self.now().clone() {
                        Token::Name(n) => {
                            self.at += 1;
                            Expr::Attr(Box::new(e), n)
                        }
                        Token::Int(i) => {
                            self.at += 1;
                            Expr::Item(Box::new(e), Box::new(Expr::Const(Const::Int(i))))
                        }
                        _ => return self.fail("expected name or number"),
                    }
                }
                Token::Op("[") => {
                    self.at += 1;
                    let mut keys = self.items("]", Parser::subscript)?;
                    let key = if keys.len() == 1 { keys.remove(0) } else { Expr::Tuple(keys) };
                    Expr::Item(Box::new(e), Box::new(key))
                }
                Token::Op("(") => Expr::Call(Box::new(e), Box::new(self.call_args()?)),
                _ => break,
            };
        }
        self.depth = from;
        Ok(e)
    }

    fn subscript(&mut self) -> R<Expr> {
        let at_end = |p: &Parser| [":", "]", ","].iter().any(|op| is_op(p.now(), op));
        let part = |p: &mut Parser| if at_end(p) { Ok(None) } else { p.expression().map(Some) };
        let start = part(self)?;
        if !self.skip_op(":") {
            return start.map_or_else(|| self.unexpected("an expression"), Ok);
        }
        let stop = part(self)?;
        let step = if self.skip_op(":") { part(self)? } else { None };
        Ok(Expr::Slice(Box::new([start, stop, step])))
    }

    fn call_args(&mut self) -> R<CallArgs> {
        let mut args = CallArgs::default();
        self.op("(")?;
        let mut comma = false;
        while !is_op(self.now(), ")") {
            if comma {
                self.op(",")?;
                if is_op(self.now(), ")") {
                    break;
                }
            }
            comma = true;
            let is_kw = matches!(self.now(), Token::Name(_)) && is_op(self.ahead(), "=");
            let late = args.star_star.is_some() || args.star.is_some() && !is_kw && !is_op(self.now(), "**");
            if late || !args.kw.is_empty() && !is_kw && !is_op(self.now(), "*") && !is_op(self.now(), "**") {
                return self.fail("invalid syntax for function call expression");
            }
            if self.skip_op("*") {
                args.star = Some(self.expression()?);
            } else if self.skip_op("**") {
                args.star_star = Some(self.expression()?);
            } else if is_kw {
                let name = self.word()?;
                self.at += 1;
                args.kw.push((name, self.expression()?));
            } else {
                args.pos.push(self.expression()?);
            }
        }
        self.op(")")?;
        Ok(args)
    }

    /// Parses the filters, tests and calls behind a value.
    pub(super) fn filters(&mut self, mut e: Expr) -> R<Expr> {
        let from = self.depth;
        loop {
            self.deeper(1)?;
            e = if self.skip_op("|") {
                self.filter(e)?
            } else if self.skip_name("is") {
                self.test(e)?
            } else if is_op(self.now(), "(") {
                Expr::Call(Box::new(e), Box::new(self.call_args()?))
            } else {
                break;
            };
        }
        self.depth = from;
        Ok(e)
    }

    fn dotted(&mut self) -> R<String> {
        let mut name = self.word()?;
        while self.skip_op(".") {
            name = format!("{name}.{}", self.word()?);
        }
        Ok(name)
    }

    pub(super) fn filter(&mut self, e: Expr) -> R<Expr> {
        let name = self.dotted()?;
        let args = if is_op(self.now(), "(") { self.call_args()? } else { CallArgs::default() };
        Ok(Expr::Filter(Box::new(e), name, Box::new(args)))
    }

    fn test(&mut self, e: Expr) -> R<Expr> {
        let negated = self.skip_name("not");
        let name = self.dotted()?;
        let args = match self.now() {
            Token::Op("(") => self.call_args()?,
            Token::Name(n) if ["else", "or", "and"].contains(&n.as_str()) => CallArgs::default(),
            Token::Name(n) if n == "is" => return self.fail("You cannot chain multiple tests with is"),
            Token::Name(_) | Token::Str(_) | Token::Int(_) | Token::Float(_) | Token::Op("[" | "{") => {
                let arg = self.primary()?;
                CallArgs { pos: vec![self.postfix(arg)?], ..Default::default() }
            }
            _ => CallArgs::default(),
        };
        let test = Expr::Test(Box::new(e), name, Box::new(args));
        Ok(if negated { Expr::Not(Box::new(test)) } else { test })
    }
}
