"""Shapes that follow from opcodes and operands, for text that leaves them out."""

from __future__ import annotations

from hlomem.hlo.shape_inference.elements import Case, InferenceError
from hlomem.hlo.shape_inference.rules import infer_shape

__all__ = ["Case", "InferenceError", "infer_shape"]
