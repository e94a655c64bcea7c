"""An experiment: a JAX program linked by libtpu with our packing of its temporaries."""
