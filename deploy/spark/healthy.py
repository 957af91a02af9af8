"""Whether a master or worker answers, and how many workers a master has: ``healthy.py PORT [WORKERS]``."""

from __future__ import annotations

import json
import sys
import urllib.request

port, *workers = map(int, sys.argv[1:])
with urllib.request.urlopen(f"http://localhost:{port}/json/", timeout=5) as answer:
    state = json.load(answer)
if workers and state["aliveworkers"] < workers[0]:
    sys.exit(f"{state['aliveworkers']} of {workers[0]} workers are there")
