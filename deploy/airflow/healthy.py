"""Whether one of Airflow's processes lives, as its API server tells: ``healthy.py scheduler``.

``airflow jobs check`` says the same, but takes some seconds of a processor each time.
"""

from __future__ import annotations

import json
import os
import sys
import urllib.request
from urllib.parse import urljoin

address = urljoin(os.environ["AIRFLOW__CORE__EXECUTION_API_SERVER_URL"], "/api/v2/monitor/health")
with urllib.request.urlopen(address, timeout=5) as answer:  # noqa: S310 - an address of the compose file
    status = json.load(answer)[sys.argv[1]]["status"]
if status != "healthy":
    sys.exit(f"{sys.argv[1]} is {status}")
