//! Counts the cost of masks and limits the cost that a sequence may cause. A unit is about 0.1 us on the machine where
//! these numbers were measured. The result of a check follows from counts alone, so it is the same on every machine.
//!
//! A replay never fails where the original passed. The charge for a mask follows from the grammar and from the text
//! before it (rows and items of the parser, nodes of the trie), not from the lexer's earlier work. A matcher that accepts
//! a text without masks is charged nothing and keeps its full allowance. At each position, it therefore has at least as
//! much left as the original had. The lexer's fuel depends on earlier work, so it is reported and not charged. llguidance
//! limits that fuel for each mask, and the number of lexer states for each matcher.

use super::recursion::Growth;
use crate::base::error::{fail, Code, Result};
use llguidance::earley::ParserStats;

/// Units that one mask may use: 100 ms.
pub const MOST_OF_MASK: u64 = 1_000_000;
/// Units that the masks of a sequence may use above OF_EACH: 200 ms. None of the measured legitimate masks
/// (docs/develop/structured-outputs.md) exceeds OF_EACH, so this is a reserve for grammars that were not measured.
const MOST_AHEAD: u64 = 2_000_000;
/// Units that each mask may use on average: 15 ms. A walk over all tokens of the largest vocabularies takes 15 ms.
const OF_EACH: u64 = 150_000;

/// Prices of a mask. ROW and ITEM are the units for one row and one item; NODES is the number of trie nodes for one unit.
/// Items that share a row cost more, by `Growth`. Ten units of the lexer's fuel count as seven.
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
    /// Cost in units since the matcher was made, including the lexer's.
    pub cost: u64,
}

impl Budget {
    pub fn new(growth: Growth) -> Budget {
        Budget { growth, left: MOST_AHEAD, cost: 0 }
    }

    /// Reports the cost of a check that makes no mask, without charging it.
    pub fn report(&mut self, s: &ParserStats) -> u64 {
        let own = charged(s, self.growth);
        self.cost += own + s.lexer_cost * 7 / 10;
        own
    }

    /// Charges the cost of one mask after it was computed. Fails when the mask or the whole sequence exceeds its limit.
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
