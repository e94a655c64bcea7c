"""The numbers of the optimiser: limits on work and thresholds; what is found is checked.

Where nothing else is said a value was chosen, not measured against others. All of them together
were measured on the programs `small` and `fitted` of `tools/programs`; the results are in
docs/measurements.md. Limits of the checkers are theirs.
"""

from __future__ import annotations

# The search for orders (`orders/`).

NEAR_BOUND = 1.005
"""How near to the bound no better plan is looked for."""
MAX_STARTS = 3
"""Constructions that moves are made from: the best, no two with the same peak."""
MAX_PROVEN_NODES = 160
"""Nodes of a computation up to which all orders are searched."""
MAX_PLATEAU = 12
"""Moves in a row that lower neither the peak nor how often it is reached."""
MAX_KICK = 3
"""Moves that are made regardless, at most, where none helps."""
MAX_IDLE = 24
"""Buffers in the way of a peak, the largest, that moves are made for."""
MOVE_COST = 8
"""The cost of making a move, in nodes, in addition to those it is made of, which are counted."""
MAX_MET = 5
"""Other orders with the same peak that are kept."""
MIN_PATIENCE = 120
"""Plans in a row that save nothing before the climb ends, or half of all, where that is more."""
MAX_SHIFTED = 32
"""Nodes that are moved alone in one round."""
MIN_FINALISTS = 3
"""How many orders are planned at least."""
MAX_BORROWING = 3
"""Orders of which what lies in borrowed memory is left out, to look for better ones."""
MAX_BORROWING_ROUNDS = 3
"""How often that is done again with the better one."""
MAX_CONSTRUCTED = 3
"""Constructions that are planned in such a round, in addition to what moves lead to."""
MAX_CLIMBED = 2
"""The number of the entry's best plans to climb from, and of those of what it runs."""
TRANSFER_FACTOR = 10
"""How much longer a byte takes between devices, within a factor of two."""
HOST_FACTOR = 64
"""How much longer it takes to the host, or from it. The same."""
MAX_BOUND_NODES = 12_000
"""Nodes of computations that are bounded: reachability takes a square of them in bits."""
LEAST_SIZES = (0, 1 << 23, 1 << 25)
"""Bytes below which a value is taken to find a place in fast memory, one kind of candidate each."""
SMALL_SHARE = 16
"""How much less a value counts that is smaller."""
MOVES_PER_NODE = 100
"""Moves of local search for every node of an order to be tried."""
MAX_MOVED = 2
"""Constructions that moves are made from, in addition to the given order."""
MAX_TRIPS = 4096
"""Iterations of a loop that is run through."""
MIN_TRIPS = 2
"""Iterations below which it is not taken for a loop."""

# Recomputation (`remat/`).

