"""The pass itself: a scheduled module in, one that needs less memory out, or None.

It runs in any thread of the compiler, and no exception leaves it. The same module gets the same
answer, from memory the second time, from JAX's cache on disk in another process.
"""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from threading import Lock
from typing import TYPE_CHECKING

from hlomem.base.gc_pause import collector_off
from hlomem.hlo.schedule import running_computations
from hlomem.jax.pass_.answer_cache import Answer, AnswerStore
from hlomem.jax.pass_.answer_search import AnswerSearch
from hlomem.jax.pass_.log import Outcome, record
from hlomem.opt.candidate import Program, start_text
from hlomem.proto.module import read_module

if TYPE_CHECKING:
    from collections.abc import Callable

    from hlomem.hlo.ir import HloModule
    from hlomem.jax.pass_.limits import Limits
    from hlomem.machines.options import Options
    from hlomem.opt.goal import Rules

MAX_REMEMBERED = 256
"""Modules whose answers are kept."""
UNNAMED = "a module"


class Transform:
    """The function a platform's compiler calls."""

    def __init__(
        self,
        platform: str,
        options: Options,
        rules: Rules,
        limits: Limits,
        plan: Callable[[bytes], int] | None = None,
        *,
        foresees_orders: bool = False,
        store: AnswerStore | None = None,
    ) -> None:
        """`plan` asks the compiler what a module needs, unless that is foreseen for its order."""
        self._platform = platform
        self._options = options
        self._rules = rules
        self._limits = limits
        self._search = AnswerSearch(options, rules, limits, plan, foresees_orders=foresees_orders)
        self._store = store
        self._known: OrderedDict[bytes, Answer] = OrderedDict()
        self._lock = Lock()

    def __call__(self, proto: bytes) -> bytes | None:
        """The module in a better order; None to leave it as it is."""
        try:
            return self._answer(bytes(proto))
        except Exception as error:  # noqa: BLE001 - an exception would end the user's compile
            reason = f"{type(error).__name__}: {error}".partition("\n")[0]
            record(Outcome(UNNAMED, self._platform, "failed", reason=reason))
            return None

    def _answer(self, proto: bytes) -> bytes | None:
        fingerprint = hashlib.sha256(proto).digest()
        with self._lock:
            known = self._known.get(fingerprint)
        if known is None:
            known = self._find_or_make(proto)
            with self._lock:
                self._known[fingerprint] = known
                if len(self._known) > MAX_REMEMBERED:
                    self._known.popitem(last=False)
        record(known.outcome)
        return known.proto

    def _find_or_make(self, proto: bytes) -> Answer:
        """The answer that another process found, else one of our own."""
        found = self._store.find(proto) if self._store is not None else None
        if found is not None:
            return found
        with collector_off():  # it would look through all that JAX holds, a fifth of the time
            made = self._transform(proto)
        if self._store is not None:
            self._store.keep(proto, made)
        return made

    def _transform(self, proto: bytes) -> Answer:
        start = time.thread_time()
        module = read_module(proto)
        refusal = self._refuse(module)
        if refusal is not None:
            return Answer(None, refusal)
        program = Program(start_text(module, self._options), self._rules, proto)
        outcome = Outcome(module.name, self._platform, "skipped")
        before = program.start().temporaries
        if before < self._limits.min_bytes:
            return Answer(None, outcome._replace(before=before, after=before, reason="small"))
        answer = self._search.find(program, outcome)
        seconds = time.thread_time() - start
        return answer._replace(outcome=answer.outcome._replace(seconds=seconds))

    def _refuse(self, module: HloModule) -> Outcome | None:
        """The outcome for a module that is not looked at; None for any other."""
        outcome = Outcome(module.name, self._platform, "skipped")
        if not module.is_scheduled:
            return outcome._replace(kind="failed", reason="the module has no schedule")
        if module.input_output_alias and not self._limits.keeps_donations:
            reason = "this jax would lose that its arguments are donated; jax 0.11 keeps it"
            return outcome._replace(kind="kept", reason=reason)
        count = sum(len(computation.instructions) for computation in running_computations(module))
        if count > self._limits.max_instructions:
            return outcome._replace(reason=f"{count} instructions")
        return None
