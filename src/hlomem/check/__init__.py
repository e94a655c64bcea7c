"""The judge: is a memory plan right? Knows records and HLO, never the planner.

In: a `Dump` (XLA's or ours) and, where there is one, the module it plans. Out: a `Verdict`, which
lists findings and says what could not be checked. `hlomem.check.verify.verify` is the way in.
"""
