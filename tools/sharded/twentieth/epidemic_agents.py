# mypy: ignore-errors
"""Fault: stack. The day-by-day record of every agent's state, stacked by the scan over the days, is asked for
whole on every device, though the agents themselves are divided.

Agent-based epidemic: one million people in households and workplaces with an SEIR course of disease; one scan
step is a day. The record goes to the contact-tracing analysis.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

TARGET = "cpu"

PEOPLE, HOUSEHOLD, WORKPLACES, DAYS = 2**20, 4, 8192, 160
SUSCEPTIBLE, EXPOSED, INFECTIOUS, RECOVERED = range(4)


class Person(NamedTuple):
    state: jax.Array  # int8
    days_in_state: jax.Array  # int8
    workplace: jax.Array  # int32
    susceptibility: jax.Array  # float32


class Disease(NamedTuple):
    household_rate: jax.Array
    workplace_rate: jax.Array
    community_rate: jax.Array
    latent_days: jax.Array
    infectious_days: jax.Array


def force_of_infection(person, disease):
    ill = (person.state == INFECTIOUS).astype(jnp.float32)
    home = ill.reshape(-1, HOUSEHOLD).sum(axis=1)
    home = jnp.repeat(home, HOUSEHOLD, total_repeat_length=PEOPLE) - ill
    at_work = jnp.zeros((WORKPLACES,)).at[person.workplace].add(ill)
    staff = jnp.zeros((WORKPLACES,)).at[person.workplace].add(1.0)
    work = (at_work / jnp.maximum(staff, 1.0))[person.workplace]
    everywhere = ill.mean()
    return (
        disease.household_rate * home + disease.workplace_rate * work + disease.community_rate * everywhere
    ) * person.susceptibility


def one_day(person, key, disease):
    infect, progress = jax.random.split(key)
    chance = 1.0 - jnp.exp(-force_of_infection(person, disease))
    caught = (person.state == SUSCEPTIBLE) & (jax.random.uniform(infect, (PEOPLE,)) < chance)
    spread = jax.random.uniform(progress, (PEOPLE,), minval=0.7, maxval=1.3)
    age = person.days_in_state.astype(jnp.float32)
    sickens = (person.state == EXPOSED) & (age > disease.latent_days * spread)
    recovers = (person.state == INFECTIOUS) & (age > disease.infectious_days * spread)
    changed = caught | sickens | recovers
    return person._replace(
        state=person.state + changed.astype(jnp.int8),
        days_in_state=jnp.where(changed, 0, jnp.minimum(person.days_in_state + 1, 120)).astype(jnp.int8),
    )


def simulate(person, disease, key):
    def day(person, key):
        person = one_day(person, key, disease)
        tally = jnp.stack([(person.state == s).sum() for s in range(4)])
        return person, (person.state, tally)

    person, (record, curve) = jax.lax.scan(day, person, jax.random.split(key, DAYS))
    return person, record, curve


def make_faulty(devices):
    mesh = Mesh(np.array(devices), ("people",))
    divided, everywhere = NamedSharding(mesh, P("people")), NamedSharding(mesh, P())
    person = Person(
        *(
            jax.ShapeDtypeStruct((PEOPLE,), dtype, sharding=divided)
            for dtype in (jnp.int8, jnp.int8, jnp.int32, jnp.float32)
        )
    )
    disease = Disease(*(jax.ShapeDtypeStruct((), jnp.float32, sharding=everywhere) for _ in Disease._fields))
    key = jax.ShapeDtypeStruct((), jax.random.key(0).dtype, sharding=everywhere)
    run = jax.jit(
        simulate,
        donate_argnums=0,
        out_shardings=(divided, everywhere, everywhere),  # FAULT
    )
    return run, (person, disease, key)
