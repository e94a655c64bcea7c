"""`python -m hlomem`."""

import sys

from hlomem.cli import main

if __name__ == "__main__":
    sys.exit(main())
