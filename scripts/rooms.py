"""Finds circles among modules, which this script calls rooms, and the arrows between them.

A room is one stem: x.c with x.h, x.cu with x.cuh; one module of Rust; one module of Python. A header without a source of its stem
is a separate room. An arrow A -> B means that a file of A includes a header of B, or names a function or data that B's source
defines for other files. A circle is a set of rooms that all reach each other by arrows. rooms_c.py, rooms_rust.py and
rooms_python.py read the arrows.
"""
from collections import defaultdict


def stem(path):
    return path.rsplit(".", 1)[0]


class Arrows:
    """Keeps the arrows. arrows[A][B] has the reasons why room A depends on room B, as the texts "includes FILE" and "names NAME"."""

    def __init__(self):
        self.arrows = defaultdict(lambda: defaultdict(set))
        self.instead = {}  # (A, B, "names NAME") -> other rooms that define the name; A means only one of these rooms and B

    def add(self, frm, to, why, instead=()):
        if frm != to:
            self.arrows[frm][to].add(why)
            if instead:
                self.instead[frm, to, why] = instead

    def circles(self):
        """Returns the sets of two or more rooms that reach each other (Tarjan, SIAM J. Comput. 1972), the largest first."""
        index, low, on, stack, found = {}, {}, set(), [], []
        for start in list(self.arrows):
            if start in index:
                continue
            index[start] = low[start] = len(index)
            stack.append(start)
            on.add(start)
            work = [(start, iter(sorted(self.arrows.get(start, ()))))]
            while work:
                room, rest = work[-1]
                for to in rest:
                    if to not in index:
                        index[to] = low[to] = len(index)
                        stack.append(to)
                        on.add(to)
                        work.append((to, iter(sorted(self.arrows.get(to, ())))))
                        break
                    if to in on:
                        low[room] = min(low[room], index[to])
                else:
                    work.pop()
                    if work:
                        low[work[-1][0]] = min(low[work[-1][0]], low[room])
                    if low[room] == index[room]:
                        members = set()
                        while True:
                            member = stack.pop()
                            on.discard(member)
                            members.add(member)
                            if member == room:
                                break
                        if len(members) > 1:
                            found.append(sorted(members))
        return sorted(found, key=lambda c: (-len(c), c))

    def ties(self, members):
        """Returns the arrows inside a circle, as lines "A -> B: includes b.h, names b_do"."""
        inside = set(members)
        return [f"{a} -> {b}: {', '.join(sorted(why))}" for a in members
                for b, why in sorted(self.arrows[a].items()) if b in inside]
