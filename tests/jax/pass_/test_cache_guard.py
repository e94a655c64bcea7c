"""JAX's cache on disk while a pass is on, in a JAX that lets nobody have a say in its keys."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from hlomem.jax.pass_ import cache_guard


@pytest.mark.parametrize("is_on", [True, False])
def test_without_a_say_in_its_keys_the_cache_is_off_until_the_last_pass_ends(
    is_on: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    cleared: list[None] = []
    config = SimpleNamespace(jax_enable_compilation_cache=is_on)
    config.update = config.__setattr__
    jax = SimpleNamespace(config=config, clear_caches=lambda: cleared.append(None))

    def find(name: str) -> Any:
        if name == "jax._src.cache_key":
            raise ImportError(name)
        return jax

    monkeypatch.setattr(cache_guard, "import_module", find)
    cache_guard.enter("one")
    cache_guard.enter("other")
    assert not config.jax_enable_compilation_cache
    cache_guard.leave("one")
    assert not config.jax_enable_compilation_cache
    cache_guard.leave("other")
    assert config.jax_enable_compilation_cache is is_on
    assert len(cleared) == 4
