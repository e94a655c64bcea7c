"""The order of XLA's lists, inferred: names, ids and list order; it never moves a value."""
