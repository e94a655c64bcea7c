"""Why two compiles of one program differ: one module a kind of cause, and the table of them."""
