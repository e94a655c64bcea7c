def place(
    sizes: list[int],
    counts: list[int],
    firsts: list[int],
    lasts: list[int],
    slot_count: int,
    alignment: int,
    below: int,
) -> list[int] | None: ...
