"""Pairs of programs that differ in one thing, compiled by XLA: the truth for reports."""
