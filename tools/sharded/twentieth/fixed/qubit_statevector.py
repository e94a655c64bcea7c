# mypy: ignore-errors
"""Clean. The three distributed qubits are exchanged with three local ones by an all-to-all between the devices.

State-vector simulator for a layered random circuit of 24 qubits. The leading three qubits choose the device;
single-qubit rotations act on local qubits only, so the circuit swaps the distributed ones in and out.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"

QUBITS, DEPTH = 24, 12
SPREAD = 3  # qubits that are spread over the devices: 2**3 of them
LOCAL = QUBITS - SPREAD


def rotation(angles):
    """A general one-qubit unitary out of three Euler angles."""
    theta, phi, lam = angles[0] / 2, angles[1], angles[2]
    c, s = jnp.cos(theta), jnp.sin(theta)
    return jnp.stack(
        [
            jnp.stack([c + 0j, -jnp.exp(1j * lam) * s]),
            jnp.stack([jnp.exp(1j * phi) * s, jnp.exp(1j * (phi + lam)) * c]),
        ]
    ).astype(jnp.complex64)


def apply_one(block, gate, qubit):
    """Applies the gate to a local qubit of the block (2**LOCAL amplitudes of one device)."""
    shaped = block.reshape(2**qubit, 2, -1)
    low, high = shaped[:, 0], shaped[:, 1]
    mixed = jnp.stack([gate[0, 0] * low + gate[0, 1] * high, gate[1, 0] * low + gate[1, 1] * high], axis=1)
    return mixed.reshape(-1)


def entangle(block, qubit):
    """Controlled Z between neighbouring local qubits."""
    shaped = block.reshape(2**qubit, 2, 2, -1)
    sign = jnp.array([[1.0, 1.0], [1.0, -1.0]], jnp.float32)
    return (shaped * sign[None, :, :, None]).reshape(-1)


class Simulator:
    def __init__(self, mesh):
        self.mesh = mesh
        self.rows = P("node")

    def local_layer(self, state, angles):
        """All gates of a layer on the local qubits; no communication."""

        @functools.partial(jax.shard_map, mesh=self.mesh, in_specs=(self.rows, P()), out_specs=self.rows)
        def run(block, angles):
            block = block.reshape(-1)

            for qubit in (0, 1, 2, 5, 9, 14):
                block = apply_one(block, rotation(angles[qubit]), qubit)
            for qubit in (0, 3, 7):
                block = entangle(block, qubit)
            return block.reshape(1, -1)

        return run(state, angles)

    def swap_spread(self, state):
        """Exchanges the distributed qubits with the three leading local ones."""
        nodes = 2**SPREAD

        @functools.partial(
            jax.shard_map,
            mesh=self.mesh,
            in_specs=self.rows,
            out_specs=self.rows,
        )
        def take(rows):
            table = rows.reshape(nodes, -1)
            column = jax.lax.all_to_all(table, "node", split_axis=0, concat_axis=0, tiled=True)
            return column.reshape(1, -1)

        return take(state)

    def run(self, state, angles):
        def layer(state, angles):
            state = self.local_layer(state, angles[:LOCAL])
            state = self.swap_spread(state)
            state = self.local_layer(state, angles[SPREAD:])
            return self.swap_spread(state), None

        state, _ = jax.lax.scan(layer, state, angles)
        weights = state.real**2 + state.imag**2
        marginal = weights.reshape(2**SPREAD, 64, -1).sum(-1)
        return state, marginal


def make_fixed(devices):
    mesh = Mesh(np.array(devices), ("node",))
    rows = NamedSharding(mesh, P("node"))
    whole = NamedSharding(mesh, P())
    state = jax.ShapeDtypeStruct((2**SPREAD, 2**LOCAL), jnp.complex64, sharding=rows)
    angles = jax.ShapeDtypeStruct((DEPTH, QUBITS, 3), jnp.float32, sharding=whole)
    return jax.jit(Simulator(mesh).run, donate_argnums=0, out_shardings=(rows, whole)), (state, angles)
