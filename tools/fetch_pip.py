"""Fetches pip's wheel from the package index into VENV/pip.whl, for a Python without ensurepip.

Only used by tools/setup when there is neither ensurepip nor root. The index is PIP_INDEX_URL, else PyPI.
"""

import hashlib
import os
import re
import sys
import urllib.parse
import urllib.request
from pathlib import Path

index = os.environ.get("PIP_INDEX_URL", "https://pypi.org/simple").rstrip("/") + "/pip/"
page = urllib.request.urlopen(index, timeout=60).read().decode()  # an https index, or the user's own
links = re.findall(
    r'href="([^"#]+/pip-(\d+)\.(\d+)(?:\.(\d+))?-py3-none-any\.whl)#sha256=([0-9a-f]{64})"', page
)
if not links:
    sys.exit(f"setup: no pip wheel listed at {index}")
href, *_, digest = max(links, key=lambda link: tuple(int(part or 0) for part in link[1:4]))
wheel = urllib.request.urlopen(urllib.parse.urljoin(index, href), timeout=60).read()
if hashlib.sha256(wheel).hexdigest() != digest:
    sys.exit("setup: the fetched pip wheel does not match the checksum that the index states")
(Path(sys.argv[1]) / "pip.whl").write_bytes(wheel)
