"""The order of XLA's computations, inferred: it decides ids, never an offset.

`order.infer_order` is the way in. A platform is a set of tables (`cpu.py`, `gpu.py`, `tpu.py`) of
passes that make computations. Every row says what it rests on; docs/history.md lists them with
their measured support.
"""
