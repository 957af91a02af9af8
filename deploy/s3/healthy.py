"""Whether the S3 server answers: without keys it refuses, and that is an answer."""

from __future__ import annotations

import sys
import urllib.error
import urllib.request

try:
    urllib.request.urlopen("http://localhost:9000/", timeout=5)
except urllib.error.HTTPError as error:
    sys.exit(error.code != 403)
sys.exit("it asks for no keys")
