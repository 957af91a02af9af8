from __future__ import annotations

import sys

from airflow_delta_merge.command_line import main

sys.exit(main())
