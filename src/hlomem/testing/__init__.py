"""Memory in tests: measured, held against limits and against what it was.

`hlomem.pytest_plugin` is what pytest sees of it; nothing here knows pytest.
"""
