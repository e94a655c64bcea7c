"""Why two compiles of one program differ: finders of causes by theme, and the table of them."""
