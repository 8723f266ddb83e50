"""`python -m ofl`: the same as the `ofl` command."""

import sys

from ofl.cli import main

sys.exit(main())
