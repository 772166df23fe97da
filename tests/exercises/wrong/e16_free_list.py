"""Exercise 16: wrong answers, and a right one of another shape."""

from tests.exercises.wrong.edits import Wrong

TAKE_BACK = "self._take_back()\n        if not self._free or"
IF_ROOM = "if not self._free and self._count < self._most:"
POP = "self._free.pop() if self._free else NO_SLOT"
IF_OUT = "if slot not in self._out or self._lent.get(slot, back) is not back:"
WHOSE = "slot = back.slot if isinstance(back, Loan) else back"
IF_RETIRED = "if back.retired:"
OUT_IS_LENT = "self._out = set(self._lent)"
REST = "[slot for slot in range(self._count) if slot not in self._out]"
WRONG = {
    "any_loan": Wrong("an old loan ends a new one", (IF_OUT, "if slot not in self._out:")),
    "by_turns": Wrong(
        "grants what is out",
        grant="""
            slot = task_id % self._most
            return slot, slot in self._fresh
        """,
    ),
    "drops_retired": Wrong(
        "loses retired slots", (IF_RETIRED, f"{IF_RETIRED}\n                    continue\n                if False:")
    ),
    "frees_when_lent": Wrong(
        "grants what is out",
        _take_back="""
            while self._back.qsize():
                back = self._back.get()
                slot = back.slot if isinstance(back, Loan) else back
                if isinstance(back, Loan):
                    self._lent.pop(slot, None)
                    if back.retired:
                        self._fresh.add(slot)
            self._free = [slot for slot in range(self._count) if slot not in self._lent]
        """,
    ),
    "fresh_once": Wrong(
        "a retired slot's memory is used again",
        ("return slot, slot in self._fresh", "return slot, slot in self._fresh and not self._fresh.discard(slot)"),
    ),
    "fresh_at_every_loan": Wrong("makes new memory without need", (IF_RETIRED, "if True:")),
    "ignores_retired": Wrong("a retired slot's memory is used again", (IF_RETIRED, "if False:")),
    "keeps_the_loan": Wrong("loses slots that were not used", ("del self._lent[slot]", "pass")),
    "most_and_one": Wrong("more slots than there may be", ("self._count < self._most", "self._count <= self._most")),
    "never_takes_back": Wrong("never takes a batch's slot back", (TAKE_BACK, "if not self._free or")),
    "new_ones_first": Wrong("makes a slot while one is free", (IF_ROOM, "if self._count < self._most:")),
    "no_bound": Wrong("more slots than there may be", (IF_ROOM, "if not self._free:")),
    "no_reclaim": Wrong("loses the slots of skipped tasks", (OUT_IS_LENT, "return")),
    "not_out_again": Wrong("a slot is free twice", ("self._out.remove(slot)\n", "pass\n")),
    "only_loans": Wrong(
        "loses slots that were not used",
        (WHOSE, f"if not isinstance(back, Loan):\n                continue\n            {WHOSE}"),
    ),
    "pops_nothing": Wrong("fails when no slot is free", (POP, "self._free.pop()")),
    "reclaims_all": Wrong("reclaim frees what is lent", (REST, "list(range(self._count))")),
    "reclaims_first": Wrong(
        "a slot is free twice",
        reclaim="""
            self._free += [slot for slot in self._out if slot not in self._lent]
            self._take_back()
        """,
    ),
    "trusts_the_mailbox": Wrong(
        "an old loan ends a new one",
        _take_back="""
            while self._back.qsize():
                back = self._back.get()
                slot = back.slot if isinstance(back, Loan) else back
                if isinstance(back, Loan) and back.retired:
                    self._fresh.add(slot)
                self._lent.pop(slot, None)
                self._free.append(slot)
        """,
    ),
    "unused_is_no_loan": Wrong("takes an unused slot for a loan", (WHOSE, "slot = back.slot")),
    "unused_twice": Wrong(
        "a slot is free twice",
        (IF_OUT, "if isinstance(back, Loan) and self._lent.get(slot) is not back:"),
        ("self._out.remove(slot)", "self._out.discard(slot)"),
    ),
    "waits": Wrong(
        "waits for a slot",
        (POP, "self._free.pop() if self._free else self._back.get().slot"),
    ),
}

IN_TURNS = {
    "grant": """
        self._take_back()
        if self._free:
            slot = self._free.pop(0)
        elif self._count < self._most:
            slot = self._count
            self._count += 1
        else:
            return NO_SLOT, False
        self._out |= {slot}
        return slot, slot in self._fresh
    """,
    "_take_back": """
        for _ in range(self._back.qsize()):
            back = self._back.get()
            lent = isinstance(back, Loan)
            slot = back.slot if lent else back
            if lent and self._lent.get(slot) is back:
                del self._lent[slot]
                self._fresh |= {slot} if back.retired else set()
            elif lent or slot in self._lent or slot in self._free:
                continue
            self._free.append(slot)
    """,
    "reclaim": """
        self._take_back()
        self._free += [slot for slot in range(self._count) if slot not in self._lent and slot not in self._free]
    """,
}
