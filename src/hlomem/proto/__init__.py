"""Programs and plans in protocol buffers: XLA's protos, profiles, compilation caches, executables."""