MAX_PRUNED = 400
"""Clones that are tried to be taken back."""
MAX_CHAIN = 48
"""Instructions that may be recomputed for one value."""
LEAST_SHARE = 0.002
"""Of the peak; smaller values are looked at when no larger one helps."""
NEAR_PEAK = (0.9, 0.97, 0.995)
"""Shares of the peak above which bytes count when the target is too far to tell."""
MAX_STEPS_TRIED = 10
"""Steps whose effect on the whole program is counted, of those that promise most."""
STEPS_AT_ONCE = 4
"""Steps that are tried in addition to the best before offers are searched for again."""
KEPT_SHARES = (0.0, 0.25, 1.0)
"""Operands up to these shares of what is freed are kept alive rather than recomputed."""
MAX_STEPS = 64
"""Values that are dropped at the peak, at most."""
MAX_CHOICES = 24_000
"""Steps times nodes: what choosing may take in all, for the time it takes."""
NEXT_PEAK = 0.95
"""The share of the peak that steps aim at: the best lowers what is above it most for its cost."""
MIDDLE_PEAK, LARGE_PEAK = 0.8, 0.6
"""The same where a compiler plans several programs: large values count for more."""
LEAST_STEPS = 0.001
"""The share of the peak that steps must lower to be worth their clones."""
MAX_CUT_NODES = 6000
"""Instructions of an entry that is cut, for the time it takes."""
MAX_CUT_RETRIES = 40
"""Nodes found one by one that cannot be recomputed."""
LEAST_LOWERED = 0.05
"""The share of what is above the number that another order must do without."""
PLANS_OF_ORDER = 4
"""Plans that the search for an order is worth."""
PLANNED_AGAIN = 1.5
"""Instructions that are planned in other orders for one of a compile's work, at most: of a program
that is planned already a plan takes a sixth of the time."""
MOVED_NODES = 12
"""The same of nodes that local search evaluates, 35 of which take as long as an instruction."""
STEPS_OF_PLAN = 16
"""Choices of a value to recompute that take as long as a plan, about."""
PLAN_MARGIN = 0.999
"""How much less than the share that is missing is asked for after a plan that misses."""
MORE_MARGIN = 0.02
"""How much less is asked for after a plan that is no smaller than another."""
MORE_ROUNDS = 3
"""Plans in addition for what nearly fits, each of which asks for a little less."""
LEAST_LOOSENED = 0.001
"""The share of a program's operations that is worth another plan."""
HOPE = 1.25
"""How much more than something that fits may cost what clones can still be taken back of."""
TOO_MUCH = 4
"""How much more than something that fits may be added on the way down."""
MAX_MOVES = 400
"""Values that are moved at most."""
MAX_INSIDE = 4
"""Bodies of loops that values are recomputed in, one after another, the hungriest first."""
MAX_INSIDE_STARTS = 3
"""Programs whose bodies are gone into, for the time it takes."""
INSIDE_PRICES = (-1, 256, 0)
"""For which a body is cut at its peak before single values are looked at; -1 for not at all."""
MAX_INSIDE_NODES = 2000
"""Instructions of such a body, for the time it takes."""
LEAST_COPY = 0.005
"""The share of a program's temporaries that a copy must take to be looked at."""
MAX_COPIES = 200
"""Copies that are dropped, for the time it takes."""
LEAST_FUSED = 0.01
"""The share of a program's temporaries that a value must take to be computed inside its readers."""
MAX_FUSED_INPUT = 0.25
"""The share of its bytes that such a value may be made of, which its readers keep alive."""
LEAST_PARTED = 0.005
"""The share that a value made of nothing must take to be made by itself."""
MAX_SEED = 64
"""Bytes of operands up to which a value counts as made of nothing."""
MAX_PASSED = 40
"""Nodes at which the bytes on their way are counted, for the time it takes."""
MAX_LAST_MADE = 40
"""Nodes of which it is asked what is there when their last operand is made. The same."""
LATENCY = 1 << 24
"""The time, in bytes, that any copy costs: small ones are not worth it."""

# Loops (`loops/`).

MAX_LOOP_NODES = 4000
"""Instructions of a body that is looked at, for the time it takes."""
LEAST_SEGMENTED = 9
"""Steps of a recurrence whose states are kept by segments, at least."""
MAX_PAIRS = 8
"""Pairs of loops that are changed in one program."""

# Pieces (`pieces/`).

MAX_PIECES = 64
"""Pieces that a region is computed in, at most."""
MAX_PIECE_REGIONS = 32
"""Regions of one program that are computed in pieces."""
MAX_PIECE_SEEDS = 6
"""Values at a peak that regions are grown from, the largest first."""
MAX_PIECE_PLANS = 6
"""Plans that are made to choose one region and its number of pieces."""
LEAST_ROWS = 8
"""Rows, columns or terms of a product that are left to each piece where a library computes it."""
NEARLY_ALL = 0.9
"""The part of what most pieces save that is enough where no number of pieces is."""
LARGE_SHARE = 32
"""Values of this part of a program's temporaries are kept in pieces where they can be."""

