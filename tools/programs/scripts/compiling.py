"""Compiles for the CPU or for TPU v5e chips that need not be there, and prints what JAX reports.

A TPU needs libtpu and the environment of README.md. Each compile prints one line of JSON: the
function's name, and the fields of `memory_analysis()` or the error.
"""

import argparse
import json
import sys

import jax
import numpy as np
from jax.experimental import topologies

CHIPS = "v5e:2x2"


def options(description, **defaults):
    """Command-line options: --platform, and one for each default; False makes a switch."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--platform", choices=("cpu", "tpu"), default="cpu")
    for name, default in defaults.items():
        flag = "--" + name.replace("_", "-")
        if default is False:
            parser.add_argument(flag, action="store_true")
        else:
            parser.add_argument(flag, type=type(default), default=default)
    return parser.parse_args()


def chips():
    """The TPU chips to compile for."""
    return topologies.get_topology_desc(platform="tpu", topology_name=CHIPS).devices


def single(platform):
    """The sharding of a program for one device."""
    return jax.sharding.SingleDeviceSharding(chips()[0]) if platform == "tpu" else None


def placed(tree, sharding):
    """The same shapes, on a device."""
    return jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding), tree
    )


def taken(tree, index):
    """One row of each array of a tree, as a layer's weights of those of all."""
    return jax.tree.map(lambda leaf: leaf[index], tree)


def compile_and_report(lowered, name):
    """Compiles, and prints what JAX says of the memory; an error ends the program."""
    try:
        analysis = lowered.compile().memory_analysis()
    except jax.errors.JaxRuntimeError as error:
        print(json.dumps({"function": name, "error": str(error)}))
        sys.exit(1)
    fields = [field for field in dir(analysis) if "bytes" in field]
    print(json.dumps({"function": name} | {field: getattr(analysis, field) for field in fields}))


class Mesh:
    """One device, or a row of them: shapes of arrays that lie there, split along one dimension."""

    def __init__(self, platform, count):
        devices = list(chips()) if platform == "tpu" else jax.devices()
        self.one = jax.sharding.SingleDeviceSharding(devices[0]) if count == 1 else None
        self.mesh = jax.sharding.Mesh(np.array(devices[:count]), ("x",))

    def sharding(self, split=None):
        """All of an array on each device, or a part of one dimension on each."""
        if self.one is not None:
            return self.one
        names = () if split is None else (None,) * split + ("x",)
        return jax.sharding.NamedSharding(self.mesh, jax.sharding.PartitionSpec(*names))

    def array(self, shape, dtype, split=None):
        """The shape of an argument."""
        return jax.ShapeDtypeStruct(shape, dtype, sharding=self.sharding(split))
