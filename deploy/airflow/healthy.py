"""Whether Airflow's processes live, as its API server knows: ``healthy.py scheduler triggerer``.

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
    health = json.load(answer)
for name in sys.argv[1:]:
    if (status := health[name]["status"]) != "healthy":
        sys.exit(f"{name} is {status}")
