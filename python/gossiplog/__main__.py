"""`python -m gossiplog`: the command line."""

from __future__ import annotations

import sys

from gossiplog.cli.main import main

sys.exit(main())
