//! Rewrites JSON schemas for llguidance. `check` is the entry. `rules` rewrites a schema pass by pass, and schemas that
//! would cost too much or be read wrongly are refused.

pub mod check;
pub mod far;
mod graph;
mod joins;
mod members;
pub mod names;
mod number_text;
mod numbers;
mod options;
mod pattern;
mod pattern_check;
mod pattern_text;
pub mod regex_ways;
mod rules;
pub mod stand_ins;
pub mod text;
mod walk;
