//! Holds a set of texts, and finds those with which another text begins. There is one node for each byte; a node's
//! children are adjacent and sorted by their byte. The trie never changes after it is made.

#[derive(Clone, Copy)]
struct Node {
    first: u32, // index of the first child
    n: u16,
    label: u8,
    value: u32,
}

const NO_VALUE: u32 = u32::MAX;

#[derive(Default)]
pub struct Trie {
    nodes: Vec<Node>,
}

impl Trie {
    /// Builds the trie. The entries must not be empty, and each text may occur once.
    pub fn new(mut entries: Vec<(&[u8], u32)>) -> Trie {
        if entries.is_empty() {
            return Trie::default();
        }
        entries.sort_unstable();
        let mut nodes = vec![Node { first: 0, n: 0, label: 0, value: NO_VALUE }];
        // `ranges` has the range of entries of each node, and the number of bytes that lead to the node. Nodes are made
        // level by level.
        let mut ranges = vec![(0, entries.len(), 0)];
        let mut at = 0;
        while at < nodes.len() {
            let (mut from, to, depth) = ranges[at];
            if entries[from].0.len() == depth {
                nodes[at].value = entries[from].1;
                from += 1;
            }
            nodes[at].first = nodes.len() as u32;
            while from < to {
                let label = entries[from].0[depth];
                let n = entries[from..to].partition_point(|e| e.0[depth] == label);
                nodes.push(Node { first: 0, n: 0, label, value: NO_VALUE });
                ranges.push((from, from + n, depth + 1));
                nodes[at].n += 1;
                from += n;
            }
            at += 1;
        }
        Trie { nodes }
    }

    /// Calls `found` with the length and the value of every entry that `text` begins with, shortest first.
    pub fn prefixes(&self, text: &[u8], mut found: impl FnMut(usize, u32)) {
        let Some(mut node) = self.nodes.first() else { return };
        for (i, &byte) in text.iter().enumerate() {
            let children = &self.nodes[node.first as usize..node.first as usize + usize::from(node.n)];
            let Ok(child) = children.binary_search_by_key(&byte, |c| c.label) else { return };
            node = &children[child];
            if node.value != NO_VALUE {
                found(i + 1, node.value);
            }
        }
    }

    /// Returns the length of the longest entry that `text` begins with.
    pub fn longest(&self, text: &[u8]) -> Option<usize> {
        let mut longest = None;
        self.prefixes(text, |len, _| longest = Some(len));
        longest
    }
}
