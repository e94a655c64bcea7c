"""Donations (`input_output_alias`): checked, and written into headers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlomem.base.errors import EditError
from hlomem.hlo.ir import HloModule
from hlomem.hlo.text.attributes import format_buffer_donor, format_input_output_alias

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hlomem.hlo.shape import Shape, ShapeIndex
    from hlomem.hlo.text.attributes import BufferDonor, InputOutputAlias

ALIASES, DONORS, SCHEDULED = "input_output_alias", "buffer_donor", "is_scheduled"


def with_donations(module: HloModule, aliases: Iterable[InputOutputAlias]) -> HloModule:
    """The program with other donations, sharing all computations; raises `EditError`."""
    parameters = {
        parameter.parameter_number: parameter.shape for parameter in module.entry.parameters
    }
    given = Donations()
    for alias in aliases:
        given.add(alias, parameters, module.entry.root.shape)
    header = dict(module.attributes)
    write_donations(header, given.aliases, module.buffer_donor)
    made = HloModule(
        module.name,
        header,
        module.stack_frame_tables,
        style=lambda: module.style._replace(compact_gte=False, async_sugar=False),
    )
    made.computations = module.computations
    made.entry = module.entry
    return made


class Donations:
    def __init__(self, known: Iterable[InputOutputAlias] = ()) -> None:
        self._by_output = {alias.output_index: alias for alias in known}
        self._by_parameter = {_part(alias): alias for alias in self._by_output.values()}

    @property
    def aliases(self) -> tuple[InputOutputAlias, ...]:
        return tuple(self._by_output.values())

    def add(self, alias: InputOutputAlias, parameters: Mapping[int, Shape], result: Shape) -> None:
        """Add a donation; raises `EditError` if it is impossible."""
        output, number = alias.output_index, alias.parameter_number
        if number not in parameters:
            raise EditError(f"there is no parameter {number}: the entry has {len(parameters)}")
        _check_shapes(alias, parameters[number], result)
        what = f"parameter {number} {alias.parameter_index}"
        if (other := self._by_output.get(output)) is not None:
            problem = f"output {output} already takes parameter {other.parameter_number}"
            raise EditError(f"{what} cannot be donated: {problem}")
        if (other := self._by_parameter.get(_part(alias))) is not None:
            raise EditError(f"{what} is already donated to output {other.output_index}")
        self._by_output[output] = self._by_parameter[_part(alias)] = alias


def _part(alias: InputOutputAlias) -> tuple[int, ShapeIndex]:
    return alias.parameter_number, alias.parameter_index


def _check_shapes(alias: InputOutputAlias, parameter: Shape, result: Shape) -> None:
    output, number, index = alias.output_index, alias.parameter_number, alias.parameter_index
    given, taken = parameter.optional_subshape(index), result.optional_subshape(output)
    if given is None or taken is None:
        what = f"parameter {number} has" if given is None else "the result has"
        raise EditError(f"{what} no part at {index if given is None else output}")
    if not given.is_array or given.text_without_layout != taken.text_without_layout:
        shapes = f"`{given.text_without_layout}`, output {output} `{taken.text_without_layout}`"
        raise EditError(f"parameter {number} {index} is {shapes}: it needs one array of both")


def write_donations(
    header: dict[str, str], aliases: tuple[InputOutputAlias, ...], donors: Iterable[BufferDonor]
) -> None:
    """Write donations into a header; a parameter with an output is no longer a general donor."""
    donors = tuple(donors)
    taken = set(map(_part, aliases))
    left = [donor for donor in donors if tuple(donor) not in taken]
    set_attribute(header, ALIASES, format_input_output_alias(aliases) if aliases else None)
    if len(left) != len(donors):
        set_attribute(header, DONORS, format_buffer_donor(left) if left else None)


def set_attribute(header: dict[str, str], name: str, text: str | None) -> None:
    """Set an attribute of a header at XLA's position; None removes it."""
    if text is None:
        header.pop(name, None)
    elif name in header or name not in {ALIASES, DONORS, SCHEDULED}:
        header[name] = text
    else:
        first = {SCHEDULED: header.pop(SCHEDULED, None), name: text}
        rest = dict(header)
        header.clear()
        header.update({key: value for key, value in first.items() if value is not None})
        header.update(rest)
