"""The order of XLA's lists, inferred: it decides ids and the order of lists, never a place.

`order.infer_order` is the way in. A platform is a set of tables (`cpu.py`, `gpu.py`, `tpu.py`):
passes that make computations, steps that make instructions, rules about users. Every row says what
it rests on; docs/history.md lists them with their measured support.
"""
