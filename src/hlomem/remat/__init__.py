"""Less memory by computing values again: which, at what price, and whether the result is right."""
