"""Programs and plans in XLA's protos, in profiles, compilation caches and executables."""