# The loop (`search.py`, `trials.py`, `strategies.py`).

MAX_SLOWDOWN = 1.25
"""How many times as long a program may take to fit a budget, by default, where speeds are known."""
MAX_SLOWDOWN_BY_DATA_SHEET = 2.0
"""The same where they were not measured: no more than repeating all of it once."""
AFTER_HOOK = 1 << 16
"""Bytes that a GPU's plan may be larger than foreseen: the fusions it forms after the hook were
seen to add up to 11 KiB."""
AFTER_HOOK_SHARE = 256
"""The same of a small program, as a part of its budget."""
AIM_SHARE = 0.01
"""The share of a program's temporaries by which a GPU's budget is undercut where that is cheap. Of
60 plans on an H200 two needed 0.36 and 0.77 % of them more than foreseen: once the parts of tuples
are taken elsewhere after the hook, values are packed otherwise."""
AIM_PRICE = 0.02
"""The share of a program's modelled time that this may cost."""
RECOMPUTE = 0.02
"""The share by default: too little to be seen in the time of a run (docs/improve.md)."""
PRICES = (4, 16, 64, 128, 256, 1024, 0)
"""Operations and bytes touched that a byte is worth; 0 stands for any number."""
BUDGETS = (0.9, 0.75, 0.6, 0.5, 0.35, 0.25)
"""Shares of a program's temporaries that a front asks for."""
TIME_PRICES = (2, 3, 6, 12, 16, 32, 128, 0)
"""The same where speeds are known: the time, in bytes moved, that a byte is worth."""
MAX_FAILED_PRICES = 1
"""Prices for which changed loops cost too much before no higher one is tried: a higher price may
lead to less work, as one recomputed value makes others free."""
CHEAP = 0.01
"""The share of a program's operations below which nothing cheaper is looked for."""
MAX_CUTS = 3
"""Cuts of one program for a price, one at the peak that another left."""
MAX_REJECTED = 3
"""Programs with values recomputed that checkers are asked about."""
NEAR = 1.3
"""How much more than the budget a plan may take for more to be looked for at once: another order,
single values of a changed program, orders that a compiler plans. With 1.2 for the first and 1.4 for
the last, none of 138 answers for budgets of 0.6 to 0.85 was another."""
FAR = 2.5
"""How much more than a budget an order leaves where what fits is looked for before the cheap. What
is cheap took 0.40 of an order's bytes at least in the 75 programs that it was chosen with."""
NEAR_FLOOR = 0.65
"""The share of a budget that the floor is below there: above it nothing is likely to fit."""
NEARLY = 1.03
"""How much more than a budget a plan may take for other orders to be tried with more work."""
MAX_NEARLY = 4
"""Programs that are given more work where nothing fits, the cheapest."""
MARGIN = 0.98
"""How much less is asked for than what a compiler's plan missed by."""
LEAST_RATIO = 0.94
"""How much less is asked for at once: a plan may be far off for one program, not for the next."""
MAX_OTHERS = 2
"""Programs tried instead of one that misses before more is asked for."""
SAME = 0.995
"""The share of another's bytes above which a program for as many operations is the same."""
CLOSE = 0.97
"""The share of the budget above which a plan that fits is not bettered."""
LEAST_SAVING = 0.02
"""The share that an order must save where a compiler plans it. A module that is handed back is
built again, with its lists in another order: libtpu 0.0.51 was seen to plan the same order with up
to 1 % more or less then."""
FAST_MEMORY = 1 << 27
"""Bytes of fast memory that a TPU's compiler fills, at most: as v5e and v6e have, and v4's CMEM."""
MAX_AT_ONCE = 4
"""Plans of a compiler that are made at the same time."""
MAX_PLANNED_OFFLOADS = 12
"""Choices of values for the host that are planned here before a compiler is asked."""
LEAST_STEP = 0.9
"""The smallest share of what was wanted of the host that is wanted next."""
