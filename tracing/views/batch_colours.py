"""The colour of a batch, the same wherever it is drawn: batch n has colour n modulo 7. Seven, so that of 2, 4, 8 or 16
workers none gets the same colour every time."""

# On white paper. Seven colours of Paul Tol's "muted" scheme, which the colour-blind can tell apart. Batches that follow
# one another, and every second batch (two workers), differ in lightness by two steps or more: in grey too.
ON_PAPER = ("#332288", "#117733", "#44aa99", "#ddcc77", "#882255", "#cc6677", "#88ccee")
DARK_ON_PAPER = {"#332288", "#117733", "#882255"}  # light digits on these

# On a dark screen, which would swallow the darkest of those: Okabe and Ito's, for the colour-blind as well.
ON_SCREEN = ("#E69F00", "#56B4E9", "#009E73", "#F0E442", "#CC79A7", "#0072B2", "#D55E00")
DARK_ON_SCREEN = {"#0072B2"}
