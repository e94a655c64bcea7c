"""JSON that is damaged."""

from __future__ import annotations

import msgspec
import pytest

from hlomem.base.json_bytes import decode_json


@pytest.mark.parametrize("data", [b"", b"{", b"[1]", b'{"a": "\xff"}', b'{"\xff": 1}'])
def test_whatever_is_wrong_is_one_error(data: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        decode_json(data, dict[str, object])


def test_the_rest_is_decoded() -> None:
    assert decode_json(b'{"a": 1}', dict[str, int]) == {"a": 1}
