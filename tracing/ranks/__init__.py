"""What several processes of one run show together: each has a trace of its own (tracing.trace.parts).

ranks       the traces side by side: which of their loaders correspond
steps       when each rank took its n-th step, and which of them waited in it
hold_up     the rank that holds up the others, and where it is late
check       samples no rank loads, or all do; seeds; unequal numbers of batches
report      a table of all of them, and the report of the one that matters most
timeline    one picture, stacked
"""
