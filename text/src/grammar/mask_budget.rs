//! What masks cost, counted, and how much of it a sequence may have. A unit is about 0.1 us on the machine that these
//! figures are of; the verdict is of counts alone, so it is the same on every machine.
//!
//! A replay never fails where the original passed: what a mask is charged follows from the grammar and the text in front of
//! it (rows and items of the parser, nodes of the trie), not from what the lexer has made before. A matcher that takes
//! a text without its masks is charged nothing for it, and its allowance is full: what it has left is at each place at
//! least what the original had there. The lexer's fuel, which depends on what was looked at before, is reported
//! and not charged: the crate bounds it for each mask, and its states for each matcher.

use super::recursion::Growth;
use crate::base::error::{fail, Code, Result};
use llguidance::earley::ParserStats;

/// Of one mask: 100 ms.
pub const MOST_OF_MASK: u64 = 1_000_000;
/// Of the masks of a sequence above what each may have: 200 ms. No honest mask that was measured (docs/develop/structured-outputs.md) is
/// above that, so this is what a grammar may have that nobody has thought of.
const MOST_AHEAD: u64 = 2_000_000;
/// Of each mask in the mean: 15 ms, a walk of all tokens of the largest vocabularies.
const OF_EACH: u64 = 150_000;

/// In units: a row, an item beside those of its row (Growth), five nodes of the trie, ten of the lexer's fuel.
const ROW: u64 = 5;
const ITEM: u64 = 1;
const NODES: u64 = 5;

fn charged(s: &ParserStats, growth: Growth) -> u64 {
    let (rows, items) = (s.rows as u64, s.all_items as u64);
    let together = items.saturating_mul(items / rows.max(1)).saturating_mul(growth as u64) / 1000;
    rows * ROW + items * ITEM + together + s.trie_nodes_walked as u64 / NODES
}

#[derive(Clone)]
pub struct Budget {
    growth: Growth,
    left: u64,
    /// All units since the matcher was made, the lexer's with them.
    pub cost: u64,
}

impl Budget {
    pub fn new(growth: Growth) -> Budget {
        Budget { growth, left: MOST_AHEAD, cost: 0 }
    }

    /// Of a look that is no mask: reported, and not charged.
    pub fn report(&mut self, s: &ParserStats) -> u64 {
        let own = charged(s, self.growth);
        self.cost += own + s.lexer_cost * 7 / 10;
        own
    }

    /// Behind a mask.
    pub fn charge(&mut self, s: &ParserStats) -> Result<()> {
        let own = self.report(s);
        self.left = (self.left + OF_EACH).min(MOST_AHEAD + OF_EACH);
        if own > MOST_OF_MASK || own > self.left {
            let which = if own > MOST_OF_MASK { "after this text" } else { "token by token" };
            return fail(
                Code::Limit,
                format!("computing the tokens that the grammar allows {which} costs more than it may. Write repetition \
                         left-recursively (list: item | list item), or use longer terminals"),
            );
        }
        self.left -= own;
        Ok(())
    }
}
