"""`python -m stoker` is the command line."""

import sys

from stoker.cli import main

sys.exit(main())
