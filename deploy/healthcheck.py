#!/usr/bin/env python3
"""healthcheck.py [/healthz|/readyz]: exit with 0 if the service of this container answers 200.

It uses http.client, because urllib would use a proxy that the environment names.
"""

import os
import sys
from http.client import HTTPConnection

path = sys.argv[1] if len(sys.argv) > 1 else "/healthz"
port = int(os.environ.get("LOCALMOMENTS_PORT") or 8000)
connection = HTTPConnection("127.0.0.1", port, timeout=2)
connection.request("GET", path)
sys.exit(connection.getresponse().status != 200)
