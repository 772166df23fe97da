"""Exercise 4: wrong answers."""

from tests.exercises.wrong.edits import Wrong

SEED = "self.seed + self.epoch"
PARTS = "keys[self.rank :: self.num_replicas]"
NO_LENGTH_CHECK = ("if len(keys) != self.total_size:", "if False:")
WRONG = {
    "blocks": Wrong("blocks", (PARTS, "keys[self.rank * self.num_samples : (self.rank + 1) * self.num_samples]")),
    "disturbs": Wrong(
        "disturbs other draws", ("generator.manual_seed", "torch.manual_seed"), (", generator=generator", "")
    ),
    "ignores_epoch": Wrong("ignores the epoch", (SEED, "self.seed")),
    "no_padding": Wrong("no padding", ("keys += (keys * passes)[:missing]", "pass"), NO_LENGTH_CHECK),
    "not_seeded": Wrong("not seeded", (", generator=generator", "")),
    "pads_once": Wrong("pads once only", ("(keys * passes)[:missing]", "keys[:missing]"), NO_LENGTH_CHECK),
    "rank_in_seed": Wrong("rank mixed into the seed", (SEED, f"{SEED} + self.rank")),
    "too_late": Wrong("draws too late", (f"return iter({PARTS})", f"yield from {PARTS}")),
    "cuts_all": Wrong("another case", ("keys[: self.total_size]", "keys[: -(len(keys) - self.total_size)]")),
    "pads_by_number": Wrong(
        "pads with others", ("(keys * passes)[:missing]", "[k % len(keys) for k in range(missing)]")
    ),
    "one_generator": Wrong(
        "not seeded",
        (
            f"generator = torch.Generator()\n            generator.manual_seed({SEED})",
            "if getattr(self, '_seeded', None) != self.epoch:\n                self._seeded = self.epoch\n"
            f"                self._generator = torch.Generator().manual_seed({SEED})\n"
            "            generator = self._generator",
        ),
    ),
}
