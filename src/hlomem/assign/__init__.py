"""Decisions: which value lies in which allocation, and where in it."""
