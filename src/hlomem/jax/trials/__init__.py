"""Advice that is taken: changes of a user's source, compiled by XLA."""
