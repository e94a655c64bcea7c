"""Memory in tests, compared with limits and a baseline; independent of `hlomem.pytest_plugin`."""
