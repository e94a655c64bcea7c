"""How machines differ: one home for the numbers, chips, memory spaces and rules of each."""
